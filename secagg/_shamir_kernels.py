"""Compiled inner loops of secret sharing over GF(2^31 - 1). Callers check arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled, sample

_MERSENNE_31 = 0x7FFF_FFFF


@compiled()
def _reduce_31(value: Any) -> Any:
    """Reduce a value below 2^62 modulo 2^31 - 1."""
    folded = (value & np.uint64(_MERSENNE_31)) + (value >> np.uint64(31))
    folded = (folded & np.uint64(_MERSENNE_31)) + (folded >> np.uint64(31))
    return np.uint64(0) if folded == np.uint64(_MERSENNE_31) else folded


@compiled(
    lambda _: (sample(3, 20, below=_MERSENNE_31), sample(5), np.zeros((5, 20), np.uint64)),
    answer=0xCE8D2551,
)
def evaluate_polynomials(
    coefficients: NDArray[np.uint64], points: NDArray[np.uint64], values: NDArray[np.uint64]
) -> None:
    """Horner evaluation over GF(2^31 - 1) of many polynomials at many points.

    Args:
        coefficients: uint64[threshold, polynomials], constant term first, all below p.
        points: uint64[holders], below p.
        values: uint64[holders, polynomials], output.
    """
    threshold, polynomials = coefficients.shape
    for h in range(points.size):
        x = points[h]
        row = values[h]
        # A loop: numba compiles the assignment of an array ten times as long, for its errors.
        for j in range(polynomials):
            row[j] = coefficients[threshold - 1, j]
        for power in range(threshold - 2, -1, -1):
            for j in range(polynomials):
                row[j] = _reduce_31(row[j] * x + coefficients[power, j])


@compiled()
def power_31(base: Any, exponent: int) -> Any:
    """Raise base to a power modulo 2^31 - 1."""
    result = np.uint64(1)
    square = np.uint64(base)
    left = np.uint64(exponent)
    while left > np.uint64(0):
        if left & np.uint64(1):
            result = _reduce_31(result * square)
        square = _reduce_31(square * square)
        left >>= np.uint64(1)
    return result


@compiled(lambda _: (sample(5), np.uint64(0), np.zeros(5, np.uint64)), answer=0x1754DE97)
def lagrange_weights(
    points: NDArray[np.uint64], target: np.uint64, weights: NDArray[np.uint64]
) -> None:
    """Lagrange weights over GF(2^31 - 1): value at target = sum weights[i] * value at points[i].

    Args:
        points: uint64[threshold], distinct, in 1 .. p - 1.
        target: below p; 0 for the secret.
        weights: uint64[threshold], output.
    """
    p = np.uint64(_MERSENNE_31)
    for i in range(points.size):
        numerator = np.uint64(1)
        denominator = np.uint64(1)
        for j in range(points.size):
            if j != i:
                numerator = _reduce_31(numerator * _reduce_31(points[j] + p - target))
                denominator = _reduce_31(denominator * _reduce_31(points[j] + p - points[i]))
        # Fermat: 1/a = a^(p-2).
        inverse = power_31(denominator, _MERSENNE_31 - 2)
        weights[i] = _reduce_31(numerator * inverse)


@compiled(
    lambda _: (
        sample(4, below=_MERSENNE_31),
        sample(4, 20, below=_MERSENNE_31),
        np.zeros(20, np.uint64),
    ),
    answer=0xB0F7D01F,
)
def weighted_sums(
    weights: NDArray[np.uint64], shares: NDArray[np.uint64], sums: NDArray[np.uint64]
) -> None:
    """sums[j] = sum_i weights[i] * shares[i, j] over GF(2^31 - 1); sums is uint64[columns]."""
    holders, columns = shares.shape
    sums[:] = np.uint64(0)
    for i in range(holders):
        for j in range(columns):
            sums[j] = _reduce_31(sums[j] + weights[i] * shares[i, j])


@compiled(
    lambda _: (sample(5), np.arange(1, 4, dtype=np.uint64), np.zeros((3, 5), np.uint64)),
    answer=0x175D9C91,
)
def interpolation_matrix(
    sources: NDArray[np.uint64], targets: NDArray[np.uint64], weights: NDArray[np.uint64]
) -> None:
    """Lagrange weights for many targets: value at targets[t] = sum_i weights[t, i] value(i).

    In the barycentric form weights[t, i] = A(t) / (d_i (y_t - x_i)) with A(t) the product of all
    y_t - x_i and d_i that of all x_i - x_j. The divisions of a row cost one inversion.

    Args:
        sources: uint64[m], distinct, below p.
        targets: uint64[count], below p, none of them a source.
        weights: uint64[count, m], output.
    """
    p = np.uint64(_MERSENNE_31)
    m = sources.size
    spread = np.ones(m, np.uint64)
    for i in range(m):
        for j in range(m):
            if j != i:
                spread[i] = _reduce_31(spread[i] * _reduce_31(sources[i] + p - sources[j]))
    below = np.empty(m, np.uint64)
    prefix = np.empty(m + 1, np.uint64)
    prefix[0] = np.uint64(1)
    for t in range(targets.size):
        every = np.uint64(1)
        for i in range(m):
            distance = _reduce_31(targets[t] + p - sources[i])
            every = _reduce_31(every * distance)
            below[i] = _reduce_31(distance * spread[i])
            prefix[i + 1] = _reduce_31(prefix[i] * below[i])
        # Fermat: 1/a = a^(p-2). It is that of below[0] .. below[i] in turn.
        inverse = power_31(prefix[m], _MERSENNE_31 - 2)
        for i in range(m - 1, -1, -1):
            weights[t, i] = _reduce_31(every * _reduce_31(inverse * prefix[i]))
            inverse = _reduce_31(inverse * below[i])


@compiled(
    lambda _: (
        sample(3, 6, below=_MERSENNE_31),
        sample(6, 20, below=_MERSENNE_31),
        np.zeros((3, 20), np.uint64),
    ),
    answer=0x3470766A,
)
def matrix_product(
    left: NDArray[np.uint64], right: NDArray[np.uint64], product: NDArray[np.uint64]
) -> None:
    """The matrix product, left times right, over GF(2^31 - 1).

    Four products of elements are below 2^64 - 2^35, so that a folded total fits beside them.

    Args:
        left: uint64[rows, inner], below p.
        right: uint64[inner, columns], below p.
        product: uint64[rows, columns], output.
    """
    p = np.uint64(_MERSENNE_31)
    rows, inner = left.shape
    for r in range(rows):
        total = product[r]
        total[:] = np.uint64(0)
        k = 0
        while k + 4 <= inner:
            a, b, c, d = left[r, k], left[r, k + 1], left[r, k + 2], left[r, k + 3]
            w, x, y, z = right[k], right[k + 1], right[k + 2], right[k + 3]
            for i in range(total.size):
                j = np.uint64(i)
                value = total[j] + a * w[j] + b * x[j] + c * y[j] + d * z[j]
                total[j] = (value & p) + (value >> np.uint64(31))
            k += 4
        while k < inner:
            a, w = left[r, k], right[k]
            for i in range(total.size):
                j = np.uint64(i)
                value = total[j] + a * w[j]
                total[j] = (value & p) + (value >> np.uint64(31))
            k += 1
        for i in range(total.size):
            total[i] = _reduce_31(total[i])
