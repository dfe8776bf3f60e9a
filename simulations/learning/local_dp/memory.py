"""What clients remember from round to round, kept for a simulation of all of them.

A client that is never asked costs nothing: its vectors are made, as zeros, when they are first
used. What some of them remember can be written as bytes and read back: for a file from which a run
goes on, and for other processes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from dp.checks import require_integer

BLOCK_BYTES: Final = 1 << 22
"""Most bytes of a block of several clients."""

_NUMBER: Final = np.dtype("<i8")
_VALUE: Final = np.dtype("<f4")


class _Block(msgspec.Struct, frozen=True, array_like=True):
    """What some clients remember: for each its number, its reports, and a vector for each name."""

    names: tuple[str, ...]
    clients: bytes
    sent: bytes
    vectors: bytes


class ClientMemory:
    """Named vectors of single clients: float32[d] each, zero until they are first used.

    Attributes:
        sent: how many reports each client has sent.
    """

    __slots__ = ("_dimension", "_vectors", "sent")

    def __init__(self, dimension: int) -> None:
        require_integer("dimension", dimension, 1)
        self._dimension = dimension
        self._vectors: dict[str, dict[int, NDArray[np.float32]]] = {}
        self.sent: Counter[int] = Counter()

    @property
    def dimension(self) -> int:
        """Return the dimension d of the vectors."""
        return self._dimension

    def vector(self, name: str, client: int) -> NDArray[np.float32]:
        """Return a client's vector itself, not a copy: what is written to it is remembered."""
        if not name:
            raise ValueError("a name must be non-empty, got ''")
        if client < 0:
            raise ValueError(f"client must not be negative, got {client}")
        vectors = self._vectors.setdefault(name, {})
        if client not in vectors:
            vectors[client] = np.zeros(self._dimension, np.float32)
            self.sent.setdefault(client, 0)
        return vectors[client]

    @property
    def clients(self) -> list[int]:
        """Return all clients that remember anything, ascending."""
        return sorted(self.sent)

    def __len__(self) -> int:
        """Return how many they are."""
        return len(self.sent)

    @property
    def most_sent(self) -> int:
        """Return the reports of the client that sent most."""
        return max(self.sent.values(), default=0)

    @property
    def row_bytes(self) -> int:
        """Return how many bytes `blocks` needs for a client, but for a little for each block."""
        return 2 * _NUMBER.itemsize + len(self._vectors) * self._dimension * _VALUE.itemsize

    def blocks(self, clients: Sequence[int]) -> Iterator[bytes]:
        """Yield what some clients remember, for `learn`; a few megabytes at a time at most."""
        names = tuple(sorted(self._vectors))
        rows = max(1, BLOCK_BYTES // self.row_bytes)
        for first in range(0, len(clients), rows):
            some = clients[first : first + rows]
            vectors = (self.vector(name, client) for client in some for name in names)
            block = _Block(
                names,
                np.array(some, _NUMBER).tobytes(),
                np.array([self.sent[client] for client in some], _NUMBER).tobytes(),
                b"".join(np.asarray(vector, _VALUE).tobytes() for vector in vectors),
            )
            yield msgspec.msgpack.encode(block)

    def learn(self, block: bytes) -> None:
        """Replace what the clients of a block remember."""
        try:
            read = msgspec.msgpack.decode(block, type=_Block)
        except msgspec.DecodeError as error:
            raise ValueError(str(error)) from None
        clients, sent = (np.frombuffer(each, _NUMBER) for each in (read.clients, read.sent))
        values = np.frombuffer(read.vectors, _VALUE)
        shape = (len(clients), len(read.names), self._dimension)
        if len(sent) != len(clients) or values.size != math.prod(shape):
            raise ValueError(
                f"{values.size} numbers and {len(sent)} counts for {len(clients)} clients with "
                f"{len(read.names)} vectors of {self._dimension}"
            )
        rows = zip(clients.tolist(), sent.tolist(), values.reshape(shape), strict=True)
        for client, count, vectors in rows:
            self.sent[client] = count
            for name, vector in zip(read.names, vectors, strict=True):
                self.vector(name, client)[:] = vector
