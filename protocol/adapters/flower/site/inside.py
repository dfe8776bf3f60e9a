"""The training's process: unpacks the app, trains once, writes the arrays, and is gone.

Nothing here protects anybody: it runs what it is given, and the site believes nothing of it.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import tomllib
import zipfile
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
    """Answer the one request on standard input."""
    out = os.fdopen(os.dup(1), "wb")
    # What the app prints is no answer.
    os.dup2(2, 1)
    request = Request.read(sys.stdin.buffer.read())
    with tempfile.TemporaryDirectory(prefix="veilsum-app-") as folder:
        data = trained(request, Path(folder))
        os.chdir("/")
    # The folder is gone by now: after the last byte we are killed.
    out.write(data)
    out.flush()
    os._exit(0)


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
