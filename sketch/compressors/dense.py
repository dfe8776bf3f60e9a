"""All numbers, one by one: what is sent without compression, and the factors of PowerSGD."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketch import _checks
from sketch.compressors.base import (
    HEADER_BYTES,
    Message,
    MessageKind,
    Stateless,
    body,
    header,
)
from sketch.compressors.precision import (
    SINGLE_BITS,
    ReducedValues,
    check_value_bits,
    packed_bytes,
)


@dataclass(frozen=True, slots=True, eq=False)
class DenseMessage:
    """Numbers in an order that both sides know."""

    kind: MessageKind
    values: ReducedValues

    @property
    def size_bytes(self) -> int:
        """Bytes of `encode`: the header and the numbers."""
        return HEADER_BYTES + self.values.size_bytes

    def encode(self) -> bytes:
        """The message as it is sent."""
        return header(self.kind) + self.values.encode()

    @classmethod
    def decode(cls, data: bytes, kind: MessageKind, count: int, value_bits: int) -> DenseMessage:
        """Read what `encode` wrote."""
        rest = body(data, kind, HEADER_BYTES + packed_bytes(count, value_bits))
        return cls(kind, ReducedValues.decode(rest, count, value_bits))

    def require(self, kind: MessageKind, count: int) -> NDArray[np.float64]:
        """The numbers, if they are what is wanted: float64[count]."""
        if self.kind is not kind or self.values.words.size != count:
            raise ValueError(
                f"message must be {kind.name} of {count} numbers, "
                f"not {self.kind.name} of {self.values.words.size}"
            )
        return self.values.read()


def dense(message: Message) -> DenseMessage:
    """The same message, if it is a dense one."""
    if not isinstance(message, DenseMessage):
        raise TypeError(f"message must be a DenseMessage, not {type(message).__name__}")
    return message


class NoCompression:
    """No compression but the precision of the numbers.

    Args:
        dimension: d, at least 1.
        value_bits: bits of a number: 64, or 10 to 32. With 64 nothing is lost at all.
    """

    __slots__ = ("_dimension", "_value_bits")
    keeps_residual = False

    def __init__(self, dimension: int, value_bits: int = SINGLE_BITS) -> None:
        self._dimension = _checks.integer("dimension", dimension, 1)
        self._value_bits = check_value_bits(value_bits)

    def __repr__(self) -> str:
        return f"NoCompression(dimension={self._dimension}, value_bits={self._value_bits})"

    @property
    def dimension(self) -> int:
        """The number d of coordinates of a vector."""
        return self._dimension

    def initial(self) -> Stateless:
        """Nothing to remember."""
        return Stateless()

    def compress(self, values: _checks.Floats, state: Stateless) -> tuple[DenseMessage, Stateless]:
        """Send all coordinates; see `Compressor`."""
        checked = _checks.update("values", values, self._dimension)
        reduced = ReducedValues.of(checked, self._value_bits)
        return DenseMessage(MessageKind.DENSE, reduced), state

    def decompress(self, message: Message) -> NDArray[np.float64]:
        """The coordinates as they came; see `Compressor`."""
        return dense(message).require(MessageKind.DENSE, self._dimension)

    def add(self, message: Message, vector: NDArray[np.float64], factor: float) -> None:
        """Add what a receiver reads, in place; see `Compressor`."""
        vector += factor * self.decompress(message)

    def decode(self, data: bytes) -> DenseMessage:
        """Read a message; see `Compressor`."""
        return DenseMessage.decode(data, MessageKind.DENSE, self._dimension, self._value_bits)
