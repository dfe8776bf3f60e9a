"""Compiled inner loops: words of any width to bytes and back, distinct indices, velocities.

Plain loops over arrays that the callers have checked. Bits are numbered from the least significant
one of each byte: word number i of width w has the bits i w to i w + w - 1, its lowest bit first.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled, sample


@compiled(
    lambda _: (sample(71, below=1 << 13, kind=np.uint32), 13, np.zeros(116, np.uint8)),
    answer=0xF7B4CF5F,
)
def pack_words(words: NDArray[np.uint32], width: int, out: NDArray[np.uint8]) -> None:
    """Write words one behind the other, without gaps.

    Args:
        words: uint32[n], each below 2^width.
        out: uint8[ceil(n width / 8)], overwritten; bits behind the last word are zero.
    """
    held, filled, place = np.uint64(0), 0, 0
    for i in range(words.size):
        held |= np.uint64(words[i]) << np.uint64(filled)
        filled += width
        while filled >= 8:
            out[place] = np.uint8(held & np.uint64(255))
            held >>= np.uint64(8)
            filled -= 8
            place += 1
    if filled > 0:
        out[place] = np.uint8(held)


@compiled(
    lambda _: (sample(116, below=256, kind=np.uint8), 13, np.zeros(71, np.uint32)),
    answer=0x7F040E0A,
)
def unpack_words(data: NDArray[np.uint8], width: int, out: NDArray[np.uint32]) -> bool:
    """Read what `pack_words` wrote, and tell whether the bits behind the last word are zero.

    Args:
        data: uint8[ceil(n width / 8)].
        out: uint32[n], overwritten.
    """
    mask = (np.uint64(1) << np.uint64(width)) - np.uint64(1)
    held, filled, place = np.uint64(0), 0, 0
    for i in range(out.size):
        while filled < width:
            held |= np.uint64(data[place]) << np.uint64(filled)
            filled += 8
            place += 1
        out[i] = np.uint32(held & mask)
        held >>= np.uint64(width)
        filled -= width
    return bool(held == np.uint64(0))


@compiled(
    lambda _: (sample(20, below=1 << 32, kind=np.uint32), np.arange(40, dtype=np.uint32), 3, 17),
    answer=0x6A043242,
)
def draw_distinct(
    words: NDArray[np.uint32], order: NDArray[np.uint32], drawn: int, wanted: int
) -> int:
    """Go on with a Fisher-Yates shuffle of `order` until `wanted` places are drawn.

    Place i gets one of the entries i to d - 1, each with the same chance: floor(w n / 2^32) with
    n = d - i, where a word w is passed over if the lower half of w n is below 2^32 mod n.

    Args:
        words: uint32[m], uniform and independent.
        order: uint32[d], shuffled in place.

    Source: Lemire 2019 (arXiv 1805.10941), Algorithm 5.
    """
    half = np.uint64(1 << 32)
    for word in words:
        if drawn == wanted:
            break
        left = np.uint64(order.size - drawn)
        product = np.uint64(word) * left
        if product % half < half % left:
            continue
        other = drawn + np.int64(product // half)
        order[drawn], order[other] = order[other], order[drawn]
        drawn += 1
    return drawn


@compiled(
    lambda kind: (
        sample(70, kind=kind),
        0.25,
        sample(70, kind=np.float64),
        0.5,
        sample(70, kind=np.float64),
        0.125,
        (np.zeros(70), np.zeros(70), np.zeros(70)),
    ),
    kinds=(np.float32, np.float64),
    answer=0xF9E1FDF1,
)
def accelerate(
    released: NDArray[np.floating],
    gain: float,
    velocity: NDArray[np.float64],
    momentum: float,
    residual: NDArray[np.float64],
    decay: float,
    out: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],
) -> None:
    """One step of an exponential average, in one pass: what it is now, and two ways to tell it.

    Args:
        released: float32[d] or float64[d].
        velocity: float64[d], the average before.
        residual: float64[d], what earlier messages lost.
        out: three times float64[d], overwritten: the velocity, the velocity with the decayed
            residual, and its change with the decayed residual.
    """
    now, whole, change = out
    for q in range(released.size):
        before, owed = velocity[q], decay * residual[q]
        after = momentum * before + gain * np.float64(released[q])
        now[q] = after
        whole[q] = after + owed
        change[q] = (after - before) + owed


@compiled(
    lambda _: (sample(70, low=-1000, below=2001, parts=8, kind=np.float64),),
    answer=0xD2D3E988,
)
def squared_norm(values: NDArray[np.float64]) -> float:
    """The sum of squares of float64[m], in eight sums that a processor adds side by side."""
    sums = np.zeros(8)
    whole = values.size // 8
    for i in range(whole):
        for j in range(8):
            sums[j] += values[8 * i + j] * values[8 * i + j]
    total = sums.sum()
    for q in range(8 * whole, values.size):
        total += values[q] * values[q]
    return float(total)
