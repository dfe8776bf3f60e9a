"""How good a binary classifier is on records that nobody shows: from counts of labels and scores.

A record is in one cell of a table: its label, and the bin of its score. Bins are of equal width in
log odds, which suits rare labels as well; the middle edge is 0.5. Areas, rates and gaps all come
from this one table, so one release pays for all of them.

Source: docs/statistics.md; the error of the area under the curve is that of its linearisation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from protocol.statistics.answers import Answer, Estimate, ratio, stacked
from protocol.statistics.questions import MOST_CELLS, Record, Summed, _fixed, _OneHot, real
from secagg import ParameterError
from secagg.checks import require_int

Floats = NDArray[np.float64]

_FARTHEST: Final = 6.0
"""Log odds of the outermost edges: one in four hundred."""
_SURE: Final = 6.0
"""Standard errors that each class must be from nobody, or nothing is said of the area."""


@dataclass(frozen=True, kw_only=True)
class Evaluation(_OneHot):
    """A binary classifier: its value is the area under the ROC curve, with a bound for ties.

    Its parts are `accuracy`, `precision`, `recall` and `positives` at a threshold of 0.5,
    `answered`, `missing`, `confusion` (true negatives, false positives, false negatives, true
    positives) and, by bin, `share of positives` and `count`.

    Args:
        label: column of 0 and 1, or False and True.
        score: column of probabilities in [0, 1].
        bins: of the score, an even number.
    """

    KIND: ClassVar[str] = "evaluation"

    name: str
    label: str = "label"
    score: str = "score"
    bins: int = 32

    def __post_init__(self) -> None:
        require_int("bins", self.bins, 2, MOST_CELLS // 4)
        if self.bins % 2:
            raise ParameterError("bins", self.bins, "even, so that 0.5 is an edge")

    @property
    def columns(self) -> tuple[str, str]:
        """Of labels and scores."""
        return self.label, self.score

    @cached_property
    def edges(self) -> Floats:
        """Of the score: float64[bins + 1]."""
        if self.bins == 2:
            return np.array([0.0, 0.5, 1.0])
        odds = np.linspace(-_FARTHEST, _FARTHEST, self.bins - 1)
        inner = 1.0 / (1.0 + np.exp(-odds))
        return np.concatenate([[0.0], inner, [1.0]])

    @property
    def cells(self) -> int:
        """Two labels in each bin."""
        return 2 * self.bins

    def place(self, record: Record) -> int | None:
        """As `Question.place` says: bins of negatives, then of positives."""
        label, score = real(record[0]), real(record[1])
        if label not in (0.0, 1.0) or score is None or not 0.0 <= score <= 1.0:
            return None
        at = int(np.searchsorted(self.edges[1:-1], score, "right"))
        return at + self.bins * (label == 1.0)

    def answer(self, summed: Summed) -> Answer:
        """As `Question.answer` says."""
        counts, variance = _fixed(summed)
        negatives, positives = counts[:-1].reshape(2, -1)
        noise = _Noise(variance, counts.size)
        half = self.bins // 2
        table = np.array([side.sum() for s in (negatives, positives) for side in np.split(s, 2)])
        cells = np.arange(2 * self.bins) // half
        of_table = [noise.deviation(np.append(cells == each, 0.0)) for each in range(4)]
        right, answered, yes, said, both = (
            np.isin(cells, chosen).astype(np.float64)
            for chosen in ((0, 3), (0, 1, 2, 3), (2, 3), (1, 3), (3,))
        )

        def rate(top: Floats, bottom: Floats) -> Estimate:
            of_top, of_bottom = float(counts[:-1] @ top), float(counts[:-1] @ bottom)
            share = of_top / of_bottom if of_bottom else math.nan
            spread = noise.deviation(np.append(top - share * bottom, 0.0))
            whole = noise.deviation(np.append(bottom, 0.0))
            return ratio(of_top, of_bottom, whole, spread**2)

        by_bin = [rate(*_of_bin(each, self.bins)) for each in range(self.bins)]
        parts = {
            "accuracy": rate(right, answered),
            "precision": rate(both, said),
            "recall": rate(both, yes),
            "positives": rate(yes, answered),
            "answered": Estimate(float(counts[:-1].sum()), math.sqrt(variance)),
            "missing": Estimate(float(counts[-1]), math.sqrt(variance)),
            "confusion": Estimate(table, np.array(of_table)),
            "share of positives": stacked(by_bin),
            "count": Estimate(negatives + positives, np.full(self.bins, noise.pair)),
        }
        return Answer(
            name=self.name,
            kind=self.KIND,
            labels=("AUC",),
            estimate=_area(negatives, positives, noise),
            parts=parts,
            edges=self.edges,
        )


def _of_bin(each: int, bins: int) -> tuple[Floats, Floats]:
    """What is summed for the share of positives in a bin: the positives, and all."""
    top, bottom = np.zeros((2, 2 * bins))
    top[bins + each] = bottom[bins + each] = bottom[each] = 1.0
    return top, bottom


@dataclass(frozen=True, slots=True)
class _Noise:
    """Of cells whose total is known: equal variances, and correlations that cancel in all."""

    variance: float
    cells: int

    def deviation(self, slope: Floats) -> float:
        """Of a weighted sum of all cells, the one for no answer among them."""
        each = self.variance * self.cells / (self.cells - 1)
        spread = each * (slope @ slope - slope.sum() ** 2 / self.cells)
        return math.sqrt(max(float(spread), 0.0))

    @property
    def pair(self) -> float:
        """Of the sum of two cells."""
        return self.deviation(np.append([1.0, 1.0], np.zeros(self.cells - 2)))


def _area(negatives: Floats, positives: Floats, noise: _Noise) -> Estimate:
    """The area under the curve: of pairs, those in order, and half of those in one bin."""
    n0, n1 = float(negatives.sum()), float(positives.sum())
    of_class = noise.deviation(np.append(np.repeat([1.0, 0.0], negatives.size), 0.0))
    if not min(n0, n1) > _SURE * of_class:
        return Estimate(math.nan, math.inf)
    behind = np.cumsum(negatives) - 0.5 * negatives
    ahead = n1 - np.cumsum(positives) + 0.5 * positives
    area = float(positives @ behind) / (n1 * n0)
    of_positives, of_negatives = (behind / n0 - area) / n1, (ahead / n1 - area) / n0
    error = noise.deviation(np.concatenate([of_negatives, of_positives, [0.0]]))
    ties = 0.5 * float(np.abs(positives * negatives).sum()) / (n1 * n0)
    return Estimate(area, error, ties)
