"""What every compressor of a layered update offers: pure steps with the state in and out.

A compressor turns a vector into a message, which is exactly what is sent, and a message into the
vector that the receiver reads from it. Shapes, rates and seeds are public and agreed upon before,
so no message carries them, and every message of a compressor has the same size.

Vectors are float32 or float64, NumPy arrays or tensors, as for the linear maps; what is not finite
is refused. States own their arrays and nobody can write to them, so a state can be kept, sent to
another process, or stepped twice.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from sketch import _checks

State = TypeVar("State")

FORMAT_VERSION = 1
"""First byte of every message; changes whenever the meaning of one changes (*)."""
_HEADER = struct.Struct("<BB")
HEADER_BYTES = _HEADER.size


class MessageKind(enum.Enum):
    """What a message holds: its second byte."""

    DENSE = 0
    RANDOM_K = 1
    SPARSE = 2
    FACTORS = 3


class Message(Protocol):
    """What goes over the wire for one vector."""

    @property
    def size_bytes(self) -> int:
        """Number of bytes that `encode` gives."""
        ...

    def encode(self) -> bytes:
        """The message as it is sent."""
        ...


class Compressor(Protocol[State]):
    """A way to tell a vector in fewer bytes."""

    @property
    def dimension(self) -> int:
        """The number d of coordinates of a vector."""
        ...

    @property
    def keeps_residual(self) -> bool:
        """Whether the state holds what earlier messages lost, and adds it to the next vector."""
        ...

    def initial(self) -> State:
        """The state before the first vector."""
        ...

    def compress(self, values: _checks.Floats, state: State) -> tuple[Message, State]:
        """Turn float32[d] or float64[d] into a message; TypeError or ValueError for bad input."""
        ...

    def decompress(self, message: Message) -> NDArray[np.float64]:
        """The vector float64[d] that a receiver reads; TypeError for another one's message."""
        ...

    def add(self, message: Message, vector: NDArray[np.float64], factor: float) -> None:
        """Add what a receiver reads, times a factor, to float64[d] in place.

        The same as with `decompress`, without a second vector where the message is small.
        """
        ...

    def decode(self, data: bytes) -> Message:
        """Read a message; ValueError for bytes that `Message.encode` would not have written."""
        ...


class ReadThrough(Generic[State]):
    """A compressor whose messages are those of another one inside, and are read by it."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Compressor[State]) -> None:
        self._inner = inner

    @property
    def dimension(self) -> int:
        """The number d of coordinates of a vector."""
        return self._inner.dimension

    def decompress(self, message: Message) -> NDArray[np.float64]:
        """What the compressor inside reads; see `Compressor`."""
        return self._inner.decompress(message)

    def add(self, message: Message, vector: NDArray[np.float64], factor: float) -> None:
        """Add what a receiver reads, in place; see `Compressor`."""
        self._inner.add(message, vector, factor)

    def decode(self, data: bytes) -> Message:
        """Read a message; see `Compressor`."""
        return self._inner.decode(data)


@dataclass(frozen=True, slots=True)
class Stateless:
    """The state of a compressor that remembers nothing."""


def header(kind: MessageKind) -> bytes:
    """The first bytes of a message."""
    return _HEADER.pack(FORMAT_VERSION, kind.value)


def body(data: bytes, kind: MessageKind, size_bytes: int) -> memoryview:
    """What follows the header of a message of a known size."""
    if not isinstance(data, bytes):
        raise TypeError(f"data must be bytes, not {type(data).__name__}")
    if len(data) != size_bytes:
        raise ValueError(f"data must be {size_bytes} bytes, not {len(data)}")
    if data[:HEADER_BYTES] != header(kind):
        raise ValueError(f"data must begin with {header(kind).hex()}, not {data[:2].hex()}")
    return memoryview(data)[HEADER_BYTES:]


def owned(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same array, which nobody can write to from now on."""
    array.flags.writeable = False
    return array
