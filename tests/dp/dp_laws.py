"""The laws of ``dp.sampling`` once more, from closed forms in many digits: the tests' oracle.

Nothing here shares a formula with the package: normalisers are Bessel functions and the dual theta
series, and binomials are sums of fractions.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import comb
from typing import Any

import mpmath
import numpy as np
from dp_statistics import chi_square_p_value
from numpy.typing import NDArray

from dp.sampling import BinomialLaw, DiscreteGaussianLaw, RoundedGaussianLaw, SkellamLaw
from dp.sampling.laplace import DiscreteLaplaceLaw

DIGITS = 120
Oracle = BinomialLaw | DiscreteGaussianLaw | DiscreteLaplaceLaw | RoundedGaussianLaw | SkellamLaw


def _theta(nome: Any) -> Any:
    """Return the sum of nome^(k^2) over all integers k."""
    total, k = mpmath.mpf(1), 1
    while (term := 2 * nome ** (k * k)) > mpmath.mpf(10) ** -DIGITS:
        total += term
        k += 1
    return total


@cache
def probability(law: Oracle, x: int) -> Any:
    """Return P[X = x] to about DIGITS digits."""
    with mpmath.workdps(DIGITS):
        if isinstance(law, DiscreteGaussianLaw):
            square = mpmath.mpf(law.sigma_squared)
            # Poisson's summation formula: the theta function at exp(-1 / (2 sigma^2)).
            dual = mpmath.exp(-2 * mpmath.pi**2 * square)
            total = mpmath.sqrt(2 * mpmath.pi * square) * _theta(dual)
            return mpmath.exp(-x * x / (2 * square)) / total
        if isinstance(law, SkellamLaw):
            mean = mpmath.mpf(law.variance)
            return mpmath.exp(-mean) * mpmath.besseli(abs(x), mean)
        if isinstance(law, DiscreteLaplaceLaw):
            q = mpmath.exp(-1 / mpmath.mpf(law.scale))
            return (1 - q) / (1 + q) * q ** abs(x)
        if isinstance(law, RoundedGaussianLaw):
            return cumulative(law, x) - cumulative(law, x - 1)
        if not 0 <= x <= law.trials:
            return mpmath.mpf(0)
        p = Fraction(law.probability)
        exact = comb(law.trials, x) * p**x * (1 - p) ** (law.trials - x)
        return mpmath.mpf(exact.numerator) / exact.denominator


@cache
def cumulative(law: Oracle, x: int) -> Any:
    """Return P[X <= x], summed from the nearer end so that small values keep their digits."""
    with mpmath.workdps(DIGITS):
        if isinstance(law, RoundedGaussianLaw):
            return mpmath.ncdf((x + mpmath.mpf(1) / 2) / mpmath.mpf(law.sigma))
        if isinstance(law, DiscreteLaplaceLaw):
            q = mpmath.exp(-1 / mpmath.mpf(law.scale))
            return q**-x / (1 + q) if x < 0 else 1 - q ** (x + 1) / (1 + q)
        if isinstance(law, BinomialLaw):
            return mpmath.fsum(probability(law, i) for i in range(x + 1))
        if x >= 0:
            return 1 - cumulative(law, -x - 1)
        total, i = mpmath.mpf(0), x
        while (term := probability(law, i)) > mpmath.mpf(10) ** (20 - DIGITS):
            total += term
            i -= 1
        return total


def leading_bits(law: Oracle, x: int, bits: int) -> int:
    """Return floor(2^bits P[X <= x])."""
    with mpmath.workdps(DIGITS):
        return int(mpmath.floor(mpmath.ldexp(cumulative(law, x), bits)))


def law_p_value(samples: NDArray[np.int64], law: Oracle) -> float:
    """Return the chi-square p-value of samples against the law."""
    low, high = int(samples.min()), int(samples.max())
    inner = [float(probability(law, x)) for x in range(low, high + 1)]
    below, above = float(cumulative(law, low - 1)), 1.0 - float(cumulative(law, high))
    counts = np.bincount(samples - low)
    # Cells of what was not seen, so that a law cut short is noticed.
    return chi_square_p_value(
        np.concatenate([[0], counts, [0]]), np.array([below, *inner, max(above, 0.0)])
    )


def gaussian_masses(variance: float, radius: int) -> list[Any]:
    """Return P[z] of one discrete Gaussian for z = -radius..radius, to the context's digits."""
    v = mpmath.mpf(variance)
    terms = [mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * v)) for x in range(-radius, radius + 1)]
    total = mpmath.fsum(terms)
    return [term / total for term in terms]


def gaussian_sum_masses(variance: float, contributors: int, radius: int) -> list[Any]:
    """Return the same for the sum of several, by plain convolution."""
    one = gaussian_masses(variance, radius)
    total = [mpmath.mpf(0)] * radius + [mpmath.mpf(1)] + [mpmath.mpf(0)] * radius
    for _ in range(contributors):
        total = [
            mpmath.fsum(
                total[i] * one[z - i + radius]
                for i in range(max(0, z - radius), min(2 * radius, z + radius) + 1)
            )
            for z in range(2 * radius + 1)
        ]
    return total
