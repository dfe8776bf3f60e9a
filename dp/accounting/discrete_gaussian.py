"""Sums of discrete Gaussians, which are not discrete Gaussians.

One client's law is P[x] proportional to exp(-x^2/(2 s)), s the local variance. The sum of n of
them is tabulated in one of two ways, both proved in docs/accounting.md:

* as the discrete Gaussian of parameter n s, whose masses differ from the true ones by a factor
  of at most e^+-gap, gap = 5 sum_{k<n} exp(-2 pi^2 s k/(k+1)); nearly always the gap is far
  below rounding;
* where it is not, by convolution. Everything is positive, so that relative accuracy is kept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from dp.accounting.laws import FloatArray, LogMasses, normalised, require_variance
from dp.checks import require_within

_NEGLIGIBLE_GAP: Final = 1e-10
_SMALLEST_LOCAL_VARIANCE: Final = 0.25
"""The bound of the gap needs a parameter sigma of at least 1/2."""

_LARGEST_RADIUS: Final = 4096
_LARGEST_EXPONENT: Final = 600.0
"""Masses below e^-600 would lose digits in a convolution."""

_LARGEST_CONTRIBUTORS: Final = 1 << 32
_SUMMED_TERMS: Final = 4096
_UNIT: Final = 2.0**-53
_CUT: Final = 1e-12
"""Relative size of what truncation may remove from any mass of the table."""


def convolution_gap(local_variance: float, contributors: int) -> float:
    """Return how far, in nats, the sum may be from the discrete Gaussian of its variance.

    Source: Kairouz, Liu and Steinke 2021 (arXiv 2102.06387), Theorem 9, with the proof in
    docs/accounting.md; their tau, for the ratio of two such sums, is twice this.
    """
    if contributors == 1:
        return 0.0
    if local_variance < _SMALLEST_LOCAL_VARIANCE:
        return math.inf
    terms = min(contributors - 1, _SUMMED_TERMS)
    k = np.arange(1, terms + 1, dtype=np.float64)
    rate = 2.0 * math.pi**2 * local_variance
    summed = float(np.sum(np.exp(-rate * k / (k + 1.0))))
    # The terms fall with k: those that were not summed are at most the last that was.
    rest = (contributors - 1 - terms) * math.exp(-rate * terms / (terms + 1.0))
    return 5.0 * (summed + rest) * (1.0 + 1e-9)


@dataclass(frozen=True, slots=True)
class DiscreteGaussianSum:
    """The sum of ``contributors`` discrete Gaussians of parameter ``local_variance`` each."""

    local_variance: float
    contributors: int

    def __post_init__(self) -> None:
        require_within("contributors", self.contributors, 1, _LARGEST_CONTRIBUTORS)
        require_variance("local_variance", self.local_variance)
        require_variance("local_variance * contributors", self.variance)

    @property
    def variance(self) -> float:
        """Return n s. The true variance is smaller, by very little unless s is below one."""
        return self.local_variance * self.contributors

    @property
    def support(self) -> float:
        """Return infinity: every integer can be drawn."""
        return math.inf

    def last_likely(self, log_probability: float) -> int:
        """Return the root of the sub-Gaussian bound U(j) <= exp(-j^2/(2 n s))."""
        return math.ceil(math.sqrt(2.0 * self.variance * -log_probability)) + 1

    def log_masses(self, reach: int) -> LogMasses:
        """Tabulate in the way that is accurate enough, else in the one that is at least sure."""
        gap = convolution_gap(self.local_variance, self.contributors)
        if gap > _NEGLIGIBLE_GAP:
            radius = _radius(self.variance, self.contributors, reach)
            if radius <= _LARGEST_RADIUS and radius**2 <= 2 * self.variance * _LARGEST_EXPONENT:
                return _from_convolution(self, reach, radius)
        return LogMasses(_discrete_gaussian(self.variance, reach), gap)


def _discrete_gaussian(variance: float, reach: int) -> FloatArray:
    """Return ln P[j], j = 0..reach, of one discrete Gaussian."""
    far = max(reach, math.ceil(11.0 * math.sqrt(variance)) + 2)
    j = np.arange(1, far + 1, dtype=np.float64)
    return normalised(-j * j / (2.0 * variance))[: reach + 1]


def _radius(variance: float, contributors: int, reach: int) -> int:
    """Return how far partial sums must be followed for a table up to ``reach``.

    A partial sum leaves the radius R with probability at most 2 exp(-R^2/(2 n s)). A binary tree
    of sums has at most 2 n nodes. R makes the total small against the mass at ``reach``.
    """
    margin = math.log(4.0 * contributors / _CUT) + 0.5 * math.log(2.0 * math.pi * variance + 1.0)
    needed = math.sqrt(reach**2 + 2.0 * variance * (margin + 2.0))
    # Rounded up to a geometric grid, so that neighbouring questions share a convolution.
    return math.ceil(1.2 ** math.ceil(math.log(needed) / math.log(1.2)))


def _from_convolution(law: DiscreteGaussianSum, reach: int, radius: int) -> LogMasses:
    """Return the table and its error: truncation, and rounding of n (2 R + 2) operations."""
    masses = _convolved(law.local_variance, law.contributors, radius)
    lost = 4.0 * law.contributors * math.exp(-(radius**2) / (2.0 * law.variance))
    values = masses[radius : radius + reach + 1]
    if not float(values[-1]) > 0.0:
        return LogMasses(np.full(reach + 1, -math.inf), math.inf)
    rounding = law.contributors * (2.0 * radius + 2.0 + 2.0 * _LARGEST_EXPONENT) * _UNIT
    return LogMasses(np.log(values), rounding + lost / float(values[-1]))


@lru_cache(maxsize=32)
def _convolved(local_variance: float, contributors: int, radius: int) -> FloatArray:
    """Return the masses of the sum for -radius..radius, by repeated squaring, cut to the radius."""
    one = _discrete_gaussian(local_variance, radius)
    power = np.exp(np.concatenate([one[:0:-1], one]))
    total: FloatArray | None = None
    remaining = contributors
    while remaining:
        if remaining & 1:
            total = power if total is None else _cut(np.convolve(total, power), radius)
        remaining >>= 1
        if remaining:
            power = _cut(np.convolve(power, power), radius)
    if total is None:  # pragma: no cover - there is at least one contributor
        raise ValueError("a sum needs at least one contributor")
    return total


def _cut(masses: FloatArray, radius: int) -> FloatArray:
    """Return the middle 2 radius + 1 entries of an array of odd length."""
    centre = masses.size // 2
    return masses[centre - radius : centre + radius + 1]
