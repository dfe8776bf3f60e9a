"""Filters against the best adversary of a menu: it chooses every release from earlier results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
from adaptive_adversaries import Move, best_gain

from dp.accounting import (
    DominationAccountant,
    FailureReserve,
    MomentsAccountant,
    reserved_accountant,
)
from dp.budget import Budget
from dp.errors import BudgetExceededError
from dp.events import BinomialRelease

DELTA, RELEASES = 1e-3, 3
MENU = (Move(16, 1), Move(36, 1), Move(36, 2), Move(64, 2))
GOALS = [(None, 2.0), (None, 3.0), (4.0, 3.0), (6.0, 2.0), (3.0, 4.0)]
"""Order of the moments, None for domination, and the epsilon of the goal."""

FAR = (Move(12, 1), Move(16, 1), Move(20, 2))
CUT = 1.0002 * 2.0**-12
"""Just enough to cut off the last outcome of 12 coins, which the shifted noise cannot have."""

FAR_DELTA = 1.002 * RELEASES * CUT
"""Nearly all of it is for what is cut off: hardly anything is left for the rest."""

FAR_GOALS = [(None, 5.0), (None, 6.0), (4.0, 4.5), (4.0, 6.0), (6.0, 5.0)]


def _event(move: Move) -> BinomialRelease:
    return BinomialRelease(move.coins, float(move.shift), move.shift, 1)


class _Filter:
    """What ``Budget`` lets happen under a reserve; remembers what it refused."""

    def __init__(self, reserve: FailureReserve, budget: Budget) -> None:
        self._reserve = reserve
        self._budget = budget
        self.refused = self.passed = 0
        self._allows = cache(self._ask)

    def __call__(self, moves: Sequence[Move]) -> bool:
        # All bounds add up, so the order of releases does not matter.
        return self._allows(tuple(sorted(moves, key=lambda move: (move.coins, move.shift))))

    def _ask(self, moves: tuple[Move, ...]) -> bool:
        accountant = reserved_accountant(self._reserve)
        for move in moves[:-1]:
            accountant.compose(_event(move))
        try:
            self._budget.check(accountant, _event(moves[-1]))
        except BudgetExceededError:
            self.refused += 1
            return False
        self.passed += 1
        return True


def _filter(order: float | None, epsilon: float) -> _Filter:
    reserve = FailureReserve.from_delta(DELTA, RELEASES, 1 / 8, moment_order=order)
    return _Filter(reserve, Budget(epsilon, DELTA))


@pytest.mark.parametrize(("order", "epsilon"), GOALS)
def test_no_adaptive_strategy_gains_more_than_delta(order: float | None, epsilon: float) -> None:
    allowed = _filter(order, epsilon)
    gain = best_gain(epsilon, MENU, allowed, RELEASES)
    assert 0.0 < gain <= DELTA
    assert allowed.refused and allowed.passed > len(MENU)


@pytest.mark.parametrize(("order", "epsilon"), GOALS[:4])
def test_a_filter_that_stops_one_release_too_late_is_caught(
    order: float | None, epsilon: float
) -> None:
    """The twin: the release that would exceed the budget still happens."""
    allowed = _filter(order, epsilon)

    def late(moves: Sequence[Move]) -> bool:
        return len(moves) == 1 or allowed(moves[:-1])

    assert best_gain(epsilon, MENU, late, RELEASES) > 1.5 * DELTA


@pytest.mark.parametrize(("order", "epsilon"), FAR_GOALS)
def test_what_is_cut_off_is_paid_for(order: float | None, epsilon: float) -> None:
    """Where the adversary gains by the far tails, which are cut off and cost what they can show."""
    allowed = _Filter(FailureReserve(CUT, RELEASES, moment_order=order), Budget(epsilon, FAR_DELTA))
    gain = best_gain(epsilon, FAR, allowed, RELEASES)
    assert 0.0 < gain <= FAR_DELTA
    assert allowed.refused and allowed.passed


@pytest.mark.parametrize(("order", "epsilon"), FAR_GOALS)
def test_a_filter_that_cuts_off_for_nothing_is_caught(order: float | None, epsilon: float) -> None:
    """The twin: the same cut, and all of delta left for the rest."""
    reserve = FailureReserve(CUT, RELEASES, moment_order=order)
    allowed = _Filter(reserve, Budget(epsilon, FAR_DELTA + reserve.total))
    assert best_gain(epsilon, FAR, allowed, RELEASES) > 1.005 * FAR_DELTA


def test_one_reserve_is_for_one_bound() -> None:
    """An accountant does not take the reserve of the other bound."""
    moments = FailureReserve.from_delta(DELTA, 2, moment_order=3.0)
    with pytest.raises(ValueError, match=r"moment_order 3\.0"):
        DominationAccountant(moments)
    with pytest.raises(ValueError, match="must name a moment_order"):
        MomentsAccountant(FailureReserve.from_delta(DELTA, 2))
    for order in (1.0, -2.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="moment_order must be None, or finite and above 1"):
            FailureReserve(1e-9, 2, moment_order=order)


@pytest.mark.parametrize("order", [None, 3.0])
def test_a_reserve_ends_with_its_releases(order: float | None) -> None:
    reserve = FailureReserve.from_delta(DELTA, 2, moment_order=order)
    accountant = reserved_accountant(reserve)
    accountant.compose(_event(Move(64, 1)), 2)
    assert accountant.epsilon(DELTA) < 4.0
    assert accountant.copy().epsilon(DELTA) == accountant.epsilon(DELTA)
    assert accountant.epsilon(reserve.total) == float("inf")
    accountant.compose(_event(Move(64, 1)))
    assert accountant.epsilon(DELTA) == float("inf")
