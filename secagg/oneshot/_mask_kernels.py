"""Compiled loops that expand public elements and mask packed vectors with them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.oneshot._packing_kernels import below_prime, reduce_wide, weigh_words
from secagg.oneshot._ring_kernels import (
    PRIMES,
    _at_most,
    constants,
    inverse_layers,
    residues,
    times,
)
from veilsum.compiled import compiled, sample

Residues = NDArray[np.uint32]

_U = np.uint32
_I = np.uint64

_STRETCH = 64
"""Words between two looks at the largest: few enough that most stretches have none refused."""


@compiled(
    lambda _: (sample(280, below=1 << 32, kind=np.uint32), PRIMES, 70, 27, np.zeros(281, np.int64)),
    answer=0x26EBAC76,
)
def find_refused(
    words: Residues, primes: Residues, degree: int, bits: int, refused: NDArray[np.int64]
) -> int:
    """Mask keystream words to `bits` bits, in place, and note those that are not below their prime.

    Args:
        words: uint32[rows * L * N].
        primes: uint32[L]: row by row of N words, in turn.
        refused: int64[>= words], output: positions, ascending.
    """
    mask = _U((1 << bits) - 1)
    found = 0
    for row in range(words.size // degree):
        p = primes[row % primes.size]
        start = row * degree
        for low in range(start, start + degree, _STRETCH):
            stretch = words[low : min(low + _STRETCH, start + degree)]
            most = _U(0)
            for t in range(stretch.size):
                word = _U(stretch[_I(t)] & mask)
                stretch[_I(t)] = word
                most = max(most, word)
            if most >= p:
                for t in range(stretch.size):
                    refused[found] = low + t
                    found += stretch[_I(t)] >= p
    return found


@compiled(
    lambda _: (
        np.zeros(280, np.uint32),
        sample(9, 4, below=1 << 32, kind=np.uint32),
        3,
        PRIMES,
        70,
        27,
        np.arange(5, 275, 30),
    ),
    answer=0xCB86E4F8,
)
def take_accepted(
    words: Residues,
    blocks: Residues,
    start: int,
    primes: Residues,
    degree: int,
    bits: int,
    refused: NDArray[np.int64],
) -> int:
    """Put a later stream's words at refused positions; keep the positions refused once more.

    Args:
        words: uint32[rows * L * N], in place.
        blocks: uint32[count, per block]: the blocks that hold the words start + refused[i].
        refused: int64[count], in place: those left move to the front.
    """
    mask = _U((1 << bits) - 1)
    kept = 0
    for i in range(refused.size):
        position = refused[i]
        word = _U(blocks[i, (start + position) % blocks.shape[1]] & mask)
        words[position] = word
        if word >= primes[position // degree % primes.size]:
            refused[kept] = position
            kept += 1
    return kept


@compiled(
    lambda _: (
        residues(2, 2, 128),
        *constants(128),
        PRIMES,
        *constants(128),
        *constants(128),
        sample(3, 240, below=1 << 32, kind=np.uint32),
        sample(2, 3, below=1 << 26),
        sample(2, below=1 << 26),
        sample(2, below=1 << 32, kind=np.uint32),
        np.zeros(128, np.uint32),
        sample(233, low=-128, below=256, kind=np.int8),
        np.zeros(48, np.uint64),
        1,
        np.zeros((2, 234), np.uint32),
    ),
    answer=0x1C2529FC,
)
def mask_blocks(
    elements: NDArray[np.uint32],
    key: Residues,
    key_q: Residues,
    primes: Residues,
    w: Residues,
    q: Residues,
    last: Residues,
    last_q: Residues,
    words: Residues,
    weights: NDArray[np.uint64],
    constants: NDArray[np.uint64],
    inverses: Residues,
    row: Residues,
    errors: NDArray[np.int8],
    totals: NDArray[np.uint64],
    start: int,
    out: Residues,
) -> None:
    """Write INTT(elements key) + errors + what the packed words stand for, block after block.

    Args:
        elements: uint32[blocks, L, N], below the primes, in the transform domain.
        key: uint32[L, N], likewise; key_q its quotients.
        primes: uint32[L].
        w: uint32[L, N]; with q, last, last_q see `_ring_kernels.inverse`.
        words: uint32[words, >= coefficients]; with weights, constants and inverses see
            `_packing_kernels.weighted_residues`.
        row: uint32[N], scratch.
        errors: int8[count]: of the coefficients that are wanted.
        totals: uint64[chunk], scratch.
        out: uint32[L, >= start + count], output, below the primes.
    """
    degree = elements.shape[2]
    for i in range(primes.size):
        p = primes[i]
        z, qz = last[i], last_q[i]
        for b in range(elements.shape[0]):
            _product(elements[b, i], key[i], key_q[i], p, row)
            inverse_layers(row, w[i], q[i], p)
            first = b * degree
            count = min(degree, errors.size - first)
            for low in range(0, count, totals.size):
                high = min(low + totals.size, count)
                weigh_words(words, first + low, first + high, weights[i], constants[i], totals)
                x, y, qy = row[low:high], z[low:high], qz[low:high]
                error = errors[first + low : first + high]
                result = out[i, start + first + low : start + first + high]
                for t in range(high - low):
                    j = _I(t)
                    # Below 13p, 2p and, as an error is at least -128, 2p less 2^26.
                    value = reduce_wide(totals[j], p, inverses[i])
                    value = _U(value + times(x[j], y[j], qy[j], p))
                    value = _U(value + p + _U(np.int32(error[j])))
                    result[j] = below_prime(value, p)


@compiled(
    lambda _: (
        residues(2, 2, 128),
        *constants(128),
        PRIMES,
        *constants(128),
        *constants(128),
        np.zeros(128, np.uint32),
        residues(2, 250),
        1,
        np.zeros((2, 250), np.uint32),
    ),
    answer=0x420E48A0,
)
def unmask_blocks(
    elements: NDArray[np.uint32],
    key: Residues,
    key_q: Residues,
    primes: Residues,
    w: Residues,
    q: Residues,
    last: Residues,
    last_q: Residues,
    row: Residues,
    sums: Residues,
    start: int,
    out: Residues,
) -> None:
    """Write sums - INTT(elements key), block after block.

    Args:
        elements: uint32[blocks, L, N], and key to row: as in `mask_blocks`.
        sums: uint32[L, coefficients], below the primes.
        out: uint32[L, coefficients], output, below the primes.
    """
    degree = elements.shape[2]
    for i in range(primes.size):
        p = primes[i]
        p2 = _U(p + p)
        z, qz = last[i], last_q[i]
        for b in range(elements.shape[0]):
            _product(elements[b, i], key[i], key_q[i], p, row)
            inverse_layers(row, w[i], q[i], p)
            first = start + b * degree
            last_one = min(first + degree, sums.shape[1])
            source, result = sums[i, first:last_one], out[i, first:last_one]
            for t in range(source.size):
                j = _I(t)
                value = _U(source[j] + p2 - times(row[j], z[j], qz[j], p))
                result[j] = _at_most(_at_most(value, p2), p)


@compiled()
def _product(a: Residues, b: Residues, b_q: Residues, p: int, row: Residues) -> None:
    """Multiply element by element, to below 2p."""
    for n in range(row.size):
        j = _I(n)
        row[j] = times(a[j], b[j], b_q[j], p)
