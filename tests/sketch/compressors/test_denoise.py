"""Denoise: the algorithm, the mirror, the second clip."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sketch_kit import SEED

from sketch import LayerShapes
from sketch.compressors import (
    Compressor,
    Denoise,
    DenoiseFilter,
    NoCompression,
    PowerSgd,
    RandomK,
    TopK,
)
from sketch.compressors.base import Stateless
from sketch.compressors.denoise import DenoiseMessage, DenoiseReceiver

LAYERS = LayerShapes((("bias", (7,)), ("dense", (20, 30))))
D = LAYERS.dimension
INNER: list[Compressor[Any]] = [
    TopK(LAYERS, 8),
    TopK(LayerShapes.flat(D), 3, value_bits=64),
    PowerSgd(LAYERS, 2, SEED),
    RandomK(D, 4, SEED, unbiased=False),
    NoCompression(D),
]
CLIP = 370.0

every_inner = pytest.mark.parametrize("inner", INNER, ids=repr)


def releases(count: int) -> np.ndarray:
    """A vector with few large entries, which slowly turns, in noise of changing strength."""
    rng = np.random.default_rng(7)
    start, end = rng.normal(size=(2, D)) ** 5
    shares = np.linspace(0.0, 1.0, count)[:, None]
    noise = rng.normal(size=(count, D)) * 4.0 ** rng.uniform(-2, 2, size=(count, 1))
    return (1 - shares) * start + shares * end + noise


def plain_steps(
    released: np.ndarray, keep: int, momentum: float, decay: float, clip: float
) -> tuple[list[bool], np.ndarray]:
    """Algorithm 1 line by line, with top-k by sorting; flags, and the receiver at the end."""
    v_sender, v_receiver, r = np.zeros(D), np.zeros(D), np.zeros(D)
    flags = []

    def compress(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kept = np.zeros(D)
        places = np.argsort(-np.abs(x), kind="stable")[:keep]
        kept[places] = x[places]
        return kept, x - kept

    for gradient in released:
        clipped = gradient * min(1.0, clip / np.linalg.norm(gradient))
        before = v_sender
        v_sender = momentum * v_sender + (1 - momentum) * clipped
        v_compressed, r_v = compress(v_sender + decay * r)
        a_compressed, r_a = compress((v_sender - before) + decay * r)
        flags.append(bool(np.linalg.norm(r_v) <= np.linalg.norm(r_a)))
        if flags[-1]:
            r, v_receiver = r_v, v_compressed
        else:
            r, v_receiver = r_a, v_receiver + a_compressed
    return flags, v_receiver


@pytest.mark.parametrize(
    ("momentum", "decay"), [(0.0, 0.5), (0.2, 0.9), (0.4, 0.5), (0.9, 0.0), (0.9, 1.0)]
)
def test_algorithm_1(momentum: float, decay: float) -> None:
    released = releases(40)
    denoise = Denoise(
        TopK(LayerShapes.flat(D), 4, value_bits=64),
        momentum=momentum,
        residual_decay=decay,
        clip_l2=CLIP,
    )
    state, flags = denoise.initial(), []
    for gradient in released:
        message, state = denoise.compress(gradient, state)
        flags.append(message.is_velocity)
    expected, receiver = plain_steps(released, -(-D // 4), momentum, decay, CLIP)
    assert flags == expected
    np.testing.assert_allclose(state.received, receiver, atol=1e-9)


def test_both_ways_are_chosen_and_some_vectors_are_clipped() -> None:
    """Or the comparison above would compare less than it seems to."""
    flags, _ = plain_steps(releases(40), -(-D // 4), 0.0, 0.5, CLIP)
    assert 3 < sum(flags) < 37
    assert 3 < np.count_nonzero(np.linalg.norm(releases(40), axis=1) > CLIP) < 37


@every_inner
def test_sender_and_receiver_agree_bit_for_bit(inner: Compressor[Any]) -> None:
    denoise = Denoise(inner, momentum=0.8, residual_decay=0.9, clip_l2=20.0)
    sender, receiver = denoise.initial(), denoise.initial_receiver()
    for released in releases(15):
        message, sender = denoise.compress(released, sender)
        data = message.encode()
        assert len(data) == message.size_bytes == 1 + message.inner.size_bytes
        receiver = denoise.receive(denoise.decode(data), receiver)
        assert receiver.velocity.tobytes() == sender.received.tobytes()
    assert sender.received.any()


@every_inner
def test_the_filter_is_both_ends(inner: Compressor[Any]) -> None:
    denoise = Denoise(inner, momentum=0.8, residual_decay=0.9)
    state, running = denoise.initial(), DenoiseFilter(denoise)
    outputs = []
    for number, released in enumerate(releases(12)):
        _, state = denoise.compress(released, state)
        outputs.append(running.step(released))
        assert outputs[-1].tobytes() == state.received.tobytes()
        if number == 5:
            running = DenoiseFilter(denoise, running.state)
    kept = [output.copy() for output in outputs]
    outputs[-1][:] = 0.0
    running.step(releases(1)[0])
    for output, copy in zip(outputs[:-1], kept[:-1], strict=True):
        assert output.tobytes() == copy.tobytes(), "an output was written to later"


def test_a_filter_leaves_states_alone() -> None:
    denoise = Denoise(TopK(LAYERS, 8), momentum=0.8, residual_decay=0.9)
    _, state = denoise.compress(releases(1)[0], denoise.initial())
    before = state.velocity.tobytes(), state.received.tobytes(), state.residual.tobytes()
    first, second = DenoiseFilter(denoise, state), DenoiseFilter(denoise, state)
    for released in releases(4):
        assert first.step(released).tobytes() == second.step(released).tobytes()
    taken = first.state
    held = taken.velocity.tobytes()
    for released in releases(4):
        first.step(released)
    assert taken.velocity.tobytes() == held
    assert before == (state.velocity.tobytes(), state.received.tobytes(), state.residual.tobytes())


def test_bad_input_leaves_the_filter_where_it_was() -> None:
    denoise = Denoise(TopK(LAYERS, 8), momentum=0.8, residual_decay=0.9)
    running, other = DenoiseFilter(denoise), DenoiseFilter(denoise)
    for number, released in enumerate(releases(6)):
        if number % 2:
            bad = released.copy()
            bad[number] = np.nan
            with pytest.raises(ValueError, match="released must be finite"):
                running.step(bad)
        assert running.step(released).tobytes() == other.step(released).tobytes()


def test_without_loss_it_is_the_exponential_average() -> None:
    denoise = Denoise(NoCompression(D, 64), momentum=0.75, residual_decay=1.0)
    running, average = DenoiseFilter(denoise), np.zeros(D)
    for released in releases(20):
        average = 0.75 * average + 0.25 * released
        np.testing.assert_allclose(running.step(released), average, atol=1e-12)


def test_changes_and_residual_make_up_the_velocity() -> None:
    """With the whole residual fed back, and as long as changes are sent, nothing gets lost."""
    denoise = Denoise(TopK(LAYERS, 8), momentum=0.9, residual_decay=1.0)
    state, changes = denoise.initial(), 0
    owed = np.zeros(D)
    for released in releases(30):
        message, following = denoise.compress(released, state)
        if message.is_velocity:
            # The receiver has the velocity and the old residual, without what was lost now.
            owed = state.residual
        else:
            changes += 1
        expected = following.velocity + owed - following.residual
        np.testing.assert_allclose(following.received, expected, atol=1e-12)
        state = following
    assert changes > 3


def test_it_removes_noise() -> None:
    """A constant vector in noise: the average is nearer than any release."""
    rng = np.random.default_rng(3)
    truth = np.zeros(D)
    truth[:40] = 1.0
    denoise = Denoise(
        TopK(LayerShapes.flat(D), 8, value_bits=64), momentum=0.95, residual_decay=0.5
    )
    running, errors, raw = DenoiseFilter(denoise), [], []
    for _ in range(150):
        released = truth + rng.normal(size=D)
        errors.append(float(np.sum((running.step(released) - truth) ** 2)))
        raw.append(float(np.sum((released - truth) ** 2)))
    # The variance of the average is (1 - b) / (1 + b) = 0.026 of a release's.
    assert np.mean(errors[100:]) < 0.1 * np.mean(raw)


class TestSecondClip:
    def test_a_mean_is_projected(self) -> None:
        def first_velocity(clip: float | None, released: np.ndarray) -> np.ndarray:
            denoise = Denoise(NoCompression(3, 64), momentum=0.0, residual_decay=0.0, clip_l2=clip)
            return DenoiseFilter(denoise).step(released)

        long = np.array([3.0, 0.0, 4.0])
        np.testing.assert_allclose(first_velocity(1.0, long), long / 5.0)
        assert first_velocity(5.0, long).tolist() == long.tolist()
        assert first_velocity(None, long).tolist() == long.tolist()
        assert first_velocity(1.0, np.zeros(3)).tolist() == [0.0] * 3
        # Squares that overflow or vanish.
        np.testing.assert_allclose(first_velocity(1.0, 1e200 * long), long / 5.0)
        np.testing.assert_allclose(first_velocity(1e-200, 1e-200 * long), 1e-200 * long / 5.0)
        single = long.astype(np.float32)
        np.testing.assert_allclose(first_velocity(1.0, single), long / 5.0)


class TestArguments:
    def test_vectors_and_states(self) -> None:
        denoise = Denoise(NoCompression(3), momentum=0.5, residual_decay=0.5)
        for bad in (np.nan, np.inf):
            with pytest.raises(ValueError, match="released must be finite"):
                denoise.compress(np.array([0.0, bad, 0.0]), denoise.initial())
        with pytest.raises(ValueError, match=r"released must have shape \(3,\), not \(4,\)"):
            denoise.compress(np.zeros(4), denoise.initial())
        with pytest.raises(TypeError, match="released must have dtype"):
            denoise.compress(np.zeros(3, np.int64), denoise.initial())
        message, _ = denoise.compress(np.ones(3), denoise.initial())
        with pytest.raises(ValueError, match=r"state\.velocity must have shape"):
            denoise.receive(message, DenoiseReceiver(np.zeros(4)))
        with pytest.raises(TypeError, match="message must be a DenoiseMessage"):
            denoise.receive(message.inner, denoise.initial_receiver())  # type: ignore[arg-type]

    def test_changes_that_leave_the_doubles(self) -> None:
        """Found by fuzzing: such a receiver went on with infinities."""
        denoise = Denoise(NoCompression(2, 64), momentum=0.5, residual_decay=0.5)
        large = np.array([1.5e308, -1.0])
        message, _ = denoise.compress(large, denoise.initial())
        change = DenoiseMessage(False, NoCompression(2, 64).compress(large, Stateless())[0])
        once = denoise.receive(change, denoise.initial_receiver())
        assert once.velocity.tolist() == large.tolist()
        with pytest.raises(ValueError, match="velocity must be finite"):
            denoise.receive(change, once)
        # A velocity takes the place of what was there.
        assert np.isfinite(denoise.receive(replace(message, is_velocity=True), once).velocity).all()

    def test_bytes(self) -> None:
        denoise = Denoise(NoCompression(3), momentum=0.5, residual_decay=0.5)
        message, _ = denoise.compress(np.ones(3), denoise.initial())
        data = message.encode()
        assert denoise.decode(data).encode() == data
        assert DenoiseMessage(False, message.inner).encode() == b"\x00" + data[1:]
        for wrong in (data[:-1], data + b"\x00", data[:1]):
            with pytest.raises(ValueError, match="data must be 14 bytes"):
                denoise.decode(wrong)
        for wrong in (b"", b"\x02" + data[1:]):
            with pytest.raises(ValueError, match="data must begin with a byte 0 or 1"):
                denoise.decode(wrong)
        with pytest.raises(TypeError, match="data must be bytes, not bytearray"):
            denoise.decode(bytearray(data))  # type: ignore[arg-type]

    def test_repr(self) -> None:
        shown = repr(Denoise(NoCompression(3), momentum=0.5, residual_decay=0.25, clip_l2=2.0))
        assert shown.endswith("momentum=0.5, residual_decay=0.25, clip_l2=2.0)")
