"""The training's process: unpacks the app, trains once, writes the arrays, and is gone.

Nothing here protects anybody: it runs what it is given, and the site believes nothing of it. Two
processes: one trains, the other waits for its end or for the site to hang up, whichever is first.
A sandbox ends with the one that waits, and takes whatever training has started with it.

    python -P -m protocol.adapters.flower.site.inside            one request on standard input
    python -P -m protocol.adapters.flower.site.inside SOCKET     one connection to a socket
"""

from __future__ import annotations

import io
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import tomllib
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.object_ref import load_app

from protocol.adapters.flower import client
from protocol.adapters.flower.site.request import Request, written

LARGEST_APP: Final = 1 << 28
"""Bytes of an app, unpacked."""


def main() -> None:
    """Answer one request."""
    if sys.argv[1:]:
        accept(sys.argv[1])
    out = os.fdopen(os.dup(1), "wb")
    # What the app prints is no answer.
    os.dup2(2, 1)
    request = Request.read(sys.stdin.buffer.read())
    if child := os.fork():
        wait(child, out.fileno())
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os._exit(0)
    with tempfile.TemporaryDirectory(prefix="veilsum-app-") as folder:
        data = trained(request, Path(folder))
        os.chdir("/")
    # The folder is gone by now: after the last byte the site hangs up.
    out.write(data)
    out.flush()
    os._exit(0)


def accept(path: str) -> None:
    """Listen on a socket, and make its first connection our input and output."""
    # An earlier training may have left anything there.
    shutil.rmtree(path, ignore_errors=True)
    with suppress(FileNotFoundError):
        os.unlink(path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        os.chmod(path, 0o660)
        server.listen(1)
        link, _ = server.accept()
    os.unlink(path)
    for descriptor in (0, 1):
        os.dup2(link.fileno(), descriptor)
    link.close()


def wait(child: int, out: int) -> None:
    """Wait until a process has ended, or nobody reads our output any more."""
    ends = select.poll()
    ends.register(os.pidfd_open(child), select.POLLIN)
    ends.register(out, 0)
    ends.poll()


def trained(request: Request, folder: Path) -> bytes:
    """What the app's training makes of a request."""
    unpack(request.app, folder)
    settings = tomllib.loads((folder / "pyproject.toml").read_text())
    named = settings["tool"]["flwr"]["app"]["components"]["clientapp"]
    os.chdir(folder)
    app = load_app(named, ValueError, folder)
    if not isinstance(app, ClientApp):
        raise TypeError(f"{named} is {type(app).__name__}, no ClientApp")
    context = Context(0, 0, dict(request.node_config), RecordDict(), dict(request.run_config))
    header = client.shown_header(request.message_type, request.group_id, context)
    # The site has the mod's part; here the app's mods may look at what they see elsewhere.
    client.train_unprotected()
    reply = app(Message(metadata=header, content=request.records), context)
    received = client.only_arrays(request.records)
    return written(client.only_arrays(reply.content), received)


def unpack(app: bytes, folder: Path) -> None:
    """Unpack an app's file into a fresh folder, and nowhere else."""
    with zipfile.ZipFile(io.BytesIO(app)) as archive:
        if sum(each.file_size for each in archive.infolist()) > LARGEST_APP:
            raise ValueError(f"the app has more than {LARGEST_APP} bytes")
        for each in archive.infolist():
            place = (folder / each.filename).resolve()
            if not place.is_relative_to(folder.resolve()):
                raise ValueError(f"{each.filename!r} leaves its folder")
        archive.extractall(folder)


if __name__ == "__main__":
    main()
