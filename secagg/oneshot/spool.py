"""Uploads that may still be needed: in memory up to a bound, beyond it in a file without a name.

A ciphertext is added up when it arrives, and looked at again only if its upload is left out; the
seals are handed to the members when all uploads are in. Both together are what a server cannot
afford to keep: clients times dimension, and clients times members. What is spooled is public to the
server.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

IN_MEMORY_BYTES = 64 << 20
"""Most bytes of one spool that are kept in memory."""
COLUMNS_BYTES = 16 << 20
"""Most bytes of columns that are read together, unless one column alone is longer."""


class Spool:
    """Items of bytes by number; what is not in memory is in a temporary file.

    Args:
        folder: where the file is made, if one is needed; None for the system's place.
        in_memory: most bytes kept in memory.
    """

    def __init__(self, folder: Path | None = None, in_memory: int = IN_MEMORY_BYTES) -> None:
        self._folder = folder
        self._left = in_memory
        self._held: dict[int, bytes] = {}
        self._places: dict[int, tuple[int, int]] = {}
        self._file: BinaryIO | None = None
        self._end = 0

    def put(self, number: int, item: bytes) -> None:
        """Keep an item; a number is used once."""
        if len(item) <= self._left:
            self._left -= len(item)
            self._held[number] = item
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)
            weakref.finalize(self, self._file.close)
        written = 0
        # One call may write a part only, on a disk that is nearly full for instance.
        while written < len(item):
            rest = memoryview(item)[written:]
            written += os.pwrite(self._file.fileno(), rest, self._end + written)
        self._places[number] = (self._end, len(item))
        self._end += len(item)

    def get(self, number: int, start: int = 0, length: int | None = None) -> bytes:
        """An item, or at most `length` bytes of it from `start` on; KeyError if there is none."""
        if number in self._held:
            item = self._held[number]
            return item if length is None else item[start : start + length]
        place, size = self._places[number]
        assert self._file is not None  # noqa: S101 - whatever has a place is in the file
        end = size if length is None else min(start + length, size)
        found = b""
        while start + len(found) < end:
            at = start + len(found)
            piece = os.pread(self._file.fileno(), end - at, place + at)
            if not piece:
                raise OSError("the file of spooled uploads has been cut")
            found += piece
        return found

    def columns(
        self, numbers: Sequence[int], width: int, count: int, together: int | None = None
    ) -> Iterator[bytes]:
        """Items cut into `count` pieces of `width` bytes: all first pieces, all second ones, ...

        Several columns are read at once, because a read of one piece alone costs more than the
        piece.

        Args:
            together: most bytes that are read at once; `COLUMNS_BYTES` if left out.
        """
        most = COLUMNS_BYTES if together is None else together
        step = max(1, most // max(1, width * len(numbers)))
        for first in range(0, count, step):
            here = min(step, count - first)
            read = b"".join(self.get(each, first * width, here * width) for each in numbers)
            pieces = np.frombuffer(read, np.uint8).reshape(len(numbers), here, width)
            for column in range(here):
                yield pieces[:, column].tobytes()

    def clear(self) -> None:
        """Forget everything, and free the disk."""
        self._held.clear()
        self._places.clear()
        if self._file is not None:
            self._file.close()
            self._file = None
