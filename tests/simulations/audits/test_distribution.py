"""The law test keeps its level, has the power that it states, and rejects wrong laws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from dp import BinomialRelease, DiscreteGaussianRelease, SkellamRelease
from secagg import ParameterError
from simulations.audits.base import ALPHA, Floats
from simulations.audits.distribution import LawTest, chi_square, independence_test, noise_test

pytestmark = pytest.mark.statistical


def coins(count: int, size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).binomial(count, 0.5, size) - count / 2.0


def binomial_noise_test(noise: Floats, count: int, alpha: float = ALPHA) -> LawTest:
    return noise_test(noise, BinomialRelease(count, 0.0, 1, 1), alpha)


@pytest.mark.parametrize("count", [2, 7, 64, 1001, 70_992, 5_000_000])
def test_coins_pass(count: int) -> None:
    test = binomial_noise_test(coins(count, 20_000), count)
    assert not test.rejected, test


def _other(claimed: SkellamRelease | DiscreteGaussianRelease, seed: int) -> np.ndarray:
    """20,000 sums of the claimed law, by NumPy's Poisson and by rejection."""
    rng, size = np.random.default_rng(seed), 20_000
    if isinstance(claimed, SkellamRelease):
        drawn = rng.poisson(claimed.variance / 2, (2, size))
        return (drawn[0] - drawn[1]).astype(float)
    points = np.arange(-200, 201)
    masses = np.exp(-(points**2) / (2.0 * claimed.local_variance))
    shape = (claimed.contributors, size)
    return rng.choice(points, shape, p=masses / masses.sum()).sum(axis=0).astype(float)


OTHERS = [
    SkellamRelease(2.0, 1.0, 1, 1),
    SkellamRelease(500.0, 1.0, 1, 1),
    DiscreteGaussianRelease(1.6, 7, 1.0, 1, 1),
    DiscreteGaussianRelease(300.0, 3, 1.0, 1, 1),
]


@pytest.mark.parametrize("claimed", OTHERS, ids=repr)
def test_other_noise_passes_and_thinner_is_found(
    claimed: SkellamRelease | DiscreteGaussianRelease,
) -> None:
    assert not noise_test(_other(claimed, 1), claimed).rejected
    thinner = (
        replace(claimed, variance=0.8 * claimed.variance)
        if isinstance(claimed, SkellamRelease)
        else replace(claimed, local_variance=0.8 * claimed.local_variance)
    )
    found = noise_test(_other(thinner, 1), claimed)
    assert found.rejected and found.variance_ratio == pytest.approx(0.8, rel=0.08)


def test_laws_of_one_variance_are_told_apart() -> None:
    """Where they differ: narrow Skellam noise has heavier tails than a discrete Gaussian."""
    skellam, gaussian = SkellamRelease(2.0, 1.0, 1, 1), DiscreteGaussianRelease(2.0, 1, 1.0, 1, 1)
    assert noise_test(_other(skellam, 2), gaussian).p_value < ALPHA / 2
    assert noise_test(_other(gaussian, 2), skellam).p_value < ALPHA / 2


@pytest.mark.parametrize(
    "claimed", [SkellamRelease(1.0, 1.0, 1, 1), DiscreteGaussianRelease(1.0, 9, 1.0, 1, 1)]
)
def test_noise_too_narrow_for_the_test_is_refused(
    claimed: SkellamRelease | DiscreteGaussianRelease,
) -> None:
    with pytest.raises(ParameterError, match="a variance of at least"):
        noise_test(np.zeros(300), claimed)


@pytest.mark.parametrize(
    "broken",
    [
        lambda z: np.where(np.arange(z.size) % 2, z, 0.0),  # half of it missing
        lambda z: np.abs(z),  # one-sided
        lambda z: z + 2.0,  # a mean
        lambda z: z + 0.5,  # off the lattice
        lambda z: 2.0 * z,  # every value even
        lambda z: np.where(z == z.max(), 1000.0, z),  # outside the support
        lambda z: np.where(np.arange(z.size) == 0, np.nan, z),
    ],
)
def test_broken_noise_is_rejected(broken: object) -> None:
    assert binomial_noise_test(broken(coins(64, 20_000)), 64).rejected  # type: ignore[operator]


def test_a_law_of_the_right_variance_and_the_wrong_shape_is_rejected_by_chi_square() -> None:
    uniform = np.random.default_rng(1).integers(-6, 7, 20_000).astype(float)
    claimed = 56  # variance 14, that of 13 equal values
    test = binomial_noise_test(uniform, claimed)
    assert abs(test.variance_ratio - 1.0) < test.tolerance
    assert test.p_value < ALPHA / 2
    assert test.rejected


@pytest.mark.parametrize("count", [40, 70_992])
def test_the_level_is_kept(count: int) -> None:
    """At alpha = 0.05 about 5 % of right samples are rejected; the bound is that of Bin(N, .05)."""
    trials, alpha = 500, 0.05
    rejected = sum(
        binomial_noise_test(coins(count, 2000, seed), count, alpha).rejected
        for seed in range(trials)
    )
    # Two halves of the level, both approximate: a twentieth more is allowed for that.
    assert rejected <= stats.binom.isf(ALPHA, trials, 1.05 * alpha)
    assert rejected >= stats.binom.ppf(ALPHA, trials, alpha / 2)  # and it can reject at all


@pytest.mark.parametrize("side", ["power_below", "power_above"])
def test_the_stated_power_is_there(side: str) -> None:
    """A variance at the stated ratio is found in 999 of 1000 cases."""
    claimed, size, trials = 100_000, 2000, 300
    ratio = getattr(binomial_noise_test(coins(claimed, size), claimed), side)
    really = 2 * round(claimed * ratio / 2)
    found = sum(
        binomial_noise_test(coins(really, size, seed), claimed).rejected for seed in range(trials)
    )
    assert found >= stats.binom.ppf(ALPHA, trials, 0.999)
    # Halfway to the claim it is no longer found every time: the figure is not merely generous.
    halfway = 2 * round(claimed * (1.0 + ratio) / 4)
    missed = sum(
        not binomial_noise_test(coins(halfway, size, seed), claimed).rejected
        for seed in range(trials)
    )
    assert missed > 0


def test_impossible_values_have_p_value_zero() -> None:
    ten = BinomialRelease(10, 0.0, 1, 1)
    assert chi_square(np.array([-5.0, 6.0]), ten) == 0.0
    assert chi_square(np.array([-6.0, 0.0]), ten) == 0.0
    assert chi_square(np.array([0.0, 0.1]), ten) == 0.0


def test_independence() -> None:
    first, second = coins(1000, 20_000, 1), coins(1000, 20_000, 2)
    assert not independence_test(first, second)["rejected"]
    assert independence_test(first, first)["rejected"]
    # A third of the coins in common: the correlation is 1/3.
    common = coins(500, 20_000, 3)
    assert independence_test(first + common, second + common)["rejected"]


@pytest.mark.parametrize(
    ("noise", "claimed", "alpha", "match"),
    [
        (np.zeros(10), 4, 0.01, "noise = 10"),
        (np.zeros(300), 1, 0.01, "coins = 1"),
        (np.zeros(300), 4, 0.0, "alpha = 0.0"),
    ],
)
def test_bad_arguments(noise: np.ndarray, claimed: int, alpha: float, match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        binomial_noise_test(noise, claimed, alpha)


def test_independence_needs_equal_lengths() -> None:
    with pytest.raises(ParameterError, match="second"):
        independence_test(np.zeros(300), np.zeros(301))
