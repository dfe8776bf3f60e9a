"""Sizes and slacks in closed form: what holds but for a stated probability of failure.

Derivations are in docs/mean-estimation.md. They say how good an estimate is; privacy rests on none.
"""

from __future__ import annotations

import math
from functools import lru_cache

from scipy import integrate, special

# Laurent and Massart at L = 16 t: 1 - 2 sqrt(t / L) = 1/2, 1 + 2 sqrt(t / L) + 2 t / L = 13/8
_JL_FACTOR = 16.0


def jl_size(vectors: int, failure: float) -> int:
    """Coordinates of a sketch that keeps so many squared lengths within 1/2 .. 13/8 of their own.

    L = 16 ln(8 vectors / failure): the paper's O(log) with the constant of a chi-square law of L
    degrees, which the squared length of a sketch has the variance of at most.

    Source: arXiv 2307.10999, Lemma 2 (its constants are not used); Laurent and Massart 2000,
    Lemma 1.
    """
    return math.ceil(_JL_FACTOR * math.log(8.0 * vectors / failure))


def squared_norm_upper(measured: float, size: int, noise_variance: float, failure: float) -> float:
    """An upper bound of |v|^2, given |v + xi|^2, Gaussian xi, that fails with a probability.

    With t = ln(1 / failure): |v + xi|^2 >= m + L s - 2 sqrt((L s^2 + 2 s m) t), m = |v|^2, but for
    probability exp(-t). It grows with m beyond its least point; the answer solves it for m.
    `measured` is |v + xi|^2, `size` L, `noise_variance` s per coordinate.

    Source: Birge 2001, "An alternative point of view on Lepski's method", Lemma 8.1.
    """
    t = math.log(1.0 / failure)
    inner = 4.0 * noise_variance * t + 2.0 * measured - size * noise_variance
    root = 2.0 * math.sqrt(noise_variance * t) + math.sqrt(max(inner, 0.0))
    return max((root**2 - size * noise_variance) / 2.0, 0.0)


def squared_norm_excess(
    norm_squared: float, size: int, noise_variance: float, failure: float
) -> float:
    """How far |v + xi|^2 - L s exceeds |v|^2, but for a probability.

    2 sqrt((L s^2 + 2 s |v|^2) t) + 2 s t. Args and source: as for `squared_norm_upper`.
    """
    t = math.log(1.0 / failure)
    spread = size * noise_variance**2 + 2.0 * noise_variance * norm_squared
    return 2.0 * math.sqrt(spread * t) + 2.0 * noise_variance * t


@lru_cache(maxsize=64)
def median_factor(copies: int) -> float:
    """Variance of the median of M copies, odd, over that of their mean, for normal noise.

    1 for one copy, 1.35 for three, pi / 2 in the limit: what a median costs where nothing is gained
    from it.
    """
    half = copies // 2
    log_choose = special.gammaln(copies + 1) - 2.0 * special.gammaln(half + 1)

    def weighted(x: float) -> float:
        tails = half * (special.log_ndtr(x) + special.log_ndtr(-x))
        return float(x * x * math.exp(log_choose + tails - x * x / 2.0) / math.sqrt(2.0 * math.pi))

    variance, _ = integrate.quad(weighted, -12.0, 12.0)
    return float(copies * variance)
