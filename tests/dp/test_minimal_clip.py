"""The clip of least error: closed forms against the definition, and controllers in closed loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dp.minimal_clip import (
    ClipController,
    ClipState,
    ReleasedMean,
    least_error_clip,
    next_threshold,
    shrinkage,
)

ALPHA = 1e-6
CASES = [(2.0, None, 100, 0.05), (2.0, 0.5, 100, 0.05), (1e-3, 1e-3, 7, 3.0), (5.0, 0.1, 10, 1e-3)]


def clip_error(
    clip: float, norm: float, dimension: int, noise_ratio: float, mean_norm: float | None = None
) -> float:
    """Return error(C), b^2 max(0, 1 - C / a)^2 + d s^2 C^2; b is a where no mean is given."""
    mean = norm if mean_norm is None else mean_norm
    return (mean * max(0.0, 1.0 - clip / norm)) ** 2 + dimension * (noise_ratio * clip) ** 2


@pytest.mark.parametrize(("norm", "mean", "dimension", "ratio"), CASES)
def test_the_clip_has_the_least_error(
    norm: float, mean: float | None, dimension: int, ratio: float
) -> None:
    best = least_error_clip(norm, dimension, ratio, mean_norm=mean)
    assert 0.0 < best <= norm
    least = clip_error(best, norm, dimension, ratio, mean_norm=mean)
    others = best * np.concatenate([np.geomspace(1e-3, 0.999, 200), np.geomspace(1.001, 1e3, 200)])
    assert all(least < clip_error(c, norm, dimension, ratio, mean_norm=mean) for c in others)


def test_for_one_vector_it_is_the_formula_of_the_thesis() -> None:
    assert least_error_clip(3.0, 50, 0.2) == pytest.approx(3.0 / (1.0 + 50 * 0.2**2))
    assert clip_error(1.0, 3.0, 50, 0.2) == pytest.approx((3.0 - 1.0) ** 2 + 50 * 0.2**2)
    assert clip_error(4.0, 3.0, 50, 0.2) == pytest.approx(50 * (0.2 * 4.0) ** 2)


def vectors(count: int, dimension: int, norm: float, common: float) -> NDArray[np.float64]:
    """Vectors of one norm with a common part."""
    rng = np.random.default_rng(1)
    found = rng.standard_normal((count, dimension)) + common
    return norm * found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.mark.parametrize("clip", [0.5, 1.9, 2.5])
def test_the_error_is_that_of_clipped_vectors(clip: float) -> None:
    members = vectors(20, 30, 2.0, 0.5)
    mean = members.mean(axis=0)
    clipped = np.minimum(1.0, clip / 2.0) * mean
    bias = float(np.sum((clipped - mean) ** 2))
    expected = bias + 30 * (0.1 * clip) ** 2
    length = float(np.linalg.norm(mean))
    assert clip_error(clip, 2.0, 30, 0.1, mean_norm=length) == pytest.approx(expected)


def test_the_limits_of_the_shrinkage() -> None:
    assert least_error_clip(2.0, 10, 0.0) == 2.0
    assert least_error_clip(0.0, 10, 0.3) == 0.0
    assert shrinkage(0.0, 10, 0.1) == 0.0
    assert shrinkage(0.5, 10, 0.0) == shrinkage(0.0, 10, 0.0) == 1.0
    assert shrinkage(1.0, 1_000_000, 1e-3) == pytest.approx(0.5)


def released(
    members: NDArray[np.float64], clip: float, ratio: float, rng: np.random.Generator
) -> ReleasedMean:
    """Clip, average, noise: what a round releases."""
    norms = np.linalg.norm(members, axis=1, keepdims=True)
    mean = np.mean(members * np.minimum(1.0, clip / norms), axis=0)
    mean += ratio * clip * rng.standard_normal(mean.size)
    return ReleasedMean(
        clip=clip, norm_squared=float(mean @ mean), noise_ratio=ratio, dimension=mean.size
    )


@pytest.mark.statistical
def test_the_coherence_is_estimated_without_bias() -> None:
    members, clip, ratio, rng = vectors(20, 300, 2.0, 0.2), 1.0, 0.02, np.random.default_rng(2)
    truth = float(np.sum((members.mean(axis=0) * clip / 2.0) ** 2)) / clip**2
    found = [released(members, clip, ratio, rng) for _ in range(400)]
    estimates = np.array([one.coherence_squared for one in found])
    noise = ratio**2
    variance = 4.0 * noise * truth + 2.0 * 300 * noise**2
    tolerance = stats.norm.isf(ALPHA / 2.0) * math.sqrt(variance / len(estimates))
    assert abs(estimates.mean() - truth) < tolerance
    # What is released without the noise taken away is far off.
    assert abs(np.mean([one.norm_squared / clip**2 for one in found]) - truth) > tolerance
    predicted = np.mean([one.coherence_variance for one in found])
    assert predicted == pytest.approx(variance, rel=0.1)


@pytest.mark.statistical
@pytest.mark.parametrize("start", [0.02, 50.0])
def test_a_closed_loop_ends_where_the_error_is_least(start: float) -> None:
    members, ratio, rng = vectors(50, 400, 2.0, 0.3), 0.01, np.random.default_rng(3)
    controller = ClipController(smallest=0.01, largest=100.0, window=20)
    state = controller.initial(start)
    for _ in range(60):
        decision = controller.step(state, released(members, state.clip, ratio, rng), 2.0, 400)
        assert 1.0 / 1.5 <= decision.state.clip / state.clip * (1.0 + 1e-12) <= 1.5 * (1.0 + 2e-12)
        state = decision.state
    length = float(np.linalg.norm(members.mean(axis=0)))
    best = least_error_clip(2.0, 400, ratio, mean_norm=length)
    # r^2 is 20 averaged estimates; the shrinkage r^2 / (r^2 + d s^2) moves by less than they do.
    spread = math.sqrt((4.0 * ratio**2 * length**2 / 4.0 + 2.0 * 400 * ratio**4) / 20)
    tolerance = stats.norm.isf(ALPHA / 2.0) * spread / (length / 2.0) ** 2
    assert state.clip == pytest.approx(best, rel=tolerance)
    assert tolerance < 0.5 and best < 1.99


def test_following_the_mean_alone_shrinks_for_ever() -> None:
    """No mean is longer than its clip, so as a typical norm it drags the clip down."""
    members, rng = vectors(50, 400, 2.0, 0.3), np.random.default_rng(3)
    controller = ClipController(smallest=0.01, largest=100.0, window=1)
    state, clips = controller.initial(5.0), []
    for _ in range(80):
        one = released(members, state.clip, 0.01, rng)
        length = state.clip * math.sqrt(max(one.coherence_squared, 1e-12))
        state = controller.step(state, one, length, 400).state
        clips.append(state.clip)
    assert clips[-1] == 0.01 < 0.1 < min(clips[:3])


def test_the_limits_hold_and_noise_alone_asks_for_nothing() -> None:
    controller = ClipController(smallest=0.5, largest=3.0, step_factor=2.0, window=1)
    state = controller.initial(2.0)
    nothing = ReleasedMean(clip=2.0, norm_squared=0.0, noise_ratio=0.1, dimension=50)
    decision = controller.step(state, nothing, 2.0, 50)
    assert decision.wanted == 0.0 and decision.state.clip == 1.0
    low = ReleasedMean(clip=1.0, norm_squared=0.0, noise_ratio=0.1, dimension=50)
    decision = controller.step(decision.state, low, 2.0, 50)
    assert decision.state.clip == 0.5 == decision.numbers["clip"]
    high = ReleasedMean(clip=2.0, norm_squared=4.5, noise_ratio=1e-6, dimension=50)
    decision = controller.step(state, high, 100.0, 50)
    assert decision.wanted == pytest.approx(100.0) and decision.state.clip == 3.0
    assert len(decision.state.memory) == 1


def test_short_vectors_are_seen_whole() -> None:
    """With a below C the mean came through unclipped: its share is of a, not of C."""
    controller = ClipController(smallest=0.01, largest=100.0)
    one = ReleasedMean(clip=10.0, norm_squared=1.0, noise_ratio=1e-9, dimension=5)
    decision = controller.step(ClipState(10.0), one, 2.0, 5)
    assert decision.numbers["coherence"] == pytest.approx(0.5)


@pytest.mark.statistical
def test_a_threshold_follows_the_median() -> None:
    rng = np.random.default_rng(4)
    norms = np.exp(rng.standard_normal(501))
    threshold, seen = 30.0, []
    for step in range(400):
        share = float(np.mean(norms <= threshold)) + 0.05 * float(rng.standard_normal())
        threshold = next_threshold(threshold, share)
        if step >= 200:
            seen.append(threshold)
    median, slope = float(np.median(norms)), 0.2 * stats.norm.pdf(0.0)
    # Near the median log T is an autoregression: its law, and that of a mean of 200, are normal.
    single = 0.2 * 0.05 / math.sqrt(1.0 - (1.0 - slope) ** 2)
    tolerance = stats.norm.isf(ALPHA / 2.0) * single * math.sqrt(2.0 / slope / 200)
    # The sample's own distribution function has steps of 1 / 501.
    assert abs(np.mean(np.log(seen)) - math.log(median)) < tolerance + 0.02
    assert tolerance < 0.2


def test_a_share_outside_its_range_counts_as_the_nearest() -> None:
    assert next_threshold(1.0, -0.3) == next_threshold(1.0, 0.0) == pytest.approx(math.exp(0.1))
    assert next_threshold(1.0, 1.7) == next_threshold(1.0, 1.0) == pytest.approx(math.exp(-0.1))
    assert next_threshold(2.0, 0.9, quantile=0.9) == 2.0


@pytest.mark.parametrize(
    ("call", "error", "pattern"),
    [
        (lambda: least_error_clip("1", 5, 0.1), TypeError, "norm must be a real number, got str"),
        (lambda: least_error_clip(-1.0, 5, 0.1), ValueError, "norm must .* at least 0"),
        (lambda: least_error_clip(math.inf, 5, 0.1), ValueError, "norm must be finite"),
        (lambda: least_error_clip(1.0, 0, 0.1), ValueError, "dimension must be at least 1, got 0"),
        (lambda: least_error_clip(1.0, 2.0, 0.1), TypeError, "dimension must be an int"),
        (lambda: least_error_clip(1.0, 5, -0.1), ValueError, "noise_ratio must"),
        (lambda: least_error_clip(1.0, 5, 0.1, mean_norm=1.5), ValueError, "mean_norm must"),
        (lambda: shrinkage(1.1, 5, 0.1), ValueError, "coherence must .* at most 1"),
        (lambda: ClipController(smallest=0.0, largest=1.0), ValueError, "smallest must"),
        (lambda: ClipController(smallest=2.0, largest=1.0), ValueError, "largest must"),
        (
            lambda: ClipController(smallest=1.0, largest=2.0, step_factor=1.0),
            ValueError,
            "step_factor must",
        ),
        (
            lambda: ClipController(smallest=1.0, largest=2.0, window=0),
            ValueError,
            "window must be at least 1",
        ),
        (lambda: ClipController(smallest=1.0, largest=2.0).initial(3.0), ValueError, "clip must"),
        (lambda: next_threshold(0.0, 0.5), ValueError, "threshold must"),
        (lambda: next_threshold(1.0, math.nan), ValueError, "share_below must be finite"),
        (lambda: next_threshold(1.0, 0.5, quantile=1.0), ValueError, "quantile must be below 1"),
        (lambda: next_threshold(1.0, 0.5, quantile=0.0), ValueError, "quantile must"),
        (lambda: next_threshold(1.0, 0.5, rate=11.0), ValueError, "rate must .* at most 10"),
    ],
)
def test_bad_arguments_are_named(call: object, error: type[Exception], pattern: str) -> None:
    with pytest.raises(error, match=pattern):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "value"),
    [("clip", 0.0), ("norm_squared", -1.0), ("norm_squared", math.nan), ("noise_ratio", 0.0)],
)
def test_a_release_without_noise_or_sense_is_refused(name: str, value: float) -> None:
    fields = {"clip": 1.0, "norm_squared": 1.0, "noise_ratio": 0.1, "dimension": 5}
    with pytest.raises(ValueError, match=f"{name} must be finite"):
        ReleasedMean(**(fields | {name: value}))  # type: ignore[arg-type]


def test_a_controller_takes_the_release_of_its_own_round_only() -> None:
    controller = ClipController(smallest=0.1, largest=2.0)
    state = controller.initial(1.0)
    other = ReleasedMean(clip=1.5, norm_squared=1.0, noise_ratio=0.1, dimension=5)
    with pytest.raises(ValueError, match=r"released\.clip must be 1\.0, got 1\.5"):
        controller.step(state, other, 1.0, 5)
    with pytest.raises(TypeError, match="released must be ReleasedMean, got float"):
        controller.step(state, 1.0, 1.0, 5)  # type: ignore[arg-type]
    own = ReleasedMean(clip=1.0, norm_squared=1.0, noise_ratio=0.1, dimension=5)
    for norm in (0.0, math.nan):
        with pytest.raises(ValueError, match="typical_norm must be finite"):
            controller.step(state, own, norm, 5)
