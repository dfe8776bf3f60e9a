"""A hostile app for `veilsum site check`: each attempt is 1 if it succeeds and 0 if not.

It imports nothing of ours: it is sent into the sandbox as an app's file is, and trains twice. What
the first training leaves behind, the second looks for.
"""

from __future__ import annotations

import contextlib
import ctypes
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
SHARED = ("/tmp", "/dev/shm", "/var/tmp", "/run")  # noqa: S108 - others look there


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


def rings() -> bool:
    """Whether there are io_urings, which make sockets whatever a filter says of them."""
    return int(ctypes.CDLL(None).syscall(425, 1, ctypes.create_string_buffer(256))) >= 0


def writes(folder: str, name: str) -> bool:
    """Whether a file can be made."""
    path = pathlib.Path(folder, name)
    path.write_bytes(b"1")
    path.unlink()
    return True


def on_disk(folder: str) -> bool:
    """Whether files that are made there lie on a disk."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    writes(folder, mark)
    mounts = pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
    places = {line.split()[4]: line.split(" - ")[1].split()[0] for line in mounts}
    place = max((each for each in places if pathlib.Path(folder).is_relative_to(each)), key=len)
    return places[place] != "tmpfs"


def tried(attempt: Callable[[], bool]) -> bool:
    """Whether an attempt succeeds; one that fails is what is hoped for."""
    try:
        return attempt()
    except Exception:
        return False


def stays(address: str, seconds: float) -> None:
    """Leave a process that answers on an abstract socket."""
    if os.fork():
        return
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(address)
            server.listen(4)
            time.sleep(seconds)
    finally:
        os._exit(0)


def places(home: str, mark: str) -> list[pathlib.Path]:
    """Where a training leaves files."""
    return [pathlib.Path(each, f"{mark}-left") for each in (*SHARED, home)]


def attempts(told: Mapping[str, object]) -> dict[str, Callable[[], bool]]:
    """All attempts by name."""
    text = {key: str(value) for key, value in told.items()}
    home, mark, port = text["home"], text["mark"], int(text["port"])
    return {
        "a port of this machine": lambda: connects(socket.AF_INET, ("127.0.0.1", port)),
        "an abstract socket of this machine": lambda: connects(socket.AF_UNIX, "\0" + mark),
        "a socket of this machine": lambda: connects(socket.AF_UNIX, text["socket"]),
        "a network interface": lambda: any(
            name.split(":")[0].strip() != "lo"
            for name in pathlib.Path("/proc/self/net/dev").read_text().splitlines()[2:]
        ),
        "rings of the kernel, which make sockets": rings,
        "the identity key": lambda: reads(os.path.join(home, "identity.key")),
        "the names of the site's files": lambda: bool(os.listdir(home)),
        "a file in /dev/shm": lambda: reads("/dev/shm/" + mark),  # noqa: S108
        "a file in /tmp": lambda: reads("/tmp/" + mark),  # noqa: S108
        "a folder on a disk": lambda: any(
            tried(lambda folder=each: on_disk(folder))  # type: ignore[misc]
            for each in (*SHARED, os.environ.get("HOME", "/"), os.getcwd())
        ),
        "the site's process": lambda: signals(int(text["process"]), text["command"]),
        "the site's user": lambda: str(os.getuid()) == text["user"],
        "the packages that trainings run": lambda: writes(sys.prefix, mark),
        "a file of an earlier training": lambda: any(p.exists() for p in places(home, mark)),
        "a process of an earlier training": lambda: connects(socket.AF_UNIX, f"\0{mark}-left"),
    }


@app.train()  # type: ignore[untyped-decorator]  # flwr is not typed
def train(message: Message, context: Context) -> Message:
    """Try everything; the outcome is the model, behind a 1 that says that this was run."""
    ((name, _),) = message.content.items()
    told = context.run_config
    found = [True, *(tried(attempt) for attempt in attempts(told).values())]
    mark = str(told["mark"])
    for path in places(str(told["home"]), mark):
        with contextlib.suppress(OSError):
            path.write_bytes(b"1")
    with contextlib.suppress(OSError):  # no process to be had
        stays(f"\0{mark}-left", 30.0)
    model = ArrayRecord({"found": Array(np.array(found, np.uint8))})
    return Message(RecordDict({name: model}), reply_to=message)
