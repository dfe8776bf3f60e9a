"""A run on ranks leaves what one process leaves, and a rank that dies costs no finished round."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import run_kit
from rank_doubles import on_ranks
from run_kit import KEY, folder_of, process_of, torchrun
from small_runs import CHUNKED, config_of, lines
from small_runs import run_on_ranks as played

from protocol.errors import ConfigurationError
from protocol.exchange.ranks import Ranks
from simulations.common.failures import RankError
from simulations.common.ranks import own_cores
from simulations.learning import federated
from simulations.learning.configuration import RunConfig, write_config
from simulations.learning.data import Dataset
from simulations.learning.federated import Federation
from simulations.learning.run import assembly, experiment
from simulations.learning.run.folder import RunFolder
from simulations.learning.run.secrets import RunSecrets

# Twice as many rounds as ask everybody, or nobody's memory would be looked at.
LOCAL = {"engine.aggregator": "local", "rounds": 6}
SHARED = ("ideal", "central", "plain", "powersgd", "clipping", "denoised", "one-shot", "named")
KINDS: Mapping[str, Mapping[str, Any]] = {
    **{name: run_kit.KINDS[name] for name in SHARED},
    "noise that stays": {"engine.aggregator": "ideal", "noise.mechanism": "skellam"},
    "fedsel": {**run_kit.KINDS["fedsel"], **LOCAL},
    "residuals": {**LOCAL, "local_dp": {"algorithm": "sqsgd", "sample_share": 0.05}},
    "nothing remembered": {**LOCAL, "local_dp": {"algorithm": "piecewise"}},
    "one-shot, two sums": {**run_kit.KINDS["one-shot"], "powersgd": {"rank": 2}},
    "passes, one after another": {
        "engine.aggregator": "ideal",
        "engine.strategy": "loop",
        "local.steps": None,
        "local.epochs": 1,
    },
}


def of_kind(kind: str, **changes: Any) -> RunConfig:
    return config_of(CHUNKED, KINDS[kind], **changes)


def left(path: Path) -> dict[str, Any]:
    """Errors are figures that nothing depends on, from sums of floats in another order."""
    return run_kit.left(path, "error")


@pytest.mark.parametrize(("kind", "sizes"), [*((kind, (3,)) for kind in KINDS), ("ideal", (2, 7))])
def test_any_number_of_ranks_leaves_the_same(
    data: Dataset, tmp_path: Path, kind: str, sizes: tuple[int, ...]
) -> None:
    config = of_kind(kind)
    folders = {size: folder_of(tmp_path / str(size), config) for size in (1, *sizes)}
    for size, path in folders.items():
        played(config, data, path, size)
    for size in sizes:
        assert left(folders[size]) == left(folders[1]), size
        for one, alone in zip(
            lines(folders[size] / "rounds.jsonl"), lines(folders[1] / "rounds.jsonl"), strict=True
        ):
            assert one.get("error", {}) == pytest.approx(alone.get("error", {}), rel=1e-9)


@pytest.mark.parametrize("kind", ["ideal", "fedsel"])
def test_ranks_of_a_new_run_have_one_key(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """In a folder without one: rank 0 makes it before it tells the others."""
    keys: list[bytes] = []

    class Seen(RunSecrets):
        def __init__(self, key: bytes) -> None:
            super().__init__(key)
            keys.append(key)

    monkeypatch.setattr(assembly, "RunSecrets", Seen)
    played(of_kind(kind), data, tmp_path / "run", 2)
    assert len(keys) == 2 and len(set(keys)) == 1


def test_a_rank_has_no_secrets_on_disk_when_rounds_begin(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be killed in any of them, and then cleans up nothing."""
    seen: list[tuple[str, int]] = []
    opened, plays = experiment._opened, Federation.round

    def note(what: str) -> None:
        seen.append((what, len(list(tmp_path.glob("veilsum-rank-*")))))

    def opens(*given: Any) -> Any:
        if given[5].rank:
            note("opens")
        return opened(*given)

    def plays_noted(federation: Federation, *given: Any) -> Any:
        if federation._ranks.rank:
            note("plays")
        return plays(federation, *given)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(experiment, "_opened", opens)
    monkeypatch.setattr(Federation, "round", plays_noted)
    played(of_kind("ideal"), data, tmp_path / "run", 2)
    assert seen == [("opens", 1)] + [("plays", 0)] * 3


def test_a_rank_makes_no_key_of_its_own(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shares_nothing(ranks: Ranks, _: RunFolder) -> None:
        ranks.broadcast("")

    monkeypatch.setattr(experiment, "share_state", shares_nothing)
    with pytest.raises(RankError, match="this rank was not given the secrets of the run"):
        played(of_kind("ideal"), data, tmp_path / "run", 2)


def test_with_other_secrets_a_run_leaves_something_else(data: Dataset, tmp_path: Path) -> None:
    """The control: what is compared depends on noise."""
    config = of_kind("ideal")
    played(config, data, folder_of(tmp_path / "one", config), 2)
    played(config, data, folder_of(tmp_path / "other", config, KEY[::-1]), 2)
    assert left(tmp_path / "one")["model"] != left(tmp_path / "other")["model"]


@pytest.mark.parametrize("kind", KINDS)
def test_no_seed_of_noise_is_used_twice(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Noise that comes again in another round, or for another client, could be subtracted."""
    config = of_kind(kind, faults__dropout=0.0)
    derive, labels = RunSecrets._derive, list[str]()

    def derives(secrets: RunSecrets, label: str, count: int) -> bytes:
        labels.append(label)
        return derive(secrets, label, count)

    monkeypatch.setattr(RunSecrets, "_derive", derives)
    played(config, data, folder_of(tmp_path / "run", config), 1)
    noise = [label for label in labels if label.startswith(("noise", "removable"))]
    assert len(set(noise)) == len(noise)
    sums, members = config.rounds * (2 if config.powersgd else 1), range(config.cohort.size)
    if config.engine.aggregator in ("ideal", "real"):
        assert {f"noise {n} {i}" for n in range(sums) for i in members} <= set(noise)
    elif config.engine.aggregator == "local":
        # Clients of a chunk report together.
        assert set(noise) == {f"noise {n} {i}" for n in range(sums) for i in members[::2]}
    else:
        assert not noise


@pytest.mark.parametrize("kind", ["ideal", "central", "powersgd", "clipping", "fedsel", "one-shot"])
def test_a_run_goes_on_with_another_number_of_ranks(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Cut after a round was charged and before its result was kept."""
    config = of_kind(kind)
    whole, cut = (folder_of(tmp_path / name, config) for name in ("whole", "cut"))
    played(config, data, whole, 1)
    with monkeypatch.context() as patch:
        optimized = federated.optimize
        calls = []

        def fails(*given: Any) -> Any:
            calls.append(given)
            if len(calls) > 3:
                raise KeyboardInterrupt
            return optimized(*given)

        patch.setattr(federated, "optimize", fails)
        with pytest.raises(KeyboardInterrupt):
            played(config, data, cut, 3)
    assert len(lines(cut / "rounds.jsonl")) == 1
    played(config, data, cut, 2)
    assert left(cut) == left(whole)


def test_ranks_that_compute_another_model_are_found_out(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimized = federated.optimize
    calls = []

    def drifts(*given: Any) -> Any:
        calls.append(given)
        after = optimized(*given)
        if len(calls) == 2:
            after.model[0] = np.nextafter(after.model[0], np.float32(9.0))
        return after

    monkeypatch.setattr(federated, "optimize", drifts)
    config = of_kind("ideal")
    with pytest.raises(RankError, match=r"after round 1 rank 1 has another model than rank"):
        played(config, data, folder_of(tmp_path / "run", config), 2)


@pytest.mark.parametrize(
    ("key", "kind"), [("engine.aggregator", "real"), ("local_dp.through", "secure levels")]
)
def test_the_pairwise_protocol_stays_in_one_process(key: str, kind: str) -> None:
    config = config_of(CHUNKED, run_kit.KINDS[kind])
    config.check()
    with pytest.raises(ConfigurationError, match="among 2 ranks") as caught:
        config.check(2)
    assert caught.value.key == key


def test_a_cohort_is_divided_in_whole_chunks(data: Dataset) -> None:
    config = of_kind("ideal", engine__chunk=3)

    def work(ranks: Ranks) -> list[list[int]]:
        federation = Federation(config, data, ranks=ranks)
        model = federation.initial().model
        return [[*federation.invite(number, model).own] for number in range(2)]

    for dealt in zip(*on_ranks(3, work), strict=True):
        assert sorted(index for own in dealt for index in own) == list(range(10))
        # Of four chunks, each is at one rank.
        assert sum(len({index // 3 for index in own}) for own in dealt) == 4


def test_a_rank_without_clients_is_of_no_harm(data: Dataset, tmp_path: Path) -> None:
    config = of_kind("ideal", engine__chunk=10)
    for size in (1, 3):
        played(config, data, folder_of(tmp_path / str(size), config), size)
    assert left(tmp_path / "3") == left(tmp_path / "1")


def test_ranks_of_one_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert own_cores() == 8
    for ranks, cores in ((2, 4), (3, 2), (16, 1)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
        assert own_cores() == cores == of_kind("ideal").engine.threads


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ideal", "fedsel", "one-shot"])
def test_processes_of_torchrun_leave_the_same_and_go_on_after_one_is_killed(
    data: Dataset, tmp_path: Path, kind: str
) -> None:
    """One process; two, of which one is killed; and what is left of that, with three."""
    # Many, so that none ends before it is killed.
    rounds = 40 if kind == "one-shot" else 150
    config = of_kind(kind, rounds=rounds)
    file = write_config(config, tmp_path / "config.toml")
    whole, cut = (folder_of(tmp_path / n, config) for n in ("whole", "cut"))
    played(config, data, whole, 1)
    ranks = subprocess.Popen(  # noqa: S603 - our own program
        torchrun(2, "run", file, "--out", cut, "--quiet"), stderr=subprocess.PIPE, text=True
    )
    while len(lines(cut / "rounds.jsonl") if (cut / "rounds.jsonl").exists() else []) < 3:
        assert ranks.poll() is None
        time.sleep(0.02)
    os.kill(process_of(1, cut), signal.SIGKILL)
    _, told = ranks.communicate(timeout=600)
    assert ranks.returncode
    assert "rank 1 of 2 (process " in told and "died; what was finished is kept" in told
    assert "Traceback" not in told.partition("RankError")[0]
    assert 3 <= len(lines(cut / "rounds.jsonl")) < rounds
    done = subprocess.run(  # noqa: S603 - our own program
        torchrun(3, "run", file, "--out", cut, "--json"), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    # One voice, whatever the number of ranks.
    assert json.loads(done.stdout)["rounds"] == rounds
    assert left(cut) == left(whole)


@pytest.mark.slow
def test_ranks_with_nothing_to_do_end_well(tmp_path: Path) -> None:
    """A forecast, a run, and the same run when it is finished: no rank waits for another."""
    file = write_config(of_kind("plain"), tmp_path / "config.toml")
    words = torchrun(2, "run", file, "--out", tmp_path / "run", "--json", "--quiet")
    for more in (["--dry-run"], [], []):
        done = subprocess.run(  # noqa: S603 - our own program
            [*words, *more], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["rounds"] == 3
