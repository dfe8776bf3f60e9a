"""Training that adds a constant; at one site it misbehaves, in each round in another way."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from protocol.adapters.flower import secure_mod

WORDS = "patient-17"
"""What no log and no answer of a site may have."""

app = ClientApp(mods=[secure_mod])


def raises(_: Any) -> NoReturn:
    """An exception whose words are data."""
    raise ValueError(WORDS)


def prints(given: Any) -> Any:
    """Megabytes of data on both outputs, and then a model of data."""
    for stream in (sys.stdout, sys.stderr):
        stream.write(WORDS * 100_000)
    return np.full_like(given, np.nan)


def leaves(_: Any) -> NoReturn:
    """An exit status."""
    os._exit(17)


def hangs(_: Any) -> NoReturn:
    """Longer than anybody waits, with children that hold the pipe."""
    os.fork()
    while True:
        time.sleep(1.0)


def grows(given: Any) -> Any:
    """A model of another size."""
    return np.resize(given, given.size * 3)


def widens(given: Any) -> Any:
    """A model of numbers that are wider than they were."""
    return given.astype(np.complex128) + 1j


def kills(_: Any) -> NoReturn:
    """A signal to whatever waits for this process."""
    os.kill(os.getppid(), signal.SIGKILL)
    raise SystemExit(WORDS)


def calls(given: Any) -> Any:
    """A try to speak to somebody else."""
    with socket.socket() as line:
        line.settimeout(1.0)
        line.connect(("192.0.2.17", 80))
    return given


MISBEHAVES: tuple[Callable[[Any], Any], ...] = (
    raises,
    prints,
    leaves,
    hangs,
    grows,
    widens,
    kills,
    calls,
)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Add the step, or misbehave in the way of this round."""
    settings, given = context.run_config, message.content["arrays"]["w"].numpy()
    if context.node_config["partition-id"] == settings["hostile"]:
        moved = MISBEHAVES[int(message.content["config"]["server-round"]) % len(MISBEHAVES)](given)
    else:
        moved = given + np.float32(settings["step"])
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(moved)})}), reply_to=message)
