"""Prime fields by bit length, and vectors over them.

`PrimeField(bits)` is GF(p) with p the largest prime below 2^bits. A vector is kept in the smallest
machine word that holds `bits` bits; on the wire it is packed to exactly `bits` bits per element.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg import _kernels
from secagg.checks import require_int
from secagg.errors import CapacityError, ParameterError

MIN_BITS = 8
MAX_BITS = 62

Words = _kernels.Words

# 2^bits - p for bits = 8 .. 62, p the largest prime below 2^bits. A test checks every entry.
# fmt: off
_PRIME_GAPS = (
    5, 3, 3, 9, 3, 1, 3, 19, 15, 1, 5, 1, 3, 9, 3, 15, 3, 39, 5, 39, 57, 3, 35, 1, 5, 9, 41, 31,
    5, 25, 45, 7, 87, 21, 11, 57, 17, 55, 21, 115, 59, 81, 27, 129, 47, 111, 33, 55, 5, 13, 27, 55,
    93, 1, 57,
)
# fmt: on


@dataclass(frozen=True, slots=True)
class PrimeField:
    """GF(p), p the largest prime below 2^bits, 8 <= bits <= 62.

    Raises:
        ParameterError: bits is out of range.
    """

    bits: int

    def __post_init__(self) -> None:
        require_int("bits", self.bits, MIN_BITS, MAX_BITS)

    @property
    def modulus(self) -> int:
        """The prime p of the field."""
        return int((1 << self.bits) - _PRIME_GAPS[self.bits - MIN_BITS])

    @property
    def word_mask(self) -> int:
        """2^bits - 1: what is left of a keystream word before the rejection test."""
        return (1 << self.bits) - 1

    @property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """Unsigned little-endian word that holds an element: 2, 4 or 8 bytes."""
        if self.bits <= 16:
            return np.dtype("<u2")
        return np.dtype("<u4") if self.bits <= 32 else np.dtype("<u8")

    @property
    def largest_centred(self) -> int:
        """(p - 1) / 2: integers of at most this magnitude survive `lift` and `centre`."""
        return (self.modulus - 1) // 2

    def zeros(self, length: int) -> Words:
        """The zero vector, dtype `self.dtype`, shape (length,)."""
        return np.zeros(length, self.dtype)

    def packed_bytes(self, length: int) -> int:
        """Bytes of a packed vector: ceil(length * bits / 8)."""
        return packed_bytes(length, self.bits)


@dataclass(frozen=True, slots=True, eq=False)
class FieldVector:
    """A vector over GF(p): elements of `field.dtype`, all below p, read-only.

    A writable array, or a view of another, is copied: its owner may go on writing to it.

    Raises:
        ParameterError: wrong dtype or number of dimensions, or an element not below p.
    """

    field: PrimeField
    elements: Words = dataclasses.field(repr=False)

    def __post_init__(self) -> None:
        elements = self.elements
        if elements.dtype != self.field.dtype or elements.ndim != 1:
            raise ParameterError(
                "elements",
                f"{elements.dtype}, {elements.ndim} dimensions",
                f"{self.field.dtype}, 1 dimension",
            )
        if elements.size and int(elements.max()) >= self.field.modulus:
            raise ParameterError("elements", "out of range", f"below {self.field.modulus}")
        if elements.flags.writeable or elements.base is not None:
            elements = elements.copy()
            elements.flags.writeable = False
            object.__setattr__(self, "elements", elements)

    def __len__(self) -> int:
        return int(self.elements.size)


def lift(values: NDArray[np.int64], field: PrimeField) -> FieldVector:
    """Map signed integers to GF(p): x >= 0 to x, x < 0 to p + x.

    Args:
        values: int64[length], each of magnitude at most `field.largest_centred`.

    Raises:
        ParameterError: another dtype or shape.
        CapacityError: a value does not fit the field.
    """
    if values.dtype != np.int64 or values.ndim != 1:
        raise ParameterError("values", f"{values.dtype}[{values.shape}]", "int64[length]")
    elements = np.empty(values.size, field.dtype)
    largest = int(_kernels.lift_values(values, field.modulus, elements))
    if largest > field.largest_centred:
        beyond = largest > PrimeField(MAX_BITS).largest_centred
        needed = max(largest.bit_length(), MAX_BITS) + 1 if beyond else required_bits(largest)
        raise CapacityError(needed, field.bits)
    elements.flags.writeable = False
    return FieldVector(field, elements)


def centre(vector: FieldVector) -> NDArray[np.int64]:
    """Inverse of `lift`: int64[length] in -(p-1)/2 .. (p-1)/2."""
    signed = np.empty(len(vector), np.int64)
    field = vector.field
    _kernels.centre_elements(vector.elements, field.modulus, field.largest_centred, signed)
    return signed


def add_into(total: Words, vector: FieldVector) -> None:
    """Add a vector to `total` over GF(p), in place.

    `total` holds elements below p of the field's dtype.
    """
    if total.dtype != vector.field.dtype or total.shape != vector.elements.shape:
        raise ParameterError(
            "total", f"{total.dtype}{total.shape}", f"{vector.field.dtype}{vector.elements.shape}"
        )
    _kernels.add_vectors(total, vector.elements, vector.field.modulus)


def required_bits(largest_magnitude: int) -> int:
    """Smallest `bits` whose field holds every integer of at most this magnitude.

    Post: PrimeField(result).largest_centred >= largest_magnitude
    """
    require_int("largest_magnitude", largest_magnitude, 0)
    for bits in range(MIN_BITS, MAX_BITS + 1):
        if PrimeField(bits).largest_centred >= largest_magnitude:
            return bits
    raise ParameterError(
        "largest_magnitude", largest_magnitude, f"at most {PrimeField(MAX_BITS).largest_centred}"
    )


def pack(vector: FieldVector) -> bytes:
    """Pack to `bits` bits per element, little-endian bit order; the last byte is zero-padded."""
    if _fills_words(vector.field):
        return vector.elements.tobytes()
    return pack_words(vector.elements, vector.field.bits)


def unpack(packed: bytes, length: int, field: PrimeField) -> FieldVector:
    """Inverse of `pack`."""
    if _fills_words(field) and len(packed) == field.packed_bytes(length):
        return FieldVector(field, np.frombuffer(packed, field.dtype))
    elements = field.zeros(length)
    unpack_words(packed, field.bits, elements)
    elements.flags.writeable = False
    return FieldVector(field, elements)


def pack_words(words: Words, bits: int) -> bytes:
    """Integers at so many bits each, little-endian; the last byte is padded with zeros."""
    size = packed_bytes(words.size, bits)
    packed = np.empty(-(-size // 8), "<u8")
    _kernels.pack_bits(words, bits, packed)
    return packed.view(np.uint8)[:size].tobytes()


def unpack_words(packed: bytes, bits: int, words: Words) -> None:
    """Inverse of `pack_words`, into integers; ValueError on length or padding."""
    expected = packed_bytes(words.size, bits)
    if len(packed) != expected:
        raise ValueError(f"packed vector has {len(packed)} bytes, {expected} expected")
    padding = 8 * expected - words.size * bits
    if padding and packed[-1] >> (8 - padding):
        raise ValueError("padding bits of a packed vector are not zero")
    # The kernel reads whole words, one beyond the last.
    whole = np.zeros(expected // 8 + 2, "<u8")
    whole.view(np.uint8)[:expected] = np.frombuffer(packed, np.uint8)
    _kernels.unpack_bits(whole, bits, words)


def packed_bytes(count: int, bits: int) -> int:
    """Bytes of so many integers, packed."""
    return (count * bits + 7) // 8


def _fills_words(field: PrimeField) -> bool:
    """Whether the words that hold elements are their packed form already: 16 and 32 bits."""
    return field.bits == 8 * field.dtype.itemsize
