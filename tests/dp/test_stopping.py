"""An epsilon at a stop that looks at results is an estimate; the goal holds at every stop."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from scipy import integrate, special, stats
from stopping import readings, rounded_down, split, worst_delta

from dp import Budget, DominationAccountant
from dp.accounting import gaussian_mu
from dp.errors import BudgetExceededError
from dp.events import GaussianRelease

EPSILON, DELTA, RELEASES = 5.0, 1e-6, 8
MU = gaussian_mu(EPSILON, DELTA) / math.sqrt(RELEASES)
STEP = MU / 50.0


def test_what_accountants_print_are_these_readings() -> None:
    """The accountant's own figures, release by release, until the budget allows no more."""
    accountant, budget = DominationAccountant(), Budget(EPSILON, DELTA)
    event, printed = GaussianRelease(1.0, MU * (1.0 - 1e-9)), []
    for _ in range(RELEASES):
        printed.append(budget.check(accountant, event))
        accountant.compose(event)
    assert printed == pytest.approx(readings(MU, DELTA, RELEASES), rel=1e-7)
    with pytest.raises(BudgetExceededError):
        budget.check(accountant, event)


def test_a_reading_at_the_worst_stop_is_worth_less_than_it_says() -> None:
    """Nearly five times delta after eight releases; a stop fixed beforehand is worth delta."""
    printed = readings(MU, DELTA, RELEASES)
    assert 4.7 < worst_delta([MU] * RELEASES, printed, STEP) / DELTA < 4.9
    for fixed in (1, RELEASES):
        alone = [printed[t - 1] if t == fixed else math.inf for t in range(1, RELEASES + 1)]
        assert 0.8 < worst_delta([MU] * RELEASES, alone, STEP) / DELTA <= 1.0
        assert 1.0 - 1e-9 < worst_delta([MU] * RELEASES, alone, STEP, split) / DELTA < 1.002


def test_the_goal_is_worth_what_it_says_at_the_worst_stop() -> None:
    goal = [EPSILON] * RELEASES
    assert 1.0 - 1e-9 < worst_delta([MU] * RELEASES, goal, STEP, split) / DELTA < 1.002
    # A goal that is a little too good is found out.
    assert (
        worst_delta([MU] * RELEASES, [0.95 * EPSILON] * RELEASES, STEP, rounded_down) > 1.1 * DELTA
    )


def test_two_releases_by_quadrature() -> None:
    """The first loss is integrated over; what the second adds has a closed form."""
    mu = gaussian_mu(EPSILON, DELTA) / math.sqrt(2.0)
    first, second = readings(mu, DELTA, 2)

    def going_on(loss: float) -> float:
        rest = second - loss
        return float(
            special.ndtr(mu / 2.0 - rest / mu)
            - math.exp(rest) * special.ndtr(-mu / 2.0 - rest / mu)
        )

    def value(loss: float) -> float:
        stopping = -math.expm1(min(first - loss, 0.0))
        return max(stopping, going_on(loss)) * float(stats.norm.pdf(loss, mu**2 / 2.0, mu))

    ends = (mu**2 / 2.0 - 9.0 * mu, first, mu**2 / 2.0 + 9.0 * mu)
    parts = (integrate.quad(value, *part, limit=500) for part in pairwise(ends))
    true = math.fsum(part for part, _ in parts)
    assert 0.95 * true < worst_delta([mu] * 2, [first, second], mu / 100.0) <= true * (1.0 + 1e-6)
    assert true > 1.7 * DELTA
