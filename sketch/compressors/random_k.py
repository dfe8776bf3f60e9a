"""Random coordinates, chosen by a public seed: only their values and the round are sent.

The chance to be chosen does not depend on the vector, so with d / k as the factor of what is sent
the receiver's vector is the sender's on average, whatever the vector.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketch import _checks
from sketch.compressors import _kernels
from sketch.compressors.base import HEADER_BYTES, Message, MessageKind, body, header
from sketch.compressors.precision import (
    SINGLE_BITS,
    ReducedValues,
    check_value_bits,
    packed_bytes,
)
from sketch.hashing import CHUNK, Keystream, PublicSeed, Scratch, Usage, derive_key

MAX_ROUNDS = 2**32
_MAX_DIMENSION = 2**32 - 1
_ROUND = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class NextRound:
    """The number of the next message, which chooses its coordinates.

    Args:
        number: 0 to 2^32; none can be sent in the last.
    """

    number: int

    def __post_init__(self) -> None:
        _checks.integer("number", self.number, 0, MAX_ROUNDS)


@dataclass(frozen=True, slots=True, eq=False)
class RandomKMessage:
    """Values of the coordinates that a round's number chooses, in increasing order of these."""

    number: int
    values: ReducedValues

    def __post_init__(self) -> None:
        _checks.integer("number", self.number, 0, MAX_ROUNDS - 1)

    @property
    def size_bytes(self) -> int:
        """Bytes of `encode`: header, number and values."""
        return HEADER_BYTES + _ROUND.size + self.values.size_bytes

    def encode(self) -> bytes:
        """The message as it is sent; the number as four bytes, little-endian."""
        return header(MessageKind.RANDOM_K) + _ROUND.pack(self.number) + self.values.encode()


def random_indices(seed: PublicSeed, number: int, dimension: int, count: int) -> NDArray[np.int64]:
    """A uniformly random set of coordinates.

    The words are those of the stream of usage 6 and row `number`, little-endian, 32 bits each;
    `_kernels.draw_distinct` says how they are used.

    Returns:
        int64[k], increasing.
    """
    _checks.integer("number", number, 0, MAX_ROUNDS - 1)
    order = np.arange(dimension, dtype=np.uint32)
    stream = Keystream(derive_key(seed, Usage.RANDOM_K, number), Scratch(4 * min(CHUNK, count)))
    drawn = 0
    while drawn < count:
        words = stream.read(4 * min(CHUNK, count - drawn)).view("<u4")
        drawn = _kernels.draw_distinct(words, order, drawn, count)
    return np.sort(order[:count]).astype(np.int64)


class RandomK:
    """Send k = ceil(d / rate) random coordinates of every vector.

    Args:
        dimension: d, 1 to 2^32 - 1.
        rate: d / k, at least 1.
        seed: public; the same for sender and receiver.
        unbiased: multiply by d / k what is sent. Without the factor the receiver has the sender's
            values at k coordinates, which is what error feedback needs.
        value_bits: bits of a number: 64, or 10 to 32.
    """

    __slots__ = ("_count", "_dimension", "_factor", "_seed", "_value_bits")
    keeps_residual = False

    def __init__(
        self,
        dimension: int,
        rate: float,
        seed: PublicSeed,
        *,
        unbiased: bool = True,
        value_bits: int = SINGLE_BITS,
    ) -> None:
        self._dimension = _checks.integer("dimension", dimension, 1, _MAX_DIMENSION)
        self._count = math.ceil(self._dimension / _checks.real("rate", rate, 1.0))
        if not isinstance(seed, PublicSeed):
            raise TypeError(f"seed must be a PublicSeed, not {type(seed).__name__}")
        self._seed = seed
        self._factor = self._dimension / self._count if unbiased else 1.0
        self._value_bits = check_value_bits(value_bits)

    def __repr__(self) -> str:
        return f"RandomK(dimension={self._dimension}, count={self._count}, {self._seed})"

    @property
    def dimension(self) -> int:
        """The number d of coordinates of a vector."""
        return self._dimension

    @property
    def count(self) -> int:
        """The number k of coordinates that are sent."""
        return self._count

    def initial(self) -> NextRound:
        """The number of the first round."""
        return NextRound(0)

    def compress(
        self, values: _checks.Floats, state: NextRound
    ) -> tuple[RandomKMessage, NextRound]:
        """Send the round's coordinates; see `Compressor`."""
        checked = _checks.update("values", values, self._dimension)
        _checks.finite("values", checked)
        chosen = checked[self._indices(state.number)].astype(np.float64)
        reduced = ReducedValues.of(chosen * self._factor, self._value_bits)
        return RandomKMessage(state.number, reduced), NextRound(state.number + 1)

    def decompress(self, message: Message) -> NDArray[np.float64]:
        """The values at their coordinates, zeros elsewhere; see `Compressor`."""
        out = np.zeros(self._dimension)
        self.add(message, out, 1.0)
        return out

    def add(self, message: Message, vector: NDArray[np.float64], factor: float) -> None:
        """Add what a receiver reads, in place; see `Compressor`."""
        if not isinstance(message, RandomKMessage):
            raise TypeError(f"message must be a RandomKMessage, not {type(message).__name__}")
        if message.values.words.size != self._count:
            raise ValueError(
                f"message must have {self._count} numbers, not {message.values.words.size}"
            )
        vector[self._indices(message.number)] += factor * message.values.read()

    def decode(self, data: bytes) -> RandomKMessage:
        """Read a message; see `Compressor`."""
        fixed = HEADER_BYTES + _ROUND.size
        size = fixed + packed_bytes(self._count, self._value_bits)
        rest = body(data, MessageKind.RANDOM_K, size)
        (number,) = _ROUND.unpack(rest[: _ROUND.size])
        values = ReducedValues.decode(rest[_ROUND.size :], self._count, self._value_bits)
        return RandomKMessage(number, values)

    def _indices(self, number: int) -> NDArray[np.int64]:
        return random_indices(self._seed, number, self._dimension, self._count)
