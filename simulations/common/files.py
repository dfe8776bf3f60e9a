"""Files that are replaced whole or not at all, so that a full disk never costs what was there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from secagg.storage import sync_folder, write_durably


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Name the file in errors of the system that do not: a full disk says only that it is full."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_whole(path: Path, data: bytes | str, mode: int = 0o666) -> None:
    """Replace a file by another in one step, durably.

    A link is followed. What is no regular file, a pipe or a terminal, is written to as it is.
    """
    path = path.resolve()
    if path.exists() and not path.is_file() and not path.is_dir():
        with named(path):
            path.write_bytes(data.encode() if isinstance(data, str) else data)
        return
    fresh = path.with_name(path.name + ".new")
    try:
        # Made anew, or a file that is there would keep its mode.
        fresh.unlink(missing_ok=True)
        with named(path):
            made = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            write_durably(made, data.encode() if isinstance(data, str) else data)
        fresh.replace(path)
    except OSError:
        # What was written of it is in the way of a full disk, and of nothing else.
        fresh.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def append_durably(path: Path, data: bytes) -> None:
    """Add to the end of a file, durably; it is made if it does not exist."""
    with named(path), path.open("ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_behind(path: Path, start: int, pieces: Iterable[bytes]) -> int:
    """Put pieces behind the first bytes of a file, durably; what stood there is cut off.

    Args:
        start: bytes that stay.

    Returns:
        the bytes of the file then.
    """
    with named(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.truncate(start)
            file.seek(start)
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        if not start:
            sync_folder(path.parent)
    return size
