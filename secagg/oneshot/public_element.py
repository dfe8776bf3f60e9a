"""The public ring elements a[0], a[1], ... of a round, in the transform domain.

Value j of block b modulo prime i is coordinate (b L + i) N + j of one keystream: the first of the
32-bit words stream_0, stream_1, ... at this coordinate that, masked to 27 bits, is below p_i. This
is the rule of `secagg.pairwise.prg`, and every value is exactly uniform. Nothing here is secret.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.errors import ParameterError
from secagg.keystream import BLOCK_BYTES, Keystream
from secagg.oneshot import _mask_kernels
from secagg.oneshot.ring import PRIME_BITS, Residues, Ring

_PER_BLOCK = BLOCK_BYTES // 4
MAX_BLOCKS = 1 << 32
"""Elements of one key; no coordinate comes near 2^60."""


class PublicElements:
    """The elements that one key stands for."""

    def __init__(self, ring: Ring, key: bytes) -> None:
        self._ring = ring
        self._keystream = Keystream(key)
        self._primes = ring.tables.primes

    def expand(self, first: int, count: int) -> Residues:
        """Elements first .. first + count: uint32[count, L, N], in the transform domain."""
        if first < 0 or count < 0 or first + count > MAX_BLOCKS:
            raise ParameterError("block", first, f"in 0 .. {MAX_BLOCKS}, to the last one")
        ring = self._ring
        size = ring.limbs * ring.degree
        start, end = first * size, (first + count) * size
        low = start // _PER_BLOCK
        stream = self._keystream.blocks(low, -(-end // _PER_BLOCK) - low).view("<u4")
        words = stream[start - low * _PER_BLOCK :][: end - start]
        refused = np.empty(words.size, np.int64)
        found = _mask_kernels.find_refused(words, self._primes, ring.degree, PRIME_BITS, refused)
        self._draw_again(words, start, refused[:found])
        return words.reshape(count, ring.limbs, ring.degree)

    def _draw_again(self, words: Residues, start: int, refused: NDArray[np.int64]) -> None:
        """Give every refused position the first accepted word of streams 1, 2, ..."""
        stream = 1
        while refused.size:
            blocks = self._keystream.words_at(stream, start, refused, _PER_BLOCK).view("<u4")
            left = _mask_kernels.take_accepted(
                words,
                blocks.reshape(-1, _PER_BLOCK),
                start,
                self._primes,
                self._ring.degree,
                PRIME_BITS,
                refused,
            )
            refused = refused[:left]
            stream += 1


def expand(ring: Ring, key: bytes, block: int) -> Residues:
    """Public element number `block` of a key: uint32[L, N] in the transform domain."""
    elements: Residues = PublicElements(ring, key).expand(block, 1)[0]
    return elements
