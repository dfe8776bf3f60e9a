"""A hostile app for `veilsum site check`: each attempt is 1 if it succeeds and 0 if not.

It imports nothing of ours: it is sent into the sandbox as an app's file is, and trains twice. What
the first training leaves behind, the second looks for.
"""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


def connects(family: int, place: tuple[str, int] | str) -> bool:
    """Whether somebody can be reached there."""
    with socket.socket(family) as link:
        link.settimeout(2.0)
        link.connect(place)
        return True


def reads(path: str) -> bool:
    """Whether a file can be read."""
    with open(path, "rb") as file:
        return bool(file.read(1))


def signals(number: int, expected: str) -> bool:
    """Whether a process can be sent signals, and is the one that is meant."""
    os.kill(number, 0)
    with open(f"/proc/{number}/cmdline", "rb") as file:
        return file.read().hex() == expected


def writes(folder: str, name: str) -> bool:
    """Whether a file can be made, and kept."""
    pathlib.Path(folder, name).write_bytes(b"1")
    return True


def stays(address: str, seconds: float) -> bool:
    """Leave a process that answers on an abstract socket; not a success by itself."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(address)
            server.listen(4)
            time.sleep(seconds)
        os._exit(0)
    return False


def left(folders: list[str], name: str) -> bool:
    """Whether an earlier training's file is still there."""
    return any(os.path.exists(os.path.join(each, name)) for each in folders)


def attempts(told: Mapping[str, object]) -> dict[str, Callable[[], bool]]:
    """All attempts by name."""
    text = {key: str(value) for key, value in told.items()}
    home, mark, port = text["home"], text["mark"], int(text["port"])
    kept = ["/tmp", "/dev/shm", "/var/tmp", "/run", home]  # noqa: S108 - others look there
    return {
        "a port of this machine": lambda: connects(socket.AF_INET, ("127.0.0.1", port)),
        "an abstract socket of this machine": lambda: connects(socket.AF_UNIX, "\0" + mark),
        "a socket of this machine": lambda: connects(socket.AF_UNIX, text["socket"]),
        "a network interface": lambda: any(n != "lo" for _, n in socket.if_nameindex()),
        "the identity key": lambda: reads(os.path.join(home, "identity.key")),
        "the names of the site's files": lambda: bool(os.listdir(home)),
        "a file in /dev/shm": lambda: reads("/dev/shm/" + mark),  # noqa: S108
        "a file in /tmp": lambda: reads("/tmp/" + mark),  # noqa: S108
        "the site's process": lambda: signals(int(text["process"]), text["command"]),
        "the site's user": lambda: str(os.getuid()) == text["user"],
        "the packages that trainings run": lambda: writes(sys.prefix, mark),
        "a file of an earlier training": lambda: left(kept, mark + "-left"),
        "a process of an earlier training": lambda: connects(socket.AF_UNIX, f"\0{mark}-left"),
    }


@app.train()  # type: ignore[untyped-decorator]  # flwr is not typed
def train(message: Message, context: Context) -> Message:
    """Try everything; the outcome is the model."""
    ((name, _),) = message.content.items()
    told = context.run_config
    found = []
    for attempt in attempts(told).values():
        try:
            found.append(attempt())
        except Exception:  # an attempt that fails is what is hoped for
            found.append(False)
    mark = str(told["mark"])
    for folder in ("/tmp", "/dev/shm", "/var/tmp", "/run", str(told["home"])):  # noqa: S108
        try:
            writes(folder, mark + "-left")
        except OSError:
            continue
    try:
        stays(f"\0{mark}-left", 30.0)
    except OSError:
        pass
    model = ArrayRecord({"found": Array(np.array(found, np.uint8))})
    return Message(RecordDict({name: model}), reply_to=message)
