"""What is believed of a norm: the filter by hand, surprises, and intervals that are honest."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, norm
from sketch_kit import ALPHA, assert_mean, estimated, releases_of

from sketch import spec_for_size
from sketch.controllers import ReleasedStats, norm_belief
from sketch.controllers.norm_belief import (
    DRIFT,
    SURPRISE,
    NormBelief,
    believed,
    believed_after,
    believed_measured,
)
from sketch.error import norm_estimate_variance

FEW = st.lists(st.tuples(st.floats(-1.0, 1.0), st.floats(0.5, 50.0)), min_size=1, max_size=8)
"""Estimates, and variances so large that none of them is a surprise."""


class TestFilter:
    def test_the_first_estimate_is_all_there_is(self) -> None:
        assert believed(None, -0.3, 2.0) == NormBelief(-0.3, 2.0)

    @given(FEW)
    def test_without_drift_it_is_the_mean_by_precision(
        self, seen: list[tuple[float, float]]
    ) -> None:
        """The sum of e / R over that of 1 / R, with variance 1 over the latter."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(norm_belief, "DRIFT", 0.0)
            belief = None
            for estimate, variance in seen:
                belief = believed(belief, estimate, variance)
        assert belief is not None
        precision = math.fsum(1.0 / variance for _, variance in seen)
        mean = math.fsum(estimate / variance for estimate, variance in seen) / precision
        assert belief.squared == pytest.approx(mean, abs=1e-12)
        assert belief.variance == pytest.approx(1.0 / precision)

    @given(FEW)
    def test_with_drift_it_is_regression_on_all_estimates(
        self, seen: list[tuple[float, float]]
    ) -> None:
        """The same answer from all estimates at once, with no filter in it.

        Estimate i is the last norm, less what it moved since, plus noise: their covariance is
        R_i on the diagonal and the drift that both have still before them, and the best linear
        estimate weighs them by its inverse.
        """
        belief, drifts = None, []
        for estimate, variance in seen:
            if belief is not None:
                drifts.append(DRIFT**2 * (belief.squared**2 + belief.variance + variance))
            belief = believed(belief, estimate, variance)
        assert belief is not None
        count = len(seen)
        ahead = [math.fsum(drifts[i:]) for i in range(count)]
        covariance = np.array(
            [[ahead[max(i, j)] for j in range(count)] for i in range(count)]
        ) + np.diag([variance for _, variance in seen])
        weights = np.linalg.solve(covariance, np.ones(count))
        mean = weights @ [estimate for estimate, _ in seen] / weights.sum()
        assert belief.squared == pytest.approx(mean, abs=1e-9)
        assert belief.variance == pytest.approx(1.0 / weights.sum())

    def test_sure_estimates_are_followed_at_once(self) -> None:
        """What was known before of a norm that moves as usual counts for next to nothing."""
        belief = believed(None, 100.0, 1e-4)
        for estimate in (108.0, 95.0, 104.0):
            belief = believed(belief, estimate, 1e-4)
            assert belief.squared == pytest.approx(estimate, abs=1e-4)
            assert belief.std == pytest.approx(0.01, rel=1e-3)

    def test_noisy_ones_are_averaged(self) -> None:
        """Ten of them are as sure as one with a tenth of the variance, beside some drift."""
        belief = None
        for estimate in (15.0, -5.0) * 5:
            belief = believed(belief, estimate, 100.0)
        assert belief is not None
        assert belief.squared == pytest.approx(5.0, abs=0.5)
        assert math.sqrt(10.0) < belief.std < 1.2 * math.sqrt(10.0)

    @pytest.mark.parametrize("side", [1.0, -1.0])
    def test_beyond_the_border_an_estimate_leaves_doubt(self, side: float) -> None:
        """The border is three deviations of what belief, drift and estimate explain together."""
        before, variance = NormBelief(10.0, 4.0), 9.0
        spread = 4.0 + DRIFT**2 * (100.0 + 4.0 + variance) + variance
        border = SURPRISE * math.sqrt(spread)
        beyond, short = (10.0 + side * border * factor for factor in (1.001, 0.999))
        doubtful = believed(before, beyond, variance)
        assert doubtful.variance == pytest.approx((beyond - doubtful.squared) ** 2)
        after = believed(before, short, variance)
        gain = (spread - variance) / spread
        assert after.squared == pytest.approx(10.0 + gain * (short - 10.0))
        assert after.variance == pytest.approx(gain * variance)
        assert after.variance < doubtful.variance
        # The mean itself has no jump at the border.
        assert doubtful.squared == pytest.approx(after.squared, abs=0.01 * border)

    @pytest.mark.parametrize("side", [-1.0, 1.0])
    def test_what_is_no_chance_is_followed_whole(self, side: float) -> None:
        """Five deviations: two of them whole, the rest by its weight, and the gap is in doubt."""
        start, noise = NormBelief(10.0, 1.0), 2.0
        spread = 1.0 + DRIFT**2 * 103.0 + noise
        far = 10.0 + side * 5.0 * math.sqrt(spread)
        found = believed(start, far, noise)
        gain = (spread - noise) / spread
        moved = (2.0 + gain * SURPRISE) * math.sqrt(spread)
        assert found.squared == pytest.approx(10.0 + side * moved)
        assert found.variance == pytest.approx((far - found.squared) ** 2)
        # A second one like it is believed.
        again = believed(found, far, noise)
        assert abs(again.squared - far) < 0.35 * abs(found.squared - far)
        assert again.std < 2.0

    @given(st.lists(st.tuples(st.floats(-1e3, 1e3), st.floats(1e-3, 1e3)), min_size=1, max_size=20))
    def test_whatever_comes_it_is_a_belief(self, seen: list[tuple[float, float]]) -> None:
        """No less sure than its last estimate, or than the gap to it; its end is above its mean."""
        belief = None
        for estimate, variance in seen:
            belief = believed(belief, estimate, variance)
            most = max(variance, (estimate - belief.squared) ** 2)
            assert 0.0 < belief.variance <= most * (1.0 + 1e-6)
            assert belief.upper(0.0) == belief.likely >= 0.0
            assert belief.likely <= belief.upper(1.0) <= belief.upper(2.0)
            assert NormBelief.of(belief.memory) == belief

    def test_before_the_first_release_there_is_none(self) -> None:
        assert NormBelief.of(()) is None

    def test_a_negative_belief_is_a_norm_of_zero_but_is_not_forgotten(self) -> None:
        belief = NormBelief(-2.0, 9.0)
        assert belief.likely == 0.0
        assert belief.upper(1.0) == 3.0
        assert belief.upper(0.5) == 1.5
        assert belief.numbers() == {"norm_squared": 0.0, "norm_squared_std": 3.0}
        assert believed(belief, 2.0, 9.0).squared == pytest.approx(0.0, abs=0.05)


def released(size: int, estimate: float) -> ReleasedStats:
    """A release with this norm estimate, under noise of 1e-2."""
    return estimated(estimate, size, 1e-2, 0, dimension=1000, survivors=5)


class TestReleases:
    def test_the_first_one_is_as_sure_as_its_own_estimate_says(self) -> None:
        belief = believed_after(None, released(60, 0.5))
        assert belief.squared == pytest.approx(0.5)
        assert belief.variance == pytest.approx(norm_estimate_variance(60, 0.5, 0.0, 1e-2))

    def test_later_ones_are_as_sure_as_was_expected(self) -> None:
        """Not as they say themselves: a low estimate would be surer than a high one."""
        before = NormBelief(0.5, 0.01)
        variance = norm_estimate_variance(60, 0.5, 0.0, 1e-2)
        for estimate in (0.2, 0.5, 0.8):
            found = believed_after(before, released(60, estimate))
            expected = believed(before, estimate, variance)
            assert found.memory == pytest.approx(expected.memory)

    def test_a_negative_one_is_as_sure_as_noise_alone(self) -> None:
        belief = believed_measured(None, -0.1, 60, 1e-2)
        assert belief.variance == pytest.approx(2.0 * 60 * 1e-4)
        after = believed_measured(NormBelief(-0.1, 1e9), 0.1, 60, 1e-2)
        assert after.variance == pytest.approx(2.0 * 60 * 1e-4, rel=1e-3)


DIMENSION, CHAINS, LENGTH, NOISE = 400, 300, 5, 1e-3
"""Chains of releases of one mean, each of which ends in a belief."""

Chains = list[list[ReleasedStats]]


@pytest.fixture(scope="module")
def chains() -> Callable[[int, float], Chains]:
    """Chains of real releases at one size L, of a mean with |mu|^2 = signal L sigma^2."""

    @cache
    def made(size: int, signal: float) -> Chains:
        mean = np.random.default_rng(5).normal(size=DIMENSION)
        mean *= math.sqrt(signal * size * NOISE / float(mean @ mean))
        spec = spec_for_size(DIMENSION, size)
        assert spec.main_size == size
        stats = list(releases_of(spec, mean, NOISE, CHAINS * LENGTH))
        return [stats[start : start + LENGTH] for start in range(0, len(stats), LENGTH)]

    return made


def misses(chains: Chains, norm_squared: float, deviations: float) -> int:
    """How many chains end in a belief whose interval does not hold the norm."""
    missed = 0
    for chain in chains:
        belief = None
        for stats in chain:
            belief = believed_after(belief, stats)
        assert belief is not None
        missed += abs(belief.squared - norm_squared) > deviations * belief.std
    return missed


SURPRISED = LENGTH * 2.0 * norm.sf(SURPRISE)
"""Chance that a chain was surprised, and so may miss for that; one in seventy."""


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("size", "signal"),
    [
        (150, 1.0),
        pytest.param(150, 0.1, marks=pytest.mark.slow),
        pytest.param(60, 0.1, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("deviations", [1.0, 2.0])
@pytest.mark.slow
def test_intervals_are_honest(
    chains: Callable[[int, float], Chains],
    monkeypatch: pytest.MonkeyPatch,
    size: int,
    signal: float,
    deviations: float,
) -> None:
    """A norm that stays is outside one and two deviations as often as a normal variable is.

    Without drift, which is a slack that this norm does not need. The count is binomial.
    """
    monkeypatch.setattr(norm_belief, "DRIFT", 0.0)
    missed = misses(chains(size, signal), signal * size * NOISE, deviations)
    outside = 2.0 * norm.sf(deviations)
    assert binom.ppf(ALPHA, CHAINS, outside) <= missed
    assert missed <= binom.isf(ALPHA, CHAINS, outside + SURPRISED)


def forgetful(size: int, norm_squared: float, fourth: float, noise: float) -> float:
    """A variance without 2 L sigma^4, the noise's own part."""
    whole = norm_estimate_variance(size, norm_squared, fourth, noise)
    return whole - 2.0 * size * noise * noise * (1.0 - 1e-6)


def overlapping(size: int, norm_squared: float, fourth: float, noise: float) -> float:
    """A variance without that of the hashes, and that of noise and signal together."""
    return norm_estimate_variance(size, 0.0, fourth, noise)


@pytest.mark.statistical
@pytest.mark.parametrize(("twin", "signal"), [(forgetful, 0.1), (overlapping, 1.0)])
@pytest.mark.slow
def test_intervals_of_a_variance_that_forgets_a_part_are_not(
    chains: Callable[[int, float], Chains],
    monkeypatch: pytest.MonkeyPatch,
    twin: Callable[..., float],
    signal: float,
) -> None:
    """The broken twins of the test above miss far more often than it lets pass."""
    monkeypatch.setattr(norm_belief, "DRIFT", 0.0)
    monkeypatch.setattr(norm_belief, "norm_estimate_variance", twin)
    missed = misses(chains(150, signal), signal * 150 * NOISE, 2.0)
    assert missed > binom.isf(ALPHA, CHAINS, 2.0 * norm.sf(2.0) + SURPRISED)


@pytest.mark.statistical
@pytest.mark.slow
def test_estimates_weighed_by_what_was_expected_have_no_bias(
    chains: Callable[[int, float], Chains], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the norm was known before as surely as a release tells it.

    The twin takes each estimate for as sure as it says itself, so that low ones weigh more.
    """
    monkeypatch.setattr(norm_belief, "DRIFT", 0.0)
    monkeypatch.setattr(norm_belief, "SURPRISE", math.inf)
    norm_squared = 60 * NOISE
    known = NormBelief(norm_squared, norm_estimate_variance(60, norm_squared, 0.0, NOISE))
    ours, theirs = [], []
    for stats in itertools.chain(*chains(60, 1.0)):
        ours.append(believed_after(known, stats).squared)
        itself = believed_after(None, stats)
        theirs.append(believed(known, itself.squared, itself.variance).squared)
    assert_mean(np.array(ours), norm_squared)
    with pytest.raises(AssertionError, match="mean off"):
        assert_mean(np.array(theirs), norm_squared)
