"""The training's process as the site sees it: bytes in, bytes out, and an end.

What comes back has a length that is known before. Nothing of it is parsed: the site knows names,
types and shapes of the arrays from the model that it was sent itself.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Final

from protocol.errors import TrainingFailedError

INSIDE: Final = "protocol.adapters.flower.site.inside"
_PIECE: Final = 1 << 16
_ENDING: Final = 0.5
"""Seconds that we wait for a process that was killed."""
_KEPT: Final = ("PATH", "LANG", "LC_ALL", "TZ", "OMP_NUM_THREADS")
"""What the training's process gets of our environment."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """Starts a process for each training, and kills it.

    Args:
        command: that starts it; this Python with `inside` if empty.
        seconds: longest time.
    """

    command: Sequence[str]
    seconds: float

    def run(self, request: bytes, expected: int) -> bytes:
        """What a training makes of a request: so many bytes.

        Raises:
            TrainingFailedError: it gave more or fewer, or did not end in time. In any case it and
                all of its process group are killed before we return.
        """
        command = list(self.command) or [sys.executable, "-P", "-m", INSIDE]
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own command
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_environment(os.environ),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise TrainingFailedError(f"{command[0]}: {error.strerror}") from None
        try:
            return _exchanged(process, request, expected, time.monotonic() + self.seconds)
        finally:
            # A sandbox that runs as another user ends by the end of its pipes.
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):
                    if pipe is not None:
                        pipe.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDING)


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    return {name: ours[name] for name in _KEPT if name in ours}


def _exchanged(
    process: subprocess.Popen[bytes], request: bytes, expected: int, end: float
) -> bytes:
    """Write and read at once: neither side may wait for the other for ever."""
    if process.stdin is None or process.stdout is None:
        raise TrainingFailedError("the process has no pipes")
    left, found = memoryview(request), bytearray()
    with selectors.DefaultSelector() as selector:
        for pipe, what in (
            (process.stdin, selectors.EVENT_WRITE),
            (process.stdout, selectors.EVENT_READ),
        ):
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, what)
        while True:
            ready = selector.select(max(0.0, end - time.monotonic()))
            if not ready or time.monotonic() >= end:
                raise TrainingFailedError("training did not end in time")
            for key, _ in ready:
                if key.fileobj is process.stdin:
                    left = _written(process.stdin, left)
                    if not left:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                    continue
                try:
                    piece = os.read(process.stdout.fileno(), _PIECE)
                except BlockingIOError:  # the app reads its own output
                    continue
                found += piece
                if piece and len(found) < expected:
                    continue
                if len(found) != expected:
                    more = "more than" if piece else f"{len(found)} of"
                    raise TrainingFailedError(f"training gave {more} {expected} bytes")
                # Not waiting for an end: what the app has left running may hold the pipe.
                return bytes(found)


def _written(pipe: IO[bytes], left: memoryview) -> memoryview:
    """What is left to write; nothing if nobody reads it any more."""
    try:
        return left[os.write(pipe.fileno(), left[:_PIECE]) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:
        return left[:0]
