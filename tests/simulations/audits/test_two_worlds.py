"""Two worlds: bounds that hold, that are close, and that cannot pass their ceilings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from dp.accounting import BinomialNoise, gaussian_epsilon
from dp.accounting.losses import shift_losses
from dp.mechanisms import MECHANISMS, MechanismName
from secagg import ParameterError
from simulations.audits.base import ALPHA, Claim
from simulations.audits.distribution import noise_test
from simulations.audits.exact import randomised_response
from simulations.audits.intervals import lower_bound, upper_bound
from simulations.audits.releases import CoinRelease, PathRelease
from simulations.audits.two_worlds import two_worlds

pytestmark = pytest.mark.statistical
DELTA = 1e-5


@dataclass(frozen=True)
class Gaussian:
    """N(mu, 1) in the first of several coordinates, or in one number."""

    mu: float
    coordinates: int = 0

    def release(self, world: int, count: int, seed: int) -> np.ndarray:
        shape = (count, self.coordinates) if self.coordinates else count
        out = np.random.default_rng(seed).normal(size=shape)
        if self.coordinates:
            out[:, 0] += world * self.mu
        else:
            out += world * self.mu
        return out


@dataclass(frozen=True)
class Response:
    """One bit by randomised response."""

    epsilon: float

    def release(self, world: int, count: int, seed: int) -> np.ndarray:
        pmf = randomised_response(2, self.epsilon)
        return (np.random.default_rng(seed).random(count) < pmf[world, 1]).astype(np.int64)


def test_the_gaussian_route_certifies_95_percent_of_true_epsilon() -> None:
    """Epsilon 4.38, 10^5 runs in each world, on coins of the product's own sampler."""
    coins, shift = 10_000, 50
    true = shift_losses(BinomialNoise(coins), shift, 2.0**-12, 1e-14).epsilon(DELTA)
    assert 4.37 < true < 4.39
    bounds = [two_worlds(CoinRelease(coins, shift), 100_000, seed, DELTA) for seed in range(10)]
    shares = [bound.gaussian_epsilon / true for bound in bounds]
    assert min(shares) >= 0.95
    # Each of the bounds may be above the truth with probability 0.05.
    assert sum(share > 1.0 for share in shares) <= stats.binom.isf(ALPHA, 10, 0.05)
    # The route for any mechanism certifies far less, which is why there is another.
    assert max(bound.epsilon for bound in bounds) < 3.2
    assert min(bound.epsilon for bound in bounds) > 2.0


@pytest.mark.slow
def test_bounds_hold_with_their_confidence() -> None:
    """At confidence 0.8, at most one bound in five lies above the truth, on both routes."""
    mu, trials, confidence = 1.5, 400, 0.8
    true = gaussian_epsilon(mu, DELTA)
    bounds = [two_worlds(Gaussian(mu), 1000, seed, DELTA, confidence) for seed in range(trials)]
    allowed = stats.binom.isf(ALPHA, trials, 1.0 - confidence)
    assert sum(bound.epsilon > true for bound in bounds) <= allowed
    assert sum(bound.gaussian_epsilon > true for bound in bounds) <= allowed
    assert np.median([bound.mu for bound in bounds]) > 0.8 * mu


@pytest.mark.slow
def test_choosing_the_threshold_on_the_same_runs_would_break_the_bound() -> None:
    """The broken twin of the test above: no information, and yet an epsilon above 0 too often."""
    trials, runs, alpha = 200, 200, 0.5
    violations = 0
    for seed in range(trials):
        scores = np.sort(np.random.default_rng(seed).normal(size=(2, runs)), axis=1)
        both = np.concatenate(scores)
        low, high = (np.searchsorted(each, both, side="right") for each in scores)
        more = lower_bound(runs - high, runs, alpha / 2) > upper_bound(runs - low, runs, alpha / 2)
        less = lower_bound(low, runs, alpha / 2) > upper_bound(high, runs, alpha / 2)
        violations += bool(np.any(more | less))
    allowed = stats.binom.isf(ALPHA, trials, alpha)
    assert violations > allowed
    honest = [two_worlds(Gaussian(0.0), runs, seed, DELTA, alpha).epsilon for seed in range(trials)]
    assert sum(each > 0.0 for each in honest) <= allowed


def test_randomised_response_is_certified_by_clopper_pearson_and_not_by_the_gaussian_route() -> (
    None
):
    bound = two_worlds(Response(1.0), 50_000, 3, DELTA, statistic=lambda bits: bits * 1.0)
    assert 0.95 < bound.epsilon <= 1.0
    # It is no Gaussian, so the other figure is no lower bound of its epsilon.
    assert bound.gaussian_epsilon > 4.0


def test_no_bound_passes_its_ceiling() -> None:
    bound = two_worlds(Gaussian(40.0), 1000, 1, DELTA)
    assert bound.epsilon == pytest.approx(bound.epsilon_ceiling)
    assert bound.gaussian_epsilon == pytest.approx(bound.gaussian_ceiling)
    more = two_worlds(Gaussian(40.0), 10_000, 1, DELTA)
    assert more.epsilon_ceiling > bound.epsilon_ceiling + 2.0


def test_vectors_are_projected_on_the_difference() -> None:
    flat = two_worlds(Gaussian(2.0), 5000, 4, DELTA)
    spread = two_worlds(Gaussian(2.0, 50), 5000, 4, DELTA)
    assert spread.mu > 0.9 * flat.mu
    wrong = two_worlds(Gaussian(2.0, 50), 5000, 4, DELTA, statistic=lambda out: out.sum(axis=1))
    assert wrong.mu < 0.5 * flat.mu


def test_which_world_scores_higher_does_not_matter() -> None:
    assert two_worlds(Gaussian(-2.0), 5000, 4, DELTA).mu > 1.7


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_coordinates_of_whole_rounds_are_runs_of_their_own(mechanism: MechanismName) -> None:
    """With the mean and the variance of the round of one coordinate that is accounted for."""
    path, count = PathRelease(mechanism), 20_000
    event = path.event()
    without, with_client = (path.release(world, count, 5) for world in (0, 1))
    assert np.array_equal(with_client, path.release(1, count, 5))
    assert not np.array_equal(with_client, path.release(1, count, 6))
    assert path.release(1, count + 7, 5).shape == (count + 7,)
    assert noise_test(without, event).rejected is False
    # The same noise in both worlds: what differs is the clipped client, rounded.
    shift = with_client - without
    assert np.max(np.abs(shift - shift.mean())) <= 1.0
    assert 0.98 * event.l2_sensitivity < shift.mean() <= event.l2_sensitivity
    assert Claim.of_event(event, DELTA).epsilon <= 4.4


def test_few_runs_do_not_leave_the_threshold_to_chance() -> None:
    """Sixty runs held out bound no rate at 95 %, and yet they tell where the worlds part."""
    bounds = [two_worlds(Gaussian(1.0), 300, seed, DELTA).mu for seed in range(20)]
    assert np.median(bounds) > 0.5


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"runs": 19}, "runs = 19"),
        ({"delta": 0.0}, "delta = 0.0"),
        ({"confidence": 1.0}, "confidence = 1.0"),
        ({"held_out": 1.0}, "held_out = 1.0"),
        ({"statistic": lambda out: out[:2]}, "statistic"),
    ],
)
def test_bad_arguments(changed: dict[str, object], match: str) -> None:
    arguments: dict[str, object] = {"runs": 100, "seed": 0, "delta": DELTA, **changed}
    with pytest.raises(ParameterError, match=match):
        two_worlds(Gaussian(1.0), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [np.zeros(3), np.zeros((40, 2, 2)), np.full(40, np.nan)])
def test_bad_outputs(bad: np.ndarray) -> None:
    class Bad:
        def release(self, world: int, count: int, seed: int) -> np.ndarray:
            return bad

    with pytest.raises(ParameterError, match="release"):
        two_worlds(Bad(), 40, 0, DELTA)
