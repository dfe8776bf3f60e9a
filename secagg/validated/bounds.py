"""How long an honest vector may be: a quantile of clipped numbers, noise and errors together.

Source: docs/validated.md, S1.
"""

from __future__ import annotations

from math import log, sqrt

from scipy.optimize import minimize_scalar

SILENT_BITS = 65
"""An honest vector is longer than its bound with probability at most 2^-65."""


def length_bound(
    length: float, deviation: float, coordinates: int, bits: float = SILENT_BITS
) -> float:
    """A length that a vector of this length with noise exceeds with probability 2^-bits at most.

    Args:
        length: of the vector without noise, at most.
        deviation: of every coordinate's noise: the standard deviation of a Gaussian with no smaller
            moment generating function.
    """
    if not deviation:
        return length
    # In units of the deviation. For u = 1 - 2 nu: the smallest y with -nu y + ... <= -bits log 2.
    squared = (length / deviation) ** 2

    def least(u: float) -> float:
        nu = (1.0 - u) / 2.0
        return float((bits * log(2.0) - coordinates / 2.0 * log(u)) / nu + squared / u)

    found = minimize_scalar(least, bounds=(1e-9, 1.0 - 1e-9), method="bounded")
    return deviation * sqrt(float(found.fun))
