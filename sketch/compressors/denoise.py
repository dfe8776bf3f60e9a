"""Denoise: an average over time and a second clip, in front of any compressor.

The sender averages what was released and tells the average in one of two ways, whichever loses
less at this step: itself, or how it has changed. The receiver keeps the same average. Nothing here
sees data: it is post-processing of released vectors and spends no budget, whatever mechanism they
come from.

Source: "On the Interaction between Differential Privacy and Gradient Compression in Deep
Learning", a thesis, Algorithm 1. There the second clip is of each noised gradient, before they are
averaged; here a mean that was noised as a whole is clipped as a whole. Its v without an index is
read as the sender's velocity: the change is that of the sender, and what is told is the new one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from sketch import _checks
from sketch.compressors import _kernels
from sketch.compressors.base import Compressor, Message, State, owned
from sketch.compressors.feedback import without_residual

Room = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""Memory for the arrays of a state."""
_SAFE_SQUARES = (1e-280, 1e300)
"""Between these no square of an entry that matters has overflowed or vanished."""


def _shortening(values: NDArray[np.float64], bound: float) -> float:
    """The factor, at most 1, that shortens a vector to the bound; ValueError if not finite."""
    square = _kernels.squared_norm(values)
    if _SAFE_SQUARES[0] < square < _SAFE_SQUARES[1]:
        return min(1.0, bound / math.sqrt(square))
    # Squares that overflowed or vanished, or an entry that is no number: look at the entries.
    _checks.finite("released", values)
    peak = float(np.abs(values).max())
    if peak == 0.0:
        return 1.0
    relative = values / peak
    return min(1.0, bound / peak / math.sqrt(float(relative @ relative)))


@dataclass(frozen=True, slots=True, eq=False)
class DenoiseMessage:
    """One flag bit, which takes a byte, and the message of the compressor inside."""

    is_velocity: bool
    inner: Message

    @property
    def size_bytes(self) -> int:
        """Bytes of `encode`."""
        return 1 + self.inner.size_bytes

    def encode(self) -> bytes:
        """The message as it is sent: 1 for the velocity or 0, then the message inside."""
        return bytes([self.is_velocity]) + self.inner.encode()


@dataclass(frozen=True, slots=True, eq=False)
class DenoiseSender(Generic[State]):
    """What a sender keeps.

    Args:
        velocity: float64[d], the average of what was released.
        received: float64[d], the average as the receiver has it.
        residual: float64[d], what the last message lost.
    """

    velocity: NDArray[np.float64]
    received: NDArray[np.float64]
    residual: NDArray[np.float64]
    for_velocity: State
    for_change: State


@dataclass(frozen=True, slots=True, eq=False)
class DenoiseReceiver:
    """What a receiver keeps, and what it uses in the place of a gradient.

    Args:
        velocity: float64[d], the average as far as it was told.
    """

    velocity: NDArray[np.float64]


class Denoise(Generic[State]):
    """Sender and receiver of averages of released vectors.

    With x the released vector, shortened to the clip, the velocity v becomes b v + (1 - b) x and a
    is its change. Both v + g r and a + g r are compressed, r the residual; what loses less in l2
    is sent, and its loss is the new residual. The receiver takes the velocity, or adds the change.

    Args:
        inner: any compressor without a residual of its own.
        momentum: b, in [0, 1).
        residual_decay: g, in [0, 1].
        clip_l2: second clip; None for none. A mean of vectors that were clipped to C before the
            noise lies in the ball of radius C, so projecting to it can only come nearer.

    Raises:
        TypeError, ValueError: an argument of another type or out of range, or a compressor that
            keeps a residual.
    """

    __slots__ = ("_clip", "_decay", "_inner", "_momentum")

    def __init__(
        self,
        inner: Compressor[State],
        *,
        momentum: float,
        residual_decay: float,
        clip_l2: float | None = None,
    ) -> None:
        self._inner = without_residual(inner)
        self._momentum = _checks.real("momentum", momentum, 0.0, 1.0)
        if self._momentum == 1.0:
            raise ValueError("momentum must be below 1: otherwise the velocity would never move")
        self._decay = _checks.real("residual_decay", residual_decay, 0.0, 1.0)
        unbounded = clip_l2 is None
        self._clip = math.inf if unbounded else _checks.real("clip_l2", clip_l2, 0.0, open_low=True)

    def __repr__(self) -> str:
        return (
            f"Denoise({self._inner!r}, momentum={self._momentum}, "
            f"residual_decay={self._decay}, clip_l2={self._clip})"
        )

    @property
    def dimension(self) -> int:
        """The number d of coordinates of a vector."""
        return self._inner.dimension

    def initial(self) -> DenoiseSender[State]:
        """A sender before its first vector: zeros."""
        zeros = owned(np.zeros(self.dimension))
        return DenoiseSender(zeros, zeros, zeros, self._inner.initial(), self._inner.initial())

    def initial_receiver(self) -> DenoiseReceiver:
        """A receiver before its first message: zeros."""
        return DenoiseReceiver(owned(np.zeros(self.dimension)))

    def compress(
        self, released: _checks.Floats, state: DenoiseSender[State]
    ) -> tuple[DenoiseMessage, DenoiseSender[State]]:
        """Average one more released vector, and tell the receiver.

        Args:
            released: float32[d] or float64[d], finite: noised already.
            state: the sender's.
        """
        size = self.dimension
        return self.compress_into(released, state, (np.empty(size), np.empty(size), np.empty(size)))

    def compress_into(
        self, released: _checks.Floats, state: DenoiseSender[State], room: Room
    ) -> tuple[DenoiseMessage, DenoiseSender[State]]:
        """The same in memory of the caller's.

        Args:
            released: as for `compress`.
            state: the sender's; left as it is whatever happens.
            room: three times float64[d], apart from the state: the arrays of the next one.
        """
        before = _checks.vector("state.received", state.received, self.dimension)
        self._advance(released, state, room)
        velocity, whole, change = room
        told, for_velocity = self._inner.compress(whole, state.for_velocity)
        told_change, for_change = self._inner.compress(change, state.for_change)
        self._inner.add(told, whole, -1.0)
        self._inner.add(told_change, change, -1.0)
        if _kernels.squared_norm(whole) <= _kernels.squared_norm(change):
            message, residual, unused = DenoiseMessage(True, told), whole, change
        else:
            message, residual, unused = DenoiseMessage(False, told_change), change, whole
        received = self._read(message, before, unused)
        following = DenoiseSender(
            owned(velocity), received, owned(residual), for_velocity, for_change
        )
        return message, following

    def receive(self, message: DenoiseMessage, state: DenoiseReceiver) -> DenoiseReceiver:
        """Read one message: the sender's next `received` is the same, bit for bit.

        Raises:
            TypeError, ValueError: another one's message, or a state of another dimension.
            ValueError: a change of 64 bits after which the velocity is no double.
        """
        if not isinstance(message, DenoiseMessage):
            raise TypeError(f"message must be a DenoiseMessage, not {type(message).__name__}")
        before = _checks.vector("state.velocity", state.velocity, self.dimension)
        with np.errstate(over="ignore"):
            velocity = self._read(message, before, np.empty(self.dimension))
        _checks.finite("velocity", velocity)
        return DenoiseReceiver(velocity)

    def decode(self, data: bytes) -> DenoiseMessage:
        """Read what `DenoiseMessage.encode` wrote.

        Raises:
            ValueError: anything but a flag and a message of the compressor inside.
        """
        if not isinstance(data, bytes):
            raise TypeError(f"data must be bytes, not {type(data).__name__}")
        if data[:1] not in (b"\x00", b"\x01"):
            raise ValueError(f"data must begin with a byte 0 or 1, not {data[:1].hex()!r}")
        return DenoiseMessage(data[:1] == b"\x01", self._inner.decode(data[1:]))

    def _advance(self, released: _checks.Floats, state: DenoiseSender[State], room: Room) -> None:
        """Write the new velocity, and both vectors that may be told."""
        size = self.dimension
        checked = _checks.update("released", released, size).astype(np.float64, copy=False)
        velocity = _checks.vector("state.velocity", state.velocity, size)
        residual = _checks.vector("state.residual", state.residual, size)
        gain = (1.0 - self._momentum) * _shortening(checked, self._clip)
        _kernels.accelerate(checked, gain, velocity, self._momentum, residual, self._decay, room)

    def _read(
        self, message: DenoiseMessage, before: NDArray[np.float64], out: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The receiver's velocity after a message; written to `out`, which becomes read-only."""
        out[:] = 0.0 if message.is_velocity else before
        self._inner.add(message.inner, out, 1.0)
        return owned(out)


class DenoiseFilter(Generic[State]):
    """Both ends of `Denoise` on one machine: a server's filter of its own releases.

    It keeps the memory of two states and writes to them in turn: fresh memory for large vectors
    costs more than the arithmetic.

    Args:
        denoise: what it does.
        state: where it goes on; None to begin. It is copied.
    """

    __slots__ = ("_denoise", "_room", "_state")

    def __init__(self, denoise: Denoise[State], state: DenoiseSender[State] | None = None) -> None:
        self._denoise = denoise
        self._state = _copied(denoise.initial() if state is None else state)
        self._room = _arrays(_copied(self._state))

    @property
    def state(self) -> DenoiseSender[State]:
        """A copy of where it is, with which another filter can go on."""
        return _copied(self._state)

    def step(self, released: _checks.Floats) -> NDArray[np.float64]:
        """What to use in the place of a released mean: float64[d].

        Args:
            released: float32[d] or float64[d], finite.

        Raises:
            TypeError, ValueError: as `Denoise.compress`, and then the filter is where it was.
        """
        for array in self._room:
            array.flags.writeable = True
        before = self._state
        _, self._state = self._denoise.compress_into(released, before, self._room)
        self._room = _arrays(before)
        return self._state.received.copy()


def _arrays(state: DenoiseSender[State]) -> Room:
    return state.velocity, state.received, state.residual


def _copied(state: DenoiseSender[State]) -> DenoiseSender[State]:
    velocity, received, residual = (owned(array.copy()) for array in _arrays(state))
    return replace(state, velocity=velocity, received=received, residual=residual)
