"""Compiled inner loops over keystream words, packed bits and shares.

Every kernel works on caller-owned buffers and allocates nothing of their size. Arithmetic carries
explicit casts, because numba widens unsigned operands, and runs in blocks that stay in the first
cache level, so that the compiler vectorises it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Words = NDArray[np.unsignedinteger[Any]]

_BLOCK = 2048
"""Elements of one accumulator block: with one keystream block it fits the first cache level."""

_SCAN = 128
"""Elements of one step of the search for rejected words in a block known to hold one."""

_MERSENNE_31 = 0x7FFF_FFFF


@njit(cache=True)
def _restore(total: Any, word: Any, p: Any, subtract: bool, spare: bool) -> Any:
    """Undo the fast path for a rejected word (p <= word), giving back the value before it.

    All equations are modulo 2^W. Adding left total + word - p with a spare bit; without one it
    left total + word, or total itself when word = p. Subtracting left total - word + p, or, with
    a spare bit, perhaps total - word: there only the right guess lands below p < 2^(W-1).
    """
    kind = type(total)
    if subtract:
        value = kind(total + word - p)
        if spare and value >= p:
            value = kind(total + word)
    elif spare:
        value = kind(total - word + p)
    else:
        value = total if word == p else kind(total - word)
    return value


@njit(cache=True)
def accumulate_words(
    accumulator: Words,
    words: Words,
    skip: int,
    subtract: NDArray[np.bool_],
    modulus: int,
    word_mask: int,
    rejected: NDArray[np.int64],
) -> int:
    """Add or subtract rows of keystream words to an accumulator over GF(modulus), in place.

    A word is first masked to the field's bit length. A masked word that is not below the modulus
    leaves the accumulator as it was, and its flat index `row * length + column` goes to
    `rejected`: the caller replaces it by the next stream's word.

    Args:
        accumulator: uintW[length], every element below modulus; still so afterwards.
        words: uintW[>= rows, >= skip + length], keystream read as little-endian words; must be
            contiguous, or the compiler cannot vectorise.
        skip: words of each row that come before the accumulator's first element.
        subtract: bool[rows], whether a row is subtracted instead of added.
        modulus: prime p < 2^W.
        word_mask: 2^bits - 1, not below p.
        rejected: int64[>= rows * length], output.

    Returns:
        The number of rejected words.
    """
    rows = subtract.size
    length = accumulator.size
    kind = accumulator.dtype.type
    p = kind(modulus)
    mask = kind(word_mask)
    # With a spare bit a + b cannot overflow, and min(x, x -/+ p) is a branch-free reduction.
    spare = kind(~mask) != kind(0)
    count = 0
    for start in range(0, length, _BLOCK):
        total = accumulator[start : min(start + _BLOCK, length)]
        for row in range(rows):
            block = words[row, skip + start : skip + start + total.size]
            largest = kind(0)
            if subtract[row]:
                if spare:
                    for i in range(total.size):
                        word = kind(block[i] & mask)
                        largest = max(largest, word)
                        value = kind(total[i] - word)
                        total[i] = min(value, kind(value + p))
                else:
                    for i in range(total.size):
                        word = block[i]
                        largest = max(largest, word)
                        before = total[i]
                        value = kind(before - word)
                        total[i] = kind(value + p) if before < word else value
            elif spare:
                for i in range(total.size):
                    word = kind(block[i] & mask)
                    largest = max(largest, word)
                    value = kind(total[i] + word)
                    total[i] = min(value, kind(value - p))
            else:
                for i in range(total.size):
                    word = block[i]
                    largest = max(largest, word)
                    before = total[i]
                    complement = kind(p - word)
                    value = kind(before - complement)
                    total[i] = kind(value + p) if before < complement else value
            if largest >= p:
                for low in range(0, block.size, _SCAN):
                    scan = block[low : min(low + _SCAN, block.size)]
                    largest = kind(0)
                    for i in range(scan.size):
                        largest = max(largest, kind(scan[i] & mask))
                    if largest < p:
                        continue
                    for i in range(scan.size):
                        word = kind(scan[i] & mask)
                        if word >= p:
                            here = low + i
                            total[here] = _restore(total[here], word, p, subtract[row], spare)
                            rejected[count] = row * length + start + here
                            count += 1
    return count


@njit(cache=True)
def add_at(
    accumulator: Words,
    positions: NDArray[np.int64],
    values: Words,
    subtract: NDArray[np.bool_],
    modulus: int,
) -> None:
    """accumulator[positions] +/-= values over GF(modulus); positions may repeat."""
    kind = accumulator.dtype.type
    p = kind(modulus)
    for i in range(positions.size):
        before = accumulator[positions[i]]
        value = kind(values[i])
        operand = value if subtract[i] else kind(p - value)
        after = kind(before - operand)
        accumulator[positions[i]] = kind(after + p) if before < operand else after


@njit(cache=True)
def add_vectors(accumulator: Words, other: Words, modulus: int) -> None:
    """accumulator += other over GF(modulus), in place; both uintW[length], elements below p."""
    kind = accumulator.dtype.type
    p = kind(modulus)
    for i in range(accumulator.size):
        before = accumulator[i]
        complement = kind(p - other[i])
        value = kind(before - complement)
        accumulator[i] = kind(value + p) if before < complement else value


@njit(cache=True)
def pack_bits(values: Words, bits: int, packed: NDArray[np.uint8]) -> None:
    """Write values as consecutive little-endian bit fields of `bits` bits.

    Args:
        values: uintW[length], every element below 2^bits.
        bits: 1 .. 62.
        packed: uint8[ceil(length * bits / 8)], output.
    """
    buffer = np.uint64(0)
    held = 0
    out = 0
    for i in range(values.size):
        value = np.uint64(values[i])
        buffer |= value << np.uint64(held)
        # Bits of `value` that did not fit into the 64-bit buffer.
        spill = held + bits - 64
        held += bits
        while held >= 8:
            packed[out] = np.uint8(buffer & np.uint64(255))
            out += 1
            buffer >>= np.uint64(8)
            held -= 8
            if spill > 0:
                # The byte just freed takes the spilled high bits.
                buffer |= (value >> np.uint64(bits - spill)) << np.uint64(56)
                spill = 0
    if held > 0:
        packed[out] = np.uint8(buffer & np.uint64(255))


@njit(cache=True)
def unpack_bits(packed: NDArray[np.uint8], bits: int, values: Words) -> None:
    """Inverse of `pack_bits`; `values` is uintW[length], output."""
    kind = values.dtype.type
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    position = 0
    for i in range(values.size):
        first = position >> 3
        shift = position & 7
        last = (position + bits - 1) >> 3
        value = np.uint64(packed[first]) >> np.uint64(shift)
        held = 8 - shift
        for byte in range(first + 1, last + 1):
            value |= np.uint64(packed[byte]) << np.uint64(held)
            held += 8
        values[i] = kind(value & mask)
        position += bits


@njit(cache=True)
def _reduce_31(value: Any) -> Any:
    """value mod 2^31 - 1 for a value below 2^62."""
    folded = (value & np.uint64(_MERSENNE_31)) + (value >> np.uint64(31))
    folded = (folded & np.uint64(_MERSENNE_31)) + (folded >> np.uint64(31))
    return np.uint64(0) if folded == np.uint64(_MERSENNE_31) else folded


@njit(cache=True)
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
        row[:] = coefficients[threshold - 1]
        for power in range(threshold - 2, -1, -1):
            for j in range(polynomials):
                row[j] = _reduce_31(row[j] * x + coefficients[power, j])


@njit(cache=True)
def power_31(base: Any, exponent: int) -> Any:
    """base^exponent mod 2^31 - 1."""
    result = np.uint64(1)
    square = np.uint64(base)
    left = np.uint64(exponent)
    while left > np.uint64(0):
        if left & np.uint64(1):
            result = _reduce_31(result * square)
        square = _reduce_31(square * square)
        left >>= np.uint64(1)
    return result


@njit(cache=True)
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


@njit(cache=True)
def weighted_sums(
    weights: NDArray[np.uint64], shares: NDArray[np.uint64], sums: NDArray[np.uint64]
) -> None:
    """sums[j] = sum_i weights[i] * shares[i, j] over GF(2^31 - 1); sums is uint64[columns]."""
    holders, columns = shares.shape
    sums[:] = np.uint64(0)
    for i in range(holders):
        for j in range(columns):
            sums[j] = _reduce_31(sums[j] + weights[i] * shares[i, j])
