"""Callbacks are told of every round once, and cost none; trackers log what the rounds recorded."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import small_runs
from command_line import invoke
from small_runs import BARE, config_of

from protocol.errors import ConfigurationError
from simulations.commands.run import Tracker
from simulations.common.failures import CallbackError, one_line
from simulations.learning.configuration import RunConfig, write_config
from simulations.learning.data import Dataset
from simulations.learning.records import Record, RunSummary
from simulations.learning.run.callbacks import CallbackWarning, RunCallback
from simulations.learning.run.experiment import RunResult
from simulations.learning.run.folder import RunFolder
from simulations.learning.run.overrides import changed
from simulations.learning.run.points import Sweep
from simulations.learning.run.trackers import TRACKERS, figures, remembered, tracker

CONFIG = config_of(BARE, rounds=3, engine={"workers": 1, "evaluate_every": 2})


class Listener(RunCallback):
    """Keeps all that it is told, and raises where it is asked to."""

    def __init__(self, raises_at: str = "", error: type[BaseException] = OSError) -> None:
        self.told: list[Any] = []
        self._raises_at, self._error = raises_at, error

    def start(self, config: RunConfig, folder: Path, earlier: Sequence[Record]) -> None:
        self._hear("start", [record["round"] for record in earlier])

    def round(self, record: Record) -> None:
        self._hear(f"round {record['round']}", record)

    def end(self, summary: RunSummary | None) -> None:
        self._hear("end", summary)

    def _hear(self, name: str, what: object) -> None:
        self.told.append((name, what))
        if name == self._raises_at:
            raise self._error("no network")

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.told]


def run(data: Dataset, path: Path, *callbacks: RunCallback) -> RunResult:
    return small_runs.run(CONFIG, data, path, *callbacks)


def lines(path: Path) -> list[dict[str, Any]]:
    return small_runs.lines(path / "rounds.jsonl")


WHOLE = ["start", "round 1", "round 2", "round 3", "end"]


def test_a_callback_is_told_of_every_round_and_the_end(data: Dataset, tmp_path: Path) -> None:
    listener = Listener()
    run(data, tmp_path, listener)
    assert listener.names == WHOLE
    assert [record for _, record in listener.told[1:-1]] == lines(tmp_path)
    assert listener.told[-1][1] == json.loads((tmp_path / "summary.json").read_text())


def test_a_run_that_goes_on_says_what_was_before(data: Dataset, tmp_path: Path) -> None:
    cut = Listener("round 2", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        run(data, tmp_path, cut)
    # It was told of the end, and that there is no summary.
    assert cut.names == ["start", "round 1", "round 2", "end"] and cut.told[-1][1] is None
    again = Listener()
    run(data, tmp_path, again)
    assert again.names == ["start", "round 3", "end"] and again.told[0][1] == [1, 2]


@pytest.mark.parametrize("moment", ["round 1", "round 3", "end"])
def test_a_callback_that_raises_costs_no_round(data: Dataset, tmp_path: Path, moment: str) -> None:
    bad, good = Listener(moment), Listener()
    with pytest.warns(CallbackWarning, match=r"Listener could not.*OSError: no network") as caught:
        run(data, tmp_path, bad, good)
    assert len(caught) == 1
    assert good.names == WHOLE
    # Told of no more rounds, and of the end, so that it can close what it opened.
    assert bad.names == [*WHOLE[: WHOLE.index(moment) + 1], *([] if moment == "end" else ["end"])]
    assert [record["round"] for record in lines(tmp_path)] == [1, 2, 3]
    assert (tmp_path / "summary.json").exists() and not (tmp_path / "secrets.key").exists()


def test_a_callback_that_cannot_start_ends_the_run_before_it_begins(
    data: Dataset, tmp_path: Path
) -> None:
    first, bad, last = Listener(), Listener("start"), Listener()
    with pytest.raises(CallbackError, match="nothing was run: OSError: no network") as caught:
        run(data, tmp_path, first, bad, last)
    assert one_line(caught.value)
    assert (first.names, bad.names, last.names) == (["start", "end"], ["start"], [])
    assert lines(tmp_path) == []
    assert len(run(data, tmp_path).records) == 3


def test_an_error_of_the_run_is_not_hidden_by_one_of_the_end(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(RunFolder, "append", full)
    with pytest.warns(CallbackWarning), pytest.raises(OSError, match="the disk is full"):
        run(data, tmp_path, Listener("end"))


def test_rank_0_alone_tells(data: Dataset, tmp_path: Path) -> None:
    listener = Listener()
    small_runs.run_on_ranks(CONFIG, data, tmp_path, 2, listener)
    assert listener.names == WHOLE


class Fake:
    """The few functions of each framework that are used, and what they were called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.logged: dict[int, dict[str, float]] = {}
        self.metrics: dict[str, float] = {}

    def note(self, *call: object) -> None:
        self.calls.append(call)

    def add(self, step: int, values: dict[str, float]) -> None:
        assert step not in self.logged
        self.logged[step] = values
        self.metrics = values

    def tensorboard(self) -> ModuleType:
        def scalar(tag: str, value: float, step: int) -> None:
            assert step >= 1
            self.logged.setdefault(step, {})[tag.replace("/", ".")] = value

        def opened(folder: str, purge_step: int) -> object:
            self.note("open", Path(folder).name, purge_step)
            self.logged.clear()
            return SimpleNamespace(
                add_scalar=scalar, flush=lambda: None, close=lambda: self.note("close")
            )

        return module("torch.utils.tensorboard", SummaryWriter=opened)

    def mlflow(self) -> ModuleType:
        def begin(run_id: str | None, run_name: str, nested: bool) -> object:
            assert nested
            self.note("start_run", run_id, run_name)
            info = SimpleNamespace(run_id="the run")
            return SimpleNamespace(info=info, data=SimpleNamespace(metrics=self.metrics))

        return module(
            "mlflow",
            start_run=begin,
            log_params=lambda values: self.note("log_params", values["task.data"]),
            log_metrics=lambda values, step: self.add(step, values),
            end_run=lambda status: self.note("end_run", status),
        )

    def wandb(self) -> ModuleType:
        def init(**options: Any) -> object:
            self.note("init", options["id"], options["name"], options["resume"])
            assert options["config"]["task"]["data"] == "digits"
            return SimpleNamespace(
                step=max(self.logged, default=-1) + 1,
                log=lambda values, step: self.add(step, values),
                finish=lambda exit_code: self.note("finish", exit_code),
            )

        return module("wandb", init=init)


def module(name: str, **members: object) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(members)
    return made


@pytest.fixture(params=TRACKERS)
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Fake]:
    name, found = request.param, Fake()
    made = getattr(found, name)()
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return name, found


def test_a_tracker_logs_every_round_of_an_interrupted_run_once(
    data: Dataset, tmp_path: Path, fake: tuple[str, Fake]
) -> None:
    name, found = fake
    path = tmp_path / "my-run"
    with pytest.raises(KeyboardInterrupt):
        run(data, path, tracker(name), Listener("round 2", KeyboardInterrupt))
    run(data, path, tracker(name))
    assert found.logged == {record["round"]: figures(record) for record in lines(path)}
    known = remembered(path)
    if name == "tensorboard":
        assert found.calls == [("open", "tensorboard", 1), ("close",)] * 2
        assert known == {}
    elif name == "mlflow":
        assert found.calls == [
            ("start_run", None, "my-run"),
            ("log_params", "digits"),
            ("end_run", "KILLED"),
            ("start_run", "the run", "my-run"),
            ("end_run", "FINISHED"),
        ]
        assert known == {"mlflow": "the run"}
    else:
        begun = ("init", known["wandb"], "my-run", "allow")
        assert found.calls == [begun, ("finish", 1), begun, ("finish", 0)]


def test_rounds_of_a_run_that_had_no_tracker_are_logged_later(
    data: Dataset, tmp_path: Path, fake: tuple[str, Fake]
) -> None:
    name, found = fake
    with pytest.raises(KeyboardInterrupt):
        run(data, tmp_path, Listener("round 2", KeyboardInterrupt))
    run(data, tmp_path, tracker(name))
    assert sorted(found.logged) == [1, 2, 3]


def test_figures_are_finite_numbers(data: Dataset, tmp_path: Path) -> None:
    record = run(data, tmp_path).records[0]
    assert record["accuracy"] is None and record["epsilons"]["secagg_alone"] == "inf"
    found = figures(record)
    assert found["round"] == 1.0 and found["epsilons.server"] == record["epsilons"]["server"]
    absent = ("accuracy", "epsilons.secagg_alone", "epsilons.amplified", "rationale")
    assert not set(absent) & set(found)


@pytest.mark.parametrize("command", [("run",), ("sweep", "--set", "seed=1,2")], ids=" ".join)
@pytest.mark.parametrize("name", TRACKERS)
def test_a_missing_package_is_named_before_there_is_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, command: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    config = write_config(CONFIG, tmp_path / "config.toml")
    error = invoke(*command, config, "--out", tmp_path / "out", "--log", name).exception
    assert isinstance(error, ImportError)
    line = one_line(error)
    assert line is not None and f"needs {name}, which comes with the extra {name}" in line
    assert not (tmp_path / "out").exists()


def test_the_command_logs_to_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Fake(), Fake()
    monkeypatch.setitem(sys.modules, "mlflow", first.mlflow())
    monkeypatch.setitem(sys.modules, "wandb", second.wandb())
    config = write_config(CONFIG, tmp_path / "config.toml")
    options = ("--log", "mlflow", "--log", "wandb", "--quiet")
    assert invoke("run", config, "--out", tmp_path / "out", *options).exit_code == 0
    assert sorted(first.logged) == sorted(second.logged) == [1, 2, 3]


def test_every_point_of_a_sweep_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a run of its own, whoever runs it."""
    found = Fake()
    monkeypatch.setitem(sys.modules, "wandb", found.wandb())
    monkeypatch.setattr(found, "add", lambda step, values: found.note("round", step))
    config = write_config(CONFIG, tmp_path / "config.toml")
    options = ("--set", "seed=1,2", "--out", tmp_path / "sweep", "--log", "wandb", "--quiet")
    assert invoke("sweep", config, *options).exit_code == 0
    rounds = [("round", number) for number in (1, 2, 3)]
    kept = [(kind, *rest[:1]) if kind == "round" else (kind,) for kind, *rest in found.calls]
    assert kept == [("init",), *rounds, ("finish",)] * 2
    names = [call[2] for call in found.calls if call[0] == "init"]
    assert names == ["seed=1", "seed=2"]

    found.calls.clear()
    points = {f"seed={seed}": changed(CONFIG, [("seed", seed)]) for seed in (3, 4)}
    with ThreadPoolExecutor(1) as pool, Sweep(tmp_path / "others", None, pool, ["wandb"]) as sweep:
        assert sorted(sweep.run(points)) == ["seed=3", "seed=4"]
    assert [call[2] for call in found.calls if call[0] == "init"] == ["seed=3", "seed=4"]
    assert sum(call[0] == "round" for call in found.calls) == 6


def test_the_command_has_every_tracker() -> None:
    assert [each.value for each in Tracker] == list(TRACKERS)
    with pytest.raises(ConfigurationError, match="tensorboard, mlflow, wandb"):
        tracker("stone tablets")
