"""Every configuration in examples/configs is valid; the quick one runs."""

from __future__ import annotations

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
    plan = build_plan(config.privacy, config.cohort, config.participations)
    assert plan.minimum_survivors <= config.cohort.size
    assert f"examples/configs/{path.name}" in path.read_text()


def test_the_quick_one_runs(tmp_path: Path) -> None:
    path = next(path for path in CONFIGS if path.stem == "digits")
    arguments = ["run", str(path), "--out", str(tmp_path), "--set", "engine.aggregator=ideal"]
    summary = run_json(*arguments, "--quiet")
    assert summary["rounds"] == 12
    assert summary["epsilons"]["server"] <= 5.0
    assert summary["accuracy"] > 0.5
