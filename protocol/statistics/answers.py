"""What a survey says: estimates with their errors, on numbers that are already private.

Standard errors and intervals are of the noise, and of random tokens where clients have several
records; they say nothing of how well the clients who answered stand for others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import NDArray

from protocol.checks import FRACTION

Floats = NDArray[np.float64]

FEWEST_ERRORS: Final = 5.0
"""A ratio is told only if its denominator is so many standard errors from nobody."""


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Numbers with their errors.

    Attributes:
        value: float64, a number or an array; NaN where there is too little to say.
        standard_error: of the same shape; infinite there.
        bias_bound: what the true value may be off by besides, through bins; of the same shape.
    """

    value: Any
    standard_error: Any
    bias_bound: Any = 0.0

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Lower and upper ends of intervals that hold the truth with this probability each."""
        FRACTION.require("level", level)
        reach = scipy.stats.norm.isf(0.5 * (1.0 - level)) * np.asarray(self.standard_error)
        reach = reach + np.asarray(self.bias_bound)
        low, high = np.asarray(self.value) - reach, np.asarray(self.value) + reach
        return (float(low), float(high)) if low.ndim == 0 else (low, high)


@dataclass(frozen=True, slots=True, eq=False)
class QuantileEstimate(Estimate):
    """Quantiles, whose intervals come from the distribution function and lie on one side too.

    Attributes:
        points: float64[leaves + 1], ends of the leaves; the last is of the last leaf.
        reached: float64[q, leaves + 1], for each quantile the released count of answers below each
            point, less that of the quantile, over its standard error.
    """

    points: Floats = field(default_factory=lambda: np.zeros(0))
    reached: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """As `Estimate.interval` says: the leaves that cannot be ruled out."""
        FRACTION.require("level", level)
        far = scipy.stats.norm.isf(0.5 * (1.0 - level))
        ends = []
        for row in self.reached:
            # A leaf may hold the quantile unless its upper end is surely below it, or its lower end
            # surely above.
            kept = np.flatnonzero((row[1:] >= -far) & (row[:-1] <= far))
            first, last = (int(kept[0]), int(kept[-1])) if kept.size else (0, row.size - 2)
            ends.append((self.points[first], self.points[last + 1]))
        low, high = np.asarray(ends, np.float64).reshape(-1, 2).T
        return low, high


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Answer:
    """The answer to one question.

    Attributes:
        name: of the question.
        kind: of the question.
        labels: of the main estimate's numbers, in order.
        estimate: the main one; `value` and the like are its.
        parts: other estimates by name.
        edges: float64[bins + 1] of a histogram; empty without bins.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    estimate: Estimate
    parts: Mapping[str, Estimate] = field(default_factory=dict)
    edges: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def value(self) -> Any:
        """Of the main estimate."""
        return self.estimate.value

    @property
    def standard_error(self) -> Any:
        """Of the main estimate."""
        return self.estimate.standard_error

    @property
    def bias_bound(self) -> Any:
        """Of the main estimate."""
        return self.estimate.bias_bound

    def interval(self, level: float = 0.95) -> tuple[Any, Any]:
        """Of the main estimate."""
        return self.estimate.interval(level)

    def to_dict(self) -> dict[str, Any]:
        """Everything, of plain values, for `from_dict`."""
        parts = {name: _written(part) for name, part in self.parts.items()}
        return {
            "name": self.name,
            "kind": self.kind,
            "labels": list(self.labels),
            "estimate": _written(self.estimate),
            "parts": parts,
            "edges": self.edges.tolist(),
        }

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Answer:
        """What `to_dict` wrote; KeyError or TypeError for anything else."""
        return cls(
            name=written["name"],
            kind=written["kind"],
            labels=tuple(written["labels"]),
            estimate=_read(written["estimate"]),
            parts={name: _read(part) for name, part in written["parts"].items()},
            edges=np.asarray(written["edges"], np.float64),
        )

    def rows(self, level: float = 0.95) -> list[dict[str, Any]]:
        """All estimates as a table: one row for each number."""
        found = []
        for part, estimate in {"": self.estimate, **self.parts}.items():
            low, high = (np.atleast_1d(end) for end in estimate.interval(level))
            values = np.atleast_1d(estimate.value)
            errors = np.broadcast_to(estimate.standard_error, values.shape)
            bounds = np.broadcast_to(estimate.bias_bound, values.shape)
            labels = self.labels if len(self.labels) == values.size else [""] * values.size
            for index, label in enumerate(labels):
                found.append(
                    {
                        "question": self.name,
                        "part": part,
                        "label": label,
                        "value": float(values[index]),
                        "standard_error": float(errors[index]),
                        "bias_bound": float(bounds[index]),
                        "low": float(low[index]),
                        "high": float(high[index]),
                    }
                )
        return found


def _written(estimate: Estimate) -> dict[str, Any]:
    return {
        each.name: np.asarray(getattr(estimate, each.name)).tolist() for each in fields(estimate)
    }


def _read(written: Mapping[str, Any]) -> Estimate:
    kind = QuantileEstimate if "points" in written else Estimate
    arrays = {name: np.asarray(value, np.float64) for name, value in written.items()}
    return kind(**{name: each if each.ndim else float(each) for name, each in arrays.items()})


def ratio(top: float, bottom: float, bottom_error: float, variance: float) -> Estimate:
    """A ratio of two sums, linearised; untold where the denominator may be nobody.

    Args:
        variance: of top - (top / bottom) bottom.
    """
    if not bottom > FEWEST_ERRORS * bottom_error:
        return Estimate(math.nan, math.inf)
    return Estimate(top / bottom, math.sqrt(max(variance, 0.0)) / bottom)


def stacked(estimates: Sequence[Estimate]) -> Estimate:
    """Several numbers as one array."""
    parts = ([e.value for e in estimates], [e.standard_error for e in estimates])
    return Estimate(*(np.asarray(part, np.float64) for part in parts))
