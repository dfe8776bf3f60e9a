"""What clients remember from round to round, kept for a simulation of all of them.

A client that is never asked costs nothing: its vectors are made, as zeros, when they are first
used. The whole can be written as plain arrays and read back, so that a run can go on from a
checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_CLIENTS = "/clients"
_VECTORS = "/vectors"


class ClientMemory:
    """Named vectors of single clients: float32[d] each, zero until they are first used.

    Args:
        dimension: d, the length of every vector, at least 1.

    Raises:
        TypeError: dimension is not an int.
        ValueError: dimension is below 1.
    """

    __slots__ = ("_dimension", "_vectors")

    def __init__(self, dimension: int) -> None:
        if isinstance(dimension, bool) or not isinstance(dimension, int):
            raise TypeError(f"dimension must be an int, got {type(dimension).__name__}")
        if dimension < 1:
            raise ValueError(f"dimension must be at least 1, got {dimension}")
        self._dimension = dimension
        self._vectors: dict[str, dict[int, NDArray[np.float32]]] = {}

    @property
    def dimension(self) -> int:
        """Return the dimension d of the vectors."""
        return self._dimension

    def vector(self, name: str, client: int) -> NDArray[np.float32]:
        """Return a client's vector itself, not a copy: what is written to it is remembered.

        Args:
            name: what it is for, such as "residual"; without a slash, not empty.
            client: its number, from 0.

        Raises:
            ValueError: an empty name, or one with a slash; a negative client.
        """
        if not name or "/" in name:
            raise ValueError(f"a name must be non-empty and without a slash, got {name!r}")
        if client < 0:
            raise ValueError(f"client must not be negative, got {client}")
        vectors = self._vectors.setdefault(name, {})
        if client not in vectors:
            vectors[client] = np.zeros(self._dimension, np.float32)
        return vectors[client]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return copies of everything: per name int64[m] of clients and float32[m, d]."""
        arrays: dict[str, NDArray[Any]] = {}
        for name, vectors in self._vectors.items():
            clients = sorted(vectors)
            arrays[name + _CLIENTS] = np.array(clients, dtype=np.int64)
            arrays[name + _VECTORS] = np.stack([vectors[client] for client in clients])
        return arrays

    @classmethod
    def restore(cls, dimension: int, arrays: Mapping[str, NDArray[Any]]) -> ClientMemory:
        """Return the memory whose `arrays` these are.

        Raises:
            ValueError: the arrays are not those of a memory of this dimension.
        """
        memory = cls(dimension)
        names = {name.rpartition("/")[0] for name in arrays}
        if set(arrays) != {name + part for name in names for part in (_CLIENTS, _VECTORS)}:
            raise ValueError(f"these are not the arrays of a memory: {', '.join(sorted(arrays))}")
        for name in sorted(names):
            clients, vectors = arrays[name + _CLIENTS], arrays[name + _VECTORS]
            if vectors.dtype != np.float32 or vectors.shape != (len(clients), dimension):
                raise ValueError(
                    f"{name}{_VECTORS} must be float32[{len(clients)}, {dimension}], "
                    f"got {vectors.dtype}{list(vectors.shape)}"
                )
            for client, values in zip(clients.tolist(), vectors, strict=True):
                memory.vector(name, client)[:] = values
        return memory
