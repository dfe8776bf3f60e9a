"""Compiled loops over GF(q) and its ring, q a prime below 2^50: transforms, matrices, rows.

Source: the transforms are Algorithms 1 and 2 of Longa and Naehrig 2016 (ia.cr/2016/504).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg._prime_kernels import minus, plus, power, reciprocal, reduced, times
from veilsum.compiled import compiled, sample

Residues = NDArray[np.uint64]

PRIME = np.uint64(70_368_744_177_601)
"""One of the size that is used, for known answers."""


def residues(*shape: int) -> Residues:
    """Numbers below it."""
    return sample(*shape, below=int(PRIME))


@compiled()
def forward_row(x: Residues, w: Residues, q: Any, ratio: Any) -> None:
    """Transform of one element in place: value j is x(psi^(2 bitrev(j) + 1)).

    Args:
        w: psi^bitrev(j).
    """
    t = x.size // 2
    groups = 1
    while t >= 1:
        for g in range(groups):
            x0, x1 = x[2 * t * g : 2 * t * g + t], x[2 * t * g + t : 2 * t * (g + 1)]
            a = w[groups + g]
            for i in range(t):
                u, v = x0[i], times(x1[i], a, q, ratio)
                x0[i], x1[i] = plus(u, v, q), minus(u, v, q)
        groups *= 2
        t //= 2


@compiled()
def inverse_row(x: Residues, w: Residues, scale: Any, q: Any, ratio: Any) -> None:
    """Inverse of `forward_row`.

    Args:
        w: psi^-bitrev(j).
        scale: 1 / N.
    """
    t = 1
    groups = x.size // 2
    while groups >= 1:
        for g in range(groups):
            x0, x1 = x[2 * t * g : 2 * t * g + t], x[2 * t * g + t : 2 * t * (g + 1)]
            a = w[groups + g]
            for i in range(t):
                u, v = x0[i], x1[i]
                x0[i], x1[i] = plus(u, v, q), times(minus(u, v, q), a, q, ratio)
        groups //= 2
        t *= 2
    for i in range(x.size):
        x[i] = times(x[i], scale, q, ratio)


@compiled(lambda _: (residues(3, 16), residues(16), PRIME), answer=0x5B0237A3)
def forward(values: Residues, w: Residues, q: np.uint64) -> None:
    """Transforms of elements in place: uint64[blocks, N]."""
    ratio = reciprocal(q)
    for b in range(values.shape[0]):
        forward_row(values[b], w, q, ratio)


@compiled(lambda _: (residues(3, 16), residues(16), np.uint64(5), PRIME), answer=0x30E6AAC5)
def inverse(values: Residues, w: Residues, scale: np.uint64, q: np.uint64) -> None:
    """Inverse transforms in place: uint64[blocks, N]."""
    ratio = reciprocal(q)
    for b in range(values.shape[0]):
        inverse_row(values[b], w, scale, q, ratio)


@compiled(
    lambda _: (
        residues(3, 16),
        residues(16),
        residues(16),
        np.uint64(5),
        PRIME,
        residues(3, 16),
    ),
    answer=0x378BB05F,
)
def masks(
    a: Residues, key: Residues, w: Residues, scale: np.uint64, q: np.uint64, out: Residues
) -> None:
    """The coefficients of a_b k from the values of both: uint64[blocks, N] from uint64[N]."""
    ratio = reciprocal(q)
    for b in range(a.shape[0]):
        row = out[b]
        for i in range(row.size):
            row[i] = times(a[b, i], key[i], q, ratio)
        inverse_row(row, w, scale, q, ratio)


@compiled(
    lambda _: (residues(3, 16), residues(3, 16), residues(16), PRIME, residues(16)),
    answer=0x606919DC,
)
def add_adjoint(a: Residues, vector: Residues, w: Residues, q: np.uint64, out: Residues) -> None:
    """Add the values of sum_b a_b* v_b to uint64[N]; the vector's blocks are overwritten."""
    ratio, last = reciprocal(q), out.size - 1
    for b in range(a.shape[0]):
        row = vector[b]
        forward_row(row, w, q, ratio)
        for i in range(out.size):
            out[i] = plus(out[i], times(a[b, last - i], row[i], q, ratio), q)


@compiled(lambda _: (residues(3, 16), PRIME, residues(16)), answer=0xB7AFAA12)
def add_squares(a: Residues, q: np.uint64, out: Residues) -> None:
    """Add the values of sum_b a_b* a_b to uint64[N]."""
    ratio, last = reciprocal(q), out.size - 1
    for b in range(a.shape[0]):
        for i in range(out.size):
            out[i] = plus(out[i], times(a[b, last - i], a[b, i], q, ratio), q)


@compiled(lambda _: (residues(20), residues(20), PRIME), answer=0xAC300057)
def dot(one: Residues, other: Residues, q: np.uint64) -> Any:
    """The inner product of vectors of residues."""
    ratio, total = reciprocal(q), np.uint64(0)
    for i in range(one.size):
        total = plus(total, times(one[i], other[i], q, ratio), q)
    return total


@compiled(lambda _: (residues(20), residues(20), PRIME, residues(20)), answer=0x91DB70CA)
def products(one: Residues, other: Residues, q: np.uint64, out: Residues) -> None:
    """Products of residues, one by one: uint64[count]."""
    ratio = reciprocal(q)
    for i in range(out.size):
        out[i] = times(one[i], other[i], q, ratio)


@compiled(lambda _: (residues(3, 5), residues(5, 20), PRIME, residues(3, 20)), answer=0xAA4F89C2)
def matrix_product(matrix: Residues, columns: Residues, q: np.uint64, out: Residues) -> None:
    """uint64[m, n] from uint64[m, k] and uint64[k, n]."""
    ratio = reciprocal(q)
    for i in range(matrix.shape[0]):
        row = out[i]
        for j in range(row.size):
            row[j] = np.uint64(0)
        for k in range(matrix.shape[1]):
            factor, column = matrix[i, k], columns[k]
            for j in range(row.size):
                row[j] = plus(row[j], times(column[j], factor, q, ratio), q)


@compiled(lambda _: (residues(20), PRIME, residues(20)), answer=0xCEE51380)
def inverses(values: Residues, q: np.uint64, out: Residues) -> None:
    """Inverses of residues that are not 0, q a prime: uint64[count]."""
    ratio = reciprocal(q)
    for i in range(values.size):
        out[i] = power(values[i], q - np.uint64(2), q, ratio)


@compiled(lambda _: (residues(4), residues(3), PRIME, residues(3, 4)), answer=0xB9A154EF)
def interpolation_matrix(points: Residues, targets: Residues, q: np.uint64, out: Residues) -> None:
    """Lagrange's weights: values at targets uint64[m] from those at points uint64[k], uint64[m, k].

    Args:
        points, targets: distinct; q is a prime.
    """
    ratio = reciprocal(q)
    for k in range(points.size):
        below = np.uint64(1)
        for other in range(points.size):
            if other != k:
                below = times(below, minus(points[k], points[other], q), q, ratio)
        for i in range(targets.size):
            above = np.uint64(1)
            for other in range(points.size):
                if other != k:
                    above = times(above, minus(targets[i], points[other], q), q, ratio)
            out[i, k] = times(above, power(below, q - np.uint64(2), q, ratio), q, ratio)


# Rows. A coordinate has 32 bytes of the stream: bit r of the first 16 is what row r adds, of the
# others what it takes away. Byte by byte, a table has the sums over all coordinates.

Bits = NDArray[np.uint8]


def row_bits(count: int) -> Bits:
    """Bits of coordinates."""
    return sample(count, 32, below=256, kind=np.uint8)


@compiled(
    lambda _: (
        row_bits(20),
        sample(20, low=-(10**6), below=2 * 10**6, kind=np.int64),
        np.zeros((16, 256), np.int64),
    ),
    answer=0xCF2BB1BE,
)
def add_by_byte(bits: Bits, values: NDArray[np.int64], sums: NDArray[np.int64]) -> None:
    """Add integers to int64[16, 256] at each byte of their coordinate, uint8[count, 32]."""
    for i in range(values.size):
        value, mine = values[i], bits[i]
        for place in range(16):
            sums[place, mine[place]] += value
            sums[place, mine[16 + place]] -= value


@compiled(lambda _: (row_bits(20), residues(2, 16, 256), PRIME, residues(2, 20)), answer=0x1CB3C366)
def combine_rows(bits: Bits, tables: Residues, q: np.uint64, out: Residues) -> None:
    """What rows with weights add up to at each coordinate: uint64[repetitions, count].

    Args:
        tables: uint64[repetitions, 16, 256], for each byte the sum of the weights of its bits.
    """
    ratio = reciprocal(q)
    # One repetition after the other: its table fits the first cache level, all of them do not.
    for repetition in range(tables.shape[0]):
        table, row = tables[repetition], out[repetition]
        for i in range(bits.shape[0]):
            mine = bits[i]
            total = np.uint64(16) * q
            for place in range(16):
                total += table[place, mine[place]] - table[place, mine[16 + place]]
            row[i] = reduced(total, q, ratio)
