"""Compiled inner loops that make a vector agree with another one in so many places.

Nothing in this module draws randomness; it consumes words that the caller made.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled, sample

_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF_BITS = np.uint64(32)
_TWO_TO_32 = np.uint64(1 << 32)

REFUSED = np.int64(-1)


@compiled()
def _below(word: np.uint32, bound: np.uint64) -> np.int64:
    """Return a uniform integer below ``bound < 2^32``, or ``REFUSED``.

    Lemire's test: of the 2^32 words, those whose low product is below 2^32 mod ``bound`` are too
    many. The remainder is only computed where it can matter.
    """
    product = np.uint64(word) * bound
    low = product & _LOW_HALF
    if low < bound and low < _TWO_TO_32 % bound:
        return REFUSED
    return np.int64(product >> _HALF_BITS)


@compiled(
    lambda _: (
        sample(40, below=1 << 32, kind=np.uint32),
        np.array([3, 4, 5]),
        np.int64(0),
        np.int64(0),
        np.zeros((3, 9), np.bool_),
    ),
    answer=0x75B584BE,
)
def choose_places(
    words: NDArray[np.uint32],
    counts: NDArray[np.int64],
    start: np.int64,
    wanted: np.int64,
    chosen: NDArray[np.bool_],
) -> tuple[np.int64, np.int64]:
    """Mark ``counts[row]`` places of each row, uniformly; go on at flat position ``start``.

    Selection sampling: a place is chosen with probability (still wanted) / (places left), in
    whole numbers. A refused word is skipped.
    """
    length = chosen.shape[1]
    size = chosen.size
    flat = chosen.reshape(size)
    row = start // length
    column = start - row * length
    position = start
    for word in words:
        if position == size:
            break
        if column == 0:
            wanted = counts[row]
        drawn = _below(word, np.uint64(length - column))
        if drawn == REFUSED:
            continue
        hit = drawn < wanted
        flat[position] = hit
        wanted -= np.int64(hit)
        position += 1
        column += 1
        if column == length:
            column = 0
            row += 1
    return position, wanted


@compiled(
    lambda kind: (
        sample(40, below=1 << 32, kind=np.uint32),
        sample(36, below=2, kind=np.bool_),
        np.uint64(6),
        np.int64(2),
        sample(36, below=7, kind=kind),
    ),
    kinds=(np.int8, np.int16, np.int32, np.int64),
    answer=0xD53FF43C,
)
def replace_elsewhere(
    words: NDArray[np.uint32],
    chosen: NDArray[np.bool_],
    others: np.uint64,
    start: np.int64,
    levels: NDArray[np.signedinteger],
) -> np.int64:
    """Replace what is not chosen by one of the ``others`` other levels, uniformly, in place.

    Every place consumes a word, chosen or not; a refused word is skipped. Goes on at position
    ``start`` and returns the next one.
    """
    size = levels.size
    position = start
    for word in words:
        if position == size:
            break
        drawn = _below(word, others)
        if drawn == REFUSED:
            continue
        own = np.int64(levels[position])
        other = drawn + np.int64(drawn >= own)
        levels[position] = own if chosen[position] else other
        position += 1
    return position
