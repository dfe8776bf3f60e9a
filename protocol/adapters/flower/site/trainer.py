"""The training's process as the site sees it: bytes in, bytes out, and an end.

What comes back has a length that is known before. Nothing of it is parsed: the site knows names,
types and shapes of the arrays from the model that it was sent itself.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Protocol

from protocol.errors import TrainingFailedError

INSIDE: Final = "protocol.adapters.flower.site.inside"
_PIECE: Final = 1 << 16
_ENDING: Final = 0.5
"""Seconds that we wait for a process that was killed."""
_AGAIN: Final = 0.1
"""Seconds after which a sandbox that is just starting anew is tried again."""
_KEPT: Final = ("PATH", "LANG", "LC_ALL", "TZ", "OMP_NUM_THREADS")
"""What the training's process gets of our environment."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """Has a process made for each training, and ends it.

    Args:
        command: that starts it; this Python with `inside` if empty.
        seconds: longest time.
        sandbox: path of a socket; whoever connects to it gets such a process. Then no command.
    """

    command: Sequence[str]
    seconds: float
    sandbox: str | None = None

    def run(self, request: bytes, expected: int) -> bytes:
        """What a training makes of a request: so many bytes.

        Raises:
            TrainingFailedError: it gave more or fewer, or did not end in time. In any case its
                pipes are closed before we return, and it and its process group killed if we
                started it.
        """
        end = time.monotonic() + self.seconds
        started = _started(self.command) if self.sandbox is None else _reached(self.sandbox, end)
        with started as pipes:
            return _exchanged(*pipes, request, expected, end)


@contextmanager
def _started(command: Sequence[str]) -> Iterator[_Pipes]:
    """A process of this command, and its end."""
    command = list(command) or [sys.executable, "-P", "-m", INSIDE]
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
    pipes = process.stdin, process.stdout
    try:
        yield pipes  # type: ignore[misc]  # both were asked for
    finally:
        # A process that runs as another user ends by the end of its pipes.
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        for pipe in pipes:
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        with suppress(subprocess.TimeoutExpired):
            process.wait(_ENDING)


@contextmanager
def _reached(sandbox: str, end: float) -> Iterator[_Pipes]:
    """A process of a sandbox that listens on a socket; it ends when we hang up."""
    with socket.socket(socket.AF_UNIX) as link:
        while True:
            try:
                # Training can leave something else in its place, if its sandbox lets it.
                if not stat.S_ISSOCK(os.lstat(sandbox).st_mode):
                    raise TrainingFailedError(f"{sandbox}: no socket")
                link.settimeout(max(_AGAIN, end - time.monotonic()))
                link.connect(sandbox)
                break
            except OSError as error:
                starting = isinstance(
                    error, ConnectionRefusedError | FileNotFoundError | BlockingIOError
                )
                if not starting or time.monotonic() + _AGAIN > end:
                    raise TrainingFailedError(f"{sandbox}: {error}") from None
            time.sleep(_AGAIN)
        try:
            yield _Sending(link.dup()), link
        finally:
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)


class _Sending:
    """The sending half of a connection, closed as a pipe is."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link

    def fileno(self) -> int:
        return self._link.fileno()

    def close(self) -> None:
        with suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)
        self._link.close()


class _End(Protocol):
    """An end of a pipe or of a connection."""

    def fileno(self) -> int: ...

    def close(self) -> None: ...


_Pipes = tuple[_End, _End]


def _environment(ours: Mapping[str, str]) -> dict[str, str]:
    return {name: ours[name] for name in _KEPT if name in ours}


def _exchanged(there: _End, back: _End, request: bytes, expected: int, end: float) -> bytes:
    """Write and read at once: neither side may wait for the other for ever."""
    left, found = memoryview(request), bytearray()
    with selectors.DefaultSelector() as selector:
        for pipe, what in ((there, selectors.EVENT_WRITE), (back, selectors.EVENT_READ)):
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, what)
        while True:
            ready = selector.select(max(0.0, end - time.monotonic()))
            if not ready or time.monotonic() >= end:
                raise TrainingFailedError("training did not end in time")
            for key, _ in ready:
                if key.fileobj is there:
                    left = _written(there, left)
                    if not left:
                        selector.unregister(there)
                        there.close()
                    continue
                try:
                    piece = os.read(back.fileno(), _PIECE)
                except BlockingIOError:  # the app reads its own output
                    continue
                except ConnectionResetError:
                    piece = b""
                found += piece
                if piece and len(found) < expected:
                    continue
                if len(found) != expected:
                    more = "more than" if piece else f"{len(found)} of"
                    raise TrainingFailedError(f"training gave {more} {expected} bytes")
                # Not waiting for an end: what the app has left running may hold the pipe.
                return bytes(found)


def _written(pipe: _End, left: memoryview) -> memoryview:
    """What is left to write; nothing if nobody reads it any more."""
    try:
        return left[os.write(pipe.fileno(), left[:_PIECE]) :]
    except BlockingIOError:
        return left
    except (BrokenPipeError, ConnectionResetError):
        return left[:0]
