"""What holds for every compressor: sizes, bytes, states, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sketch_kit import SEED

from sketch import LayerShapes
from sketch.compressors import (
    Compressor,
    DeepGradientCompression,
    ErrorFeedback,
    NoCompression,
    PowerSgd,
    RandomK,
    TopK,
)
from sketch.compressors.base import FORMAT_VERSION

LAYERS = LayerShapes((("bias", (7,)), ("dense", (20, 30)), ("conv", (12, 4, 3, 3)), ("one", ())))
D = LAYERS.dimension
COMPRESSORS: dict[str, Compressor[Any]] = {
    "identity": NoCompression(D),
    "identity of doubles": NoCompression(D, 64),
    "random": RandomK(D, 7.5, SEED),
    "random of 11 bits": RandomK(D, 3, SEED, value_bits=11, unbiased=False),
    "top": TopK(LAYERS, 16),
    "top of all": TopK(LAYERS, 1),
    "top of one layer": TopK(LayerShapes.flat(D), 100, value_bits=13),
    "gradient": DeepGradientCompression(LAYERS, 16, momentum=0.9),
    "power": PowerSgd(LAYERS, 2, SEED),
    "power of 16 bits": PowerSgd(LAYERS, 3, SEED, value_bits=16),
    "feedback": ErrorFeedback(TopK(LAYERS, 5), 0.75),
    "feedback of factors": ErrorFeedback(PowerSgd(LAYERS, 1, SEED)),
    "feedback of random": ErrorFeedback(RandomK(D, 5, SEED, unbiased=False)),
}


def vector(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=D)


@pytest.fixture(params=sorted(COMPRESSORS))
def compressor(request: pytest.FixtureRequest) -> Compressor[Any]:
    return COMPRESSORS[request.param]


def test_bytes_are_counted_exactly(compressor: Compressor[Any]) -> None:
    state, sizes = compressor.initial(), set()
    for number in range(3):
        message, state = compressor.compress(vector(number), state)
        data = message.encode()
        assert len(data) == message.size_bytes
        assert data[0] == FORMAT_VERSION
        sizes.add(len(data))
    assert len(sizes) == 1, "the size is public, so it must not depend on the vector"


def test_the_receiver_reads_what_the_sender_counts_on(compressor: Compressor[Any]) -> None:
    state = compressor.initial()
    for number in range(3):
        message, state = compressor.compress(vector(number), state)
        read = compressor.decode(message.encode())
        assert read.encode() == message.encode()
        received = compressor.decompress(read)
        assert received.dtype == np.float64
        assert received.tobytes() == compressor.decompress(message).tobytes()


def test_adding_is_decompressing(compressor: Compressor[Any]) -> None:
    message, _ = compressor.compress(vector(1), compressor.initial())
    base = vector(2)
    expected = base - 1.0 * compressor.decompress(message)
    compressor.add(message, base, -1.0)
    assert base.tobytes() == expected.tobytes()


def test_only_whole_messages_are_read(compressor: Compressor[Any]) -> None:
    data = compressor.compress(vector(0), compressor.initial())[0].encode()
    for wrong in (b"", data[:1], data[:-1], data + b"\x00"):
        with pytest.raises(ValueError, match=f"data must be {len(data)} bytes, not {len(wrong)}"):
            compressor.decode(wrong)
    for wrong in (bytes([FORMAT_VERSION + 1]) + data[1:], data[:1] + b"\xff" + data[2:]):
        with pytest.raises(ValueError, match="data must begin with"):
            compressor.decode(wrong)
    with pytest.raises(TypeError, match="data must be bytes, not bytearray"):
        compressor.decode(bytearray(data))  # type: ignore[arg-type]


def test_any_bytes_are_read_or_refused(compressor: Compressor[Any]) -> None:
    """Bytes that are read are the only ones that stand for their message."""
    data = compressor.compress(vector(0), compressor.initial())[0].encode()
    rng = np.random.default_rng(0)
    for _ in range(100):
        changed = bytearray(data)
        for place in rng.integers(2, len(data), size=2):
            changed[place] = rng.integers(256)
        try:
            read = compressor.decode(bytes(changed))
        except ValueError:
            continue
        assert read.encode() == changed
        assert np.isfinite(compressor.decompress(read)).all()


def test_a_state_can_be_stepped_twice(compressor: Compressor[Any]) -> None:
    _, state = compressor.compress(vector(0), compressor.initial())
    first = compressor.compress(vector(1), state)[0].encode()
    assert compressor.compress(vector(1), state)[0].encode() == first


def test_input_is_left_alone(compressor: Compressor[Any]) -> None:
    values = vector(0)
    compressor.compress(values, compressor.initial())
    np.testing.assert_array_equal(values, vector(0))


def test_single_precision_and_tensors(compressor: Compressor[Any]) -> None:
    single = vector(0).astype(np.float32)
    expected = compressor.compress(single.astype(np.float64), compressor.initial())[0].encode()
    for given in (single, torch.from_numpy(single)):
        assert compressor.compress(given, compressor.initial())[0].encode() == expected


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(compressor: Compressor[Any], bad: float) -> None:
    for where in (0, 300, D - 1):
        values = vector(0)
        values[where] = bad
        with pytest.raises(ValueError, match="values must be finite in every coordinate"):
            compressor.compress(values, compressor.initial())


def test_wrong_vectors_are_refused(compressor: Compressor[Any]) -> None:
    state = compressor.initial()
    with pytest.raises(ValueError, match=rf"values must have shape \({D},\), not \({D + 1},\)"):
        compressor.compress(np.zeros(D + 1), state)
    with pytest.raises(ValueError, match="values must have shape"):
        compressor.compress(np.zeros((D, 1)), state)
    with pytest.raises(TypeError, match="values must have dtype float64 or float32, not int64"):
        compressor.compress(np.zeros(D, np.int64), state)
    with pytest.raises(TypeError, match="values must be a NumPy array, not list"):
        compressor.compress([0.0] * D, state)  # type: ignore[arg-type]


def test_messages_of_others_are_refused(compressor: Compressor[Any]) -> None:
    others = [NoCompression(3), TopK(LayerShapes.flat(3), 1), RandomK(3, 1, SEED)]
    for other in others:
        message, _ = other.compress(np.ones(3), other.initial())  # type: ignore[arg-type]
        with pytest.raises((TypeError, ValueError), match="message must"):
            compressor.decompress(message)


def test_states_cannot_be_written_to() -> None:
    gradient = DeepGradientCompression(LAYERS, 4)
    _, momentum = gradient.compress(vector(0), gradient.initial())
    feedback = ErrorFeedback(NoCompression(D))
    _, owed = feedback.compress(vector(0), feedback.initial())
    for array in (momentum.velocity, momentum.residual, owed.residual, feedback.initial().residual):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def test_repr() -> None:
    assert repr(NoCompression(3)) == "NoCompression(dimension=3, value_bits=32)"
    assert repr(TopK(LAYERS, 16)) == f"TopK(dimension={D}, rate=16)"
    assert repr(PowerSgd(LAYERS, 2, SEED)) == f"PowerSgd(dimension={D}, rank=2)"
    assert repr(RandomK(10, 4, SEED)).startswith("RandomK(dimension=10, count=3, PublicSeed(")
    assert "momentum=0.5" in repr(DeepGradientCompression(LAYERS, 2, momentum=0.5))
    assert (
        repr(ErrorFeedback(NoCompression(3), 0.5))
        == f"ErrorFeedback({NoCompression(3)!r}, decay=0.5)"
    )
