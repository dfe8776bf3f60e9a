"""How far the noise of n clients reaches, where no single draw has a limit.

Both bounds are Chernoff bounds of the whole sum, doubled for the two signs and added up over the
coordinates.
"""

from __future__ import annotations

import math
from bisect import bisect_left

_LARGEST = 1 << 62
"""Beyond every limit that is looked for."""

_SAFETY = 1.0 + 1e-9
"""More than the rounding errors of the few operations below."""


def sub_gaussian_limit(total_variance: float, dimension: int, probability: float) -> int:
    """Return t with ``2 d exp(-t^2 / (2 v)) <= probability``, v = ``total_variance``.

    It holds for sums of discrete Gaussians of parameters adding up to v: each has
    E exp(a X) <= exp(a^2 sigma^2 / 2).

    Source: Canonne, Kamath, Steinke 2020 (arXiv 2004.00010), Lemma 8 and Corollary 9.
    """
    wanted = math.log(2.0 * dimension) - math.log(probability)
    return math.ceil(math.sqrt(2.0 * total_variance * wanted) * _SAFETY)


def skellam_limit(total_variance: float, dimension: int, probability: float) -> int:
    """Return the smallest t with ``2 d exp(-rate(t)) <= probability`` for Skellam noise.

    E exp(a X) = exp(v (cosh a - 1)), v = ``total_variance``; the best a has sinh a = t / v, hence

        rate(t) = t asinh(t / v) - v (sqrt(1 + (t / v)^2) - 1).
    """
    wanted = (math.log(2.0 * dimension) - math.log(probability)) * _SAFETY
    return bisect_left(
        range(_LARGEST), True, lo=1, key=lambda t: _skellam_rate(t, total_variance) >= wanted
    )


def _skellam_rate(t: int, variance: float) -> float:
    """Return the exponent of Chernoff's bound, without cancellation where t is small."""
    ratio = t / variance
    # sqrt(1 + r^2) - 1, as a quotient that loses no digits.
    excess = ratio * ratio / (math.sqrt(1.0 + ratio * ratio) + 1.0)
    return t * math.asinh(ratio) - variance * excess
