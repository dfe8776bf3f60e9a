"""Mask expansion: seekable, exactly uniform vectors over GF(p) from 16-byte keys.

Stream j of key K is the AES-128-CTR keystream whose 16-byte counter block is j (4 bytes) followed
by a block number (12 bytes), both big-endian, read as little-endian words of the field's word size.
Element i is the first word among stream_0[i], stream_1[i], ... that, masked to `bits` bits, is
below p. So every element is exactly uniform on [0, p), and any worker expands any coordinate range
on its own. Streams above 0 are needed for a handful of positions and are read block by block.

CTR keystream is the block cipher applied to consecutive counter blocks. All masks of a call need
the same counters, so these are written once for each chunk and encrypted under every key: the same
bytes as CTR, without a counter in the cipher's inner loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from cryptography.hazmat.primitives.ciphers import CipherContext
from numpy.typing import NDArray

from secagg import _kernels
from secagg.errors import ParameterError
from secagg.field import PrimeField, Words
from secagg.keystream import BLOCK_BYTES, KEY_BYTES, block_cipher

MASK_KEY_BYTES = KEY_BYTES
MAX_COORDINATES = 1 << _kernels.POSITION_BITS
"""Coordinates of the longest vector that can be masked."""

CHUNK_BYTES = 128 * 1024
"""Most keystream bytes of one cipher call."""
_GROUP_BYTES = 512 * 1024
"""Most keystream bytes handed to the kernel at once. With their counters and the accumulator's
chunk they stay in a second cache level of 1 MiB, and hide what the calls cost."""
_ROWS = 8
"""Most masks handed to the kernel at once."""
_BATCH = 128
"""Keys whose ciphers are held at once, about 1 KiB each."""


def accumulate_masks(
    accumulator: Words,
    field: PrimeField,
    keys: Sequence[bytes],
    subtract: Sequence[bool],
    start: int = 0,
) -> None:
    """Add or subtract the masks of many keys to coordinates start .. start + length, in place.

    Args:
        accumulator: `field.dtype`[length], every element below p; still so afterwards.
    """
    _check(accumulator, field, keys, subtract, start)
    if not accumulator.size or not keys:
        return
    expansion = _Expansion(accumulator, field, start, min(_ROWS, len(keys)))
    for minus in (False, True):
        chosen = [key for key, flag in zip(keys, subtract, strict=True) if bool(flag) is minus]
        for first in range(0, len(chosen), _BATCH):
            expansion.add(chosen[first : first + _BATCH], minus)


def expand_mask(field: PrimeField, key: bytes, length: int, start: int = 0) -> Words:
    """Coordinates start .. start + length of one mask, as a new `field.dtype` array."""
    mask = field.zeros(length)
    accumulate_masks(mask, field, [key], [False], start)
    return mask


class _Expansion:
    """Adds batches of masks to one accumulator, chunk by chunk, in buffers made once."""

    def __init__(self, accumulator: Words, field: PrimeField, start: int, rows: int) -> None:
        self._accumulator = accumulator
        self._field = field
        self._start = start
        word_bytes = field.dtype.itemsize
        # Chunks begin on counter-block borders of the whole vector.
        self._lead = start * word_bytes % BLOCK_BYTES // word_bytes
        wanted = (self._lead + accumulator.size) * word_bytes
        most = min(CHUNK_BYTES, _GROUP_BYTES // rows // BLOCK_BYTES * BLOCK_BYTES)
        chunk_bytes = min(most, -(-wanted // BLOCK_BYTES) * BLOCK_BYTES)
        self._chunk = chunk_bytes // word_bytes
        self._counters = np.empty((chunk_bytes // BLOCK_BYTES, 2), np.uint64)
        # `update_into` wants room for one block more than it writes.
        buffers = np.empty((rows, chunk_bytes + BLOCK_BYTES), np.uint8)
        self._rows = [buffer.data for buffer in buffers]
        self._words: Words = buffers.view(field.dtype)
        # Room for a group of which every word is refused, and as much again to wait for more.
        self._room = rows * self._chunk
        self._refused = np.empty(2 * self._room, np.int64)

    def add(self, keys: Sequence[bytes], subtract: bool) -> None:
        """Add or subtract the masks of a batch of keys."""
        ciphers = [block_cipher(key) for key in keys]
        found = 0
        # Position of the chunk's first word, negative in front of the first element.
        for position in range(-self._lead, self._accumulator.size, self._chunk):
            low, high = max(position, 0), min(position + self._chunk, self._accumulator.size)
            counters = self._counters_of(position, high)
            for first in range(0, len(ciphers), len(self._rows)):
                group = ciphers[first : first + len(self._rows)]
                for cipher, row in zip(group, self._rows, strict=False):
                    cipher.update_into(counters, row)
                found = _kernels.accumulate_words(
                    self._accumulator,
                    low,
                    high,
                    self._words,
                    len(group),
                    low - position,
                    subtract,
                    self._field.modulus,
                    self._field.word_mask,
                    first,
                    self._refused,
                    found,
                )
                if found > self._room:
                    self._resample(ciphers, subtract, found)
                    found = 0
        if found:
            self._resample(ciphers, subtract, found)

    def _counters_of(self, position: int, high: int) -> memoryview:
        """Counter blocks of stream 0 for the words from `position` to `high`."""
        per_block = BLOCK_BYTES // self._field.dtype.itemsize
        blocks = self._counters[: -(-(high - position) // per_block)]
        _kernels.counter_blocks((self._start + position) // per_block, blocks)
        return blocks.data.cast("B")

    def _resample(self, ciphers: Sequence[CipherContext], subtract: bool, found: int) -> None:
        """Give every refused position the first accepted word of streams 1, 2, ..."""
        positions = np.empty(found, np.int64)
        starts = np.empty(len(ciphers) + 1, np.int64)
        _kernels.group_by_row(self._refused[:found], positions, starts)
        stream = 1
        while left := int(starts[-1]):
            words = self._words_at(ciphers, positions[:left], starts, stream)
            _kernels.take_words(
                self._accumulator,
                words,
                self._start,
                subtract,
                self._field.modulus,
                self._field.word_mask,
                positions,
                starts,
            )
            stream += 1

    def _words_at(
        self,
        ciphers: Sequence[CipherContext],
        positions: NDArray[np.int64],
        starts: NDArray[np.int64],
        stream: int,
    ) -> Words:
        """The blocks of a stream that hold the words of each key's positions."""
        per_block = BLOCK_BYTES // self._field.dtype.itemsize
        counters = np.empty((positions.size, 2), np.uint64)
        _kernels.scattered_counter_blocks(stream, self._start, positions, per_block, counters)
        plain = counters.data.cast("B")
        blocks = np.empty(len(plain) + BLOCK_BYTES, np.uint8)
        borders = (BLOCK_BYTES * starts).tolist()
        for cipher, (low, high) in zip(ciphers, pairwise(borders), strict=True):
            if low < high:
                cipher.update_into(plain[low:high], blocks[low:].data)
        words: Words = blocks[: len(plain)].view(self._field.dtype)
        return words.reshape(positions.size, per_block)


def _check(
    accumulator: Words,
    field: PrimeField,
    keys: Sequence[bytes],
    subtract: Sequence[bool],
    start: int,
) -> None:
    if accumulator.dtype != field.dtype or accumulator.ndim != 1:
        raise ParameterError("accumulator", accumulator.dtype, f"1-dimensional {field.dtype}")
    if any(len(key) != MASK_KEY_BYTES for key in keys):
        raise ParameterError("keys", "a key of another length", f"{MASK_KEY_BYTES} bytes each")
    if len(subtract) != len(keys):
        raise ParameterError("subtract", len(subtract), f"one flag for each of {len(keys)} keys")
    if not 0 <= start <= MAX_COORDINATES - accumulator.size:
        raise ParameterError("start", start, f"at least 0, and the end at most {MAX_COORDINATES}")
