"""What all mechanisms promise, and what each adds to it."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_statistics import mean_tolerance, variance_tolerance
from scipy import stats

from dp import (
    BinomialMechanism,
    BinomialRelease,
    Coins,
    DiscreteGaussianMechanism,
    DiscreteGaussianRelease,
    Mechanism,
    Noised,
    NoiseSeed,
    Quantized,
    Sensitivities,
    SensitivityExceededError,
    SkellamMechanism,
    SkellamRelease,
)
from dp.mechanisms import DistributedMechanism, mechanism_of
from dp.mechanisms.limits import skellam_limit, sub_gaussian_limit

MECHANISMS: list[Mechanism] = [
    BinomialMechanism(64),
    BinomialMechanism(33),
    BinomialMechanism(5000),
    DiscreteGaussianMechanism(20.0),
    DiscreteGaussianMechanism(0.3),
    SkellamMechanism(17.5),
]
UNBOUNDED = [DiscreteGaussianMechanism(20.0), SkellamMechanism(0.5), SkellamMechanism(17.5)]
SAMPLES = 100_000
SENSITIVITIES = Sensitivities(16.0, 4)
ids = {"ids": repr}


def _signal(length: int = 1001) -> Quantized:
    return Quantized(np.arange(length) % 9 - 4, 25 * length, 4)


@pytest.mark.parametrize("mechanism", MECHANISMS, **ids)
class TestEveryMechanism:
    def test_noise_is_added_and_named(self, mechanism: Mechanism, seed: NoiseSeed) -> None:
        signal = _signal()
        noised = mechanism.add_noise(signal, seed)
        assert noised.noise == mechanism.noise
        assert (noised.square_bound, noised.linf_bound) == (signal.square_bound, 4)
        zero = Quantized(np.zeros(1001, np.int64), 1, 4)
        noise = mechanism.add_noise(zero, seed).values
        np.testing.assert_array_equal(noised.values - signal.values, noise)
        assert not noised.values.flags.writeable

    @pytest.mark.statistical
    def test_moments_are_the_stated_ones(self, mechanism: Mechanism, seed: NoiseSeed) -> None:
        zero = Quantized(np.zeros(SAMPLES, np.int64), 1, 1)
        noise = mechanism.add_noise(zero, seed).values
        variance = mechanism.variance
        offset = mechanism.residual_offset
        assert abs(noise.mean() - offset) <= mean_tolerance(math.sqrt(variance), SAMPLES)
        # Kurtosis of these laws is at most that of Skellam, 3 + 1 / variance.
        tolerance = variance_tolerance(variance, SAMPLES)
        if variance:
            tolerance *= math.sqrt(1.0 + 0.5 / variance)
        assert abs(noise.var() - variance) <= tolerance

    @pytest.mark.statistical
    def test_sums_stay_within_their_limit(self, mechanism: Mechanism) -> None:
        total = np.zeros(20_000, np.int64)
        for client in range(5):
            zero = Quantized(np.zeros(total.size, np.int64), 1, 1)
            total += mechanism.add_noise(zero, NoiseSeed(bytes([client]) * 32)).values
        assert np.abs(total).max() <= mechanism.total_limit(5, total.size, 1e-9)

    def test_it_describes_itself(self, mechanism: Mechanism) -> None:
        assert (
            mechanism.event(SENSITIVITIES, 10, 100)
            == {
                BinomialMechanism(64): BinomialRelease(640, 16.0, 4, 100),
                BinomialMechanism(33): BinomialRelease(330, 16.0, 4, 100),
                BinomialMechanism(5000): BinomialRelease(50_000, 16.0, 4, 100),
                DiscreteGaussianMechanism(20.0): DiscreteGaussianRelease(20.0, 10, 16.0, 4, 100),
                DiscreteGaussianMechanism(0.3): DiscreteGaussianRelease(0.3, 10, 16.0, 4, 100),
                SkellamMechanism(17.5): SkellamRelease(175.0, 16.0, 4, 100),
            }[mechanism]
        )


def test_bounded_noise_has_a_sure_limit() -> None:
    assert BinomialMechanism(33).total_limit(10, 1, 0.0) == 170
    # Two odd batches, each centred for itself, reach a unit further.
    assert BinomialMechanism(34).total_limit(10, 1, 0.0, batches=2) == 180
    assert BinomialMechanism(33).total_limit(10, 1, 0.5) == 21


@pytest.mark.parametrize("mechanism", UNBOUNDED, **ids)
def test_unbounded_noise_has_none(mechanism: Mechanism) -> None:
    with pytest.raises(ValueError, match="wrap_probability"):
        mechanism.total_limit(10, 1, 0.0)


@pytest.mark.parametrize("mechanism", MECHANISMS[:6], **ids)
def test_a_mechanism_is_its_name_and_its_amount(mechanism: DistributedMechanism) -> None:
    assert mechanism_of(mechanism.name, mechanism.amount) == mechanism


@pytest.mark.parametrize("probability", [1e-3, 1e-9, 1e-30])
@pytest.mark.parametrize("total_variance", [0.01, 1.0, 30.0, 1000.0])
def test_skellam_limit_against_the_law(total_variance: float, probability: float) -> None:
    """It holds, and the tail a third of the way in from it does not."""
    limit = skellam_limit(total_variance, 7, probability)
    mean = mpmath.mpf(total_variance)

    def tail(t: int) -> mpmath.mpf:
        return 14 * mpmath.nsum(
            lambda k: mpmath.exp(-mean) * mpmath.besseli(int(k), mean), [t, t + 400]
        )

    assert tail(limit) <= probability
    assert tail(max(int(limit * 0.66), 1)) > probability


@pytest.mark.parametrize("probability", [1e-3, 1e-12])
def test_gaussian_limit(probability: float) -> None:
    limit = sub_gaussian_limit(400.0, 10, probability)
    assert 20 * stats.norm.sf(limit / 20.0) <= probability
    assert 20 * stats.norm.sf(0.8 * limit / 20.0) > probability


@pytest.mark.parametrize("mechanism", UNBOUNDED, **ids)
def test_the_smallest_wrap_probability_that_is_a_float(mechanism: Mechanism) -> None:
    assert 0 < mechanism.total_limit(10, 1 << 30, 5e-324) < 10_000


def test_a_larger_cohort_or_vector_needs_more_room() -> None:
    for mechanism in UNBOUNDED:
        limits = [mechanism.total_limit(n, d, 1e-9) for n, d in ((1, 1), (10, 1), (10, 1000))]
        assert limits == sorted(set(limits))


def test_unbounded_noise_excludes_no_value() -> None:
    far = np.array([10**12, -(10**12)])
    assert Noised(far, SkellamMechanism(1.0).noise, 9, 3).values is far
    with pytest.raises(SensitivityExceededError):
        Noised(far.copy(), Coins(64), 9, 3)
