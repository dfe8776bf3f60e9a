"""The messages of the engine, in a group of one process; learning/run has groups of several."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from protocol.exchange.ranks import ALONE
from simulations.common import ranks as module
from simulations.common.failures import RankError, one_line
from simulations.common.ranks import TorchRanks, _naming_the_dead, device_of, joined, launched


@pytest.fixture
def one(tmp_path: Path) -> Iterator[TorchRanks]:
    dist.init_process_group(
        "gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1
    )
    try:
        yield TorchRanks()
    finally:
        dist.destroy_process_group()


def test_messages(one: TorchRanks) -> None:
    assert (one.rank, one.size) == (0, 1)
    assert one.gather({"a": 1}) == [{"a": 1}] and one.broadcast("x") == "x"
    matrix, vector = np.arange(6).reshape(2, 3), np.array([7, -(1 << 62)])
    added = one.add(matrix, vector)
    assert [each.tolist() for each in added] == [matrix.tolist(), vector.tolist()]
    assert one.add(np.ones(2, np.float64))[0].dtype == np.float64
    assert one.swap([b"abc"]) == [b"abc"] and one.swap([b""]) == [b""]
    one.take([3, 5])
    assert one.owns(5) and not one.owns(4)


def test_every_rank_has_a_device_of_its_own(
    one: TorchRanks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where "cuda" is asked for; then sums go between devices, too."""
    done: list[Any] = []
    monkeypatch.setenv("LOCAL_RANK", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", done.append)
    monkeypatch.setattr(dist, "new_group", lambda **given: done.append(given) or "group")
    assert device_of(one, "cpu") == "cpu" and device_of(one, "cuda:0") == "cuda:0"
    assert done == []
    assert device_of(one, "cuda") == device_of(one, "cuda") == "cuda:2"
    assert done == ["cuda:2", {"backend": "nccl", "timeout": module.PATIENCE}]
    assert device_of(ALONE, "cuda") == "cuda"


def test_a_device_that_is_not_there_is_named_and_nobody_is_waited_for(
    one: TorchRanks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(dist, "new_group", lambda **given: pytest.fail(str(given)))
    assert device_of(one, "cuda") == "cuda:3"


def test_a_rank_that_runs_whole_runs_has_a_device_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a sweep are of one rank each; more ranks than devices share them."""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for rank, device in (("0", "cuda:0"), ("1", "cuda:1"), ("2", "cuda:0")):
        monkeypatch.setenv("LOCAL_RANK", rank)
        assert device_of(ALONE, "cuda") == device
        assert device_of(ALONE, "cpu") == "cpu" and device_of(ALONE, "cuda:1") == "cuda:1"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert device_of(ALONE, "cuda") == "cuda"


def test_what_goes_wrong_between_ranks_is_put_into_words(
    one: TorchRanks, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("[x.cc:1] Connection closed by peer [h]:1. See the logs. More")

    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(dist, "all_reduce", fails)
    with pytest.raises(RankError) as caught:
        one.add(np.ones(1))
    told = one_line(caught.value)
    assert told == (
        "RankError: another rank cannot be reached ([x.cc:1] Connection closed by peer [h]:1); "
        "what was finished is kept: give the same command again to continue, with any number of "
        "ranks"
    )
    gone = subprocess.Popen([sys.executable, "-c", ""])
    # Not waited for: its parent does not know yet that it has ended.
    while not module._is_dead(gone.pid):
        pass
    one._places.append((one._places[0][0], gone.pid))
    with pytest.raises(RankError, match=rf"^rank 1 of 1 \(process {gone.pid}\) on .* died; what"):
        one.add(np.ones(1))
    one._places[1] = ("elsewhere", gone.pid)
    with pytest.raises(RankError, match="another rank cannot be reached"):
        one.add(np.ones(1))
    gone.wait()


def test_this_process_is_alive() -> None:
    assert not module._is_dead(os.getpid()) and not module._is_dead(1)


def test_a_process_that_nobody_started_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TORCHELASTIC_RUN_ID", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert not launched()
    with joined() as ranks:
        assert ranks is ALONE
    # One rank is nobody's companion either.
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert not launched()
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launched()


def test_ranks_that_cannot_meet_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RankError, match="the ranks do not find one another"), joined():
        pass


def test_a_rank_that_torchrun_ends_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when another rank was killed, and this one waits for nothing at that moment."""
    before = signal.getsignal(signal.SIGTERM)
    ranks = SimpleNamespace(gone=lambda: "rank 1 of 2 (process 7) on here died")
    for gone, said in ((ranks.gone, "rank 1 of 2"), (lambda: "", "told to end")):
        monkeypatch.setattr(ranks, "gone", gone)
        with pytest.raises(RankError, match=said), _naming_the_dead(ranks):  # type: ignore[arg-type]
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        assert signal.getsignal(signal.SIGTERM) is before
