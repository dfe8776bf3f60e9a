"""Compiled loops that find wrong shares over GF(p), p a prime below 2^50.

The prime of pairwise and one-shot shares, 2^31 - 1, has its own sums of products: reduced once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg._prime_kernels import minus, plus, power, reciprocal
from secagg._prime_kernels import times as times_of_any
from secagg._shamir_kernels import _MERSENNE_31, _reduce_31
from veilsum.compiled import compiled, sample

PRIME = np.uint64(_MERSENNE_31)
"""Also of known answers."""


@compiled()
def times(a: Any, b: Any, p: Any, ratio: Any) -> Any:
    """The product of residues."""
    return _reduce_31(a * b) if p == PRIME else times_of_any(a, b, p, ratio)


@compiled()
def dot(one: NDArray[np.uint64], other: NDArray[np.uint64], p: Any, ratio: Any) -> Any:
    """The inner product of vectors of residues, of less than 2^31 of them."""
    total = np.uint64(0)
    if p == PRIME:
        for i in range(one.size):
            value = one[i] * other[i]
            # Below 2^32.
            total += (value & PRIME) + (value >> np.uint64(31))
        return _reduce_31(total)
    for i in range(one.size):
        total = plus(total, times_of_any(one[i], other[i], p, ratio), p)
    return total


@compiled(
    lambda _: (sample(9), sample(2, 9, below=int(PRIME)), PRIME, np.zeros((2, 4), np.uint64)),
    answer=0x18FFC30C,
)
def syndromes(
    points: NDArray[np.uint64], words: NDArray[np.uint64], p: np.uint64, sums: NDArray[np.uint64]
) -> None:
    """sums[h, j] = sum_i v_i words[h, i] points[i]^j, with v_i = 1 / prod_{k != i} (x_i - x_k).

    They vanish for the values of a polynomial of degree below m - N: each is the divided difference
    of its product with x^j, the coefficient of x^(m - 1) in a polynomial of lower degree.

    Args:
        points: uint64[m], distinct, in 1 .. p - 1.
        words: uint64[limbs, m], below p.
        sums: uint64[limbs, N], output.
    """
    ratio = reciprocal(p)
    m = points.size
    limbs, count = sums.shape
    scaled = np.empty((limbs, m), np.uint64)
    for i in range(m):
        product = np.uint64(1)
        for k in range(m):
            if k != i:
                product = times(product, minus(points[i], points[k], p), p, ratio)
        # Fermat: 1/a = a^(p-2).
        multiplier = power(product, p - np.uint64(2), p, ratio)
        for h in range(limbs):
            scaled[h, i] = times(words[h, i], multiplier, p, ratio)
    powers = np.ones(m, np.uint64)
    for j in range(count):
        for h in range(limbs):
            sums[h, j] = dot(scaled[h], powers, p, ratio)
        for i in range(m):
            powers[i] = times(powers[i], points[i], p, ratio)


@compiled(
    lambda _: (sample(2, 6, below=int(PRIME)), PRIME, np.zeros(7, np.uint64)), answer=0x38E2B783
)
def joint_recurrence(
    sequences: NDArray[np.uint64], p: np.uint64, locator: NDArray[np.uint64]
) -> int:
    """The shortest linear recurrence that all sequences obey.

    sum_{j = 0 .. length} locator[j] sequences[h, n - j] = 0 for every h and length <= n < N, with
    locator[0] = 1.

    Source: Feng and Tzeng 1991, IEEE Trans. Inf. Theory 37(5); Berlekamp-Massey for one sequence.

    Args:
        sequences: uint64[limbs, N], below p.
        locator: uint64[N + 1], output.
    """
    ratio = reciprocal(p)
    limbs, count = sequences.shape
    locator[:] = np.uint64(0)
    locator[0] = np.uint64(1)
    length = 0
    # For each sequence what the recurrence was before this sequence last made it longer, where
    # that was, and by how much it was wrong there.
    before = np.zeros((limbs, count + 1), np.uint64)
    lengths = np.zeros(limbs, np.int64)
    places = np.full(limbs, -1, np.int64)
    inverses = np.ones(limbs, np.uint64)
    shorter = np.empty(count + 1, np.uint64)
    # The last element first, so that both vectors of a product are read forward.
    backward = sequences[:, ::-1].copy()
    for n in range(count):
        for h in range(limbs):
            terms, first = min(length, n) + 1, count - 1 - n
            total = dot(locator[:terms], backward[h, first : first + terms], p, ratio)
            if total == np.uint64(0):
                continue
            shift = n - places[h]
            grows = shift + lengths[h] > length
            if grows:
                shorter[:] = locator
            factor = times(total, inverses[h], p, ratio)
            for j in range(shift, min(count, shift + lengths[h]) + 1):
                locator[j] = minus(locator[j], times(factor, before[h, j - shift], p, ratio), p)
            if grows:
                before[h] = shorter
                inverses[h] = power(total, p - np.uint64(2), p, ratio)
                places[h] = n
                length, lengths[h] = shift + lengths[h], length
    return length


@compiled(
    lambda _: (
        np.array([1, int(PRIME) - 5], np.uint64),
        np.arange(1, 10, dtype=np.uint64),
        PRIME,
        np.zeros(9, np.bool_),
    ),
    answer=0x2CF015D4,
)
def mark_roots(
    locator: NDArray[np.uint64],
    points: NDArray[np.uint64],
    p: np.uint64,
    marked: NDArray[np.bool_],
) -> None:
    """marked[i]: whether 1 / points[i] is a root.

    Args:
        locator: uint64[length + 1], constant term first.
        points: uint64[m], in 1 .. p - 1.
    """
    ratio = reciprocal(p)
    for i in range(points.size):
        # Horner's rule for the reversed polynomial at x has the same roots.
        value = np.uint64(0)
        for j in range(locator.size):
            value = plus(times(value, points[i], p, ratio), locator[j], p)
        marked[i] = value == np.uint64(0)
