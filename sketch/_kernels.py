"""Compiled inner loops: scatter, gather, sign flips and the Walsh-Hadamard transform.

Plain loops over arrays that the callers have checked: no validation, no randomness, no
allocation beyond one small tile. They see hash *words*, never keys.

Every loop reads sign bits in little-endian order within a byte: the sign of coordinate q is
bit q % 8 of byte q // 8, and a set bit means -1. The loops over whole bytes have a fixed inner
length of eight so that the compiler unrolls them; a short last byte follows on its own.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

# One block of the transform fills 32 KiB (2^12 float64): the level-one cache of common cores.
_BLOCK = 4096
# A column tile is as wide as one 64-byte cache line, so no line is fetched twice in a pass.
_TILE = 8


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
def flip_signs(values: NDArray[np.float64], sign_bytes: NDArray[np.uint8]) -> None:
    """Negate values[q] where bit q of `sign_bytes` is set, in place.

    Args:
        values: float64[m], updated in place.
        sign_bytes: uint8[>= m / 8].
    """
    for q in range(values.size):
        values[q] *= _sign(sign_bytes[q >> 3], q & 7)


@njit(cache=True, nogil=True)
def _radix_two(low: NDArray[np.float64], high: NDArray[np.float64]) -> None:
    """One butterfly of the transform between two equally long runs, in place."""
    for j in range(low.size):
        a = low[j]
        b = high[j]
        low[j] = a + b
        high[j] = a - b


@njit(cache=True, nogil=True)
def _radix_four(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    third: NDArray[np.float64],
    fourth: NDArray[np.float64],
) -> None:
    """Two levels of butterflies in one pass over four equally long runs, in place."""
    for j in range(first.size):
        a = first[j] + second[j]
        b = first[j] - second[j]
        c = third[j] + fourth[j]
        d = third[j] - fourth[j]
        first[j] = a + c
        second[j] = b + d
        third[j] = a - c
        fourth[j] = b - d


@njit(cache=True, nogil=True)
def _transform_runs(values: NDArray[np.float64], run: int) -> None:
    """All levels of the transform across runs of `run` adjacent entries, in place.

    Args:
        values: float64[run * 2^m]; treated as 2^m runs that are combined entry by entry.
        run: the length of a run.
    """
    size = values.size
    while 4 * run <= size:
        for start in range(0, size, 4 * run):
            _radix_four(
                values[start : start + run],
                values[start + run : start + 2 * run],
                values[start + 2 * run : start + 3 * run],
                values[start + 3 * run : start + 4 * run],
            )
        run *= 4
    if run < size:
        _radix_two(values[:run], values[run:])


@njit(cache=True, nogil=True)
def _transform_eights(values: NDArray[np.float64]) -> None:
    """The three lowest levels, for every eight adjacent entries, held in registers; in place.

    Args:
        values: float64[8 * m].
    """
    for i in range(0, values.size, 8):
        a0 = values[i] + values[i + 1]
        a1 = values[i] - values[i + 1]
        a2 = values[i + 2] + values[i + 3]
        a3 = values[i + 2] - values[i + 3]
        a4 = values[i + 4] + values[i + 5]
        a5 = values[i + 4] - values[i + 5]
        a6 = values[i + 6] + values[i + 7]
        a7 = values[i + 6] - values[i + 7]
        b0, b2 = a0 + a2, a0 - a2
        b1, b3 = a1 + a3, a1 - a3
        b4, b6 = a4 + a6, a4 - a6
        b5, b7 = a5 + a7, a5 - a7
        values[i], values[i + 4] = b0 + b4, b0 - b4
        values[i + 1], values[i + 5] = b1 + b5, b1 - b5
        values[i + 2], values[i + 6] = b2 + b6, b2 - b6
        values[i + 3], values[i + 7] = b3 + b7, b3 - b7


@njit(cache=True, nogil=True)
def _transform_block(values: NDArray[np.float64]) -> None:
    """Multiply one in-cache block by the Walsh-Hadamard matrix, in place; float64[power of 2]."""
    if values.size < 8:
        _transform_runs(values, 1)
    else:
        _transform_eights(values)
        _transform_runs(values, 8)


@njit(cache=True, nogil=True)
def _transform_columns(values: NDArray[np.float64], rows: int, columns: int) -> None:
    """Transform every column of a row-major rows x columns matrix, tile by tile, in place.

    Columns lie a power of two apart, where all entries of one column compete for the same cache
    set. Copying a tile into a contiguous buffer avoids that and costs one pass over memory for
    all levels together.
    """
    tile = np.empty(rows * _TILE, dtype=np.float64)
    for left in range(0, columns, _TILE):
        for r in range(rows):
            for j in range(_TILE):
                tile[r * _TILE + j] = values[r * columns + left + j]
        _transform_runs(tile, _TILE)
        for r in range(rows):
            for j in range(_TILE):
                values[r * columns + left + j] = tile[r * _TILE + j]


@njit(cache=True, nogil=True)
def walsh_hadamard(values: NDArray[np.float64]) -> None:
    """Multiply by the unnormalised Walsh-Hadamard matrix in natural order, in place.

    H_N = H_rows (x) H_columns: every block of `_BLOCK` adjacent entries is transformed in cache,
    then the columns across blocks. Two passes over memory whatever the size.

    Args:
        values: float64[N], N a power of two.
    """
    block = min(values.size, _BLOCK)
    for start in range(0, values.size, block):
        _transform_block(values[start : start + block])
    if values.size > block:
        _transform_columns(values, values.size // block, block)
