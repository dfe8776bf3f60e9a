"""A client of secure aggregation and nothing else: its input is a vector of integers as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg import ClientSession, PrimeField, lift


class IntegerPeer:
    """A `Peer` of a `MemoryRound` whose input is given."""

    def __init__(self, session: ClientSession, values: NDArray[Any], field: PrimeField) -> None:
        self._session = session
        self._values = values
        self._field = field

    def open(self) -> bytes:
        """The first message."""
        return self._session.begin_bytes()

    def receive(self, data: bytes) -> bytes | None:
        """Answer the server."""
        return self._session.receive_bytes(data)

    def submit(self) -> bytes:
        """The masked vector."""
        return self._session.submit_bytes(lift(np.asarray(self._values, np.int64), self._field))
