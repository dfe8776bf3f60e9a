"""How many vectors of K levels agree with a given one in at least so many places.

Of the K^d vectors, C(d, l) (K - 1)^(d - l) agree in exactly l of d places. With a threshold tau
they fall into two sets, of

    S_hi = sum over l >= tau,        S_lo = sum over l < tau

members. Both are found as shares of K^d from one weight, in multiple precision, and the ratios of
neighbouring weights, in integer enclosures (``dp.sampling.certified``): nothing overflows and
nothing is left out, for d up to ``MAX_DIMENSION``.

Source: sqSGD ("Practical Locally Private Federated Learning with Communication Efficiency"),
Theorem 1 and Equation 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from mpmath import MPContext

from dp.checks import require_integer
from dp.local.agreement.law import weight_ratios_down, weight_ratios_up
from dp.sampling.certified import sums_beyond

MAX_DIMENSION: Final = 1 << 24
MAX_LEVELS: Final = 1 << 15
"""Levels are sent as 16-bit integers at most."""

_BITS: Final = 128
"""Of a sum of weights: what is cut off is below 2^-160 of the largest one."""

_GUARD: Final = 96

_CONTEXT: Final = MPContext()
# Logarithms of factorials of 2^24 have 29 bits before the point.
_CONTEXT.prec = 320


def require_dimension(dimension: int) -> None:
    """Raise unless ``dimension`` is an int in ``1..MAX_DIMENSION``."""
    require_integer("dimension", dimension, 1, MAX_DIMENSION)


def require_levels(levels: int) -> None:
    """Raise unless ``levels`` is an int in ``2..MAX_LEVELS``."""
    require_integer("levels", levels, 2, MAX_LEVELS)


@dataclass(frozen=True, slots=True)
class AgreementSums:
    """The two sets of vectors on either side of a threshold.

    Attributes:
        dimension: d, ``1..MAX_DIMENSION``.
        levels: K, ``2..MAX_LEVELS``.
        threshold: tau, ``1..dimension``.
    """

    dimension: int
    levels: int
    threshold: int

    def __post_init__(self) -> None:
        require_dimension(self.dimension)
        require_levels(self.levels)
        require_integer("threshold", self.threshold, 1, self.dimension)

    @property
    def log_ratio(self) -> float:
        """ln(S_lo / S_hi), to the nearest double."""
        low, high, _ = self._shares()
        return float(_CONTEXT.log(low / high))

    @property
    def log_sizes(self) -> tuple[float, float]:
        """(ln S_lo, ln S_hi), to the nearest doubles."""
        low, high, _ = self._shares()
        whole = self.dimension * _CONTEXT.log(self.levels)
        return float(_CONTEXT.log(low) + whole), float(_CONTEXT.log(high) + whole)

    @property
    def steps(self) -> tuple[float, float]:
        """(A / S_lo, A / S_hi) with A = C(d - 1, tau - 1) (K - 1)^(d - tau); both in (0, 1]."""
        low, high, weight = self._shares()
        step = weight * self.threshold / self.dimension
        return float(step / low), float(step / high)

    def log_density_ratio(self, probability: float) -> float:
        """Return ln(p/(1-p) S_lo/S_hi), rounded up: how much likelier a member of the high set is.

        Args:
            probability: p in (0, 1) of the high set, the rest being the low one's.
        """
        low, high, _ = self._shares()
        p = _CONTEXT.mpf(probability)
        return math.nextafter(float(_CONTEXT.log(p * low / ((1 - p) * high))), math.inf)

    def probability_for(self, epsilon: float) -> float:
        """Return p with p/(1-p) S_lo/S_hi = e^epsilon, to the nearest double; may be 0 or 1."""
        low, high, _ = self._shares()
        return float(1 / (1 + low / high * _CONTEXT.exp(-_CONTEXT.mpf(epsilon))))

    def gains_beyond(self, epsilon: float) -> bool:
        """Say whether threshold tau + 1 lets a report say more than tau, both at ``epsilon``.

        The factor m of a report at epsilon is A (e^epsilon - 1) / (S_lo + e^epsilon S_hi). From
        tau to tau + 1, A grows by (d - tau)/(tau (K - 1)) and the denominator falls by
        (e^epsilon - 1) w(tau). docs/local-dp-sqsgd.md shows that m rises once and then falls.
        """
        if self.threshold == self.dimension:
            return False
        low, high, weight = self._shares()
        growth = _CONTEXT.mpf(self.dimension - self.threshold) / (
            self.threshold * (self.levels - 1)
        )
        factor = _CONTEXT.expm1(_CONTEXT.mpf(epsilon))
        fall = factor * weight / (low + high + factor * high)
        return bool(growth > 1 - fall)

    def _shares(self) -> tuple[Any, Any, Any]:
        """S_lo, S_hi and w(tau) in multiples of K^d."""
        return _shares(self.dimension, self.levels, self.threshold)


@lru_cache(maxsize=256)
def _shares(dimension: int, levels: int, threshold: int) -> tuple[Any, Any, Any]:
    """Add up the side of the threshold on which weights fall; the other is what is left."""
    weight = _weight_share(dimension, levels, threshold)
    precision = _BITS + _GUARD
    if threshold > (dimension + 1) // levels:
        ratios = weight_ratios_up(dimension, levels, threshold, precision)
        high = weight * _one_and(sums_beyond(ratios, precision, _BITS)[0], precision)
        return 1 - high, high, weight
    below = _weight_share(dimension, levels, threshold - 1)
    ratios = weight_ratios_down(dimension, levels, threshold - 1, precision)
    low = below * _one_and(sums_beyond(ratios, precision, _BITS)[0], precision)
    return low, 1 - low, weight


def _one_and(rest: tuple[int, int], precision: int) -> Any:
    """1 plus the middle of an enclosure in units of 2^-precision."""
    return 1 + _CONTEXT.mpf(rest[0] + rest[1]) / (1 << (precision + 1))


def _weight_share(dimension: int, levels: int, agreements: int) -> Any:
    """Share of all vectors with l agreements: C(d, l) (K - 1)^(d - l) / K^d."""
    gamma, log = _CONTEXT.loggamma, _CONTEXT.log
    choices = gamma(dimension + 1) - gamma(agreements + 1) - gamma(dimension - agreements + 1)
    others = (dimension - agreements) * log(levels - 1) - dimension * log(levels)
    return _CONTEXT.exp(choices + others)
