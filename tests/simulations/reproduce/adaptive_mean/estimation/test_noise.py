"""The noise of the central form, against enumerated laws, and what half of it would give."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from dp_statistics import ALPHA, mean_tolerance, variance_tolerance
from numpy.typing import NDArray
from pure_losses import halting, laplace_loss
from scipy import stats

from dp import NoiseSeed, PrivacyError
from dp.events import AboveThresholdRelease
from simulations.reproduce.adaptive_mean.estimation.above_threshold import (
    AboveThreshold,
    HaltedError,
)
from simulations.reproduce.adaptive_mean.estimation.gaussian import GaussianMechanism
from simulations.reproduce.adaptive_mean.estimation.laplace import (
    LaplaceMechanism,
    grid_point,
    steps_for,
)

SAMPLES = 100_000


@pytest.fixture
def seed() -> NoiseSeed:
    """A fixed noise seed: tests of distributions must not depend on luck of the day."""
    return NoiseSeed(bytes(range(32)))


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_laplace_noise_loses_what_its_event_says(epsilon: float) -> None:
    event = LaplaceMechanism(1.0, epsilon).event()
    assert laplace_loss(event) == pytest.approx(epsilon, rel=1e-9)
    assert event.epsilon == pytest.approx(epsilon)


@pytest.mark.statistical
def test_the_mechanism_follows_its_own_event() -> None:
    """Halting times of the code against the enumerated law of its event."""
    mechanism = AboveThreshold(1.0, 1.0, NoiseSeed(bytes(32)))
    event = mechanism.event()
    unit = 1.0 / (event.sensitivity - 1)
    values = (4.0, 1.0, -2.0)
    law = halting(event, tuple(math.floor(v / unit) for v in values))
    counts, runs = np.zeros(4), 3000
    for i in range(runs):
        stream = AboveThreshold(1.0, 1.0, NoiseSeed(i.to_bytes(32, "big")))
        answers = [stream.halted or stream.below(v, 0.0) for v in values]
        counts[answers.index(True) if True in answers else 3] += 1
    assert stats.chisquare(counts, law / law.sum() * runs).pvalue > ALPHA
    weaker = halting(
        AboveThresholdRelease(event.threshold_scale / 2, event.query_scale / 2, 1),
        tuple(math.floor(v / unit) for v in values),
    )
    assert stats.chisquare(counts, weaker / weaker.sum() * runs).pvalue < ALPHA


def test_a_stream_ends_with_its_first_yes() -> None:
    stream = AboveThreshold(1e-3, 1.0)
    assert not stream.below(1.0, 0.0)
    assert not stream.halted
    assert stream.below(-1.0, 0.0)
    assert stream.halted
    with pytest.raises(HaltedError, match="paid"):
        stream.below(1.0, 0.0)
    assert issubclass(HaltedError, PrivacyError)


@pytest.mark.statistical
def test_slack_holds() -> None:
    """Numbers alpha above the threshold go on, those alpha below stop, but for the failure."""
    failure, questions, runs = 0.2, 5, 400

    def p_value(share: float) -> float:
        wrong = 0
        for i in range(runs):
            stream = AboveThreshold(1.0, 1.0, NoiseSeed((7000 + i).to_bytes(32, "big")))
            slack = share * stream.slack(questions, failure)
            early = any(stream.below(slack, 0.0) for _ in range(questions - 1))
            wrong += early or not stream.below(-slack, 0.0)
        return float(stats.binom.sf(wrong - 1, runs, failure))

    assert p_value(1.0) > ALPHA
    assert p_value(0.1) < ALPHA


@pytest.mark.statistical
def test_the_noise_of_a_number() -> None:
    mechanism, runs = LaplaceMechanism(0.5, 2.0), 4000
    draws = [mechanism.release(3.0, NoiseSeed(i.to_bytes(32, "big"))) - 3.0 for i in range(runs)]
    # A Laplace law has deviation sqrt(2) scale; rounding down takes less than a grid step.
    tolerance = mean_tolerance(math.sqrt(2.0) * mechanism.scale, runs) + mechanism.grid
    assert abs(float(np.mean(draws))) < tolerance
    # |noise| has mean and deviation equal to the scale.
    magnitude = float(np.mean(np.abs(draws)))
    assert abs(magnitude - mechanism.scale) < mean_tolerance(mechanism.scale, runs)
    assert abs(magnitude - mechanism.scale / 2) > mean_tolerance(mechanism.scale, runs)
    assert mechanism.scale == pytest.approx(0.25, rel=2e-3)


def test_neighbours_stay_within_the_integer_sensitivity() -> None:
    mechanism = LaplaceMechanism(0.3, 0.7)
    generator = np.random.default_rng(5)
    for value in generator.uniform(-10, 10, 2000):
        gap = grid_point(value + 0.3, mechanism.grid) - grid_point(value, mechanism.grid)
        assert abs(gap) <= mechanism.event().sensitivity


def test_fresh_noise_differs() -> None:
    streams = {AboveThreshold(1.0, 0.5)._threshold for _ in range(20)}
    assert len(streams) > 1


def test_bad_arguments() -> None:
    for sensitivity in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="sensitivity"):
            LaplaceMechanism(sensitivity, 1.0)
        with pytest.raises(ValueError, match="sensitivity"):
            AboveThreshold(sensitivity, 1.0)
    for epsilon in (0.0, -1.0, math.nan, math.inf, 1e-9):
        with pytest.raises(ValueError, match="epsilon"):
            LaplaceMechanism(1.0, epsilon)
        with pytest.raises(ValueError, match="epsilon"):
            AboveThreshold(1.0, epsilon)
    for value in (math.nan, math.inf, 1e300):
        with pytest.raises(ValueError, match="value"):
            grid_point(value, 1.0)
    with pytest.raises(ValueError, match="questions"):
        AboveThreshold(1.0, 1.0).slack(0, 0.1)
    with pytest.raises(ValueError, match="failure"):
        AboveThreshold(1.0, 1.0).slack(1, 1.0)
    assert steps_for(1e6) == steps_for(1.0) == 1024


class TestGaussian:
    @pytest.mark.statistical
    @pytest.mark.parametrize("sigma", [0.01, 1.0, 300.0])
    def test_the_release_is_the_sum_and_gaussian_noise(self, sigma: float, seed: NoiseSeed) -> None:
        mechanism = GaussianMechanism(sigma)
        total = np.arange(SAMPLES, dtype=np.int64) - 50
        noise = mechanism.release(total, seed) - total
        p_value = stats.kstest(noise + 0.0, stats.norm(scale=sigma).cdf).pvalue
        assert p_value > ALPHA
        assert abs(noise.var() - mechanism.server_variance) <= variance_tolerance(
            mechanism.server_variance, SAMPLES
        )

    @pytest.mark.statistical
    def test_half_the_noise_is_rejected(self, seed: NoiseSeed) -> None:
        noise = GaussianMechanism(2.0).release(np.zeros(SAMPLES, np.int64), seed)
        assert stats.kstest(noise, stats.norm(scale=2.0 * math.sqrt(2)).cdf).pvalue < ALPHA

    @pytest.mark.parametrize("sigma", [2.0**-20, 0.3, 255.0, 256.0, 4096.0])
    def test_noise_lies_on_a_fine_lattice(self, sigma: float) -> None:
        mechanism = GaussianMechanism(sigma)
        assert math.ldexp(sigma, mechanism.lattice_bits) >= 256.0
        assert mechanism.server_variance == pytest.approx(sigma**2, rel=2e-6)

    @pytest.mark.parametrize(
        ("total", "error"),
        [
            (np.zeros(3), TypeError),
            (np.array([2**53 + 1]), ValueError),
            (np.array([-(2**63)]), ValueError),
        ],
    )
    def test_bad_totals(self, total: NDArray[Any], error: type[Exception], seed: NoiseSeed) -> None:
        with pytest.raises(error, match="total"):
            GaussianMechanism(2.0).release(total, seed)

    @pytest.mark.parametrize(
        ("sigma", "error"), [(0.0, ValueError), (5000.0, ValueError), (1, TypeError)]
    )
    def test_bad_sigmas(self, sigma: object, error: type[Exception]) -> None:
        with pytest.raises(error, match="sigma"):
            GaussianMechanism(sigma)  # type: ignore[arg-type]
