"""Numbers of fewer bits: the nearest single, without its low-order bits.

What is dropped is read as zero, so a number becomes the next one towards zero that has the bits.
64 bits are a double as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketch import _checks
from sketch.compressors import _kernels

LEAST_BITS = 10
"""Sign, the eight bits of the exponent, and one bit of the fraction."""
SINGLE_BITS = 32
DOUBLE_BITS = 64
_LARGEST = float(np.finfo(np.float32).max)
_NOT_FINITE = "values must be finite in every coordinate"
_EXPONENT_BITS = {SINGLE_BITS: 8, DOUBLE_BITS: 11}


def check_value_bits(value_bits: object) -> int:
    """Return the bits of a number: 64, or 10 to 32."""
    if value_bits == DOUBLE_BITS:
        return DOUBLE_BITS
    try:
        return _checks.integer("value_bits", value_bits, LEAST_BITS, SINGLE_BITS)
    except ValueError:
        raise ValueError(
            f"value_bits must be from {LEAST_BITS} to {SINGLE_BITS}, or {DOUBLE_BITS}, "
            f"not {value_bits}"
        ) from None


def packed_bytes(count: int, width: int) -> int:
    """Bytes that `count` words of `width` bits fill."""
    return -(-count * width // 8)


def pack(words: NDArray[np.uint32], width: int) -> bytes:
    """Words of `width` bits, 1 to 32, one behind the other; the last byte is filled with zeros."""
    if width == SINGLE_BITS:
        return words.astype("<u4", copy=False).tobytes()
    out = np.empty(packed_bytes(words.size, width), np.uint8)
    _kernels.pack_words(words, width, out)
    return out.tobytes()


def unpack(data: memoryview, count: int, width: int) -> NDArray[np.uint32]:
    """Read what `pack` wrote."""
    if width == SINGLE_BITS:
        return np.frombuffer(data, "<u4").astype(np.uint32)
    out = np.empty(count, np.uint32)
    if not _kernels.unpack_words(np.frombuffer(data, np.uint8), width, out):
        raise ValueError("data must end in zero bits after its last number")
    return out


@dataclass(frozen=True, slots=True, eq=False)
class ReducedValues:
    """Numbers as they are sent: the upper bits of their patterns.

    Args:
        words: uint32[n], or uint64[n] for 64 bits; none stands for an infinite or undefined number.
        value_bits: bits of a number, 10 to 32 or 64.
    """

    words: NDArray[np.uint32] | NDArray[np.uint64]
    value_bits: int

    def __post_init__(self) -> None:
        bits = check_value_bits(self.value_bits)
        wanted = np.uint64 if bits == DOUBLE_BITS else np.uint32
        if self.words.dtype != wanted or self.words.ndim != 1:
            raise TypeError(f"words must be a vector of {wanted.__name__}")
        exponent_bits = _EXPONENT_BITS[DOUBLE_BITS if bits == DOUBLE_BITS else SINGLE_BITS]
        full = (1 << exponent_bits) - 1
        # The exponent is behind the sign; what is above the sign has to be zero.
        exponents = self.words >> wanted(bits - 1 - exponent_bits)
        if bits < SINGLE_BITS and self.words.size and int(self.words.max()) >> bits:
            raise ValueError(f"words must be below 2^{bits}")
        if ((exponents & wanted(full)) == full).any():
            raise ValueError(_NOT_FINITE)

    @classmethod
    def of(cls, values: NDArray[np.floating], value_bits: int) -> ReducedValues:
        """Reduce float32[n] or float64[n]."""
        bits = check_value_bits(value_bits)
        if bits == DOUBLE_BITS:
            return cls(values.astype(np.float64).view(np.uint64), bits)
        if values.dtype == np.float32:
            single = np.ascontiguousarray(values, np.float32)
        else:
            _check_range(values, bits)
            single = values.astype(np.float32)
        return cls(single.view(np.uint32) >> np.uint32(SINGLE_BITS - bits), bits)

    @property
    def size_bytes(self) -> int:
        """Bytes of `encode`."""
        return packed_bytes(self.words.size, self.value_bits)

    def read(self) -> NDArray[np.float64]:
        """The numbers as the receiver reads them: float64[n]."""
        if self.words.dtype == np.uint64:
            return self.words.view(np.float64).copy()
        shifted = self.words << np.uint32(SINGLE_BITS - self.value_bits)
        return shifted.view(np.float32).astype(np.float64)

    def encode(self) -> bytes:
        """The numbers one behind the other, lowest bits first."""
        if self.words.dtype == np.uint64:
            return self.words.astype("<u8", copy=False).tobytes()
        return pack(self.words.astype(np.uint32, copy=False), self.value_bits)

    @classmethod
    def decode(cls, data: memoryview, count: int, value_bits: int) -> ReducedValues:
        """Read what `encode` wrote.

        Args:
            data: exactly the bytes of the numbers.
            value_bits: bits of a number.
        """
        if value_bits == DOUBLE_BITS:
            return cls(np.frombuffer(data, "<u8").astype(np.uint64), value_bits)
        return cls(unpack(data, count, value_bits), value_bits)


def _check_range(values: NDArray[np.floating], bits: int) -> None:
    peak = float(np.abs(values).max(initial=0.0))
    if not math.isfinite(peak):
        raise ValueError(_NOT_FINITE)
    if peak > _LARGEST:
        raise ValueError(f"values must be at most {_LARGEST} to be sent with {bits} bits")
