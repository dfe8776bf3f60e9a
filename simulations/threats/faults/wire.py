"""A wire that loses, doubles, delays, damages and exchanges messages, and reorders the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulations.threats.faults.behaviours import Tally

FAULTS = ("drop", "double", "delay", "flip", "cut", "extend", "exchange")

Sent = list[tuple[int, bytes]]
"""Messages on their way: the client they come from or go to, and their bytes."""


class Wire:
    """Carries messages, each with some probability of a fault."""

    def __init__(
        self, rng: np.random.Generator, rate: float, tally: Tally, old: Sequence[bytes] = ()
    ) -> None:
        self._rng = rng
        self.rate = rate
        self._tally = tally
        self._old = list(old)
        self._late: Sent = []

    def carry(self, sent: Sent) -> Sent:
        """What arrives of these messages, after what was delayed before."""
        arriving, self._late = self._late, []
        for party, data in sent:
            arriving += self._fault(party, data)
            self._old.append(data)
        return [arriving[i] for i in self._rng.permutation(len(arriving))]

    def _fault(self, party: int, data: bytes) -> Sent:
        if self._rng.random() >= self.rate:
            return [(party, data)]
        kind = FAULTS[self._rng.integers(len(FAULTS))]
        self._tally.faults[kind] += 1
        if kind == "drop":
            return []
        if kind == "double":
            return [(party, data), (party, data)]
        if kind == "delay":
            self._late.append((party, data))
            return []
        return [(party, self._damaged(kind, data))]

    def _damaged(self, kind: str, data: bytes) -> bytes:
        place = int(self._rng.integers(len(data)))
        if kind == "flip":
            flipped = data[place] ^ (1 << int(self._rng.integers(8)))
            return data[:place] + bytes([flipped]) + data[place + 1 :]
        if kind == "cut":
            return data[:place]
        if kind == "extend":
            return data + self._rng.bytes(1 + place % 40)
        return self._old[self._rng.integers(len(self._old))] if self._old else b""
