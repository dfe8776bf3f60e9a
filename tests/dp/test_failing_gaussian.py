"""The pair that dominates a run, and every form in which others are told of it."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from dp.accounting import (
    DominationAccountant,
    FailingGaussian,
    FailureReserve,
    OutsiderAccountant,
    failing_gaussian,
    gaussian_delta,
)
from dp.events import (
    BinomialRelease,
    GaussianRelease,
    LaplaceRelease,
    NonPrivateRelease,
    PoissonSampled,
    SkellamRelease,
)

DELTA = 1e-5
PAIRS = [(0.0, 0.5), (1e-7, 1.0), (3e-10, 0.05), (1e-6, 4.0)]
RUN = [(BinomialRelease(1024, 16.0, 16, 9), 3), (SkellamRelease(300.0, 4.0, 4, 9), 2)]


def _accountant(reserve: FailureReserve | None = None) -> DominationAccountant:
    accountant = DominationAccountant(reserve)
    for event, count in RUN:
        accountant.compose(event, count)
    return accountant


@pytest.mark.parametrize("reserve", [None, FailureReserve.from_delta(DELTA, 9)])
def test_it_says_what_the_account_says(reserve: FailureReserve | None) -> None:
    accountant = _accountant(reserve)
    pair = accountant.gaussian(DELTA)
    assert pair is not None
    assert pair.epsilon(DELTA) == accountant.epsilon(DELTA)
    if reserve is not None:
        assert pair.failure == reserve.total
    # It holds at every other delta too, where the account may find a better one.
    assert pair.epsilon(1e-3) >= accountant.epsilon(1e-3)
    assert pair.rho == pair.mu**2 / 2


@pytest.mark.parametrize("event", [NonPrivateRelease(), LaplaceRelease(3.0, 1)])
def test_there_is_not_always_a_pair(event: NonPrivateRelease | LaplaceRelease) -> None:
    accountant = _accountant()
    accountant.compose(event)
    assert accountant.gaussian(DELTA) is None


def test_extremes() -> None:
    assert DominationAccountant().gaussian(DELTA) == FailingGaussian(0.0, 0.0)
    weak = DominationAccountant()
    weak.compose(BinomialRelease(4, 16.0, 16, 9))
    assert weak.gaussian(DELTA) is None
    late = DominationAccountant(FailureReserve.from_delta(DELTA, 1))
    late.compose(RUN[0][0], 2)
    assert late.gaussian(DELTA) is None
    plain = DominationAccountant()
    plain.compose(GaussianRelease(2.0, 1.0), 4)
    assert plain.gaussian(DELTA) == FailingGaussian(0.0, 1.0)  # plain zCDP: nothing fails
    for figures in ((-0.1, 1.0), (1.0, 1.0), (0.0, -1.0), (0.0, math.inf), (math.nan, 1.0)):
        with pytest.raises(ValueError, match=r"failure|mu"):
            FailingGaussian(*figures)


@pytest.mark.parametrize(("failure", "mu"), PAIRS)
def test_the_trade_off_curve_by_its_definition(failure: float, mu: float) -> None:
    """Against 30 digits, from below and close."""
    first = np.array([0.0, 1e-12, 1e-6, 0.01, 0.3, 0.7, 1.0 - failure, 1.0])
    found = FailingGaussian(failure, mu).type_two_error(first)
    with mpmath.workdps(30):
        kept = 1 - mpmath.mpf(failure)
        for a, value in zip(first, found, strict=True):
            share = min(mpmath.mpf(float(a)) / kept, mpmath.mpf(1))
            at = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * share)
            exact = float(kept * mpmath.ncdf(at - mu)) if a < kept else 0.0
            assert exact - 1e-9 <= value <= exact + 1e-15


def test_curve_and_divergence_are_dual() -> None:
    """delta(eps) is the largest of 1 - beta - e^eps alpha: Dong, Roth, Su, Proposition 2.12."""
    pair = FailingGaussian(1e-3, 0.8)
    alphas = np.linspace(0.0, 1.0, 400_001)
    for epsilon in (0.0, 0.5, 2.0):
        dual = float(np.max(1.0 - pair.type_two_error(alphas) - math.exp(epsilon) * alphas))
        assert pair.delta(epsilon) == pytest.approx(dual, rel=1e-6)


@pytest.mark.parametrize(("failure", "mu"), PAIRS)
@pytest.mark.parametrize("interval", [1e-4, 1e-3])
def test_losses_are_above_and_near(failure: float, mu: float, interval: float) -> None:
    pair = FailingGaussian(failure, mu)
    losses = pair.losses(interval)
    between = np.array([0.0, 0.37, 1.0, 2.21]) * mu + 0.3 * interval
    for epsilon in between:
        exact = failure + (1.0 - failure) * gaussian_delta(float(epsilon), mu)
        # Straight lines between grid points lie above the curve, by the second order of the step.
        slack = 1.0 + 2.0 * (interval / mu) ** 2 + 1e-9
        assert exact <= losses.delta(float(epsilon)) <= exact * slack
    assert losses.infinite >= failure


@pytest.mark.parametrize("mu", [20.0, 36.0, 50.0])
def test_losses_of_a_large_mu_are_a_distribution(mu: float) -> None:
    """e^loss is beyond float64 from a loss of 710 on, which is reached at mu = 29."""
    pair = FailingGaussian(1e-7, mu)
    losses = pair.losses(0.02)
    assert np.all(np.isfinite(losses.masses)) and np.all(losses.masses >= 0.0)
    assert losses.masses.sum() + losses.infinite == pytest.approx(1.0, rel=1e-6)
    for epsilon in pair.rho + mu * np.array([-2.0, 0.0, 2.0]) + 0.007:
        exact = pair.delta(float(epsilon))
        assert exact * (1.0 - 1e-12) <= losses.delta(float(epsilon)) <= exact * (1.0 + 1e-5)
    bound = pair.epsilon(DELTA)
    assert bound * (1.0 - 1e-9) <= losses.epsilon(DELTA) <= bound * (1.0 + 1e-5)
    # Their sums of e^-loss end there, so they stop at a grid point above.
    assert bound <= pair.to_pld(0.1).get_epsilon_for_delta(DELTA) <= bound + 2.0


def test_dp_accounting_composes_it_with_others() -> None:
    """Twice the run and a sampled release of the same kind, all of it theirs to compose."""
    pair = _accountant().gaussian(DELTA)
    assert pair is not None
    twice = pair.to_pld(1e-3).self_compose(2)
    whole = FailingGaussian(1.0 - (1.0 - pair.failure) ** 2, math.sqrt(2.0) * pair.mu)
    assert twice.get_epsilon_for_delta(1e-4) == pytest.approx(whole.epsilon(1e-4), rel=1e-4)
    outsider = OutsiderAccountant()
    outsider.compose(PoissonSampled(0.01, GaussianRelease(2.0, 1.0)))
    from dp_accounting.pld import privacy_loss_distribution as losses

    sampled = losses.from_gaussian_mechanism(
        2.0, value_discretization_interval=1e-3, sampling_prob=0.01
    )
    both = twice.compose(sampled).get_epsilon_for_delta(1e-4)
    alone = twice.get_epsilon_for_delta(1e-4)
    assert alone < both < alone + outsider.epsilon(1e-5)


def test_an_open_failure_is_an_infinite_loss() -> None:
    """The twin: the same pair without its failure promises more than the run keeps."""
    pair = FailingGaussian(1e-6, 1.0)
    assert pair.to_pld(1e-3).get_epsilon_for_delta(1e-6) == math.inf == pair.epsilon(1e-6)
    assert FailingGaussian(0.0, 1.0).to_pld(1e-3).get_epsilon_for_delta(1e-6) < 10.0


def test_grids_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = FailingGaussian(0.0, 2.0)
    for interval in (0.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="interval must be positive"):
            pair.losses(interval)
    monkeypatch.setattr(failing_gaussian, "MOST_POINTS", 1000)
    with pytest.raises(ValueError, match=r"interval must be at least 0\.04\d+ for mu = 2"):
        pair.losses(1e-3)
    assert pair.losses(0.045).masses.size <= 1000


def test_nothing_at_all() -> None:
    nothing = FailingGaussian(0.0, 0.0)
    assert nothing.delta(0.0) == 0.0 and nothing.epsilon(DELTA) == 0.0
    np.testing.assert_allclose(nothing.type_two_error([0.0, 0.25, 1.0]), [1.0, 0.75, 0.0])
    assert nothing.to_pld().get_epsilon_for_delta(DELTA) == 0.0
    with pytest.raises(ValueError, match="type_one_error"):
        nothing.type_two_error([1.5])
