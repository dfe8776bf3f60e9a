"""Compiled loops that expand public elements and multiply them by keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.oneshot._ring_kernels import PRIMES, constants, inverse_row, residues, times
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
    ),
    answer=0xE9707E46,
)
def multiply_by_key(
    elements: NDArray[np.uint32],
    key: Residues,
    key_q: Residues,
    primes: Residues,
    w: Residues,
    q: Residues,
    last: Residues,
    last_q: Residues,
) -> None:
    """Replace elements by INTT(elements key), below the primes.

    Args:
        elements: uint32[blocks, L, N], below the primes, in the transform domain; in place.
        key: uint32[L, N], likewise; key_q its quotients.
        primes: uint32[L].
        w: uint32[L, N]; with q, last, last_q see `_ring_kernels.inverse_row`.
    """
    for b in range(elements.shape[0]):
        for i in range(primes.size):
            x, y, qy, p = elements[b, i], key[i], key_q[i], primes[i]
            for n in range(x.size):
                j = _I(n)
                x[j] = times(x[j], y[j], qy[j], p)
            inverse_row(x, w[i], q[i], last[i], last_q[i], p)
