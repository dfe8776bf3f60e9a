"""The k-level mechanism: unbiased, its error as cpSGD states it, its types closed to others."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_statistics import ALPHA, mean_tolerance
from scipy import stats

from dp import Bounded, LevelRelease, NoiseSeed, SensitivityExceededError, clip_l2
from dp.mechanisms.levels import (
    LevelMechanism,
    Levels,
    NoisedLevels,
    level_mse_bound,
    rotated_clip,
)

CLIENTS = 4
DIMENSION = 32
RUNS = 1500
NORM = 2.0
MECHANISMS = [
    LevelMechanism(NORM, NORM, 2, 0),
    LevelMechanism(NORM, NORM, 16, 64),
    LevelMechanism(NORM, NORM, 17, 40, 0.25),
    LevelMechanism(NORM, NORM, 5, 4500),
]


def _clients(generator: np.random.Generator) -> list[Bounded]:
    return [clip_l2(generator.normal(size=DIMENSION), NORM) for _ in range(CLIENTS)]


def _estimates(mechanism: LevelMechanism, clients: list[Bounded]) -> np.ndarray:
    """RUNS independent estimates of the mean, one a row: every vector RUNS times over."""
    total = np.zeros(RUNS * DIMENSION, np.int64)
    for number, client in enumerate(clients):
        many = Bounded(np.tile(client.values, RUNS), NORM * math.sqrt(RUNS))
        seed = NoiseSeed(number.to_bytes(32, "big"))
        # The bound of the pile is larger; that of each copy is what counts.
        wide = LevelMechanism(
            NORM * math.sqrt(RUNS),
            mechanism.clip,
            mechanism.levels,
            mechanism.coins,
            mechanism.probability,
        )
        total += wide.add_noise(wide.quantize(many, seed), seed).values
    return mechanism.estimate(total, len(clients)).reshape(RUNS, DIMENSION)


def _exact_error(mechanism: LevelMechanism, clients: list[Bounded]) -> float:
    """E |estimate - mean|^2 from the fractions that are rounded."""
    squares = 0.0
    for client in clients:
        fractions = (client.values + mechanism.clip) / mechanism.width % 1.0
        squares += float(np.sum(fractions * (1.0 - fractions) + mechanism.variance))
    return squares * mechanism.width**2 / len(clients) ** 2


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_estimates_are_unbiased(mechanism: LevelMechanism, generator: np.random.Generator) -> None:
    clients = _clients(generator)
    mean = np.mean([client.values for client in clients], axis=0)
    deviation = mechanism.width * math.sqrt((0.25 + mechanism.variance) / CLIENTS)
    # A union bound over coordinates: the quantile of ALPHA / DIMENSION.
    widen = stats.norm.isf(ALPHA / 2 / DIMENSION) / stats.norm.isf(ALPHA / 2)
    tolerance = widen * mean_tolerance(deviation, RUNS)
    assert np.abs(_estimates(mechanism, clients).mean(axis=0) - mean).max() <= tolerance


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=repr)
def test_error_is_exact_and_within_theorem_3(
    mechanism: LevelMechanism, generator: np.random.Generator
) -> None:
    clients = _clients(generator)
    mean = np.mean([client.values for client in clients], axis=0)
    errors = np.sum((_estimates(mechanism, clients) - mean) ** 2, axis=1)
    exact = _exact_error(mechanism, clients)
    tolerance = mean_tolerance(float(errors.std()), RUNS)
    assert abs(errors.mean() - exact) <= tolerance
    assert exact <= level_mse_bound(mechanism, DIMENSION, CLIENTS)
    # Broken twin: an error without the rounding, or with all the coins' counted twice.
    wrong = level_mse_bound(mechanism, DIMENSION, CLIENTS) * 2.0
    assert abs(errors.mean() - wrong) > tolerance


def test_theorem_3_as_printed() -> None:
    n, d, k, m, p, norm = 10, 100, 16, 50, 0.25, 3.0
    printed = d * norm**2 / (n * (k - 1) ** 2)
    printed += (d / n) * 4 * m * p * (1 - p) * norm**2 / (k - 1) ** 2
    found = level_mse_bound(LevelMechanism(norm, norm, k, m, p), d, n)
    assert found == pytest.approx(printed, rel=1e-14)


def test_theorem_4_as_printed() -> None:
    n, d, k, m, p, norm, delta = 10, 128, 16, 50, 0.25, 3.0, 1e-3
    log = math.log(2 * n * d / delta)
    printed = 2 * log * norm**2 / (n * (k - 1) ** 2)
    printed += 8 * log * m * p * (1 - p) * norm**2 / (n * (k - 1) ** 2) + 4 * norm**2 * delta**2
    clip = rotated_clip(norm, d, n, delta)
    mechanism = LevelMechanism(norm, clip, k, m, p, rotated=True)
    found = level_mse_bound(mechanism, d, n) + 4 * norm**2 * delta**2
    assert found == pytest.approx(printed, rel=1e-12)


@pytest.mark.statistical
def test_error_with_rotation_is_within_theorem_4(generator: np.random.Generator) -> None:
    """One-hot vectors, the worst without rotation, spread by random signs and Hadamard."""
    delta = 1e-3
    from scipy.linalg import hadamard

    matrix = hadamard(DIMENSION) / math.sqrt(DIMENSION) * generator.choice([-1, 1], DIMENSION)
    clients = [clip_l2(matrix @ (NORM * np.eye(DIMENSION)[i]), NORM) for i in range(CLIENTS)]
    clip = rotated_clip(NORM, DIMENSION, CLIENTS, delta)
    mechanism = LevelMechanism(NORM, clip, 16, 64, rotated=True)
    mean = np.mean([client.values for client in clients], axis=0)
    errors = np.sum((_estimates(mechanism, clients) - mean) ** 2, axis=1)
    bound = level_mse_bound(mechanism, DIMENSION, CLIENTS) + 4 * NORM**2 * delta**2
    assert 0.8 * bound < errors.mean() <= bound + mean_tolerance(float(errors.std()), RUNS)


def test_levels_cover_the_clip_and_no_more(seed: NoiseSeed) -> None:
    mechanism = LevelMechanism(10.0, 1.0, 5, 0)
    values = np.array([-7.0, -1.0, -0.5, 0.0, 0.5, 1.0, 4.0])
    levels = mechanism.quantize(Bounded(values, 10.0), seed)
    assert levels.values.tolist() == [0, 0, 1, 2, 3, 4, 4]
    estimate = mechanism.estimate(mechanism.add_noise(levels, seed).values, 1)
    np.testing.assert_allclose(estimate, np.clip(values, -1, 1), atol=1e-15)


def test_the_event_and_the_range_of_a_sum() -> None:
    mechanism = LevelMechanism(3.0, 1.5, 16, 50, 0.25, rotated=True)
    assert mechanism.event(7, 100) == LevelRelease(350, 0.25, 16, 2.0, 100, True)
    assert mechanism.total_limit(7) == 7 * (15 + 50)


def test_types_do_not_mix(seed: NoiseSeed) -> None:
    mechanism = LevelMechanism(1.0, 1.0, 4, 8)
    with pytest.raises(SensitivityExceededError, match="bounded by"):
        mechanism.quantize(Bounded(np.zeros(3), 2.0), seed)
    with pytest.raises(ValueError, match="4 levels"):
        mechanism.add_noise(Levels(np.zeros(3, np.int64), 5), seed)
    with pytest.raises(SensitivityExceededError, match="level"):
        Levels(np.array([4]), 4)
    with pytest.raises(SensitivityExceededError, match="level"):
        NoisedLevels(np.array([-1]), 4, 8)
    assert NoisedLevels(np.array([11]), 4, 8).coins == 8
