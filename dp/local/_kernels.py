"""Compiled inner loops of the local randomisers. No policy here: callers check arguments.

Nothing in this module draws randomness; it consumes words that the caller made.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled, sample

REFUSED = np.int64(-1)
"""Marks a report whose word lay beyond the last multiple and is drawn again."""

_TWO_TO_64 = 18446744073709551616.0
_TWO_TO_MINUS_53 = 1.1102230246251565e-16
_TOP_53 = np.uint64(11)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF_BITS = np.uint64(32)


@compiled(
    lambda _: (
        sample(40, low=-1024, below=2049, parts=1024, kind=np.float64),
        37.0,
        sample(40, below=1 << 63),
        np.zeros(40, np.int64),
    ),
    answer=0xE8F19FF8,
)
def round_to_shifts(
    values: NDArray[np.float64],
    highest: float,
    words: NDArray[np.uint64],
    out: NDArray[np.int64],
) -> None:
    """Round ``(values[i] + 1) highest / 2`` to one of its two integers, at random.

    The fraction of a double of this size is exact, and is compared with 64 bits.
    """
    half = 0.5 * highest
    for i in range(values.size):
        position = values[i] * half + half
        floor = np.floor(position)
        threshold = np.uint64((position - floor) * _TWO_TO_64)
        out[i] = np.int64(floor) + np.int64(words[i] < threshold)


@compiled(
    lambda _: (
        sample(40, below=30, kind=np.int64),
        sample(40, below=250),
        np.int64(10),
        np.uint64(15),
        np.uint64(3),
        np.uint64(239),
        np.zeros(40, np.int64),
    ),
    answer=0x0AD2B037,
)
def draw_window(
    shifts: NDArray[np.int64],
    words: NDArray[np.uint64],
    width: np.int64,
    inside: np.uint64,
    outside: np.uint64,
    last: np.uint64,
    out: NDArray[np.int64],
) -> int:
    """Cut the words 0 .. last into messages; return how many words were ``REFUSED``.

    The first ``width * inside`` words belong to the window that starts at the shift, ``inside`` of
    them to each message; the others to the rest, ``outside`` to each.
    """
    split = np.uint64(width) * inside
    refused = 0
    for i in range(words.size):
        word = words[i]
        if word > last:
            out[i] = REFUSED
            refused += 1
        elif word < split:
            out[i] = shifts[i] + np.int64(word // inside)
        else:
            message = np.int64((word - split) // outside)
            out[i] = message if message < shifts[i] else message + width
    return refused


@compiled(inline="always")
def _high_product(word: np.uint64, bound: np.uint64) -> np.uint64:
    """Return ``floor(word bound / 2^64)`` for ``bound < 2^32``."""
    carried = ((word & _LOW_HALF) * bound) >> _HALF_BITS
    return ((word >> _HALF_BITS) * bound + carried) >> _HALF_BITS


@compiled(
    lambda _: (
        sample(15, below=1 << 63),
        np.arange(20, dtype=np.int32),
        np.zeros((3, 5), np.int32),
    ),
    answer=0x1EF9DFDB,
)
def choose_coordinates(
    words: NDArray[np.uint64], order: NDArray[np.int32], out: NDArray[np.int32]
) -> int:
    """Draw ``out.shape[1]`` coordinates without replacement for each row; return the rows done.

    The first steps of a Fisher-Yates shuffle of ``order``, which holds 0 .. d - 1 in *any* order
    and is left in another: a uniform shuffle does not depend on where it starts. A row with a
    word that would favour some coordinate stops the loop, and is to be drawn again as a whole.
    """
    rows, k = out.shape
    d = order.size
    for row in range(rows):
        for i in range(k):
            word = words[row * k + i]
            bound = np.uint64(d - i)
            low = word * bound
            # Lemire's test: only words whose low product is below 2^64 mod bound are too many.
            if low < bound and low < (np.uint64(0) - bound) % bound:
                return int(row)
            j = i + np.int64(_high_product(word, bound))
            chosen = order[j]
            order[j] = order[i]
            order[i] = chosen
            out[row, i] = chosen
    return int(rows)


@compiled(
    lambda _: (
        sample(3, 8, low=-256, below=513, parts=1024, kind=np.float64),
        sample(15, below=1 << 63),
        np.zeros(8),
        np.zeros((3, 5), np.int64),
    ),
    answer=0xF13FF4C4,
)
def draw_vertices(
    vectors: NDArray[np.float64],
    words: NDArray[np.uint64],
    cumulative: NDArray[np.float64],
    out: NDArray[np.int64],
) -> None:
    """Write rows as mixtures of the cross-polytope's vertices, and draw one for each word.

    Vertex i is +sqrt(d) e_i and d + i is -sqrt(d) e_i. Coordinate i has weight ``|v_i|``; what is
    left of sqrt(d) is spread over all 2d vertices. ``cumulative`` is float64[d] for working.
    """
    rows, draws = out.shape
    d = vectors.shape[1]
    root = np.sqrt(np.float64(d))
    for row in range(rows):
        total = 0.0
        for i in range(d):
            total += abs(vectors[row, i])
            cumulative[i] = total
        whole = max(root, total)
        for draw in range(draws):
            uniform = np.float64(words[row * draws + draw] >> _TOP_53) * _TWO_TO_MINUS_53
            point = uniform * whole
            if point < total or total == whole:
                i = min(np.searchsorted(cumulative, point, side="right"), d - 1)
                out[row, draw] = i if vectors[row, i] > 0.0 else d + i
            else:
                share = (point - total) / (whole - total)
                out[row, draw] = min(np.int64(share * (2 * d)), 2 * d - 1)
