"""Compiled inner loops: scatter, gather, medians, sign flips and checked copies.

Plain loops over arrays that the callers have checked: no validation, no randomness, no
allocation. They see hash *words*, never keys.

Every loop reads sign bits in little-endian order within a byte: the sign of coordinate q is
bit q % 8 of byte q // 8, and a set bit means -1. The loops over whole bytes have a fixed inner
length of eight so that the compiler unrolls them; a short last byte follows on its own.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def _sign(sign_byte: int, position: int) -> float:
    """The sign that one bit of a byte stands for: 1.0, or -1.0 if it is set."""
    return 1.0 - 2.0 * ((np.uint32(sign_byte) >> np.uint32(position)) & np.uint32(1))


@njit(cache=True, nogil=True)
def scatter_add(
    values: NDArray[np.floating],
    words: NDArray[np.uint32],
    sign_bytes: NDArray[np.uint8],
    row: NDArray[np.float64],
) -> None:
    """Add sign(q) * values[q] to row[bucket(q)] for every q of one chunk, in place.

    Args:
        values: float32[m] or float64[m], the chunk.
        words: uint32[m], the bucket words; bucket = floor(word * P / 2^32).
        sign_bytes: uint8[>= m / 8], the sign bits of the chunk from bit 0 on.
        row: float64[P], updated in place.
    """
    columns = np.uint64(row.size)
    whole = values.size // 8
    for b in range(whole):
        for j in range(8):
            q = 8 * b + j
            bucket = (np.uint64(words[q]) * columns) >> np.uint64(32)
            row[bucket] += _sign(sign_bytes[b], j) * values[q]
    for q in range(8 * whole, values.size):
        bucket = (np.uint64(words[q]) * columns) >> np.uint64(32)
        row[bucket] += _sign(sign_bytes[whole], q - 8 * whole) * values[q]


@njit(cache=True, nogil=True)
def gather_add(
    row: NDArray[np.float64],
    words: NDArray[np.uint32],
    sign_bytes: NDArray[np.uint8],
    out: NDArray[np.float64],
) -> None:
    """Add sign(q) * row[bucket(q)] to out[q] for every q of one chunk, in place.

    Args:
        row: float64[P], one row of a sketch.
        words: uint32[m], the bucket words; bucket = floor(word * P / 2^32).
        sign_bytes: uint8[>= m / 8], the sign bits of the chunk from bit 0 on.
        out: float64[m], updated in place.
    """
    columns = np.uint64(row.size)
    whole = out.size // 8
    for b in range(whole):
        for j in range(8):
            q = 8 * b + j
            bucket = (np.uint64(words[q]) * columns) >> np.uint64(32)
            out[q] += _sign(sign_bytes[b], j) * row[bucket]
    for q in range(8 * whole, out.size):
        bucket = (np.uint64(words[q]) * columns) >> np.uint64(32)
        out[q] += _sign(sign_bytes[whole], q - 8 * whole) * row[bucket]


@njit(cache=True, nogil=True)
def median_columns(estimates: NDArray[np.float64], out: NDArray[np.float64]) -> None:
    """The median of each of the first m columns, for an odd number of rows.

    Args:
        estimates: float64[M, at least m], M odd; these columns are left sorted.
        out: float64[m], overwritten.
    """
    copies, count = estimates.shape[0], out.size
    # An odd-even transposition network: compares whole rows, so the compiler vectorises it.
    for turn in range(copies):
        for low in range(turn & 1, copies - 1, 2):
            first, second = estimates[low], estimates[low + 1]
            for j in range(count):
                a, b = first[j], second[j]
                first[j], second[j] = min(a, b), max(a, b)
    out[:] = estimates[copies // 2, :count]


@njit(cache=True, nogil=True)
def flip_signs(values: NDArray[np.float64], sign_bytes: NDArray[np.uint8]) -> None:
    """Negate values[q] where bit q of `sign_bytes` is set, in place.

    Args:
        values: float64[m], contiguous; updated in place.
        sign_bytes: uint8[>= m / 8].
    """
    # The sign of a float64 is its top bit. One word of signs for 64 values leaves an inner loop
    # that compilers turn into vector shifts; with a byte for eight they do not.
    patterns = values.view(np.uint64)
    whole = values.size // 64
    for w in range(whole):
        word = np.uint64(0)
        for k in range(8):
            word |= np.uint64(sign_bytes[8 * w + k]) << np.uint64(8 * k)
        run = patterns[64 * w : 64 * w + 64]
        for j in range(64):
            run[j] ^= (word >> np.uint64(j)) << np.uint64(63)
    for q in range(64 * whole, values.size):
        values[q] *= _sign(sign_bytes[q >> 3], q & 7)


@njit(cache=True, nogil=True)
def copy_finite(values: NDArray[np.floating], out: NDArray[np.float64]) -> bool:
    """Copy `values` to `out` in one pass that also tells whether all of them are finite.

    Args:
        values: float32[m] or float64[m].
        out: float64[m], overwritten.
    """
    bad = 0
    for q in range(values.size):
        value = np.float64(values[q])
        out[q] = value
        # Zero for every number; undefined for an infinite or undefined entry.
        bad |= (value - value) != 0.0
    return bad == 0
