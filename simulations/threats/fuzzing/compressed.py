"""Decoders of compressed vectors. Whatever they accept is used as well."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations.threats.fuzzing.engine import Decoder
from simulations.threats.fuzzing.mutation import Rng, pick
from sketch import LayerShapes
from sketch.compressors import (
    Compressor,
    DeepGradientCompression,
    Denoise,
    ErrorFeedback,
    Message,
    NoCompression,
    PowerSgd,
    RandomK,
    TopK,
)
from sketch.compressors.denoise import DenoiseMessage
from sketch.hashing import PublicSeed

LAYERS = LayerShapes((("bias", (6,)), ("weight", (6, 20)), ("single", (1,))))
"""Small enough for thousands of cases a second; one layer is factored and one has one place."""

Sending = Compressor[Any] | Denoise[Any]
"""What makes messages."""

NUMBERS = tuple(
    struct.pack(form, value)
    for form, values in (
        ("<d", (1.7e308, -1.7e308, 5e-324, float("inf"), float("nan"), -0.0)),
        ("<f", (3.4e38, -3.4e38, 1e-45, float("inf"), float("nan"), -0.0)),
        ("<I", (0, 5, 6, 119, 120, 2**31, 2**32 - 1)),
    )
    for value in values
)
"""Extreme numbers, and places at the ends of layers."""

STEPS = 3
"""Messages that a compressor makes as examples."""


def compressed_decoders() -> Iterator[Decoder]:
    """One for every compressor and several widths of a number."""
    seed = PublicSeed(bytes(32))
    dimension = LAYERS.dimension
    compressors: dict[str, Compressor[Any]] = {
        "dense, 64 bits": NoCompression(dimension, 64),
        "dense, 13 bits": NoCompression(dimension, 13),
        "random-k": RandomK(dimension, 8.0, seed),
        "top-k": TopK(LAYERS, 8.0),
        "top-k, 64 bits": TopK(LAYERS, 8.0, value_bits=64),
        "top-k, all": TopK(LAYERS, 1.0),
        "deep gradient compression": DeepGradientCompression(LAYERS, 8.0),
        "factors": PowerSgd(LAYERS, 2, seed),
        "factors, 64 bits": PowerSgd(LAYERS, 2, seed, value_bits=64),
        "error feedback": ErrorFeedback(PowerSgd(LAYERS, 1, seed, value_bits=16)),
    }
    for name, compressor in compressors.items():
        yield _decoder(name, compressor, compressor.decompress)
    for name, inner in (
        ("top-k", TopK(LAYERS, 8.0)),
        ("64 bits", TopK(LAYERS, 8.0, value_bits=64)),
        ("factors", PowerSgd(LAYERS, 1, seed)),
    ):
        denoise: Denoise[Any] = Denoise(inner, momentum=0.9, residual_decay=1.0)
        yield _decoder(f"Denoise of {name}", denoise, partial(_received, denoise))


def _received(denoise: Denoise[Any], message: DenoiseMessage) -> NDArray[np.float64]:
    """What a receiver has after a message that comes twice."""
    once = denoise.receive(message, denoise.initial_receiver())
    return denoise.receive(message, once).velocity


def _decoder(name: str, compressor: Sending, use: Callable[[Any], NDArray[np.float64]]) -> Decoder:
    def read(data: bytes) -> Message:
        """Decode and use: what nobody can use must be refused, at the latest then."""
        message = compressor.decode(data)
        with np.errstate(all="raise", under="ignore"):
            vector = use(message)
        if not np.isfinite(vector).all():
            raise AssertionError("a message of finite numbers reads as something else")
        if message.size_bytes != len(data):
            raise AssertionError(f"size_bytes is {message.size_bytes}, not {len(data)}")
        return message

    return Decoder(
        name=f"compressed, {name}",
        seeds=examples(compressor),
        decode=read,
        errors=(ValueError,),
        encode=lambda message: bytes(message.encode()),
        mutations=(_overwrite_numbers,) * 3,
    )


def _overwrite_numbers(rng: Rng, data: bytes, pool: Sequence[bytes]) -> bytes:
    """Change bytes and keep the length: all messages of a compressor have the same."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        new = pick(rng, [*NUMBERS, rng.bytes(int(rng.integers(1, 9)))])[: len(data)]
        place = int(rng.integers(len(data) - len(new) + 1))
        changed[place : place + len(new)] = new
    return bytes(changed)


def examples(compressor: Sending) -> list[bytes]:
    """The messages of some vectors, one after the other, and of none: zeros."""
    rng, state, found = np.random.default_rng(4), compressor.initial(), []
    for scale in (*[1.0] * STEPS, 0.0):
        message, state = compressor.compress(scale * rng.normal(size=compressor.dimension), state)
        found.append(message.encode())
    return found
