"""From a worker to the server: what is left of a released vector, and what it cost to send.

Everything here happens after the noise, so it spends no privacy.

May use numpy and sketch; must not know torch, models, data or accounting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sketch.compressors import Compressor, Denoise
from sketch.compressors.denoise import DenoiseReceiver, DenoiseSender


class Channel(Protocol):
    """One worker's way to the server; it may remember what was sent before."""

    def send(self, released: NDArray[np.float32]) -> tuple[NDArray[np.float64], int]:
        """Send float32[d]; return what the server uses, float64[d], and the bytes sent."""
        ...


Opening = Callable[[], Channel]
"""Makes a channel before its first message; all that it makes are alike."""


class Compressed:
    """A compressor, and its state."""

    def __init__(self, compressor: Compressor[Any]) -> None:
        self._compressor, self._state = compressor, compressor.initial()

    def send(self, released: NDArray[np.float32]) -> tuple[NDArray[np.float64], int]:
        """Compress, and read as the server does; see `Channel`."""
        message, self._state = self._compressor.compress(released, self._state)
        return self._compressor.decompress(message), message.size_bytes


class Denoised:
    """Denoise around a compressor, with a sender and a receiver."""

    def __init__(self, denoise: Denoise[Any]) -> None:
        self._denoise = denoise
        self._sender: DenoiseSender[Any] = denoise.initial()
        self._receiver: DenoiseReceiver = denoise.initial_receiver()

    def send(self, released: NDArray[np.float32]) -> tuple[NDArray[np.float64], int]:
        """Average, send, and use the average as the receiver has it; see `Channel`."""
        message, self._sender = self._denoise.compress(released, self._sender)
        self._receiver = self._denoise.receive(message, self._receiver)
        return self._receiver.velocity, message.size_bytes
