"""A server that waits for a go before each round; or one that asks for models in the clear."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from protocol.adapters.flower import SecureGrid

app = ServerApp()

ASKED = ("train", "train.mine", "evaluate", "query")
_GO_SECONDS = 300.0


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, and write after each round what came of it."""
    settings = context.run_config
    result = Path(str(settings["result"]))
    zero = ArrayRecord({"w": Array(np.zeros(int(settings["length"]), np.float32))})
    if settings["plain"]:
        result.write_text(json.dumps(answers_in_the_clear(grid, zero)))
        return

    before = [0]

    def after(number: int, arrays: ArrayRecord) -> MetricRecord:
        line = {"round": number, "model": float(arrays["w"].numpy().mean())}
        done, line["survivors"] = len(secure.reports), 0
        if done > before[-1]:
            line["survivors"] = secure.reports[-1].survivors
        before.append(done)
        with result.open("a") as out:
            out.write(json.dumps(line) + "\n")
        wait_for(Path(str(settings["gates"])) / str(number + 1))
        return MetricRecord({})

    strategy = FedAvg(fraction_evaluate=0.0)
    rounds = int(settings["num-server-rounds"])
    with SecureGrid.from_context(grid, context, strategy) as secure:
        strategy.start(grid=secure, initial_arrays=zero, num_rounds=rounds, evaluate_fn=after)


def wait_for(gate: Path) -> None:
    """Wait until somebody has opened a gate."""
    end = time.monotonic() + _GO_SECONDS
    while not gate.exists() and time.monotonic() < end:
        time.sleep(0.05)


def answers_in_the_clear(grid: Grid, model: ArrayRecord) -> dict[str, list[str]]:
    """What nodes answer to messages that are not of the protocol, by kind of message."""
    found: dict[str, list[str]] = {}
    nodes = connected(grid)
    for kind in ASKED:
        content = RecordDict({"arrays": model, "config": ConfigRecord({"server-round": 1})})
        asked: list[Any] = [Message(content, node, kind, group_id="1") for node in nodes]
        replies = grid.send_and_receive(asked, timeout=60.0)
        found[kind] = [
            f"refused: {reply.error.reason}" if reply.has_error() else "ANSWERED"
            for reply in replies
        ]
    return found


def connected(grid: Grid) -> list[int]:
    """All nodes, once they are there."""
    nodes: list[int] = []
    for _ in range(60):
        nodes = list(grid.get_node_ids())
        if len(nodes) >= 5:
            break
        time.sleep(1.0)
    return nodes
