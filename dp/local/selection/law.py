"""The exact law behind the selectors: whole numbers of words for each place in the order.

Coordinates stand in falling order of magnitude, of equal ones the lower index first. A selector
draws a *place* in this order by a fixed law and says which coordinate stands there. The law is in
integers: of M equally likely words, W[g] belong to place g and some, if any, to saying nothing,

    P[place g] = W[g]/M.

Two inputs differ in who stands where and in nothing else. So the worst ratio of two inputs is
max W / min W, exactly, and it is reached: any coordinate can stand in any place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dp.checks import require_integer, require_not_negative, require_number
from dp.local.base import exponential_below

MAX_WORDS: Final = 1 << 62
"""Most words of a law: sums and products of counts stay within 63 bits."""

MAX_DIMENSION: Final = 1 << 31

NOTHING: Final = -1
"""Place, and index, of a selector that chose no coordinate."""

_SATURATED_EPSILON: Final = 43.0
"""Above ln(2^62) = 42.98 no ratio of two counts of words reaches e^epsilon."""


def ratio_below(epsilon: float) -> Fraction:
    """Return a rational number just below e^epsilon, or below e^43 if that is less."""
    return exponential_below(min(epsilon, _SATURATED_EPSILON)) if epsilon > 0.0 else Fraction(1)


@dataclass(frozen=True, slots=True, eq=False)
class RankLaw:
    """Words of every place, in groups of places that have equally many.

    Attributes:
        sizes: int64[g], places of each group, from the largest magnitude down; each >= 1.
        words: uint64[g], words of each place of the group; each >= 1.
        nothing: words that choose no coordinate.
    """

    sizes: NDArray[np.int64]
    words: NDArray[np.uint64]
    nothing: int = 0

    def __post_init__(self) -> None:
        """Check the counts, and that their sum fits."""
        if self.sizes.shape != self.words.shape or self.sizes.ndim != 1 or not self.sizes.size:
            raise ValueError("sizes and words must be vectors of the same length, at least 1")
        if int(self.sizes.min()) < 1 or int(self.words.min()) < 1 or self.nothing < 0:
            raise ValueError("sizes and words must be positive, and nothing must not be negative")
        # A double tells far too large sums from the exact ones, which may have wrapped.
        if float(self.sizes @ self.words.astype(np.float64)) + self.nothing > 1.5 * MAX_WORDS:
            raise ValueError(f"a law has at most {MAX_WORDS} words")
        if not self.total <= MAX_WORDS:
            raise ValueError(f"a law has at most {MAX_WORDS} words, got {self.total}")

    @property
    def dimension(self) -> int:
        """d, the number of places."""
        return int(self.sizes.sum())

    @property
    def total(self) -> int:
        """M, the words of all places and of saying nothing."""
        return int(self.sizes.astype(np.uint64) @ self.words) + self.nothing

    @property
    def worst_ratio(self) -> Fraction:
        """Largest ratio of two inputs' probabilities of one output, exactly."""
        return Fraction(int(self.words.max()), int(self.words.min()))

    @property
    def epsilon(self) -> float:
        """Logarithm of the worst ratio, to rounding."""
        return math.log(self.worst_ratio)

    def words_of_places(self) -> NDArray[np.uint64]:
        """Return uint64[d], the words of each place."""
        return np.repeat(self.words, self.sizes)

    def places(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the place that each word in ``0 .. total - 1`` stands for, or ``NOTHING``."""
        ends = np.cumsum(self.sizes.astype(np.uint64) * self.words)
        groups = np.searchsorted(ends, words, side="right")
        inside = np.minimum(groups, self.sizes.size - 1)
        starts = ends - self.sizes.astype(np.uint64) * self.words
        firsts = np.cumsum(self.sizes) - self.sizes
        within = ((words - starts[inside]) // self.words[inside]).astype(np.int64)
        return np.where(groups == inside, firsts[inside] + within, NOTHING)


def two_groups(
    dimension: int, top: int, words_of_top: int, words_of_rest: int, nothing: int = 0
) -> RankLaw:
    """Return the law of the ``top`` largest magnitudes against all others."""
    sizes = np.array([top, dimension - top], dtype=np.int64)
    words = np.array([words_of_top, words_of_rest], dtype=np.uint64)
    return RankLaw(sizes, words, nothing)


def require_dimension(dimension: int) -> None:
    """Raise unless ``dimension`` is an integer in ``2..MAX_DIMENSION``."""
    require_integer("dimension", dimension, 2, MAX_DIMENSION)


def require_top(top: int, dimension: int) -> None:
    """Raise unless ``top``, the paper's k, is an integer in ``1..dimension - 1``."""
    require_dimension(dimension)
    require_integer("top", top, 1, dimension - 1)


def require_selection_epsilon(epsilon: float) -> None:
    """Raise unless epsilon is a finite number, not negative; 0 selects without looking."""
    require_number("epsilon", epsilon)
    require_not_negative("epsilon", epsilon)
