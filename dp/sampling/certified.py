"""Distribution functions to any number of bits, with proof: integers with directed rounding.

A law on the integers is given by its mode M and by the ratios w(k)/w(k - 1) of neighbouring
weights on either side of it, w(0) = 1 being the weight of the mode. Every quantity is a pair of
integers that encloses the true value in units of 2^-precision; each step rounds the lower one down
and the upper one up. ``floors`` accepts a result only where both ends agree on the integer part,
and works with more bits until they do.

Assumption on the caller: ratios do not grow with k (the law is log-concave). It bounds what lies
beyond the last weight by a geometric series.

Source: interval arithmetic; the use is this project's (docs/sampling.md).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

Interval: TypeAlias = tuple[int, int]
"""Lower and upper bound of a real number, in units of 2^-precision."""

Ratios: TypeAlias = Callable[[int, int], Iterable[Interval]]
"""(precision, bits) -> enclosures of w(k)/w(k - 1) for k = 1, 2, ...; ends only with the support.

``bits`` tells a law that cannot produce them one by one how far they will be asked for: until
the weights beyond are below 2^-(bits + SPARE_BITS).
"""

SPARE_BITS: Final = 32
"""What is cut off is below 2^-SPARE_BITS of the last bit wanted."""

_FIRST_GUARD: Final = 96
"""Bits beyond those wanted. Sums of 2^20 weights, each off by at most 2^20 units, lose 40."""

_ATTEMPTS: Final = 6


@dataclass(frozen=True, slots=True)
class Cumulative:
    """The leading bits of a distribution function F, where they say anything.

    Attributes:
        first: the smallest integer x of the window.
        words: ``floor(2^bits F(first + i))``, not falling, each in ``0 .. 2^bits - 1``. Integers
            before the window have the word 0 if the window begins with a 0, else F = 0 there.
            Integers behind it have the word ``2^bits - 1`` if it ends with one, else F = 1 there.
    """

    first: int
    words: tuple[int, ...]

    def decide(self, word: int) -> int | None:
        """Return min{x : U < F(x)} if the leading bits ``word`` of U determine it, else None."""
        count = bisect_right(self.words, word)
        if count and self.words[count - 1] == word:
            return None
        return self.first + count


def window(first: int, words: Sequence[int], bits: int) -> Cumulative:
    """Drop repeated zeros in front, repeated all-ones behind, and every 2^bits (F = 1)."""
    ones = (1 << bits) - 1
    start = max(bisect_right(words, 0) - 1, 0)
    stop = bisect_left(words, ones)
    if stop < len(words) and words[stop] == ones:
        stop += 1
    return Cumulative(first + start, tuple(words[start:stop]))


def sums_beyond(ratios: Iterable[Interval], precision: int, bits: int) -> list[Interval]:
    """Enclose S(k) = sum of w(j) over j > k, for k = 0, 1, ... until S(k) is negligible or zero.

    Post: ``result[-1]`` is (0, 0), the support has ended, or at most 2^-(bits + SPARE_BITS).
    """
    low = high = 1 << precision
    negligible = 1 << (precision - bits - SPARE_BITS)
    weights: list[Interval] = []
    rest = 0
    for ratio_low, ratio_high in ratios:
        low = low * ratio_low >> precision
        high = -(-high * ratio_high >> precision)
        weights.append((low, high))
        gap = (1 << precision) - ratio_high
        # All later ratios are at most this one: geometric series.
        if gap > 0 and (rest := -(-high * ratio_high // gap)) <= negligible:
            break
    else:
        rest = 0
    return _suffix_sums(weights, rest)


def _suffix_sums(weights: Sequence[Interval], rest: int) -> list[Interval]:
    """Return the sums over all later weights; the last is (0, ``rest``)."""
    low, high = 0, rest
    sums = [(low, high)]
    for weight_low, weight_high in reversed(weights):
        low += weight_low
        high += weight_high
        sums.append((low, high))
    sums.reverse()
    return sums


def floors(mode: int, left: Ratios, right: Ratios, bits: int, halved: bool = False) -> Cumulative:
    """Compute ``floor(2^bits F(x))`` for the law with these ratios around ``mode``.

    Args:
        bits: leading bits wanted, >= 1.
    """
    for attempt in range(_ATTEMPTS):
        precision = bits + (_FIRST_GUARD << attempt)
        below = sums_beyond(left(precision, bits), precision, bits)
        above = below if left is right else sums_beyond(right(precision, bits), precision, bits)
        words = _words(below, above, precision, bits, halved)
        if words is not None:
            return window(mode - (len(words) - len(above)), words, bits)
    raise ArithmeticError(
        f"2^{bits} F(x) could not be told from an integer with {precision} bits, for mode {mode}"
    )


def _words(
    below: Sequence[Interval],
    above: Sequence[Interval],
    precision: int,
    bits: int,
    halved: bool,
) -> list[int] | None:
    """Return the floors in ascending order of x, or None if the enclosures are too wide."""
    one = 1 << precision
    total = (one + below[0][0] + above[0][0], one + below[0][1] + above[0][1])
    # S = 0 means F = 0 exactly: not a candidate.
    words = [floor_of(each, total, bits) for each in below if each[1]][::-1]
    if halved:
        words[-1] = 1 << (bits - 1)
    words += [floor_of_rest(each, total, bits) for each in above]
    found = [word for word in words if word is not None]
    return found if len(found) == len(words) else None


def floor_of(part: Interval, whole: Interval, bits: int) -> int | None:
    """Return ``floor(2^bits part / whole)`` if the enclosures determine it, else None."""
    low = (part[0] << bits) // whole[1]
    return low if low == (part[1] << bits) // whole[0] else None


def floor_of_rest(part: Interval, whole: Interval, bits: int) -> int | None:
    """Return ``floor(2^bits (1 - part / whole))`` if the enclosures determine it, else None.

    An upper bound of 0 says that the part is zero, any other that it is not.
    """
    if not part[1]:
        return 1 << bits
    floor = floor_of(part, whole, bits)
    # 1 - v steps down by one only behind an integer v: v must be known to lie strictly above.
    if floor is None or (floor and not (part[0] << bits) % whole[1]):
        return None
    return (1 << bits) - 1 - floor
