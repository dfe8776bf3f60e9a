"""Compiled inner loops of the privacy layer. No policy here: callers check arguments.

Nothing in this module draws randomness; it consumes words that the caller made.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled, sample

_PAIRS = np.uint64(0x5555555555555555)
_NIBBLES = np.uint64(0x3333333333333333)
_BYTES = np.uint64(0x0F0F0F0F0F0F0F0F)
_ONES = np.uint64(0x0101010101010101)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_FOUR = np.uint64(4)
_TOP_BYTE = np.uint64(56)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF_BITS = np.uint64(32)
_TWO_TO_32 = 4294967296.0
_LANES = 256


@compiled(inline="always")
def _popcount(word: np.uint64) -> np.uint64:
    """Count the ones of a 64-bit word by adding neighbouring fields (no branch, no table)."""
    word = word - ((word >> _ONE) & _PAIRS)
    word = (word & _NIBBLES) + ((word >> _TWO) & _NIBBLES)
    word = (word + (word >> _FOUR)) & _BYTES
    return (word * _ONES) >> _TOP_BYTE


@compiled(
    lambda kind: (sample(40, below=256, kind=kind), np.uint64(0xB5), np.zeros(40, np.int64)),
    kinds=(np.uint8, np.uint16, np.uint32, np.uint64),
    answer=0xDA915BF8,
)
def popcount_words(
    words: NDArray[np.unsignedinteger], mask: np.uint64, out: NDArray[np.int64]
) -> None:
    """Add the number of ones in ``words[i] & mask`` to ``out[i]``: one word per coordinate."""
    for i in range(words.size):
        out[i] += np.int64(_popcount(np.uint64(words[i]) & mask))


@compiled(
    lambda _: (sample(11, below=1 << 63), 2, 3, np.uint64(0xFF), np.zeros(5, np.int64)),
    answer=0x84785751,
)
def popcount_runs(
    words: NDArray[np.uint64],
    position: int,
    words_each: int,
    last_mask: np.uint64,
    out: NDArray[np.int64],
) -> None:
    """Add the ones of a piece of a long word stream, ``words_each`` words per coordinate.

    ``words[0]`` is word number ``position`` of the whole stream. The last word of every
    coordinate counts only where ``last_mask`` is one.
    """
    unwanted = ~last_mask
    coordinate = position // words_each
    phase = position % words_each
    start = 0
    while start < words.size:
        run = min(words_each - phase, words.size - start)
        ones = np.uint64(0)
        for i in range(start, start + run):
            ones += _popcount(words[i])
        start += run
        phase += run
        if phase == words_each:
            ones -= _popcount(words[start - 1] & unwanted)
        out[coordinate] += np.int64(ones)
        if phase == words_each:
            phase = 0
            coordinate += 1


@compiled(
    lambda _: (
        sample(70, low=-1000, below=2001, parts=8, kind=np.float64),
        1.25,
        100.0,
        sample(70, below=1 << 32, kind=np.uint32),
        np.zeros(70, np.int64),
    ),
    answer=0xA558E87C,
)
def round_piece(
    values: NDArray[np.float64],
    scale: float,
    limit: float,
    words: NDArray[np.uint32],
    out: NDArray[np.int64],
) -> np.int64:
    """Scale, clip to ``[-limit, limit]`` and round at random; return the sum of squares.

    A value v becomes ``floor(v) + 1`` when its word is below ``round(frac(v) 2^32)``, else
    ``floor(v)``. The caller keeps ``values.size * limit^2 < 2^63``.
    """
    squares = np.int64(0)
    for i in range(values.size):
        value = min(max(values[i] * scale, -limit), limit)
        floor = np.floor(value)
        threshold = np.int64((value - floor) * _TWO_TO_32 + 0.5)
        rounded = np.int64(floor) + np.int64(np.int64(words[i]) < threshold)
        out[i] = rounded
        squares += rounded * rounded
    return squares


@compiled(
    lambda kind: (sample(600, low=-1000, below=2001, parts=8, kind=kind),),
    kinds=(np.float32, np.float64),
    answer=0x48D666F2,
)
def sum_of_squares(values: NDArray[np.floating]) -> float:
    """Return the sum of squares, in double precision, in an order that no processor decides.

    Every 256th value goes to one of 256 sums, then they are added up in turn.
    """
    lanes = np.zeros(_LANES)
    whole = values.size // _LANES * _LANES
    for start in range(0, whole, _LANES):
        part = values[start : start + _LANES]
        for lane in range(_LANES):
            value = np.float64(part[lane])
            lanes[lane] += value * value
    for i in range(whole, values.size):
        value = np.float64(values[i])
        lanes[i - whole] += value * value
    total = 0.0
    for lane in range(_LANES):
        total += lanes[lane]
    return total


@compiled(
    lambda kind: (sample(70, low=-1000, below=2001, parts=8, kind=kind), 4.0, 0.3, np.zeros(70)),
    kinds=(np.float32, np.float64),
    answer=0xE3B1A43D,
)
def scale_into(
    values: NDArray[np.floating], unit: float, factor: float, out: NDArray[np.float64]
) -> None:
    """Set ``out``, which may be ``values`` itself, to ``values / unit * factor``."""
    for i in range(values.size):
        out[i] = np.float64(values[i]) / unit * factor


@compiled(lambda _: (sample(70, low=-1000, below=2001, kind=np.int64),), answer=0xCF80259A)
def extent(values: NDArray[np.int64]) -> tuple[np.int64, np.int64]:
    """Return (smallest, largest) in one pass; zero counts as one of the values."""
    smallest = np.int64(0)
    largest = np.int64(0)
    for i in range(values.size):
        smallest = min(smallest, values[i])
        largest = max(largest, values[i])
    return smallest, largest


@compiled(lambda _: (sample(70, low=-(1 << 30), below=1 << 31, kind=np.int64),), answer=0x867BD431)
def extent_and_squares(
    values: NDArray[np.int64],
) -> tuple[np.int64, np.int64, np.uint64, np.uint64]:
    """Return (smallest, largest, high, low) in one pass; sum of squares == high 2^32 + low.

    Zero counts as one of the values. Two limbs keep the sum exact where one 64-bit word could
    wrap; it means nothing unless all ``|values| < 2^31``, which the extent tells.
    """
    smallest = np.int64(0)
    largest = np.int64(0)
    high = np.uint64(0)
    low = np.uint64(0)
    for i in range(values.size):
        value = values[i]
        smallest = min(smallest, value)
        largest = max(largest, value)
        square = np.uint64(value * value)
        high += square >> _HALF_BITS
        low += square & _LOW_HALF
    return smallest, largest, high, low


@compiled(
    lambda _: (
        sample(70, low=-1000, below=2001, parts=8, kind=np.float64),
        0.25,
        15.0,
        sample(70, below=1 << 32, kind=np.uint32),
        np.zeros(70, np.int64),
    ),
    answer=0xC7F051CB,
)
def round_levels(
    values: NDArray[np.float64],
    scale: float,
    top: float,
    words: NDArray[np.uint32],
    out: NDArray[np.int64],
) -> None:
    """Set ``out`` to levels 0 .. top: shift, scale, clip, and round at random.

    A value x becomes v = x ``scale`` + ``top`` / 2, clipped to [0, top], and v is rounded as in
    ``round_piece``.
    """
    for i in range(values.size):
        value = min(max(values[i] * scale + 0.5 * top, 0.0), top)
        floor = np.floor(value)
        threshold = np.int64((value - floor) * _TWO_TO_32 + 0.5)
        out[i] = np.int64(floor) + np.int64(np.int64(words[i]) < threshold)
