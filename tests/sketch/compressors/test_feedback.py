"""What messages lose is not lost: deep gradient compression, and feedback around others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
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
from sketch.compressors.gradient import MomentumState

LAYERS = LayerShapes((("bias", (7,)), ("dense", (20, 30)), ("more", (15, 25))))
D = LAYERS.dimension


def integers(count: int) -> np.ndarray:
    """Vectors whose sums are exact."""
    return np.random.default_rng(4).integers(-999, 1000, size=(count, D)).astype(np.float64)


@pytest.mark.parametrize(
    "inner",
    [
        TopK(LAYERS, 16),
        TopK(LAYERS, 16, value_bits=10),
        RandomK(D, 9, SEED, unbiased=False),
        NoCompression(D, 10),
    ],
    ids=repr,
)
def test_sent_and_residual_are_the_sum(inner: Compressor[Any]) -> None:
    """Exactly: sums of integers and of their upper bits are exact in double precision."""
    feedback = ErrorFeedback(inner)
    state, sent = feedback.initial(), np.zeros(D)
    for values in integers(12):
        message, state = feedback.compress(values, state)
        sent += feedback.decompress(feedback.decode(message.encode()))
    assert np.abs(state.residual).max() > 0
    assert (sent + state.residual).tolist() == integers(12).sum(axis=0).tolist()


def test_sent_and_residual_of_factors() -> None:
    """Products of factors round, so here it is exact up to that."""
    feedback = ErrorFeedback(PowerSgd(LAYERS, 2, SEED))
    state, sent = feedback.initial(), np.zeros(D)
    for values in integers(12):
        message, state = feedback.compress(values, state)
        sent += feedback.decompress(message)
    assert np.abs(state.residual).max() > 100
    np.testing.assert_allclose(sent + state.residual, integers(12).sum(axis=0), atol=1e-8)


def test_a_repeated_vector_arrives_in_the_end() -> None:
    """What error feedback is for: without it, coordinates below the border never arrive."""
    values = integers(1)[0]
    for compressor in (
        ErrorFeedback(TopK(LAYERS, 20)),
        ErrorFeedback(PowerSgd(LAYERS, 1, SEED)),
        DeepGradientCompression(LAYERS, 20),
    ):
        state, sent = compressor.initial(), np.zeros(D)
        for _ in range(400):
            message, state = compressor.compress(values, state)  # type: ignore[arg-type]
            sent += compressor.decompress(message)
        assert np.linalg.norm(sent / 400 - values) < 0.15 * np.linalg.norm(values)
    plain = TopK(LAYERS, 20)
    lost = plain.decompress(plain.compress(values, plain.initial())[0])
    assert np.linalg.norm(lost - values) > 0.5 * np.linalg.norm(values)


def test_decay() -> None:
    feedback = ErrorFeedback(TopK(LayerShapes.flat(2), 2), decay=0.5)
    message, state = feedback.compress(np.array([4.0, 3.0]), feedback.initial())
    assert state.residual.tolist() == [0.0, 3.0]
    message, state = feedback.compress(np.array([1.0, 0.0]), state)
    assert feedback.decompress(message).tolist() == [0.0, 1.5]
    assert state.residual.tolist() == [1.0, 0.0]


class TestDeepGradientCompression:
    def test_without_momentum_it_is_top_k_with_feedback(self) -> None:
        ours = DeepGradientCompression(LAYERS, 16)
        plain = ErrorFeedback(TopK(LAYERS, 16))
        state, other = ours.initial(), plain.initial()
        for values in integers(8):
            message, state = ours.compress(values, state)
            expected, other = plain.compress(values, other)
            assert message.encode() == expected.encode()
        assert state.residual.tobytes() == other.residual.tobytes()

    def test_momentum_by_the_definition(self) -> None:
        """Step by step in plain NumPy: correction, selection, masking."""
        compressor = DeepGradientCompression(LAYERS, 16, momentum=0.5)
        state = compressor.initial()
        velocity, residual = np.zeros(D), np.zeros(D)
        sent, velocities = np.zeros(D), np.zeros(D)
        for values in integers(10):
            velocity = 0.5 * velocity + values
            residual = residual + velocity
            velocities += velocity
            message, state = compressor.compress(values, state)
            received = compressor.decompress(message)
            sent += received
            residual -= received
            velocity[message.indices] = 0.0
            np.testing.assert_array_equal(state.velocity, velocity)
            np.testing.assert_array_equal(state.residual, residual)
        assert (sent + state.residual).tolist() == velocities.tolist()

    def test_a_state_goes_on_at_another_rate(self) -> None:
        _, state = DeepGradientCompression(LAYERS, 2).compress(
            integers(1)[0], DeepGradientCompression(LAYERS, 2).initial()
        )
        slower = DeepGradientCompression(LAYERS, 64)
        message, _ = slower.compress(np.zeros(D), state)
        top = TopK(LAYERS, 64)
        assert message.encode() == top.compress(state.residual, top.initial())[0].encode()

    def test_a_velocity_of_another_length_is_refused(self) -> None:
        compressor = DeepGradientCompression(LAYERS, 2)
        short = MomentumState(np.zeros(3), np.zeros(D))
        with pytest.raises(ValueError, match=r"state.velocity must have shape"):
            compressor.compress(np.zeros(D), short)
