"""The Walsh-Hadamard transform, compiled.

H_2N = [[H_N, H_N], [H_N, -H_N]]: log2 N levels of butterflies (a, b) -> (a + b, a - b), a level
for every distance 1, 2, 4, ... in that order. Several levels are done in one pass to spare
memory; each sum is the same as level by level, so results do not depend on the grouping, bit for
bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled, sample

# One block fills 32 KiB (2^12 float64): the level-one cache of common cores.
_BLOCK = 4096


def _entries(count: int) -> NDArray[np.float64]:
    """Few enough that are not zero to be made quickly."""
    values = np.zeros(count)
    some = values[:: max(1, count // 512)]
    some[:] = sample(some.size, low=-1000, below=2001, kind=np.float64)
    return values


@compiled()
def _radix_two(low: NDArray[np.float64], high: NDArray[np.float64], factor: float) -> None:
    """One butterfly of the transform between two equally long runs, in place, times a factor."""
    for j in range(low.size):
        a = low[j]
        b = high[j]
        low[j] = (a + b) * factor
        high[j] = (a - b) * factor


@compiled()
def _radix_four(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    third: NDArray[np.float64],
    fourth: NDArray[np.float64],
    factor: float,
) -> None:
    """Two levels of butterflies in one pass over four equally long runs, in place, and a factor."""
    for j in range(first.size):
        a = first[j] + second[j]
        b = first[j] - second[j]
        c = third[j] + fourth[j]
        d = third[j] - fourth[j]
        first[j] = (a + c) * factor
        second[j] = (b + d) * factor
        third[j] = (a - c) * factor
        fourth[j] = (b - d) * factor


@compiled(inline="always")
def _radix_eight(values: NDArray[np.float64], run: int, factor: float) -> None:
    """Three levels and a factor in one pass, across runs of `run` entries, in place.

    It is only ever copied into the kernels below. Their runs are constants, which tell the compiler
    that the eight places of a butterfly never overlap; else it would not vectorise.
    """
    for start in range(0, values.size, 8 * run):
        part = values[start : start + 8 * run]
        for j in range(run):
            x0, x1, x2, x3 = part[j], part[j + run], part[j + 2 * run], part[j + 3 * run]
            x4, x5 = part[j + 4 * run], part[j + 5 * run]
            x6, x7 = part[j + 6 * run], part[j + 7 * run]
            a0, a1, a2, a3 = x0 + x1, x0 - x1, x2 + x3, x2 - x3
            a4, a5, a6, a7 = x4 + x5, x4 - x5, x6 + x7, x6 - x7
            b0, b2, b1, b3 = a0 + a2, a0 - a2, a1 + a3, a1 - a3
            b4, b6, b5, b7 = a4 + a6, a4 - a6, a5 + a7, a5 - a7
            part[j], part[j + 4 * run] = (b0 + b4) * factor, (b0 - b4) * factor
            part[j + run], part[j + 5 * run] = (b1 + b5) * factor, (b1 - b5) * factor
            part[j + 2 * run], part[j + 6 * run] = (b2 + b6) * factor, (b2 - b6) * factor
            part[j + 3 * run], part[j + 7 * run] = (b3 + b7) * factor, (b3 - b7) * factor


@compiled(lambda _: (_entries(8), 0.5), answer=0x96E8D79D)
def _across_1(values: NDArray[np.float64], factor: float) -> None:
    """Three levels and a factor across runs of 1, in place."""
    _radix_eight(values, 1, factor)


@compiled(lambda _: (_entries(64), 0.5), answer=0x826935D8)
def _across_8(values: NDArray[np.float64], factor: float) -> None:
    """Three levels and a factor across runs of 8, in place."""
    _radix_eight(values, 8, factor)


@compiled(lambda _: (_entries(512), 0.5), answer=0xFBF36BCF)
def _across_64(values: NDArray[np.float64], factor: float) -> None:
    """Three levels and a factor across runs of 64, in place."""
    _radix_eight(values, 64, factor)


@compiled(lambda _: (_entries(4096), 0.5), answer=0xDF47F679)
def _across_512(values: NDArray[np.float64], factor: float) -> None:
    """Three levels and a factor across runs of 512, in place."""
    _radix_eight(values, 512, factor)


@compiled(lambda _: (_entries(32768), 0.5), answer=0xB748A482)
def _across_4096(values: NDArray[np.float64], factor: float) -> None:
    """Three levels and a factor across runs of 4096, in place."""
    _radix_eight(values, 4096, factor)


@compiled(lambda _: (_entries(262144), 0.5), answer=0x6807B4E8)
def _across_32768(values: NDArray[np.float64], factor: float) -> None:
    """Three levels and a factor across runs of 32768, in place."""
    _radix_eight(values, 32768, factor)


@compiled(lambda _: (_entries(2097152), 0.5), answer=0xFE61A499)
def _across_262144(values: NDArray[np.float64], factor: float) -> None:
    """Three levels and a factor across runs of 262144, in place."""
    _radix_eight(values, 262144, factor)


@compiled(lambda _: (_entries(256), 8, 0.5), answer=0xF4013A95)
def _transform_runs(values: NDArray[np.float64], run: int, factor: float) -> None:
    """All levels of the transform across runs of `run` adjacent entries, in place.

    Args:
        values: float64[run * 2^m]; treated as 2^m runs that are combined entry by entry.
        factor: of the last level; it is lost where there is none.
    """
    size = values.size
    while 4 * run <= size:
        last = factor if 4 * run == size else 1.0
        for start in range(0, size, 4 * run):
            _radix_four(
                values[start : start + run],
                values[start + run : start + 2 * run],
                values[start + 2 * run : start + 3 * run],
                values[start + 3 * run : start + 4 * run],
                last,
            )
        run *= 4
    if run < size:
        _radix_two(values[:run], values[run:], factor)


@compiled()
def _transform_block(values: NDArray[np.float64], factor: float) -> None:
    """Multiply one block by the matrix and a factor, in place; float64[_BLOCK]."""
    _across_1(values, 1.0)
    _across_8(values, 1.0)
    _across_64(values, 1.0)
    _across_512(values, factor)


@compiled(lambda _: (_entries(2 * _BLOCK), 1.0), answer=0x9F62EFE0)
def _transform_blocks(values: NDArray[np.float64], factor: float) -> None:
    """Multiply every block of `_BLOCK` adjacent entries by the matrix and a factor, in place."""
    for start in range(0, values.size, _BLOCK):
        _transform_block(values[start : start + _BLOCK], factor)


# Each pass of three levels, and the size from which on there is one.
_IN_A_BLOCK = ((8, _across_1), (64, _across_8), (512, _across_64))
_ACROSS_BLOCKS = ((32768, _across_4096), (262144, _across_32768), (2097152, _across_262144))


def walsh_hadamard(values: NDArray[np.float64], factor: float) -> None:
    """Multiply by the Walsh-Hadamard matrix in natural order times a factor, in place.

    H_N = H_rows (x) H_columns: every block of `_BLOCK` adjacent entries is transformed in cache,
    then whole blocks are combined with one another, three levels to a pass over memory. The factor
    comes with the last level, as if all were multiplied afterwards. Only the passes that there are
    get compiled, which is most of a first small round.

    Args:
        values: float64[N], N a power of two, at least 2.
    """
    size, run = values.size, 1
    if size >= _BLOCK:
        _transform_blocks(values, factor if size == _BLOCK else 1.0)
        run = _BLOCK
    if run == size:
        return
    for least, across in _ACROSS_BLOCKS if run == _BLOCK else _IN_A_BLOCK:
        if size >= least:
            across(values, factor if size == least else 1.0)
            run = least
    if run < size:
        _transform_runs(values, run, factor)
