"""The law of the number of places in which two vectors agree, cut to a range.

P[l] is proportional to w(l) = C(d, l) (K - 1)^(d - l), the number of vectors of K levels that
agree with a given one in exactly l of d places. ``dp.sampling.sample_law`` draws from it exactly.

Source: sqSGD, Algorithm 1: "uniformly at random from" one of the two sets, by number of
agreements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from dp.sampling.certified import Cumulative, Interval, floors, window

_EXACT_BITS: Final = 4096
"""Up to this size of K^d the weights are added up as whole numbers."""


@dataclass(frozen=True, slots=True)
class AgreementLaw:
    """P[l] proportional to C(d, l) (K - 1)^(d - l) for ``first <= l <= last``.

    Attributes:
        dimension: d, at least 1.
        levels: K, at least 2.
        first: smallest l, at least 0.
        last: largest l, ``first <= last <= dimension``.
    """

    dimension: int
    levels: int
    first: int
    last: int

    def __post_init__(self) -> None:
        """Check the four numbers."""
        if self.dimension < 1 or self.levels < 2:
            raise ValueError(
                "dimension must be at least 1 and levels at least 2, "
                f"got {self.dimension} and {self.levels}"
            )
        if not 0 <= self.first <= self.last <= self.dimension:
            raise ValueError(
                f"first and last must be ordered within 0..{self.dimension}, "
                f"got {self.first} and {self.last}"
            )

    @property
    def mode(self) -> int:
        """The likeliest number of agreements."""
        return min(max((self.dimension + 1) // self.levels, self.first), self.last)

    def cumulative(self, bits: int) -> Cumulative:
        """Args and Raises: as for ``dp.sampling.Law``."""
        if self.dimension * math.log2(self.levels) <= _EXACT_BITS:
            return self._exact(bits)
        return floors(self.mode, self._down, self._up, bits)

    def _exact(self, bits: int) -> Cumulative:
        """Add up whole numbers."""
        weights = [
            math.comb(self.dimension, agreements)
            * (self.levels - 1) ** (self.dimension - agreements)
            for agreements in range(self.first, self.last + 1)
        ]
        total, running, words = sum(weights), 0, []
        for weight in weights:
            running += weight
            words.append((running << bits) // total)
        return window(self.first, words, bits)

    def _up(self, precision: int, bits: int) -> Iterator[Interval]:
        """Ratios from the mode upwards, to the end of the range."""
        ratios = weight_ratios_up(self.dimension, self.levels, self.mode, precision)
        return islice(ratios, self.last - self.mode)

    def _down(self, precision: int, bits: int) -> Iterator[Interval]:
        """Ratios from the mode downwards, to the end of the range."""
        ratios = weight_ratios_down(self.dimension, self.levels, self.mode, precision)
        return islice(ratios, self.mode - self.first)


def weight_ratios_up(dimension: int, levels: int, start: int, precision: int) -> Iterator[Interval]:
    """Enclose w(l + 1)/w(l) = (d - l)/((l + 1)(K - 1)) for l = start, start + 1, ..., d - 1."""
    for agreements in range(start, dimension):
        yield _enclose(dimension - agreements, (agreements + 1) * (levels - 1), precision)


def weight_ratios_down(
    dimension: int, levels: int, start: int, precision: int
) -> Iterator[Interval]:
    """Enclose w(l - 1)/w(l) = l (K - 1)/(d - l + 1) for l = start, start - 1, ..., 1."""
    for agreements in range(start, 0, -1):
        yield _enclose(agreements * (levels - 1), dimension - agreements + 1, precision)


def _enclose(numerator: int, denominator: int, precision: int) -> Interval:
    """Return a quotient in units of 2^-precision, rounded down and up."""
    low, rest = divmod(numerator << precision, denominator)
    return low, low + (rest > 0)
