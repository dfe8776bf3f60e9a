"""Whether the sums that a server has opened carry the noise that everybody counts.

In a run whose noise comes back, clients count from records what is in all sums together. Here it is
known who added what, and took what back, so both can be compared: as the covariance of honest noise
over the sums that are open, against that of what is counted of the same records.

Source: docs/correlated-noise.md, "The record" and "Aligned contributions are the worst".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dp.correlated import Parts, RoundParts
from secagg.oneshot.records import RoundRecord
from simulations.audits.base import Floats

_ROUNDINGS: Final = 1e-9

Source = tuple[int, int]
"""Noise of one draw: the member, and a number that no other draw of that member has."""


@dataclass(frozen=True, slots=True)
class Draw:
    """Noise that a member added once."""

    source: Source
    variance: float


@dataclass(frozen=True, slots=True)
class OpenedRound:
    """A sum that a server has opened."""

    before: tuple[RoundRecord, ...]
    record: RoundRecord
    noise: Mapping[int, tuple[Draw, Draw | None]]


def flaw(opened: Sequence[OpenedRound], parts: Parts) -> str:
    """What is wrong with the sums that are open, in words; empty if all is as counted."""
    if not opened:
        return ""
    rounds = sorted(opened, key=lambda each: each.record.round_number)
    numbers = [each.record.round_number for each in rounds]
    if len(set(numbers)) < len(numbers):
        return "two sums of one round"
    records = (*rounds[-1].before, rounds[-1].record)
    places = []
    for each in rounds:
        if each.record not in records:
            return "a sum that later lists leave out"
        places.append(records.index(each.record))
        if records[: places[-1]] != each.before:
            return "lists that contradict one another"
    sources = Counter(taken.source for each in rounds for _, taken in each.noise.values() if taken)
    if any(count > 1 for count in sources.values()):
        return "noise that was taken back twice"
    try:
        counted = _counted(records, parts)[np.ix_(places, places)]
    except ValueError:
        return "fewer parties than was promised"
    short = float(np.linalg.eigvalsh(_true(rounds, parts) - counted)[0])
    return "less noise than is counted" if short < -_ROUNDINGS * parts.least_fresh else ""


def _counted(records: Sequence[RoundRecord], parts: Parts) -> Floats:
    """The covariance that the product counts for these records."""
    sigma = np.zeros((len(records), len(records)))
    before: RoundParts | None = None
    entered = frozenset[int]()
    for index, record in enumerate(records):
        back = len(entered.intersection(record.returned))
        now = RoundParts(clients=record.clients, entered=len(record.entered), returned=back)
        fresh, returned = parts.fresh(now), parts.returned(now, before)
        sigma[index, index] = fresh + returned
        if index:
            sigma[index, index - 1] = sigma[index - 1, index] = -returned
        before, entered = now, frozenset(record.entered)
    return sigma


def _true(rounds: Sequence[OpenedRound], parts: Parts) -> Floats:
    """The covariance of what honest parties' noise in these sums really is."""
    factors: list[Counter[Draw]] = []
    for each in rounds:
        row: Counter[Draw] = Counter()
        for added, taken in each.noise.values():
            row[added] += 1
            if taken is not None:
                row[taken] -= 1
        factors.append(row)
    draws = sorted({draw for row in factors for draw in row}, key=lambda draw: draw.source)
    matrix = np.array([[row[draw] for draw in draws] for row in factors], np.float64)
    variances = np.array([draw.variance for draw in draws])
    honest = [each.record.clients - parts.corrupt_clients for each in rounds]
    kept = parts.client_variance * np.diag(np.array(honest, np.float64))
    return np.asarray((matrix * variances) @ matrix.T + kept)
