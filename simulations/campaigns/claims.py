"""A claim is data: what is said and where, what was measured, how close is close, a verdict.

A verdict follows from the interval of what was measured: *reproduced* if all of it supports the
claim, *not reproduced* if none of it does, *not decided* otherwise. Also of a claim that is false
as printed it is said that it was not reproduced.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

REPRODUCED: Final = "reproduced"
NOT_REPRODUCED: Final = "not reproduced"
UNDECIDED: Final = "not decided"

DOUBT: Final = 0.05  # probability with which an interval misses
OURS: Final = "ours"  # the source of a claim that no paper makes: a question of this project


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean of independent runs and what is known of it, by Student's law."""

    mean: float  # of the runs
    error: float  # standard error of the mean; infinite where a single run says nothing
    count: float  # of runs; infinite for an error that is known by itself

    @classmethod
    def of(cls, values: Sequence[float] | NDArray[np.float64]) -> Interval:
        """Return the interval of independent values."""
        mean = float(np.mean(values))
        if len(values) < 2:
            return cls(mean, math.inf, 1)
        return cls(mean, float(np.std(values, ddof=1)) / len(values) ** 0.5, len(values))

    def half(self, doubt: float = DOUBT) -> float:
        """Return the half-width of the interval that misses with this probability."""
        if math.isinf(self.error):
            return math.inf
        return float(student.isf(0.5 * doubt, self.count - 1)) * self.error

    def width(self, doubt: float = DOUBT) -> float | None:
        """Return the same; None where a single run says nothing."""
        return None if math.isinf(self.error) else self.half(doubt)

    def above(self, limit: float, doubt: float = DOUBT) -> bool:
        """Say whether the whole interval is above a limit."""
        return self.mean - self.half(doubt) > limit

    def below(self, limit: float, doubt: float = DOUBT) -> bool:
        """Say whether the whole interval is below a limit."""
        return self.mean + self.half(doubt) < limit


def half_width(values: Sequence[float] | NDArray[np.float64], doubt: float = DOUBT) -> float | None:
    """Return the half-width of the interval of a mean; None for a single value."""
    if len(values) < 2:
        return None
    # Not `Interval.half`, whose quantile differs in the last bit: figures must not.
    quantile = float(student.ppf(1.0 - doubt / 2.0, len(values) - 1))
    return quantile * float(np.std(values, ddof=1)) / math.sqrt(len(values))


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim and what became of it."""

    statement: str  # what is claimed, in words
    source: str  # where: a figure, a theorem, a section; `OURS` for a question of this project
    published: float | None = field(default=None, kw_only=True)  # the figure, if there is one
    measured: float | None = field(default=None, kw_only=True)  # ours, if there is one
    half_width: float | None = field(default=None, kw_only=True)  # of its interval, if finite
    # How far off is close enough: what the verdict compares with
    tolerance: float = field(default=0.0, kw_only=True)
    verdict: str  # one of the three
    seen: str = ""  # what the verdict rests on

    @classmethod
    def about(
        cls,
        statement: str,
        source: str,
        found: Interval,
        verdict: str,
        seen: str = "",
        *,
        doubt: float = DOUBT,
        **more: Any,
    ) -> Claim:
        """Return a claim about a mean, with the half-width of its interval at this doubt."""
        width = found.width(doubt)
        return cls(statement, source, verdict, seen, measured=found.mean, half_width=width, **more)

    @classmethod
    def more(
        cls,
        statement: str,
        source: str,
        found: Interval,
        seen: str = "",
        *,
        margin: float = 0.0,
        negligible: float | None = None,
    ) -> Claim:
        """Return the claim that a mean is more than the margin, with the verdict of `above`."""
        verdict = above(found, margin, negligible)
        return cls.about(statement, source, found, verdict, seen, tolerance=abs(margin))


def fact(holds: bool) -> str:
    """Return the verdict on what is computed or exact."""
    return REPRODUCED if holds else NOT_REPRODUCED


def decided(holds: bool, fails: bool) -> str:
    """Return the verdict on what surely holds, or surely fails, or neither."""
    return REPRODUCED if holds else NOT_REPRODUCED if fails else UNDECIDED


def close(ours: float, published: float, tolerance: float) -> str:
    """Return the verdict on "the figure is the printed one", to a relative tolerance."""
    return fact(abs(ours / published - 1.0) <= tolerance)


def above(
    found: Interval, margin: float, negligible: float | None = None, doubt: float = DOUBT
) -> str:
    """Return the verdict on "more than the margin"; what is surely `negligible` is against it."""
    against = margin if negligible is None else negligible
    return decided(found.above(margin, doubt), found.below(against, doubt))


def below(found: Interval, limit: float) -> str:
    """Return the verdict on "less than the limit"."""
    return decided(found.below(limit), found.above(limit))


def within(found: Interval, margin: float) -> str:
    """Return the verdict on "no more than the margin apart"."""
    inside = found.above(-margin) and found.below(margin)
    return decided(inside, found.below(-margin) or found.above(margin))


def every(verdicts: Iterable[str]) -> str:
    """Return the verdict on "in every case": one case against it is enough."""
    found = set(verdicts)
    return next((v for v in (NOT_REPRODUCED, UNDECIDED, REPRODUCED) if v in found), UNDECIDED)


def agreed(verdicts: Iterable[str]) -> str:
    """Return what several comparisons say together: their word if all have the same one."""
    found = set(verdicts)
    return found.pop() if len(found) == 1 else UNDECIDED


def gains(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return the differences of runs, seed by seed."""
    return [a - b for a, b in zip(one, other, strict=True)]


def gain(one: Sequence[float], other: Sequence[float]) -> Interval:
    """Return the mean difference of runs that are compared seed by seed."""
    return Interval.of(gains(one, other))


def compared(differences: Sequence[float], negligible: float) -> dict[str, Any]:
    """Return what differences, one for each seed, say of "better"."""
    found = Interval.of(differences)
    better = above(found, 0.0, negligible)
    return {"mean": found.mean, "half_width": found.width(), "verdict": better}
