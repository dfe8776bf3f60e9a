"""The smallest whole number that is enough, starting from a good guess."""

from __future__ import annotations

from collections.abc import Callable


def smallest(enough: Callable[[int], bool], guess: int, limit: int) -> int | None:
    """Return the smallest n in 1 .. limit with ``enough(n)``; None if there is none.

    Few calls if the guess is good: the distance to it is doubled, then halved.

    Args:
        enough: false below some number, true from it on.
        guess: where to start; moved into the range.
        limit: largest number that may be tried.
    """
    start = min(max(guess, 1), limit)
    step = max(1, start // 4096)
    if enough(start):
        low, high = _downward(enough, start, step)
    else:
        low, high = _upward(enough, start, step, limit)
    if high > limit:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _downward(enough: Callable[[int], bool], high: int, step: int) -> tuple[int, int]:
    """Return a bracket (not enough, or zero; enough) below a number that is enough."""
    low = max(0, high - step)
    while low > 0 and enough(low):
        step *= 2
        low, high = max(0, low - step), low
    return low, high


def _upward(enough: Callable[[int], bool], low: int, step: int, limit: int) -> tuple[int, int]:
    """Return a bracket (not enough; enough, or above the limit) above a number that is not."""
    high = min(low + step, limit)
    while not enough(high):
        if high == limit:
            return high, limit + 1
        step *= 2
        low, high = high, min(high + step, limit)
    return low, high
