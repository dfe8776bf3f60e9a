"""What clients remember survives a run that is killed anywhere, and is counted once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_runs
from run_kit import KINDS, folder_of
from small_runs import BARE, config_of, lines, timeless

from protocol.errors import ConfigurationError
from simulations.learning.configuration import RunConfig, write_config
from simulations.learning.data import Dataset
from simulations.learning.local_dp.journal import PATTERN, MemoryJournal
from simulations.learning.local_dp.memory import ClientMemory
from simulations.learning.run.checkpoint import Checkpoint
from simulations.learning.sources.local import PLACE

# Everybody reports in every round, so that the file is soon twice what is remembered.
CONFIG = config_of(
    BARE,
    KINDS["fedsel"],
    rounds=5,
    task__population=10,
    task__hidden=4,
    local={"algorithm": "fedsgd"},
    faults__dropout=0.1,
    engine__evaluate_every=5,
)


class Killed(BaseException):
    """The process went away."""


def run(data: Dataset, path: Path, config: RunConfig = CONFIG) -> None:
    if not (path / "checkpoint.npz").exists():
        folder_of(path, config)
    small_runs.run(config, data, path)


def left(path: Path) -> tuple[bytes, list[dict[str, Any]], dict[int, Any]]:
    """The model, the records without times, and what every client remembers."""
    checkpoint = Checkpoint.load(path / "checkpoint.npz")
    assert checkpoint is not None
    model = checkpoint.state.model
    memory = ClientMemory(model.size)
    MemoryJournal(path, memory, checkpoint.arrays[PLACE])
    remembered = {
        client: (memory.sent[client], memory.vector("delayed", client).tobytes())
        for client in memory.clients
    }
    return model.tobytes(), timeless(lines(path / "rounds.jsonl")), remembered


def kill_at(patch: pytest.MonkeyPatch, moment: int) -> list[str]:
    """Let the process go away before one of its lasting steps; what they were is listed."""
    steps: list[str] = []

    def watched(owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def step(*given: Any, **named: Any) -> Any:
            steps.append(what(name, given[0]))
            if len(steps) > moment:
                raise Killed
            return original(*given, **named)

        patch.setattr(owner, name, step)

    watched(os, "fsync")
    watched(Path, "replace")
    watched(Path, "unlink")
    return steps


def what(name: str, subject: Path | int) -> str:
    path = subject if isinstance(subject, Path) else Path(os.readlink(f"/proc/self/fd/{subject}"))
    return f"{name} {path.name}"


def torn(path: Path, rng: np.random.Generator) -> None:
    """What no checkpoint counts of the files may be there, or in part, or as other bytes."""
    checkpoint = Checkpoint.load(path / "checkpoint.npz")
    number, counted = (0, 0) if checkpoint is None else checkpoint.arrays[PLACE].tolist()
    for file in path.glob(PATTERN):
        data = file.read_bytes()
        safe = counted if file.name == PATTERN.replace("*", str(number)) else 0
        rest = len(data) - safe
        assert rest >= 0
        tail = (data[safe:], data[safe : safe + rest // 2], rng.bytes(rest))[rng.integers(3)]
        file.write_bytes(data[:safe] + tail)


@pytest.mark.slow
def test_a_run_killed_at_any_step_ends_as_if_it_had_not_been(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        steps = kill_at(patch, 10**6)
        run(data, tmp_path / "whole")
    expected, rng = left(tmp_path / "whole"), np.random.default_rng(1)
    assert len(expected[2]) == 10
    first = steps.index("fsync memory-0.rows")
    # The run has seen all that a file of memory goes through.
    assert steps.count("fsync memory-0.rows") > 1 and "fsync memory-1.rows" in steps
    assert "unlink memory-0.rows" in steps
    for moment in range(first, len(steps)):
        path = tmp_path / str(moment)
        with monkeypatch.context() as patch:
            kill_at(patch, moment)
            with pytest.raises(Killed):
                run(data, path)
        torn(path, rng)
        run(data, path)
        assert left(path) == expected, steps[moment]
        assert len(list(path.glob(PATTERN))) == 1


def test_a_damaged_memory_ends_the_run_like_a_damaged_checkpoint(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        # Killed in the second round.
        kill_at(patch, 20)
        with pytest.raises(Killed):
            run(data, tmp_path)
    path = tmp_path / "memory-0.rows"
    damaged = bytearray(path.read_bytes())
    damaged[60] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(ConfigurationError, match=r"damaged .*another folder"):
        run(data, tmp_path)


@pytest.mark.slow
def test_kill_9_of_a_real_process(data: Dataset, tmp_path: Path) -> None:
    # Many, so that it does not end before it is killed: a round takes 8 ms.
    config = CONFIG.model_copy(update={"rounds": 150})
    file = write_config(config, tmp_path / "config.toml")
    run(data, tmp_path / "whole", config)
    folder_of(tmp_path / "cut", config)
    command = [sys.executable, "-m", "simulations", "run", str(file), "--quiet", "--out"]
    process = subprocess.Popen([*command, str(tmp_path / "cut")])  # noqa: S603 - our own program
    rounds = tmp_path / "cut" / "rounds.jsonl"
    while not rounds.exists() or rounds.read_bytes().count(b"\n") < 5:
        assert process.poll() is None
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    subprocess.run([*command, str(tmp_path / "cut")], check=True)  # noqa: S603 - our own program
    assert left(tmp_path / "cut") == left(tmp_path / "whole")
