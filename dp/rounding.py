"""From bounded floats to bounded integers: scale, clip coordinates, round at random.

Stochastic rounding is unbiased but may lengthen a vector. *Conditional* rounding draws again
until the integer norm is within a bound fixed beforehand, which makes the bound exact and costs
a tiny bias. The bound depends on the clip, the scale and the dimension, never on the data.

Source: Kairouz, Liu, Steinke 2021 (arXiv 2102.06387), conditional randomized rounding.

What is left visible: the number of attempts depends on the data and on secret coins. It is
never sent, but an observer who times the client very precisely could learn it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dp._kernels import extent_and_squares, round_piece
from dp.checks import require_at_least, require_between_0_and_1, require_integer, require_positive
from dp.clipping import NORM_SLACK, Bounded, require_l2_bound, require_vector
from dp.errors import SensitivityExceededError
from dp.keystream import Keystream, NoiseSeed, Usage

MAX_LINF_BOUND: Final = 1 << 24
"""Largest coordinate allowed: a cache-sized piece of squares then still fits in 63 bits."""

MAX_ATTEMPTS: Final = 64
"""Each attempt succeeds with probability at least 1 - beta = 0.39, so all of them fail with
probability below 2e-14. The fall-back then costs accuracy, never privacy."""

ROUNDING_VARIANCE: Final = 1.0 / 6.0
"""Mean of f (1 - f) over uniform fractions f: what rounding adds to the variance of a coordinate of
one client, in squared integer units."""

DEFAULT_BETA: Final = math.exp(-0.5)

_WORD: Final = np.dtype("<u4")


def require_linf_bound(linf_bound: int) -> None:
    """Raise unless ``linf_bound`` is an integer in ``1..MAX_LINF_BOUND``."""
    require_integer("linf_bound", linf_bound, 1, MAX_LINF_BOUND)


def largest_square(l2_bound: float) -> int:
    """Return the largest integer whose square root is at most ``l2_bound``, exactly.

    So ``l2_bound`` is a sensitivity of every vector within this ``square_bound``. Do not take it of
    the root of an integer: a root that was rounded down gives one less.
    """
    return int(Fraction(l2_bound) ** 2)


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """An integer vector within exact bounds. Both are checked in integer arithmetic.

    Attributes:
        values: int64[d], read-only.
        square_bound: ``sum(values**2) <= square_bound``, an integer: the root of one, as a float,
            may be less than the norm of the vectors that it is for.
        linf_bound: ``max(abs(values)) <= linf_bound``.
    """

    values: NDArray[np.int64]
    square_bound: int
    linf_bound: int

    def __post_init__(self) -> None:
        """Check dtype and both bounds."""
        require_vector(self.values, (np.dtype(np.int64),), "values")
        require_integer("square_bound", self.square_bound, 0)
        require_linf_bound(self.linf_bound)
        smallest, largest, high, low = extent_and_squares(self.values)
        # Both signs are tested: abs(-2**63) is negative.
        if not (-self.linf_bound <= smallest and largest <= self.linf_bound):
            raise SensitivityExceededError(f"a coordinate exceeds linf_bound {self.linf_bound}")
        if (int(high) << 32) + int(low) > self.square_bound:
            raise SensitivityExceededError(
                f"the squares of the integer vector exceed square_bound {self.square_bound}"
            )
        self.values.flags.writeable = False

    def packed(self) -> bytes:
        """The values, little-endian, in the narrowest type that holds `linf_bound`, to be hashed.

        Vectors of one bound that differ have bytes that differ.
        """
        # One beyond the bound: the narrowest type of -128 has no 128.
        narrow = np.min_scalar_type(-self.linf_bound - 1).newbyteorder("<")
        return self.values.astype(narrow).tobytes()


def rounded_l2_bound(l2_scaled: float, dimension: int, beta: float = DEFAULT_BETA) -> float:
    """Return an integer norm that random rounding stays within with probability >= 1 - beta.

    With C = l2_scaled and D = dimension:

        min(C + sqrt(D), sqrt(C^2 + D/4 + sqrt(2 ln(1/beta)) (C + sqrt(D)/2)))

    The first term holds always, since no coordinate moves by more than one. The second adds to
    the mean of the squared norm, at most C^2 + D/4, a sub-Gaussian deviation.

    Args:
        l2_scaled: norm before rounding, in integer units.
        beta: probability in (0, 1) with which one attempt may fail.
    """
    require_l2_bound(l2_scaled)
    require_at_least("dimension", dimension, 1)
    require_between_0_and_1("beta", beta)
    root = math.sqrt(dimension)
    deviation = math.sqrt(-2.0 * math.log(beta)) * (l2_scaled + root / 2.0)
    return min(l2_scaled + root, math.sqrt(l2_scaled**2 + dimension / 4.0 + deviation))


def quantized_l2_bound(l2_bound: float, scale: float, dimension: int) -> float:
    """Return the norm bound of what ``quantize`` returns, in integer units: its sensitivity.

    It includes the relative slack that ``Bounded`` tolerates, so a vector that sits on the edge
    of its float bound is still covered.
    """
    return rounded_l2_bound(l2_bound * scale * (1.0 + NORM_SLACK), dimension)


def quantize(bounded: Bounded, scale: float, linf_bound: int, seed: NoiseSeed) -> Quantized:
    """Scale, clip each coordinate to ``linf_bound``, and round conditionally.

    Each uniform draw has 32 bits, compared with the fractional part rounded to 32 bits: the
    probability of rounding up is off by at most 2^-33, against a noise standard deviation of
    several units. Redrawing adds a bias of Euclidean norm at most sqrt(D) P / (1 - P), P the
    probability of a redraw: the mean over all draws is exact, so what accepted draws gain is what
    refused ones lose, and no draw is further than sqrt(D) from the vector.

    If ``MAX_ATTEMPTS`` draws all miss the bound, coordinates are rounded toward zero. That
    shortens every coordinate and so satisfies the bound without luck.

    Args:
        bounded: the vector, float64[d], d >= 1.
        scale: integer units per float unit, > 0.
        linf_bound: largest integer magnitude of a coordinate.
        seed: used under ``Usage.ROUNDING``; must not have rounded another vector.

    Post: ``result.square_bound`` is the largest integer within the square of
    ``quantized_l2_bound(bounded.l2_bound, scale, d)``.
    """
    require_linf_bound(linf_bound)
    require_positive("scale", scale)
    limit = _square_bound(bounded.l2_bound, scale, bounded.values.size)
    stream = Keystream(seed.derive(Usage.ROUNDING))
    out = np.empty(bounded.values.size, dtype=np.int64)
    for _ in range(MAX_ATTEMPTS):
        if _round_once(bounded.values, scale, linf_bound, stream, out) <= limit:
            return Quantized(out, limit, linf_bound)
    return Quantized(_toward_zero(bounded.values, scale, linf_bound), limit, linf_bound)


@lru_cache(maxsize=16)
def _square_bound(l2_bound: float, scale: float, dimension: int) -> int:
    """The `square_bound` of what ``quantize`` returns: the same for all clients of a round."""
    return largest_square(quantized_l2_bound(l2_bound, scale, dimension))


def _round_once(
    values: NDArray[np.float64],
    scale: float,
    linf_bound: int,
    stream: Keystream,
    out: NDArray[np.int64],
) -> int:
    """Make one attempt into ``out`` and return its exact squared norm."""
    squares = 0
    start = 0
    for words in stream.chunks(_WORD, values.size):
        stop = start + words.size
        piece = values[start:stop]
        squares += int(round_piece(piece, scale, float(linf_bound), words, out[start:stop]))
        start = stop
    return squares


def _toward_zero(values: NDArray[np.float64], scale: float, linf_bound: int) -> NDArray[np.int64]:
    """Round every scaled and clipped coordinate toward zero."""
    clipped = np.clip(values * scale, -linf_bound, linf_bound)
    return np.trunc(clipped).astype(np.int64)
