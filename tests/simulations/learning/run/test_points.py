"""Sweeps whose points others run: threads, a Dask cluster, the ranks of torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from command_line import invoke, run_json
from run_kit import process_of, torchrun
from small_runs import BARE, config_of

from protocol.errors import ConfigurationError
from simulations.common.failures import DivergedError
from simulations.learning.configuration import RunConfig, write_config
from simulations.learning.run import points
from simulations.learning.run.overrides import changed
from simulations.learning.run.points import Sweep, run_point

# Without noise, so that two runs with one seed are the same.
CONFIG = config_of(BARE, rounds=2, engine__aggregator="plain")
GRID = {f"seed={seed}": changed(CONFIG, [("seed", seed)]) for seed in (1, 2, 3)}
CHANGES = ("--set", "seed=1,2,3")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_config(CONFIG, tmp_path / "config.toml")


def figures(summaries: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(each["seed"], each["accuracy"], each["loss"]) for each in summaries]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    """What a sweep comes to that runs one point after another."""
    folder = tmp_path_factory.mktemp("alone")
    file = write_config(CONFIG, folder / "config.toml")
    return figures(run_json("sweep", file, *CHANGES, "--out", folder / "sweep"))


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_dask_cluster_runs_the_points(
    file: Path, tmp_path: Path, cluster: str, alone: list[tuple[Any, ...]]
) -> None:
    arguments = ["sweep", file, *CHANGES, "--out", tmp_path / "sweep"]
    found = run_json(*arguments, "--scheduler", cluster)
    assert figures(found) == alone
    assert json.loads((tmp_path / "sweep" / "sweep.json").read_text()) == found
    assert {path.name for path in (tmp_path / "sweep").iterdir()} == {*GRID, "sweep.json"}
    # What is finished is not run again, whoever ran it.
    before = (tmp_path / "sweep" / "seed=1" / "summary.json").stat().st_mtime_ns
    assert figures(run_json(*arguments)) == alone
    assert (tmp_path / "sweep" / "seed=1" / "summary.json").stat().st_mtime_ns == before


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_dask_cluster_makes_the_cells_of_a_campaign(tmp_path: Path, cluster: str) -> None:
    """One without fresh noise."""
    words = ["reproduce", "compression", "--quick", "--set", "epochs=1"]
    alone = run_json(*words, "--out", tmp_path / "alone")
    others = run_json(*words, "--out", tmp_path / "others", "--scheduler", cluster)
    for each in (alone, others):
        del each["seconds"]
    assert others == alone


def test_a_point_that_fails_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = points.run_experiment

    def fails(config: RunConfig, *given: Any) -> Any:
        if config.seed == 1:
            raise DivergedError(0, 1e9)
        time.sleep(0.3)
        return run(config, *given)

    monkeypatch.setattr(points, "run_experiment", fails)
    done = []
    with ThreadPoolExecutor(1) as pool, Sweep(tmp_path / "sweep", None, pool) as sweep:
        with pytest.raises(DivergedError) as caught:
            done.extend(sweep.run(GRID))
    assert caught.value.__notes__ == ["this was seed=1"]
    assert sorted(done) == ["seed=2", "seed=3"]
    assert not list((tmp_path / "sweep").glob(".shared*"))
    assert (tmp_path / "sweep" / "seed=3" / "summary.json").exists()


@pytest.mark.parametrize(
    ("choices", "name"), [("seed=1,1", "seed=1"), ('task.data="a/b","a_b"', "data=a_b")]
)
def test_points_that_would_share_a_folder_are_refused_before_any_is_run(
    file: Path, tmp_path: Path, choices: str, name: str
) -> None:
    done = invoke("sweep", file, "--set", choices, "--out", tmp_path / "sweep")
    assert isinstance(done.exception, ConfigurationError) and done.exception.key == "set"
    assert f"two points with the name '{name}'" in str(done.exception)
    assert not (tmp_path / "sweep").exists()


def test_who_does_not_see_the_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not to be seen on") as caught:
        run_point(CONFIG, tmp_path / "sweep" / "one", tmp_path / "sweep" / ".shared-1", None)
    assert "a file system that all who run points share" in str(caught.value)
    assert not (tmp_path / "sweep").exists()


@pytest.mark.slow
def test_ranks_run_the_points_and_what_is_finished_outlives_one_of_them(
    tmp_path: Path, alone: list[tuple[Any, ...]]
) -> None:
    slow = changed(CONFIG, [("rounds", 4000)])
    file = write_config(slow, tmp_path / "slow.toml")
    folder = tmp_path / "sweep"
    # The first point is short; the others would take minutes.
    words = ["sweep", file, "--set", "rounds=2,4000", *CHANGES, "--out", folder]
    ranks = subprocess.Popen(  # noqa: S603 - our own program
        torchrun(2, *words, "--quiet"), stderr=subprocess.PIPE, text=True
    )
    finished = folder / "rounds=2,seed=1" / "summary.json"
    begun = [folder / f"rounds={r},seed={s}" for r, s in ((2, 1), (2, 2), (2, 3), (4000, 1))]
    while not (finished.exists() and all(path.exists() for path in begun)):
        assert ranks.poll() is None
        time.sleep(0.05)
    os.kill(process_of(1, folder), signal.SIGKILL)
    _, told = ranks.communicate(timeout=600)
    assert ranks.returncode and "rank      : 1" in told
    # The same folder, and what is left of a shorter list, with one process.
    again = run_json("sweep", file, "--set", "rounds=2", *CHANGES, "--out", folder)
    assert figures(again) == alone


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["run", "--set", "seed=1", "--set", "seed=2"], "seed: given as 1 and again as 2"),
        (
            ["run", "--set", "engine.insecure_seed=1", "--insecure-seed", "2"],
            "engine.insecure_seed: given as 1 and again as 2",
        ),
        (["sweep", "--set", "seed=1,2", "--set", "seed=3"], "seed: given as [1, 2] and again"),
    ],
)
def test_a_key_is_changed_once(file: Path, tmp_path: Path, command: list[str], said: str) -> None:
    """The first of two values would be ignored without a word."""
    done = invoke(*command, file, "--out", tmp_path / "out")
    assert isinstance(done.exception, ConfigurationError)
    assert str(done.exception).startswith(said)
    assert not (tmp_path / "out").exists()


def test_a_key_of_a_campaign_is_changed_once() -> None:
    words = ["reproduce", "compression", "--quick", "--plan", "--set", "epochs=1"]
    assert run_json(*words)
    done = invoke(*words, "--set", "epochs=2")
    assert isinstance(done.exception, ConfigurationError) and done.exception.key == "epochs"
