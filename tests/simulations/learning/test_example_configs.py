"""Every configuration in examples/configs is valid; the quick one runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run_json

from protocol.planning.configuration import build_plan, load
from simulations.learning.configuration import RunConfig
from simulations.learning.data import DATASETS
from simulations.learning.models import MODELS

CONFIGS = sorted((Path(__file__).parents[3] / "examples" / "configs").glob("*.toml"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_it_is_valid(path: Path) -> None:
    config = load(path, RunConfig)
    config.check()
    config.local.build()
    assert config.task.data in DATASETS and config.task.model in MODELS
    plan = build_plan(config, config.participations)
    assert plan.minimum_survivors <= config.cohort.size
    assert f"examples/configs/{path.name}" in path.read_text()


@pytest.mark.slow
def test_a_little_of_the_million_learns(data_dir: Path, tmp_path: Path) -> None:
    path = next(path for path in CONFIGS if path.stem == "million")
    smaller = {
        "rounds": 3,
        "task.population": 4000,
        "cohort.size": 2000,
        "cohort.tolerated_dropouts": 100,
        "cohort.tolerated_colluders": 20,
        "privacy.epsilon": 50.0,
        "engine.test_examples": 20_000,
    }
    changes = [word for key, value in smaller.items() for word in ("--set", f"{key}={value}")]
    summary = run_json(
        "run", str(path), "--out", str(tmp_path), "--data-dir", str(data_dir), *changes, "--quiet"
    )
    rounds = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert rounds[0]["dimension"] == 4418
    # A guess among 82 characters loses ln 82 = 4.41; what is most common is learnt at once.
    assert summary["loss"] < rounds[0]["loss"] < 4.41


@pytest.mark.slow
def test_the_quick_one_runs(tmp_path: Path) -> None:
    path = next(path for path in CONFIGS if path.stem == "digits")
    arguments = ["run", str(path), "--out", str(tmp_path), "--set", "engine.aggregator=ideal"]
    summary = run_json(*arguments, "--quiet")
    assert summary["rounds"] == 24
    assert summary["epsilons"]["server"] <= 8.0
    # Secrets are fresh: that of the demo is 0.89 +- 0.012, and a tenth is guessed.
    assert summary["accuracy"] > 0.75
