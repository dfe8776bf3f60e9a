"""Where a condition begins to hold: for whole numbers from a good guess, and for real ones.

Both take a condition that is false below some point and true from it on. Where rounding breaks that
rule near the point, what is returned as enough was still found to be so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache


def smallest(enough: Callable[[int], bool], guess: int, limit: int) -> int | None:
    """Return the smallest n in 1 .. limit with ``enough(n)``; None if there is none.

    Few calls if the guess is good: steps away from it grow fourfold, then the bracket is halved.
    Where a call is cheap, ``bisect.bisect_left`` with a key does the same without a guess.
    """
    enough = cache(enough)
    high = min(max(guess, 1), limit)
    low, step = high - 1, 4
    while low > 0 and enough(low):
        low, high, step = max(0, low - step), low, 4 * step
    step = 4
    while not enough(high):
        if high == limit:
            return None
        low, high, step = high, min(high + step, limit), 4 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def bracketed(
    enough: Callable[[float], bool],
    low: float,
    high: float,
    tolerance: float = 0.0,
    *,
    geometric: bool = False,
) -> tuple[float, float]:
    """Halve a bracket of the point from which on something holds, and return both ends.

    The caller takes the end on the safe side. (The root finders of SciPy return a point that may
    be on either side.)
    """
    while high - low > tolerance * high:
        middle = math.sqrt(low * high) if geometric else 0.5 * (low + high)
        if not low < middle < high:
            break
        low, high = (low, middle) if enough(middle) else (middle, high)
    return low, high
