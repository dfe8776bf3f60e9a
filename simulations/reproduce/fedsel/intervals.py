"""Intervals over repetitions, and verdicts made from them.

Repetitions of one table are independent given the table: each shuffles, splits and draws noise
anew. Intervals are Student's, over the means of repetitions, of paired differences: arms of one
repetition share folds and order. They say how well the accuracy *on this table* is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

DOUBT: Final = 0.05
"""Probability with which an interval misses."""

NEGLIGIBLE: Final = 5e-4
"""A difference in accuracy that is surely below this is none: a twentieth of a point."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with what is known of it.

    Attributes:
        mean: over repetitions.
        error: standard error of the mean.
        count: repetitions, >= 2.
    """

    mean: float
    error: float
    count: int

    def half(self, doubt: float = DOUBT) -> float:
        """Return the half-width of the interval that misses with this probability."""
        return float(stats.t.isf(0.5 * doubt, self.count - 1)) * self.error

    def above(self, limit: float, doubt: float = DOUBT) -> bool:
        """Say whether the whole interval is above a limit."""
        return self.mean - self.half(doubt) > limit

    def below(self, limit: float, doubt: float = DOUBT) -> bool:
        """Say whether the whole interval is below a limit."""
        return self.mean + self.half(doubt) < limit

    def figures(self) -> dict[str, Any]:
        """Return all of it, with the half-width, as JSON values."""
        return {**asdict(self), "half": self.half()}


def interval(values: NDArray[np.float64]) -> Interval:
    """Return what float64[repeats, folds] say of their mean, by the means of repetitions."""
    means = values.mean(axis=1)
    spread = float(means.std(ddof=1))
    return Interval(float(means.mean()), spread / means.size**0.5, means.size)


def read_interval(figures: Mapping[str, Any]) -> Interval:
    """Return the interval whose figures these are."""
    return Interval(figures["mean"], figures["error"], figures["count"])


def judge(gains: Sequence[Interval]) -> dict[str, Any]:
    """Return the verdict on "more, in every case", and how many cases say what.

    Reproduced: every case is above zero at 95 %. Not reproduced: some case is surely not, where
    the doubt of 5 % is shared out among the cases. Else not decidable.
    """
    above = sum(gain.above(0.0) for gain in gains)
    against = sum(gain.below(NEGLIGIBLE, DOUBT / len(gains)) for gain in gains)
    return verdict(len(gains), above, against)


def verdict(cases: int, above: int, against: int) -> dict[str, Any]:
    """Return what so many cases for and against a claim come to."""
    undecided = "reproduced" if cases and above == cases else "not decidable"
    found = "not reproduced" if against else undecided
    return {"verdict": found, "cases": cases, "above": above, "against": against}
