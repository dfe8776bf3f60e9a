"""Mask expansion: seekable, exactly uniform vectors over GF(p) from 16-byte keys.

Stream j of key K is the AES-128-CTR keystream whose 16-byte counter block is j (4 bytes) followed
by a block number (12 bytes), both big-endian, read as little-endian words of the field's word size.
Element i is the first word among stream_0[i], stream_1[i], ... that, masked to `bits` bits, is
below p. So every element is exactly uniform on [0, p), and any worker expands any coordinate range
on its own. Streams above 0 are needed for a handful of positions and are read block by block.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB
from numpy.typing import NDArray

from secagg import _kernels
from secagg.errors import ParameterError
from secagg.field import PrimeField, Words

MASK_KEY_BYTES = 16
_BLOCK_BYTES = 16

CHUNK_BYTES = 128 * 1024
"""Keystream bytes per step. Four such buffers and the accumulator's chunk stay in a 1 MiB second
cache level, and the chunk is long enough to hide the cost of a call."""
_ROWS = 4
_ZEROS = bytes(CHUNK_BYTES + _BLOCK_BYTES)


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
        keys: 16-byte mask keys, one for each mask.
        subtract: one flag for each key.
        start: coordinate of accumulator[0] in the whole vector.

    Raises:
        ParameterError: wrong dtype, key length, number of flags or start.
    """
    _check(accumulator, field, keys, subtract, start)
    rejects = _Rejects()
    word_bytes = field.dtype.itemsize
    # Chunks begin on counter-block borders of the whole vector, so that one context runs through.
    lead = start * word_bytes % _BLOCK_BYTES // word_bytes
    chunk = CHUNK_BYTES // word_bytes
    # `update_into` wants room for one block more than it writes.
    buffers = np.empty((_ROWS, CHUNK_BYTES + 2 * _BLOCK_BYTES), np.uint8)
    words = buffers.view(field.dtype)
    rejected = np.empty(_ROWS * (chunk + _BLOCK_BYTES), np.int64)
    flags = np.asarray(subtract, np.bool_)
    for first in range(0, len(keys), _ROWS):
        group = keys[first : first + _ROWS]
        streams = [keystream(key, (start - lead) * word_bytes // _BLOCK_BYTES) for key in group]
        skip = lead
        done = 0
        while done < accumulator.size:
            count = min(chunk, accumulator.size - done)
            wanted = (skip + count) * word_bytes
            for row, stream in enumerate(streams):
                stream.update_into(memoryview(_ZEROS)[:wanted], memoryview(buffers[row]))
            found = _kernels.accumulate_words(
                accumulator[done : done + count],
                words,
                skip,
                flags[first : first + len(group)],
                field.modulus,
                field.word_mask,
                rejected,
            )
            if found:
                rejects.record(rejected[:found], count, first, done)
            skip = 0
            done += count
    if rejects:
        _resample(accumulator, field, keys, flags, start, rejects)


def expand_mask(field: PrimeField, key: bytes, length: int, start: int = 0) -> Words:
    """Coordinates start .. start + length of one mask, as a new `field.dtype` array."""
    mask = field.zeros(length)
    accumulate_masks(mask, field, [key], [False], start)
    return mask


class _Rejects:
    """Positions whose word of the current stream was refused: (mask row, accumulator index)."""

    def __init__(self) -> None:
        self._rows: list[NDArray[np.int64]] = []
        self._positions: list[NDArray[np.int64]] = []

    def __bool__(self) -> bool:
        return bool(self._rows)

    def record(self, flat: NDArray[np.int64], length: int, first: int, done: int) -> None:
        """Keep flat indices row * length + column of a chunk that begins at `done`."""
        rows, columns = np.divmod(flat, length)
        self._rows.append(rows + first)
        self._positions.append(columns + done)

    def sorted(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and positions, ordered by row."""
        rows = np.concatenate(self._rows)
        order = np.argsort(rows, kind="stable")
        return rows[order], np.concatenate(self._positions)[order]


def _resample(
    accumulator: Words,
    field: PrimeField,
    keys: Sequence[bytes],
    flags: NDArray[np.bool_],
    start: int,
    rejects: _Rejects,
) -> None:
    """Give every rejected position the first accepted word of streams 1, 2, ..."""
    rows, positions = rejects.sorted()
    stream = 1
    while rows.size:
        words = _words_at(field, keys, rows, positions + start, stream)
        words &= field.dtype.type(field.word_mask)
        accepted = words < field.modulus
        _kernels.add_at(
            accumulator,
            positions[accepted],
            words[accepted],
            flags[rows[accepted]],
            field.modulus,
        )
        rows, positions = rows[~accepted], positions[~accepted]
        stream += 1


def _words_at(
    field: PrimeField,
    keys: Sequence[bytes],
    rows: NDArray[np.int64],
    coordinates: NDArray[np.int64],
    stream: int,
) -> Words:
    """Word `coordinates[i]` of stream `stream` of key `keys[rows[i]]`; rows are sorted."""
    per_block = _BLOCK_BYTES // field.dtype.itemsize
    counters = np.zeros((rows.size, 2), ">u8")
    counters[:, 0] = stream << 32
    counters[:, 1] = coordinates // per_block
    plain = counters.view(np.uint8).reshape(-1)
    blocks = np.empty(plain.size + _BLOCK_BYTES, np.uint8)
    borders = np.flatnonzero(np.diff(rows)) + 1
    for low, high in zip([0, *borders], [*borders, rows.size], strict=True):
        cipher = Cipher(AES(keys[int(rows[low])]), ECB()).encryptor()  # noqa: S305
        # ECB of distinct counter blocks is CTR keystream at scattered positions.
        cipher.update_into(
            plain[low * _BLOCK_BYTES : high * _BLOCK_BYTES].tobytes(),
            blocks[low * _BLOCK_BYTES :].data,
        )
    words = blocks[: plain.size].view(field.dtype).reshape(rows.size, per_block)
    return words[np.arange(rows.size), coordinates % per_block]


def keystream(key: bytes, block: int) -> CipherContext:
    """Stream 0 of a key from a block number on, as a cipher to be fed with zeros."""
    return Cipher(AES(key), CTR(block.to_bytes(_BLOCK_BYTES, "big"))).encryptor()


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
    if start < 0:
        raise ParameterError("start", start, "at least 0")
