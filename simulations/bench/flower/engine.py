"""One system on Flower's Ray simulation, in a process of its own that ends when it is done.

    python -m simulations.bench.flower.engine SYSTEM FOLDER CORES ORDER

The order is JSON; figures go into `FOLDER/figures.json`. The process ends when its standard input
does, and Ray ends with it.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from secagg import Mode
from simulations.bench.flower.order import FlowerOrder
from simulations.bench.timing import peak_rss_bytes
from simulations.common.peers import NO_CALLS_HOME, Peer, load

FIGURES, LOG = "figures.json", "engine.log"
SECONDS = 3600.0
"""Longest run of one system."""
LAST_LINES = 5

ENVIRONMENT = {
    **NO_CALLS_HOME,
    # Ray runs its workers at niceness 15: whatever else the machine does, would come first.
    "RAY_worker_niceness": "0",
}
"""Clients as important as their server."""


class System(Enum):
    """The systems that are compared."""

    PLAIN = "plain"
    OURS = "ours"
    ONE_SHOT = "ours_one_shot"
    SKETCHED = "ours_sketched"
    SECAGGPLUS = "secaggplus"


class MeasuredSystem(TypedDict):
    """What one system took for all rounds, as one process tells another."""

    seconds: list[float]  # of every round, the first included
    processor_seconds: list[float]  # likewise
    stages: list[dict[str, float]]  # seconds of every round, by the name of the stage
    moved: float  # the model, on average over its coordinates
    bytes_down: float  # of a client, on average
    bytes_up: float  # of a client, on average
    peak_rss_bytes: int  # of the server's process


def measure(system: System, order: FlowerOrder, cores: int) -> MeasuredSystem:
    """Run all rounds of a system in a new process, and wait for it."""
    with tempfile.TemporaryDirectory(prefix="veilsum-flower-") as name:
        folder = Path(name)
        command = [sys.executable, "-m", __name__, system.value, name, str(cores), _to_json(order)]
        _run(command, folder / LOG)
        measured: MeasuredSystem = json.loads((folder / FIGURES).read_text())
    return measured


def _run(command: list[str], log: Path) -> None:
    """Run a process with a log; whatever happens, nothing of its group is left behind."""
    with (
        log.open("wb") as output,
        subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**os.environ, **ENVIRONMENT},
            start_new_session=True,
        ) as process,
    ):
        try:
            process.wait(SECONDS)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        lines = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        raise RuntimeError(f"{command[3]} ended with {process.returncode}: {' | '.join(lines)}")


def _to_json(order: FlowerOrder) -> str:
    return json.dumps({**asdict(order), "mode": order.mode.value})


def _from_json(text: str) -> FlowerOrder:
    values = json.loads(text)
    values |= {"mode": Mode(values["mode"]), "protocols": tuple(values["protocols"])}
    return FlowerOrder(**values)


def simulate(system: System, order: FlowerOrder, root: Path, cores: int) -> MeasuredSystem:
    """Run all rounds of a system in this process; see `measure`."""
    from simulations.bench.flower import clients, servers

    rounds, app = servers.Rounds(order), load("flwr.serverapp", Peer.FLOWER).ServerApp()
    server: servers.Server
    if system is System.PLAIN:
        server, client = servers.plain, clients.plain_client(order)
    elif system is System.SECAGGPLUS:
        server, client = servers.secaggplus, clients.secaggplus_client(order)
    else:
        rate = order.rate if system is System.SKETCHED else 1.0
        plan = order.plan("one-shot" if system is System.ONE_SHOT else "pairwise")
        server = partial(servers.ours, plan=plan, root=root, rate=rate, workers=cores)
        client = clients.our_client(order, root)

    def main(grid: Any, context: Any) -> None:
        server(rounds, grid, context)

    app.main()(main)
    load("flwr.simulation", Peer.FLOWER).run_simulation(
        app,
        client,
        num_supernodes=order.clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": cores, "include_dashboard": False},
        },
    )
    return {
        "seconds": rounds.seconds,
        "processor_seconds": rounds.processor_seconds,
        "stages": rounds.stages,
        "moved": rounds.moved,
        "bytes_down": _mean(rounds.bytes_down, order),
        "bytes_up": _mean(rounds.bytes_up, order),
        "peak_rss_bytes": peak_rss_bytes(),
    }


def _mean(by_node: Mapping[int, int], order: FlowerOrder) -> float:
    """Over all clients; those that vanish are sent most of what the others are."""
    if len(by_node) != order.clients:
        raise RuntimeError(f"{len(by_node)} of {order.clients} clients took part")
    return statistics.fmean(by_node.values())


def main(arguments: list[str]) -> None:
    """Run the command that the module describes."""
    system, folder, cores, order = arguments
    threading.Thread(target=_end_with_parent, daemon=True).start()
    figures = simulate(System(system), _from_json(order), Path(folder), int(cores))
    (Path(folder) / FIGURES).write_text(json.dumps(figures))


def _end_with_parent() -> None:
    """The parent holds the other end of standard input for as long as it lives."""
    sys.stdin.read()
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
