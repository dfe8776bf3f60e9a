"""Whole experiments: folders, resuming after kill -9, overrides, sweeps, forecasts."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import run_kit
import tomli_w
from command_line import invoke, run_json
from rich.console import Console
from run_kit import folder_of
from small_runs import SMALL, config_of, lines, run, timeless

from dp import Ledger
from protocol.errors import ConfigurationError
from protocol.planning.configuration import load, parse
from protocol.planning.training_plan import TrainingPlan
from protocol.training.private import TrainingState
from secagg import LocalProtocolError
from simulations.common.failures import DivergedError
from simulations.common.files import write_whole
from simulations.common.provenance import provenance
from simulations.learning.configuration import RunConfig, write_config
from simulations.learning.data import Dataset
from simulations.learning.federated import Federation, load_data
from simulations.learning.records import Record
from simulations.learning.run import experiment, pairwise_cost
from simulations.learning.run.callbacks import RunCallback
from simulations.learning.run.checkpoint import Checkpoint
from simulations.learning.run.experiment import RunResult, run_experiment
from simulations.learning.run.folder import RunFolder
from simulations.learning.run.forecast import forecast
from simulations.learning.run.overrides import (
    as_choices,
    changed,
    grid,
    point_name,
    read_change,
    read_choices,
)
from simulations.learning.run.secrets import RunSecrets
from simulations.learning.run.view import LiveView, row
from simulations.learning.server_optimizer import ModelState
from simulations.reports.verdict import lengths_of
from sketch.controllers import (
    AdaptBudget,
    AdaptNorm,
    AdaptProgress,
    Controller,
    Decision,
    Prior,
    Published,
    ReleasedStats,
    TwoStage,
)

KINDS = {name: run_kit.KINDS[name] for name in run_kit.KINDS if name not in ("one-shot", "named")}
SUMS = {
    **{"ideal": 1, "real": 1, "skellam": 1, "discrete gaussian": 1, "drawn": 1},
    **{"powersgd": 2, "clipping": 1, "evaluated": 2},
}
"""Charges of one round, of those that have a ledger."""


def small(**changes: Any) -> RunConfig:
    return config_of(SMALL, **changes)


def of_kind(kind: str, **changes: Any) -> RunConfig:
    return changed(small(**changes), list(KINDS[kind].items()))


class Listener(RunCallback):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def start(self, config: RunConfig, folder: Path, earlier: Sequence[Record]) -> None:
        self.records += earlier

    def round(self, record: Record) -> None:
        self.records.append(record)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with the configuration of a small run."""
    return write_config(small(), tmp_path / "config.toml")


Uncut: TypeAlias = Callable[[str], tuple[RunConfig, RunResult, Path]]


@pytest.fixture(scope="module")
def uncut(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Uncut:
    """A run of a kind that is never stopped: its configuration, what came of it, its folder."""

    @cache
    def found(kind: str) -> tuple[RunConfig, RunResult, Path]:
        # A controller that looks at the release before: a checkpoint has to keep it.
        config = of_kind(kind, sketch={"controller": "adapt_progress", "first_rate": 4.0})
        path = folder_of(tmp_path_factory.mktemp("uncut") / "run", config)
        return config, run(config, data, path), path

    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_leaves_everything_behind(uncut: Uncut, kind: str) -> None:
    config, result, path = uncut(kind)
    names = {each.name for each in path.iterdir()}
    expected = {"config.toml", "environment.json", "rounds.jsonl", "checkpoint.npz", "summary.json"}
    assert expected <= names
    assert ("ledger.jsonl" in names) is (kind in SUMS)
    remembers = kind in ("fedsel", "secure levels")
    assert sum(name.startswith("memory-") for name in names) == remembers
    # Nobody can take the noise off a run that is over.
    assert "secrets.key" not in names
    assert load(path / "config.toml", RunConfig) == config
    assert lines(path / "rounds.jsonl") == result.records
    assert [record["round"] for record in result.records] == [1, 2, 3, 4]
    made = json.loads((path / "environment.json").read_text())
    assert made["packages"]["numpy"] == np.__version__
    assert made["source"] == provenance().source and made["commit"] == provenance().commit
    for record in result.records:
        assert 0.0 <= sum(record["stages"].values()) <= record["seconds"]
        assert ("error" in record) is (kind != "plain")
        if kind != "plain":
            assert record["error"]["measured"] > 0.0
    summary = result.summary()
    assert summary == json.loads((path / "summary.json").read_text())
    assert summary["rounds"] == 4
    sizes, dimension = [r["sketch_size"] for r in result.records], result.records[0]["dimension"]
    assert summary["compression"] == pytest.approx(4 * dimension / sum(sizes))
    assert summary["compression_second_half"] == pytest.approx(2 * dimension / sum(sizes[2:]))


@pytest.mark.parametrize("kind", ["ideal", "central", "clipping"])
def test_released_lengths_tell_how_long_the_mean_update_is(
    data: Dataset, tmp_path: Path, kind: str
) -> None:
    """A compressed round's record has |mu|^2 by another way, in the error of its sketch."""
    fixed = {"controller": "fixed", "rate": 2.0}
    result = run(of_kind(kind, sketch=fixed), data, tmp_path / "run")
    found = lengths_of(result.records)
    truth = [
        record["error"]["sketch"] * record["sketch_size"] / (record["dimension"] - 1)
        for record in result.records
    ]
    # The votes of clients are not in the signal, but their collisions are in that error.
    slack = 0.1 * np.mean(truth) if kind == "clipping" else 0.0
    assert abs(found.signal_squared - np.mean(truth)) < 6.0 * found.deviation + slack
    # Without taking the noise off, it would be far from there.
    taken = np.mean([r["sketch_size"] * r["noise_variance"] for r in result.records])
    assert taken > 6.0 * found.deviation + slack


class Stopped(Exception):  # noqa: N818 - what a kill looks like from inside
    """The process went away."""


MOMENTS: dict[str, tuple[type[Ledger | RunFolder | Checkpoint], str, bool]] = {
    "charge": (Ledger, "append", True),
    "checkpoint": (Checkpoint, "save", False),
    "record": (RunFolder, "append", False),
    "after": (RunFolder, "append", True),
}
"""Whose method is called there, and whether it is still carried out."""

EVERY_MOMENT = ("ideal", "real", "fedsel", "powersgd", "evaluated")
"""Kinds that are cut at every moment by `make test`; the others are by `make test-long`."""


@pytest.mark.parametrize(
    ("kind", "moment"),
    [
        pytest.param(
            kind,
            moment,
            marks=() if kind in EVERY_MOMENT or moment == "checkpoint" else pytest.mark.slow,
        )
        for kind in KINDS
        for moment in MOMENTS
        if moment != "charge" or kind in SUMS
    ],
)
def test_an_interrupted_run_ends_as_if_it_had_not_been(
    data: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    uncut: Uncut,
    kind: str,
    moment: str,
) -> None:
    """Stopped between any two of the steps of a round, with the secrets that the run began with."""
    config, whole, path = uncut(kind)
    cut_short(config, data, folder_of(tmp_path / "cut", config), monkeypatch, moment, 2)
    seen = Listener()
    result = run(config, data, tmp_path / "cut", seen)
    assert timeless(result.records) == timeless(whole.records)
    assert timeless(seen.records) == timeless(whole.records)
    # The second charge is that of the second round, or of the second sum of the first one.
    charged = 2 // SUMS.get(kind, 1) - 1
    assert result.resumed == {"charge": charged, "checkpoint": 1, "record": 2, "after": 2}[moment]
    if kind in SUMS:
        for each in (path, tmp_path / "cut"):
            with Ledger.open(each / "ledger.jsonl") as ledger:
                assert len(ledger.entries()) == 4 * SUMS[kind]


def test_a_run_with_secrets_goes_on_where_it_began(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere, training may come to other updates, released with the noise that was seen."""
    private, plain = of_kind("ideal"), of_kind("plain")
    for config, name in ((private, "private"), (plain, "plain")):
        cut_short(config, data, tmp_path / name, monkeypatch, "after", 2)
    environment = tmp_path / "private" / "environment.json"
    here = {**json.loads(environment.read_text()), "cores": 77}
    packages = here["packages"]
    without = {name: packages[name] for name in packages if name != "numba"}
    for there, said in (
        ({**here, "processor": "another"}, "begun with processor another, and here"),
        ({**here, "packages": {**packages, "numpy": "1.0"}}, "begun with numpy 1.0"),
        ({**here, "packages": without}, "begun with numba None"),
        ({}, "no readable environment.json"),
    ):
        for name in ("private", "plain"):
            (tmp_path / name / "environment.json").write_text(json.dumps(there))
        with pytest.raises(ConfigurationError, match=said):
            run(private, data, tmp_path / "private")
    # Without secrets anywhere, and with them where only the cores are others.
    run(plain, data, tmp_path / "plain")
    environment.write_text(json.dumps(here))
    run(private, data, tmp_path / "private")


def cut_short(
    config: RunConfig,
    data: Dataset,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    number: int,
) -> None:
    """Run until the process goes away there, in the call of this number."""
    owner, name, carried_out = MOMENTS[moment]
    original, calls = getattr(owner, name), count(1)

    def wrapped(*arguments: Any, **options: Any) -> Any:
        stops = next(calls) == number
        if stops and not carried_out:
            raise Stopped
        result = original(*arguments, **options)
        if stops:
            raise Stopped
        return result

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(owner, name, wrapped)
        run(config, data, path)


def test_with_other_secrets_an_interrupted_round_is_charged_again(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: other secrets make another release, which the ledger has not paid for."""
    config = small()
    cut_short(config, data, tmp_path / "run", monkeypatch, "charge", 2)
    (tmp_path / "run" / "checkpoint.npz").unlink()
    (tmp_path / "run" / "secrets.key").write_bytes(bytes(32))
    run(config, data, tmp_path / "run")
    with Ledger.open(tmp_path / "run" / "ledger.jsonl") as ledger:
        charged = [entry.metadata["round"] for entry in ledger.entries()]
    assert charged == [0, 1, 0, 1, 2, 3]


def test_without_the_identities_that_its_ledger_counts_no_run_goes_on(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New ones would have spent nothing. A finished run has no use for them."""
    config = small()
    run(config, data, tmp_path / "whole")
    run(config, data, tmp_path / "whole")
    cut_short(config, data, tmp_path / "run", monkeypatch, "charge", 2)
    key = (tmp_path / "run" / "secrets.key").read_bytes()
    (tmp_path / "run" / "secrets.key").unlink()
    with pytest.raises(
        ConfigurationError, match=r"identities are lost.* valid: the secrets.key that"
    ):
        run(config, data, tmp_path / "run")
    # The remedy.
    (tmp_path / "run" / "secrets.key").write_bytes(key)
    run(config, data, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ideal", "real"])
def test_kill_9_of_a_real_process_at_random_moments(tmp_path: Path, kind: str) -> None:
    """The same command continues the run until it is done: every round and charge once."""
    config = tmp_path / "config.toml"
    # Many, so that none ends before it is killed: a round of these takes 8 and 40 ms.
    rounds = {"ideal": 150, "real": 40}[kind]
    config.write_text(tomli_w.dumps({**SMALL, "rounds": rounds, "engine": {"aggregator": kind}}))
    command = [sys.executable, "-m", "simulations", "run", str(config)]
    command += ["--out", str(tmp_path / "run"), "--quiet"]
    rng, kills, errors = np.random.default_rng(5), 0, tmp_path / "errors.txt"
    for attempt in range(4):
        with errors.open("wb") as file:
            process = subprocess.Popen(command, stderr=file)  # noqa: S603
        # Wait for progress before the kill, or a slow machine would never get there.
        wait_for_more(process, tmp_path / "run" / "rounds.jsonl")
        if attempt < 2:
            time.sleep(rng.uniform(0.0, 0.05))
            process.kill()
            kills += process.wait() == -signal.SIGKILL
        elif process.wait(timeout=600) == 0:
            break
    assert process.returncode == 0, errors.read_text()
    records = lines(tmp_path / "run" / "rounds.jsonl")
    assert [record["round"] for record in records] == list(range(1, rounds + 1))
    with Ledger.open(tmp_path / "run" / "ledger.jsonl") as ledger:
        charged = [entry.metadata["round"] for entry in ledger.entries()]
    assert charged == list(range(rounds))
    assert kills >= 1


def wait_for_more(process: subprocess.Popen, rounds: Path) -> None:
    """Until a line is added to the record of rounds, or the process ends."""
    before = rounds.stat().st_size if rounds.exists() else 0
    while process.poll() is None:
        if rounds.exists() and rounds.stat().st_size > before:
            return
        time.sleep(0.01)


def test_a_folder_of_another_configuration_is_left_alone(data: Dataset, tmp_path: Path) -> None:
    run(small(), data, tmp_path / "run")
    before = (tmp_path / "run" / "rounds.jsonl").read_bytes()
    with pytest.raises(ConfigurationError) as caught:
        RunFolder(tmp_path / "run", small(seed=4, engine__chunk=2))
    told = "(seed: 3 there, 4 here; engine.chunk: left out there, 2 here)"
    assert told in str(caught.value)
    assert (tmp_path / "run" / "rounds.jsonl").read_bytes() == before


def test_a_folder_may_say_that_surplus_noise_is_taken_off(tmp_path: Path) -> None:
    RunFolder(tmp_path / "run", small()).close()
    path = tmp_path / "run" / "config.toml"
    text = path.read_text()
    assert "exact" not in text
    path.write_text(text.replace("[noise]", "[noise]\nexact = true"))
    RunFolder(tmp_path / "run", small()).close()
    path.write_text(text.replace("[noise]", "[noise]\nexact = false"))
    with pytest.raises(ConfigurationError, match="another configuration"):
        RunFolder(tmp_path / "run", small())


def test_a_folder_with_strangers_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ConfigurationError, match=r"thesis\.tex"):
        RunFolder(tmp_path, small())
    assert [path.name for path in tmp_path.iterdir() if path.name != ".lock"] == ["thesis.tex"]


def test_two_processes_cannot_share_a_folder(tmp_path: Path) -> None:
    with (
        RunFolder(tmp_path / "run", small()),
        pytest.raises(ConfigurationError, match="in use"),
    ):
        RunFolder(tmp_path / "run", small())
    RunFolder(tmp_path / "run", small()).close()


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04", b"not a checkpoint at all"])
def test_a_damaged_checkpoint_says_so(data: Dataset, tmp_path: Path, damage: bytes) -> None:
    with RunFolder(tmp_path / "run", small()) as folder:
        folder.checkpoint.write_bytes(damage)
        with pytest.raises(ConfigurationError, match="damaged"):
            run_experiment(small(), data, folder)


def test_a_checkpoint_keeps_everything(tmp_path: Path) -> None:
    decision = AdaptNorm().initial(50)
    state = ModelState(
        np.arange(50, dtype=np.float32), np.ones(50), np.full(50, 0.5), np.full(50, 0.25), 3
    )
    training = TrainingState(bytes(16), 3, 4, decision, np.linspace(-1.0, 1.0, 50))
    kept = Checkpoint(3, state, training, {"round": 3})
    kept.save(tmp_path / "checkpoint.npz")
    read = Checkpoint.load(tmp_path / "checkpoint.npz")
    assert (read.number, read.training, read.record) == (3, kept.training, {"round": 3})
    assert np.array_equal(read.training.previous, training.previous)
    assert read.state.averaged == 3
    for name in ("model", "velocity", "squares", "average"):
        assert np.array_equal(getattr(read.state, name), getattr(state, name))
        assert getattr(read.state, name).dtype == getattr(state, name).dtype
    assert Checkpoint.load(tmp_path / "nothing.npz") is None


@pytest.mark.parametrize(
    "controller",
    [AdaptNorm(), AdaptBudget(horizon=8), AdaptProgress(), Published(), TwoStage(warmup=3)],
    ids=lambda controller: type(controller).__name__,
)
def test_a_controller_goes_on_from_a_checkpoint_to_the_same_sizes(
    tmp_path: Path, controller: Controller
) -> None:
    """Its memory comes back to the last bit. The control: without it, sizes differ."""
    state = ModelState(np.zeros(2), np.zeros(2), np.zeros(2), None, 0)

    def after(decision: Decision, number: int) -> Decision:
        size = decision.spec.main_size
        released = ReleasedStats(
            round_number=number,
            dimension=9999,
            size=size,
            sketch_norm_squared=(1.0 + 50.0 / size) * float(draws[number] * size),
            noise_variance=1.0,
            survivors=5,
            update_norm_squared=1e4 / 3.0,
            previous_inner=7.0 / (number + 3) if number else None,
        )
        return controller.step(decision.state, released)

    draws = np.random.default_rng(2).normal(1.0, 0.05, size=8)
    whole = [controller.initial(9999, Prior(norm_squared=900.0, noise_variance=1.0))]
    for number in range(8):
        whole.append(after(whole[-1], number))
    for cut in (0, 2, 5):
        training = TrainingState(bytes(16), cut, cut, whole[cut])
        Checkpoint(cut, state, training, {"round": cut}).save(tmp_path / "checkpoint.npz")
        read = Checkpoint.load(tmp_path / "checkpoint.npz")
        assert read is not None and read.training is not None
        resumed = [read.training.decision]
        for number in range(cut, 8):
            resumed.append(after(resumed[-1], number))
        assert resumed == whole[cut:]
    spent = whole[2].state.memory[:1] if isinstance(controller, AdaptBudget) else ()
    forgotten = replace(whole[2], state=replace(whole[2].state, memory=spent))
    assert after(forgotten, 2) != whole[3]


def test_a_cut_off_record_is_not_a_round(data: Dataset, tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", small()) as folder:
        write_whole(folder.rounds, b'{"round": 1}\n{"round": 2, "acc')
        assert folder.records() == [{"round": 1}]
        assert folder.restore({"round": 2}) == [{"round": 1}, {"round": 2}]
        assert folder.restore(None) == []


def test_a_diverging_run_stops_with_its_folder_in_order(data: Dataset, tmp_path: Path) -> None:
    config = small(engine__aggregator="plain", server__learning_rate=1e39)
    with pytest.raises(DivergedError, match=r"lower local\.learning_rate"):
        run(config, data, tmp_path / "run")
    with RunFolder(tmp_path / "run", config) as folder:
        assert all(np.isfinite(record["loss"]) for record in folder.records())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_optimisers_remember_across_an_interruption(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str
) -> None:
    config = small(
        engine__aggregator="plain",
        server__optimizer=optimizer,
        server__momentum=0.9,
        server__learning_rate=0.05,
    )
    whole = run(config, data, tmp_path / "whole")
    cut_short(config, data, tmp_path / "cut", monkeypatch, "after", 2)
    assert timeless(run(config, data, tmp_path / "cut").records) == timeless(whole.records)


@pytest.mark.parametrize("noise", ["returned", "banded"])
def test_noise_and_averages_are_remembered_across_an_interruption(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noise: str
) -> None:
    config = small(
        rounds=6,
        engine__aggregator="central",
        cohort__size=10,
        sketch={"controller": "fixed", "rate": 4.0},
        server__average=0.5,
        noise__kind=noise,
    )
    whole = run(config, data, tmp_path / "whole")
    assert len({record["epsilons"]["outsider"] for record in whole.records}) == 1
    cut_short(config, data, tmp_path / "cut", monkeypatch, "after", 5)
    result = run(config, data, tmp_path / "cut")
    assert result.resumed == 5
    assert timeless(result.records) == timeless(whole.records)


def test_secrets_differ_by_purpose_client_and_round() -> None:
    secrets = RunSecrets(bytes(32))
    drawn = set()
    for secrets.attempt in range(2):
        drawn |= {secrets.public(32), secrets.hiding().material}
        for index in range(2):
            drawn.add(secrets.noise(index).material)
            drawn |= {seed.material for seed in secrets.removable(index, 2)}
            rand = secrets.rand_of(index)
            drawn |= {rand(32), rand(32)}
    drawn |= {identity.private_bytes() for identity in secrets.identities(3)}
    assert len(drawn) == 2 * (2 + 2 * 5) + 3
    assert "secret" in repr(secrets) and "0000" not in repr(secrets)
    with pytest.raises(LocalProtocolError, match="cannot be pickled or copied: RunSecrets"):
        pickle.dumps(secrets)
    assert len(secrets.rand_of(0)(20_000)) == 20_000


def test_the_key_of_a_run_is_its_owners_alone(tmp_path: Path) -> None:
    RunSecrets.open(tmp_path / "secrets.key")
    assert (tmp_path / "secrets.key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "secrets.key").write_bytes(b"short")
    with pytest.raises(ValueError, match="32 bytes"):
        RunSecrets.open(tmp_path / "secrets.key")


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("privacy.epsilon=2.5", ("privacy.epsilon", 2.5)),
        ("engine.aggregator=plain", ("engine.aggregator", "plain")),
        ('task.data="mnist"', ("task.data", "mnist")),
        ("rounds=7", ("rounds", 7)),
    ],
)
def test_changes_are_read(text: str, pair: tuple[str, float | str]) -> None:
    assert read_change(text) == pair


@pytest.mark.parametrize("text", ["", "rounds", "rounds=", "=3"])
def test_what_is_no_change_says_so(text: str) -> None:
    with pytest.raises(ConfigurationError, match="key=value"):
        read_change(text)


@pytest.mark.parametrize(
    "values",
    [
        [True],
        [False],
        [2, 8],
        [0.5, 1.0],
        ["usual"],
        ["true"],
        ["1"],
        ["a,b", "c"],
        ["no file.toml"],
    ],
)
def test_choices_are_written_as_they_are_read(values: list[Any]) -> None:
    read = read_choices(f"key={as_choices(values)}")[1]
    assert [(type(each), each) for each in read] == [(type(each), each) for each in values]


def test_grids() -> None:
    choices = [
        read_choices("privacy.epsilon=1,2"),
        read_choices("sketch.controller=fixed,adapt_norm"),
    ]
    points = list(grid(choices))
    assert [point_name(point) for point in points] == [
        "epsilon=1,controller=fixed",
        "epsilon=1,controller=adapt_norm",
        "epsilon=2,controller=fixed",
        "epsilon=2,controller=adapt_norm",
    ]
    with pytest.raises(ConfigurationError, match="one value"):
        read_change("rounds=1,2")


@pytest.mark.parametrize(
    ("change", "key"),
    [("rounds=0", "rounds"), ("privacy.epsilom=2", "privacy.epsilom"), ("seed.x=1", "seed.x")],
)
def test_bad_changes_name_the_key(file: Path, change: str, key: str) -> None:
    result = invoke("run", str(file), "--set", change)
    assert isinstance(result.exception, ConfigurationError)
    assert result.exception.key == key


def test_a_forecast_runs_nothing(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    figures = run_json("run", file, "--dry-run")
    assert figures["parameters"] == 6 * 64 + 6 + 10 * 6 + 10
    assert figures["rounds_of_one_client"] == 2
    assert figures["epsilons"]["server"] <= 30.0
    assert figures["estimated_minutes"] > 0 < figures["megabytes_per_client_and_round"]
    assert not (tmp_path / "runs").exists()


def test_a_forecast_of_the_real_one_shot_protocol_says_what_it_needs(file: Path) -> None:
    """Of a rank: time, and bytes that grow with the clients; other runs have no such figures."""
    one_shot = ["--set", "engine.aggregator=real", "--set", "scheme.kind=one-shot"]
    figures = run_json("run", file, "--dry-run", *one_shot)
    assert figures["estimated_minutes"] > 0 < figures["megabytes_of_memory_for_clients"]
    # Ten uploads fit into memory.
    assert figures["megabytes_of_disk_for_uploads"] == 0
    assert "megabytes_of_disk_for_uploads" not in run_json("run", file, "--dry-run")


def test_a_forecast_of_validated_sums_says_how_long_a_vector_may_be(file: Path) -> None:
    wanted = ("scheme.kind=validated", "cohort.tolerated_dropouts=1")
    figures = run_json("run", file, "--dry-run", *(x for each in wanted for x in ("--set", each)))
    assert figures["validation"]["bound"] > 1.0
    assert figures["validation"]["honest_signal"] < 10.0


def test_a_forecast_of_the_real_pairwise_protocol_counts_clients_and_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def client(_: TrainingPlan, clients: int, __: int) -> float:
        return 100.0 + 7.0 * (clients - 1)

    monkeypatch.setattr(pairwise_cost, "_seconds_of_a_client", client)
    real = {"engine.aggregator": "real", "task.population": 20, "cohort.size": 20}
    config = changed(parse(SMALL, RunConfig), list(real.items()))
    minutes = forecast(config, Federation(config, load_data(config)))["estimated_minutes"]
    # Training takes less than a second.
    assert minutes == pytest.approx(config.rounds * 20 * (100.0 + 7.0 * 19) / 60.0, rel=0.01)


def test_a_sweep_runs_every_point_once(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["sweep", str(file), "--set", "privacy.epsilon=30,60", "--set", "rounds=1,2"]
    arguments += ["--out", str(tmp_path / "sweep"), "--quiet"]
    summaries = run_json(*arguments)
    assert [(s["privacy.epsilon"], s["rounds"]) for s in summaries] == [
        (30, 1),
        (30, 2),
        (60, 1),
        (60, 2),
    ]
    monkeypatch.setattr(experiment, "run_experiment", None)
    assert run_json(*arguments) == summaries


def test_the_command_prints_json_and_a_view_for_people(file: Path, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "run")]
    result = invoke("run", str(file), *out)
    assert "what this run takes" in result.output and "summary" in result.output
    assert run_json("run", file, *out, "--quiet")["rounds"] == 4
    again = invoke("run", str(file), *out)
    assert "is finished: nothing is run again" in again.stderr and "summary" in again.stdout
    for printed in (result.stdout, again.stdout):
        assert "Verdict: " in printed and "What epsilon 30 means" in printed
    assert "Verdict" not in invoke("run", str(file), "--dry-run").output


def test_a_trusted_server_is_named_with_its_epsilon(tmp_path: Path) -> None:
    """In the forecast, in the live view, and in the table of a sweep."""
    config = tmp_path / "config.toml"
    config.write_text(tomli_w.dumps({**SMALL, "engine": {"aggregator": "central"}}))
    expected = {"server": "inf", "guaranteed": 30.0, "delta": 1e-5}
    planned = run_json("run", config, "--dry-run")
    assert expected.items() <= planned["epsilons"].items()
    assert "coins_per_client" not in planned
    out = ("--out", tmp_path / "run")
    told = invoke("run", config, *out).stderr
    assert "epsilon 30 at delta 1e-05 is guaranteed against whoever sees only" in told
    assert "spent inf" not in told
    found = run_json("run", config, *out)["epsilons"]
    assert expected.items() <= found.items() and 0.0 < found["outsider"] <= 30.0
    swept = invoke("sweep", config, "--set", "seed=1", "--out", tmp_path / "sweep")
    assert "30" in swept.stdout.split() and "inf" not in swept.stdout


def test_ctrl_c_names_the_command_that_resumes_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: LiveView, record: Record) -> None:
        raise KeyboardInterrupt

    config = tmp_path / "a name.toml"
    config.write_text(tomli_w.dumps(SMALL))
    words = ["run", str(config), "--out", str(tmp_path / "run"), "--quiet"]
    monkeypatch.setattr(sys, "argv", ["/bin/veilsum", *words])
    with monkeypatch.context() as patched:
        patched.setattr(LiveView, "round", interrupt)
        cut = invoke(*words)
    assert cut.exit_code == 130
    said, command = cut.stderr.split("to resume: ")
    assert said == "interrupted; what was finished is kept; "
    program, *again = shlex.split(command)
    assert program == "veilsum"
    assert run_json(*again)["resumed_after"] == 1


@pytest.mark.parametrize("terminal", [False, True])
def test_the_live_view_shows_every_round(data: Dataset, tmp_path: Path, terminal: bool) -> None:
    console = Console(record=True, force_terminal=terminal, width=120, file=open(os.devnull, "w"))
    config = small(engine__evaluate_every=2)
    run(config, data, tmp_path / "run", LiveView(config, console))
    console.file.close()
    text = console.export_text()
    assert "accuracy" in text
    assert "epsilon 30 at delta 1e-05 is guaranteed against the server" in " ".join(text.split())
    if not terminal:
        assert text.count("round ") == 4
        assert "accuracy -" in text  # a round that was not tested


def test_compiling_is_marked_in_the_live_view(uncut: Uncut) -> None:
    record = uncut("ideal")[1].records[0]
    for seconds, shown in ((1.25, "3.00 (1.2 compiling)"), (0.0, "3.00")):
        stages = {**record["stages"], "compiling": seconds}
        assert row({**record, "stages": stages, "seconds": 3.0})[-1] == shown
