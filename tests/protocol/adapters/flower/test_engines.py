"""The example on Flower's own engines: simulated in Ray, and on a network of real processes.

Deployed clients get a process of their own for every message, so a round costs seconds there.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
import time
import tomllib
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

from dp import Ledger
from protocol.adapters.flower.home import ClientHome, read_registry
from protocol.adapters.flower.record import Step
from protocol.round.stored_history import StoredHistory

ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "examples" / "flower"
CHANCE = 0.1
"""Accuracy of somebody who guesses."""

# Two networks at a time would want more cores than a small machine has, and might not end in time.
pytestmark = pytest.mark.slow


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example's own script; its processes find this checkout."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", path)
    spec = importlib.util.spec_from_file_location("flower_network", EXAMPLE / "network.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "options",
    [{}, {"signed": True}, {"committee": 3, "odds": 0.9}, {"committee": 3, "apart": 2}],
    ids=str,
)
def test_whatever_a_network_sets_is_a_key_of_the_app(
    network: ModuleType, tmp_path: Path, options: dict[str, Any]
) -> None:
    """Flower ends a run that sets another one."""
    app = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    made = network.Network(tmp_path, 5, **options)
    for name in network.deployment_settings(made, 5, 1):
        table = app["config"]
        for part in name.split("."):
            table = table[part]


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed: flwr[simulation]"
)
@pytest.mark.parametrize(("protocol", "trips"), [("pairwise", [6, 5, 5]), ("validated", [5, 4, 4])])
def test_the_example_learns_in_the_simulation_engine(
    network: ModuleType, tmp_path: Path, protocol: str, trips: list[int]
) -> None:
    with network.Network(tmp_path, clients=10, simulation=True) as engine:
        settings = {"veilsum.simulation-dir": str(tmp_path / "homes"), "num-server-rounds": 3}
        settings["veilsum.scheme.kind"] = protocol
        report = engine.run(settings, seconds=600.0)
    assert report["survivors"] == [10] * 3 and report["lost"] == [[]] * 3
    assert report["round trips"] == trips
    spent = report["epsilon spent"]
    assert spent == sorted(spent) and spent[-1] <= report["epsilon"]
    # 297 examples: guessing exceeds 0.25 with probability below 1e-12.
    assert report["accuracy"][-1] > 0.25 > CHANCE
    assert engine.processes.ended() == []


PRIVACY = {
    "epsilon": 50.0,
    "delta": 1e-5,
    "rounds": 2,
    "clip-l2": 1.0,
    "minimum-survivors": 3,
    "tolerated-colluders": 0,
}
SETTINGS = {
    "veilsum.rounds": 2,
    "veilsum.privacy.epsilon": 50.0,
    "veilsum.privacy.clip-l2": 1.0,
    "veilsum.connect-seconds": 60.0,
    "veilsum.training-seconds": 60.0,
}


class Faults(threading.Thread):
    """What befalls three nodes in their first round: one is slow, one restarts, one dies."""

    SLOW, RESTARTS, DIES = 2, 3, 4

    def __init__(self, engine: Any) -> None:
        super().__init__(daemon=True)
        self.engine, self.left = engine, {2, 3, 4}

    def run(self) -> None:
        end = time.monotonic() + 300.0
        while self.left and time.monotonic() < end:
            for number in sorted(self.left):
                # There once the node is asked to train.
                if (self.engine.home(number) / "state" / "upload").exists():
                    self.left.remove(number)
                    self.strike(number, f"supernode-{number}")
            time.sleep(0.02)

    def strike(self, number: int, name: str) -> None:
        processes = self.engine.processes
        if number == self.SLOW:
            processes.send(name, signal.SIGSTOP)
            threading.Timer(10.0, processes.send, (name, signal.SIGCONT)).start()
            return
        processes.send(name, signal.SIGKILL)
        if number == self.RESTARTS:
            processes.stop(name)
            self.engine.start_node(number)


def test_a_network_goes_on_when_a_node_is_slow_one_restarts_and_one_dies(
    network: ModuleType, tmp_path: Path
) -> None:
    """In one-shot rounds; sites, below, are in pairwise ones.

    No waits are named but that of training: they follow the first trip. The first three nodes are
    the committee: others are done when they have uploaded.
    """
    committee = 3
    with network.Network(tmp_path, 5, PRIVACY, committee=committee) as engine:
        faults = Faults(engine)
        faults.start()
        given = network.deployment_settings(engine, 5, 2, **SETTINGS)
        # Training takes some seconds, so that nobody has answered yet when it is hit.
        given |= {"num-server-rounds": 2, "local-epochs": 1000, "veilsum.stage-seconds": ""}
        # A dead node is told by its heartbeat; a busy machine starts the others late.
        given["veilsum.training-seconds"] = 240.0
        report = engine.run({**given, "veilsum.scheme.kind": "one-shot"}, seconds=1200.0)
        faults.join(1.0)
        assert faults.left == set() and engine.processes.ended() == ["supernode-4"]
    # The slow one is in both means; the restarted one, under a new number, in the second.
    assert report["survivors"] == [3, 4]
    first, _ = report["lost"]
    assert len(first) == 2
    assert all(reason.startswith("upload") for reason in first)
    with Ledger.open(tmp_path / "ledger.jsonl") as ledger:
        entries = ledger.entries()
    assert [entry.metadata["survivors"] for entry in entries] == [3, 4]
    homes = [tmp_path / f"client-{number:03d}" for number in range(5)]
    # What members sign is in records of their own.
    signed = [len(list((home / "state" / "member").glob("answered/*"))) for home in homes]
    assert signed == [2, 2, 2, 0, 0]
    assert len(read_registry(tmp_path / "committee.txt")) == committee
    charged = [spent(home) for home in homes]
    # Everybody that gave something up has counted it, on its own disk.
    assert min(charged[:3]) == max(charged[:3]) >= charged[3] > 0.0
    assert report["accuracy"][-1] > 0.25 > CHANCE and max(charged) <= report["epsilon"] == 50.0


def spent(home: Path) -> float:
    with StoredHistory(home / "state", ClientHome(home).policy.goal) as history:
        return history.epsilon


def test_processes_are_ended_even_if_they_do_not_listen(
    network: ModuleType, tmp_path: Path
) -> None:
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1); "
    processes = network.Processes(tmp_path)
    processes.start("stubborn", [sys.executable, "-u", "-c", stubborn + "time.sleep(600)"])
    while not (tmp_path / "stubborn.log").read_text():
        assert processes.ended() == []
    process = processes._running["stubborn"]
    network._STOP_SECONDS = 1.0
    processes.stop("stubborn")
    assert process.returncode is not None and process.returncode < 0


def test_a_run_that_comes_to_no_end_says_where_to_look(network: ModuleType, tmp_path: Path) -> None:
    engine = network.Network(tmp_path, clients=2)
    with pytest.raises(RuntimeError, match="see the logs in"):
        engine.run({}, seconds=120.0)


def test_sites_hold_whatever_befalls_them(
    network: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two moments here; the example's own command plays all of them, and one-shot rounds."""
    spec = importlib.util.spec_from_file_location("play", EXAMPLE / "attack" / "play.py")
    play = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "play", play)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        spec.loader.exec_module(play)
        dies = [(Step.INPUT, "during"), (Step.UNMASK, "after")]
        rows = play.play(tmp_path / "network", "pairwise", dies)
    assert [row for row in rows if not row.holds] == []
    # A whole round, two deaths, a revocation; two counts of them; five hostile runs; the logs.
    assert len(rows) == 4 + 2 + 5 + 1
