"""The noise of the central form, against enumerated laws, and what half of it would give."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_statistics import ALPHA, mean_tolerance
from pure_losses import halting, laplace_loss
from scipy import stats

from dp import NoiseSeed, PrivacyError
from dp.events import AboveThresholdRelease
from simulations.reproduce.adaptive_mean.estimation.laplace import (
    AboveThreshold,
    HaltedError,
    LaplaceMechanism,
    grid_point,
    steps_for,
)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 2.0])
def test_laplace_noise_loses_what_its_event_says(epsilon: float) -> None:
    event = LaplaceMechanism(1.0, epsilon).event
    assert laplace_loss(event) == pytest.approx(epsilon, rel=1e-9)
    assert event.epsilon == pytest.approx(epsilon)


@pytest.mark.statistical
@pytest.mark.slow
def test_the_mechanism_follows_its_own_event() -> None:
    """Halting times of the code against the enumerated law of its event."""
    mechanism = AboveThreshold(1.0, 1.0, NoiseSeed(bytes(32)))
    event = mechanism.event
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
        assert abs(gap) <= mechanism.event.sensitivity


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
