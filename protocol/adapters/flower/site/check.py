"""What an app can reach from inside a site's sandbox: tried, by an app of ours."""

from __future__ import annotations

import io
import os
import secrets
import socket
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MessageType, RecordDict

from protocol.adapters.flower.client import shown_header
from protocol.adapters.flower.site import attempts
from protocol.adapters.flower.site.request import Request, Scalars, expected_bytes, read_arrays
from protocol.adapters.flower.site.rules import SiteRules
from protocol.adapters.flower.site.trainer import Trainer
from protocol.errors import TrainingFailedError

_APP = """\
[project]
name = "attempts"
version = "1.0.0"
[tool.flwr.app]
publisher = "veilsum"
[tool.flwr.app.components]
clientapp = "attempts:app"
serverapp = "attempts:app"
"""


def reached(home: Path, rules: SiteRules, trainings: int = 2) -> dict[str, bool]:
    """Whether each attempt succeeds, in one of so many trainings after one another.

    Raises:
        TrainingFailedError: there is no sandbox, or no training comes to its end in it.
    """
    found: dict[str, bool] = {}
    with _within_reach(home) as told:
        names = list(attempts.attempts(told))
        model = ArrayRecord({"found": Array(np.zeros(1 + len(names), np.uint8))})
        context = Context(0, 0, {}, RecordDict(), dict(told))
        header = shown_header(MessageType.TRAIN, "", context)
        message = Message(metadata=header, content=RecordDict({"arrays": model}))
        request = Request.of(_app(), message, context).write()
        for _ in range(trainings):
            trainer = Trainer(rules.trainer, rules.training_seconds, rules.sandbox)
            answer = read_arrays(trainer.run(request, expected_bytes(model)), model)
            ran, *values = answer["found"].numpy().tolist()
            if ran != 1:
                raise TrainingFailedError("the sandbox sent back what it was given")
            for name, value in zip(names, values, strict=True):
                found[name] = found.get(name, False) or bool(value)
    return found


def _app() -> bytes:
    """The app's file."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("pyproject.toml", _APP)
        archive.write(attempts.__file__, "attempts.py")
    return file.getvalue()


@contextmanager
def _within_reach(home: Path) -> Iterator[Scalars]:
    """Things that an app would reach without a sandbox, and where they are."""
    mark = f"veilsum-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        for place in attempts.places(str(home), mark):
            stack.callback(place.unlink, missing_ok=True)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        port = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        abstract, path = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        abstract.bind(f"\0{mark}")
        path.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o666)
        for each in (abstract, path):
            each.listen(4)
        places = [Path(each) / mark for each in ("/dev/shm", "/tmp")]  # noqa: S108
        for place in places:
            stack.callback(place.unlink, missing_ok=True)
            place.write_bytes(b"1")
            place.chmod(0o644)
        yield {
            "home": str(home.resolve()),
            "mark": mark,
            "port": port.getsockname()[1],
            "socket": str(folder / "socket"),
            "process": os.getpid(),
            "command": Path("/proc/self/cmdline").read_bytes().hex(),
            "user": str(os.geteuid()),
        }
