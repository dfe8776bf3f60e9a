"""Runs whose noise comes back, member by member, and what they are truly worth to a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dp.correlated import CorrelatedAccountant, Parts, RoundParts


@dataclass(frozen=True)
class Record:
    """Of one round: the number of clients, and which members entered and which took back."""

    clients: int
    entered: frozenset[int]
    returned: frozenset[int]

    @property
    def numbers(self) -> RoundParts:
        return RoundParts(
            clients=self.clients, entered=len(self.entered), returned=len(self.returned)
        )


def random_records(rng: np.random.Generator, parts: Parts, rounds: int) -> list[Record]:
    """Members stay away, and take back or not, in rounds that are true to the promises."""
    records: list[Record] = []
    for _ in range(rounds):
        present = int(rng.integers(parts.fewest_members, parts.members + 1))
        entered = frozenset(map(int, rng.choice(parts.members, present, replace=False)))
        may = entered & records[-1].entered if records else frozenset()
        odds = rng.choice([0.0, 0.5, 1.0, 1.0])
        returned = frozenset(j for j in may if rng.random() < odds)
        clients = int(rng.integers(parts.fewest_clients, parts.clients + 1))
        records.append(Record(clients, entered, returned))
    return records


def honest_charge(
    parts: Parts, records: Sequence[Record], corrupt: Sequence[int], bounds: np.ndarray
) -> float:
    """B' Sigma^-1 B of the parts of honest members and of all clients but n_C."""
    size = len(records)
    sigma = np.zeros((size, size))
    for t, record in enumerate(records):
        sigma[t, t] += parts.client_variance * (record.clients - parts.corrupt_clients)
        for member in record.entered - set(corrupt):
            signs = np.zeros(size)
            signs[t] = 1.0
            if t + 1 < size and member in records[t + 1].returned:
                signs[t + 1] = -1.0
            sigma += parts.member_variance * np.outer(signs, signs)
    return float(bounds @ np.linalg.solve(sigma, bounds))


def accounted(parts: Parts, records: Sequence[Record], bounds: np.ndarray) -> CorrelatedAccountant:
    accountant, before = CorrelatedAccountant(), None
    for index, (record, bound) in enumerate(zip(records, bounds, strict=True), 1):
        now = record.numbers
        accountant.compose(parts.release(index, now, before, float(bound)))
        before = now
    return accountant
