"""How long an honest vector may be: a quantile of clipped numbers, noise and errors together.

Source: docs/validated.md, S1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log, sqrt

import scipy

SILENT_BITS = 80
"""An honest vector is longer than its bound with probability at most 2^-80."""
ROOM = 2.0**-20
"""By which an announced bound is above the computed one: machines differ in the last bits."""


def length_bound(
    length: float, noise: Sequence[tuple[int, float]], bits: float = SILENT_BITS
) -> float:
    """A length that a vector of this length with noise exceeds with probability 2^-bits at most.

    Args:
        length: of the vector without noise, at most.
        noise: how many coordinates have noise of which deviation: the standard deviation of a
            Gaussian whose moment generating function is nowhere smaller.
    """
    largest = max((deviation for _, deviation in noise), default=0.0)
    if not largest:
        return length
    # In units of the largest deviation; u = 1 - 2 nu.
    squared, doubt = (length / largest) ** 2, bits * log(2.0)
    parts = [(count / 2.0, (deviation / largest) ** 2) for count, deviation in noise]

    def least(u: float) -> float:
        tail = doubt - sum(half * log(1.0 - (1.0 - u) * share) for half, share in parts)
        return 2.0 * tail / (1.0 - u) + squared / u

    found = scipy.optimize.minimize_scalar(least, bounds=(1e-9, 1.0 - 1e-9), method="bounded")
    return largest * sqrt(float(found.fun))


def least_bound(
    length: float, noise: Sequence[tuple[int, float]], bits: float = SILENT_BITS
) -> int:
    """The smallest beta^2 that a client accepts; arguments as of `length_bound`.

    A smaller one would make its silence tell how long its vector is.
    """
    return ceil(length_bound(length, noise, bits) ** 2)


def announced_bound(
    length: float, noise: Sequence[tuple[int, float]], bits: float = SILENT_BITS
) -> int:
    """The beta^2 that a server announces to such clients; arguments as of `length_bound`."""
    return ceil((1.0 + ROOM) * length_bound(length, noise, bits) ** 2)
