"""Reading runs: those in a folder and below it, half written ones, and what is no run."""

from __future__ import annotations

from pathlib import Path

import pytest
from report_runs import folder_of, record

from protocol.errors import ConfigurationError
from simulations.reports.run import find_runs, read_run
from simulations.reports.run.folders import short_names


def test_a_run_is_read_from_its_folder(tmp_path: Path) -> None:
    run = read_run(folder_of(tmp_path / "one", [record(1), record(2, accuracy=None)]))
    assert run.name == "one"
    assert [r["round"] for r in run.records] == [1, 2]
    assert [r["round"] for r in run.tested] == [1]
    assert run.environment["cores"] == 2
    assert run.config.seed == 1


def test_a_line_that_is_not_finished_is_no_round(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "one", [record(1)])
    with (folder / "rounds.jsonl").open("a") as file:
        file.write('{"round": 2, "accu')
    assert len(read_run(folder).records) == 1


def test_a_run_that_has_just_begun_has_no_rounds(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "one", [])
    (folder / "rounds.jsonl").unlink()
    (folder / "environment.json").unlink()
    run = read_run(folder)
    assert (run.records, run.environment) == ([], {})


def test_the_runs_of_a_sweep_come_in_the_order_of_their_values(tmp_path: Path) -> None:
    for epsilon in (10, 1, 2.5):
        folder_of(tmp_path / f"epsilon={epsilon},rounds=4", [record(1)])
    (tmp_path / "sweep.json").write_text("[]")
    runs = find_runs([tmp_path])
    assert [run.name for run in runs] == ["epsilon=1", "epsilon=2.5", "epsilon=10"]


def test_a_folder_and_the_run_below_it_are_both_found_once(tmp_path: Path) -> None:
    outer = folder_of(tmp_path / "demo", [record(1)])
    folder_of(outer / "plain", [record(1)], engine={"aggregator": "plain"})
    runs = find_runs([outer, outer / "plain"])
    assert [run.name for run in runs] == ["demo", "plain"]


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/a/b"], ["b"]),
        (["/a/b", "/a/c/d"], ["b", "c/d"]),
        (["/a/x=1,y=2", "/a/x=1,y=3"], ["y=2", "y=3"]),
        (["/a/x=1,y=2", "/a/b"], ["x=1,y=2", "b"]),
    ],
)
def test_names_are_short(paths: list[str], names: list[str]) -> None:
    assert short_names([Path(path) for path in paths]) == names


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_without_a_run_says_so(tmp_path: Path, exists: bool) -> None:
    folder = tmp_path / "empty"
    if exists:
        folder.mkdir()
    with pytest.raises(ConfigurationError, match="no run in it"):
        find_runs([folder])


@pytest.mark.parametrize(
    ("line", "message"),
    [("{]", "not JSON"), ("3", "not a JSON object"), ('{"round": 1}', "line 1 has no accuracy")],
)
def test_records_of_something_else_are_refused(tmp_path: Path, line: str, message: str) -> None:
    folder = folder_of(tmp_path / "one", [])
    (folder / "rounds.jsonl").write_text(line + "\n")
    with pytest.raises(ConfigurationError, match=message):
        read_run(folder)
