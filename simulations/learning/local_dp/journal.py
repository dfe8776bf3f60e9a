"""What clients remember, in a file that grows by what a round changed.

A round's rows are added to the file, durably, before the checkpoint that says which file it is and
how many of its bytes count. Killed between the two, a run goes on as if nothing had been added: the
rest of the file is cut off, and the round is run again. A file that has grown to more than twice
what is remembered is not added to: everything is written to a new one, and the old one is removed
when a checkpoint names the new one. All in all, twice the bytes of the rows are written at most.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final, Self

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ConfigurationError
from simulations.common.files import write_behind
from simulations.learning.local_dp.memory import ClientMemory

PATTERN: Final = "memory-*.rows"
"""The names of these files in the folder of a run."""

_LENGTH_BYTES: Final = 8
_DIGEST_BYTES: Final = 32


class MemoryJournal:
    """A memory and the file that holds it; as a context, for as long as a run goes on.

    Args:
        place: int64[2], the `place` in the checkpoint; None if there is no checkpoint.
    """

    def __init__(
        self, folder: Path, memory: ClientMemory, place: NDArray[np.int64] | None = None
    ) -> None:
        self._folder, self._memory = folder, memory
        self._number, self._size = (0, 0) if place is None else map(int, place)
        self._read()
        self._remove_others()

    @property
    def place(self) -> NDArray[np.int64]:
        """What a checkpoint has to keep: the file's number, and how many of its bytes count."""
        return np.array([self._number, self._size])

    def keep(self, clients: Sequence[int]) -> None:
        """Write down what some clients remember now, durably.

        Called once for each checkpoint: the one that names the last `place` is on disk by now.
        """
        self._remove_others()
        memory = self._memory
        if self._size + len(clients) * memory.row_bytes > 2 * len(memory) * memory.row_bytes:
            everything = _framed(memory.blocks(memory.clients))
            self._size = write_behind(self._path(self._number + 1), 0, everything)
            self._number += 1
        else:
            blocks = _framed(memory.blocks(clients))
            self._size = write_behind(self._path(self._number), self._size, blocks)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *details: object) -> None:
        """At the end of a run, its last checkpoint is on disk; otherwise nobody knows."""
        if kind is None:
            self._remove_others()

    def _path(self, number: int) -> Path:
        return self._folder / PATTERN.replace("*", str(number))

    def _remove_others(self) -> None:
        """Remove files that no checkpoint names any more, or none has named."""
        for path in self._folder.glob(PATTERN):
            if path != self._path(self._number):
                path.unlink()

    def _read(self) -> None:
        path = self._path(self._number)
        if not self._size:
            return
        try:
            with path.open("rb") as file:
                for block in _blocks(file, self._size):
                    self._memory.learn(block)
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                str(path),
                f"damaged ({error})",
                "what clients remember; start the run again in another folder",
            ) from None


def _framed(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks with their lengths and digests before them."""
    return chain.from_iterable(
        (len(block).to_bytes(_LENGTH_BYTES, "little"), hashlib.sha256(block).digest(), block)
        for block in blocks
    )


def _blocks(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The blocks in the first bytes of a file."""
    while size:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        digest = file.read(_DIGEST_BYTES)
        size -= _LENGTH_BYTES + _DIGEST_BYTES + length
        # Before it is read: a wrong length may be of any size.
        block = file.read(length) if size >= 0 else b""
        if len(block) != length or hashlib.sha256(block).digest() != digest:
            raise ValueError(f"no block ends {size} bytes before the end")
        yield block
