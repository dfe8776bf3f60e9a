"""Masked vectors on the wire: nothing but their coefficients, at a fixed number of bits each.

Without rounding a coefficient is its L residues of 27 bits. With rounding bits r it is floor(c /
2^r), c in 0 .. q - 1, at the exact bit length of the largest such number. Bits are in
little-endian order, and the last byte is padded with zeros. What arrives is checked: the length,
every number's range, and the padding.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secagg import _kernels
from secagg.errors import ParameterError
from secagg.oneshot import _packing_kernels
from secagg.oneshot.packing import (
    Packing,
    crt_tables,
    scaled_by,
    shifted_residues,
    words_of,
)
from secagg.oneshot.ring import PRIME_BITS, Residues

_CHUNK = 8192
"""Coefficients packed at once; a multiple of 64, so that every chunk ends on a 64-bit border."""


@dataclass(frozen=True, slots=True, eq=False)
class Ciphertext:
    """A masked vector.

    Attributes:
        packing: how the vector is packed.
        length: d, its coordinates.
        residues: uint32[L, coefficients]; of a decoded one those of what was sent, times 2^r.
    """

    packing: Packing
    length: int
    residues: Residues = field(repr=False)

    def __post_init__(self) -> None:
        shape = self.packing.ring.limbs, self.packing.coefficients(self.length)
        if self.residues.dtype != np.uint32 or self.residues.shape != shape:
            given = f"{self.residues.dtype}{self.residues.shape}"
            raise ParameterError("residues", given, f"uint32{shape}")

    def encode(self) -> bytes:
        """The bytes that are sent: `wire_bytes` of them."""
        if self.packing.rounding_bits:
            return self._encode_rounded()
        size = wire_bytes(self.packing, self.length)
        packed = np.empty(-(-size // 8), "<u8")
        for first in range(0, self.residues.shape[1], _CHUNK):
            chunk = self.residues[:, first : first + _CHUNK]
            start = first * self.packing.ring.limbs * PRIME_BITS // 64
            _kernels.pack_bits(chunk.T.reshape(-1), PRIME_BITS, packed[start:])
        return packed.view(np.uint8)[:size].tobytes()

    def _encode_rounded(self) -> bytes:
        """Round like a masked vector of zeros without errors."""
        packing, count = self.packing, self.residues.shape[1]
        crt = crt_tables(packing.ring)
        scaled = scaled_by(self.residues, crt.cofactors, crt.primes)
        words = np.empty((packing.tables.weights.shape[1], count), np.uint32)
        packing.group(np.zeros(self.length, np.int64), 0, count, words)
        return packing.rounded(scaled[np.newaxis], words, np.zeros(count, np.int8)).tobytes()


def decode(packing: Packing, length: int, data: bytes) -> Ciphertext:
    """Inverse of `Ciphertext.encode`."""
    content = np.zeros(content_shape(packing, length), np.int64)
    add_into(content, packing, length, data, 1)
    return Ciphertext(packing, length, residues_of(packing, content))


def add_into(
    sums: NDArray[np.int64], packing: Packing, length: int, data: bytes, sign: int
) -> None:
    """Add the numbers of an encoded vector to sums, or with a sign of -1 subtract it.

    Args:
        sums: int64, of `content_shape`; unchanged if this raises.
    """
    size = wire_bytes(packing, length)
    if len(data) != size:
        raise ValueError(f"masked vector of {len(data)} bytes, {size} expected")
    padding = 8 * size - packing.coefficients(length) * _bits(packing)
    if padding and data[-1] >> (8 - padding):
        raise ValueError("padding bits of a masked vector are not zero")
    # The kernel reads whole words, one beyond the last.
    packed = np.zeros(size // 8 + 2, "<u8")
    packed.view(np.uint8)[:size] = np.frombuffer(data, np.uint8)
    rows, whole = sums.shape[0], bool(packing.rounding_bits)
    if whole:
        widths = [min(32, packing.wire_bits - 32 * w) for w in range(rows)]
        most = words_of((packing.ring.modulus - 1) >> packing.rounding_bits, rows)
    else:
        widths, most = [PRIME_BITS] * rows, packing.ring.tables.primes - 1
    limits = np.array(widths, np.uint64), most.astype(np.uint64)
    if not _packing_kernels.add_fields(packed, *limits, whole, sums, sign):
        raise ValueError("a number of a masked vector is out of range")


def residues_of(packing: Packing, sums: NDArray[np.int64]) -> Residues:
    """Residues of a sum of ciphertexts, multiplied back by 2^r: uint32[L, coefficients].

    Args:
        sums: int64, of the shape of one's content: the sums of their contents, not negative.
    """
    ring = packing.ring
    if not packing.rounding_bits:
        primes = ring.tables.primes.astype(np.int64)[:, np.newaxis]
        return (sums % primes).astype(np.uint32)
    words = np.empty((sums.shape[0] + 1, sums.shape[1]), np.uint32)
    carry = np.zeros(sums.shape[1], np.int64)
    for word, each in zip(words, sums, strict=False):
        carry += each
        word[:] = carry & 0xFFFF_FFFF
        carry >>= 32
    words[-1] = carry
    places = [1 << (32 * w + packing.rounding_bits) for w in range(len(words))]
    weights = shifted_residues(places, ring.primes)
    out = np.empty((ring.limbs, sums.shape[1]), np.uint32)
    none = np.zeros(ring.limbs, np.uint32)
    crt_tables(ring).to_residues(words, weights, none, out)
    return out


def wire_bytes(packing: Packing, length: int) -> int:
    """Bytes of a masked vector of this length."""
    return -(-packing.coefficients(length) * _bits(packing) // 8)


def content_shape(packing: Packing, length: int) -> tuple[int, int]:
    """Shape of the numbers that are sent: residues, or the 32-bit words of whole numbers."""
    rows = -(-packing.wire_bits // 32) if packing.rounding_bits else packing.ring.limbs
    return rows, packing.coefficients(length)


def _bits(packing: Packing) -> int:
    """Bits of a coefficient."""
    return packing.wire_bits if packing.rounding_bits else packing.ring.limbs * PRIME_BITS
