"""Portable keyed hashes: which bucket and which sign a coordinate has in a row of a sketch.

Every stream is AES-128 in counter mode under a key of its own, derived by HKDF-SHA256 from the
round's public seed, so any language with these two primitives reproduces the maps bit for bit
(docs/sketching.md states the definition; tests/sketch/vectors holds the vectors). Counter mode is
seekable: the hashes of any range of coordinates cost time proportional to the range, and no table
of the whole map is ever stored.

The seed is public. Nothing here hides anything; the hashes only have to look random to whoever
chose the data *before* the seed was drawn, so a round draws its seed after all sizes are fixed.

Source: count sketch, Charikar, Chen and Farach-Colton 2002; HKDF, RFC 5869; counter mode, NIST
SP 800-38A, section 6.5.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from sketch import _checks, _kernels

SEED_BYTES = 32
KEY_BYTES = 16
AES_BLOCK_BYTES = 16
LABEL = b"veilsum/sketch/1"
"""Domain separation: changes whenever the meaning of a stream changes (*)."""

MAX_ROWS = 2**32
MAX_COLUMNS = 2**32
"""A bucket comes from a 32-bit word, so a row cannot have more columns than words."""

CHUNK = 2**16
"""Coordinates expanded at a time: 256 KiB of bucket words and 8 KiB of sign bits stay in cache."""

# update_into may ask for one block more than it writes.
_SLACK = AES_BLOCK_BYTES - 1
_ZEROS = bytes(4 * CHUNK)


class Usage(enum.Enum):
    """What a stream is for; two usages never share a key, so their streams are independent."""

    BUCKET = 1
    SIGN = 2
    ROTATION_FIRST = 3
    ROTATION_LAST = 4
    PROBE = 5
    """Not a stream: the seed of the second sketch."""
    RANDOM_K = 6
    FACTOR = 7


@dataclass(frozen=True, slots=True)
class PublicSeed:
    """The 32 public random bytes of a round from which all its linear maps follow.

    Args:
        value: exactly 32 bytes, known to everyone.
    """

    value: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.value, bytes):
            raise TypeError(f"value must be bytes, not {type(self.value).__name__}")
        if len(self.value) != SEED_BYTES:
            raise ValueError(f"value must be {SEED_BYTES} bytes, not {len(self.value)}")

    def __repr__(self) -> str:
        return f"PublicSeed({self.value.hex()})"

    def probe(self) -> PublicSeed:
        """The seed of the round's second sketch, whose streams are independent of all others."""
        return PublicSeed(_derive(self, Usage.PROBE, 0, SEED_BYTES))


def derive_key(seed: PublicSeed, usage: Usage, row: int) -> bytes:
    """Derive the AES-128 key of one stream.

    info = LABEL || usage as one byte || row as four little-endian bytes; the salt is empty. All
    parts have a fixed length, so different (usage, row) give different info.
    """
    if not isinstance(seed, PublicSeed) or not isinstance(usage, Usage):
        raise TypeError("seed must be a PublicSeed and usage a Usage")
    row = _checks.integer("row", row, 0, MAX_ROWS - 1)
    return _derive(seed, usage, row, KEY_BYTES)


def _derive(seed: PublicSeed, usage: Usage, row: int, length: int) -> bytes:
    info = LABEL + bytes([usage.value]) + row.to_bytes(4, "little")
    return HKDF(algorithm=SHA256(), length=length, salt=None, info=info).derive(seed.value)


class Scratch:
    """A reused buffer that keystreams are read into; streams that take turns can share one."""

    __slots__ = ("bytes", "memory")

    def __init__(self, capacity_bytes: int) -> None:
        self.memory = bytearray(capacity_bytes + _SLACK)
        self.bytes: NDArray[np.uint8] = np.frombuffer(self.memory, dtype=np.uint8)


class Keystream:
    """The keystream of one key, read forward from a chosen 16-byte block into a reused buffer.

    Args:
        key: 16 bytes from `derive_key`.
        first_block: index of the 16-byte block at which reading starts.
    """

    __slots__ = ("_context", "_scratch")

    def __init__(self, key: bytes, scratch: Scratch, first_block: int = 0) -> None:
        counter = first_block.to_bytes(AES_BLOCK_BYTES, "big")
        cipher = Cipher(algorithms.AES128(key), modes.CTR(counter))
        self._context: CipherContext = cipher.encryptor()
        self._scratch = scratch

    def read(self, count_bytes: int) -> NDArray[np.uint8]:
        """The next bytes of the stream: uint8[count_bytes], a view of the buffer."""
        self._context.update_into(memoryview(_ZEROS)[:count_bytes], self._scratch.memory)
        return self._scratch.bytes[:count_bytes]


@dataclass(frozen=True, slots=True)
class HashChunk:
    """The hashes of the coordinates [start, stop) in one row; views, valid until the next chunk.

    Args:
        words: uint32[stop - start], the bucket words.
        sign_bytes: uint8[ceil((stop - start) / 8)], the sign bits.
    """

    start: int
    stop: int
    words: NDArray[np.uint32]
    sign_bytes: NDArray[np.uint8]


class _RowHashes:
    """The two streams of one row, read forward side by side."""

    __slots__ = ("_signs", "_words")

    def __init__(self, seed: PublicSeed, row: int, words: Scratch, signs: Scratch) -> None:
        self._words = Keystream(derive_key(seed, Usage.BUCKET, row), words)
        self._signs = Keystream(derive_key(seed, Usage.SIGN, row), signs)

    def read(self, start: int, stop: int) -> HashChunk:
        """The coordinates from where the last read stopped; whole bytes of signs but at the end."""
        count = stop - start
        words = self._words.read(4 * count).view("<u4")
        return HashChunk(start, stop, words, self._signs.read(-(-count // 8)))


def chunks(seed: PublicSeed, row: int, dimension: int) -> Iterator[HashChunk]:
    """Expand the hashes of one row chunk by chunk, in two buffers of at most 264 KiB together."""
    for _, chunk in chunks_of_rows(seed, range(row, row + 1), dimension):
        yield chunk


def chunks_of_rows(
    seed: PublicSeed, rows: range, dimension: int
) -> Iterator[tuple[int, HashChunk]]:
    """Expand the hashes of several rows together: all rows of a chunk before the next chunk.

    The buffers are those of one row. What is kept for each row is its two cipher states.
    """
    width = min(CHUNK, dimension)
    words, signs = Scratch(4 * width), Scratch(-(-width // 8))
    hashes = [_RowHashes(seed, row, words, signs) for row in rows]
    for start in range(0, dimension, CHUNK):
        stop = min(start + CHUNK, dimension)
        for row, streams in zip(rows, hashes, strict=True):
            yield row, streams.read(start, stop)


def apply_signs(values: NDArray[np.float64], seed: PublicSeed, usage: Usage) -> None:
    """Negate, in place, the coordinates whose bit in the stream of (usage, row 0) is set.

    Args:
        values: float64[m], contiguous.
    """
    for part, sign_bytes in _sign_chunks(seed, usage, values.size):
        _kernels.flip_signs(values[part], sign_bytes)


def with_signs(
    name: str, values: NDArray[np.float64], seed: PublicSeed, usage: Usage
) -> NDArray[np.float64]:
    """A copy of a vector after `apply_signs`, whose chunks are still in the cache for it."""
    out = np.empty(values.size)
    for part, sign_bytes in _sign_chunks(seed, usage, values.size):
        _kernels.flip_signs(_checks.copied(name, values[part], out[part]), sign_bytes)
    return out


def _sign_chunks(
    seed: PublicSeed, usage: Usage, size: int
) -> Iterator[tuple[slice, NDArray[np.uint8]]]:
    """The stream of (usage, row 0) in pieces, a bit for each coordinate; valid until the next."""
    if size <= CHUNK:
        yield slice(0, size), _signs_of_few(seed, usage, -(-size // 8))
        return
    scratch = Scratch(-(-min(CHUNK, size) // 8))
    stream = Keystream(derive_key(seed, usage, 0), scratch)
    for start in range(0, size, CHUNK):
        part = slice(start, min(start + CHUNK, size))
        yield part, stream.read(-(-(part.stop - start) // 8))


@lru_cache(maxsize=8)
def _signs_of_few(seed: PublicSeed, usage: Usage, count_bytes: int) -> NDArray[np.uint8]:
    """Signs of one chunk, not to be written to; kept, as to key a cipher takes longer than they."""
    return Keystream(derive_key(seed, usage, 0), Scratch(count_bytes)).read(count_bytes)


def _range_bytes(key: bytes, start_byte: int, stop_byte: int) -> NDArray[np.uint8]:
    """Bytes [start_byte, stop_byte) of a keystream, found without computing those before."""
    block, skip = divmod(start_byte, AES_BLOCK_BYTES)
    wanted = stop_byte - start_byte + skip
    stream = Keystream(key, Scratch(min(wanted, len(_ZEROS))), block)
    out = np.empty(wanted, dtype=np.uint8)
    for start in range(0, wanted, len(_ZEROS)):
        piece = out[start : start + len(_ZEROS)]
        piece[:] = stream.read(piece.size)
    return out[skip:]


def _check_range(start: int, stop: int) -> tuple[int, int]:
    start = _checks.integer("start", start, 0)
    return start, _checks.integer("stop", stop, start)


def buckets(seed: PublicSeed, row: int, columns: int, start: int, stop: int) -> NDArray[np.uint32]:
    """The buckets of the coordinates [start, stop) in one row.

    Bucket of q = floor(w * columns / 2^32), w the q-th little-endian 32-bit word of the stream.

    Returns:
        uint32[stop - start], each below `columns`.
    """
    columns = _checks.integer("columns", columns, 1, MAX_COLUMNS)
    start, stop = _check_range(start, stop)
    words = _range_bytes(derive_key(seed, Usage.BUCKET, row), 4 * start, 4 * stop).view("<u4")
    return ((words.astype(np.uint64) * np.uint64(columns)) >> np.uint64(32)).astype(np.uint32)


def signs(
    seed: PublicSeed, row: int, start: int, stop: int, usage: Usage = Usage.SIGN
) -> NDArray[np.int8]:
    """The signs of the coordinates [start, stop) in one row.

    Sign of q = -1 if bit q of the stream is set, else +1, bits counted from the least significant
    one of each byte.

    Returns:
        int8[stop - start] of -1 and +1.
    """
    start, stop = _check_range(start, stop)
    bits = np.unpackbits(
        _range_bytes(derive_key(seed, usage, row), start // 8, -(-stop // 8)), bitorder="little"
    )
    first = start % 8
    return np.where(bits[first : first + stop - start], -1, 1).astype(np.int8)
