"""A client pays for its own rounds; reported is who paid most."""

from __future__ import annotations

import math

import pytest

from dp import (
    BinomialRelease,
    Budget,
    BudgetExceededError,
    DominationAccountant,
    FailureReserve,
    MomentsAccountant,
)
from protocol.round.round_events import RoundEvents
from protocol.training.accounts import ClientAccounts

RESERVE = FailureReserve.from_delta(1e-5, 4)
EVENT = BinomialRelease(4096, 16.0, 8, 100)
WIDER = BinomialRelease(8192, 16.0, 8, 100)
NARROWER = BinomialRelease(512, 16.0, 8, 100)
EVENTS = RoundEvents(server=EVENT, outsider=WIDER, sybil=NARROWER)


def epsilon_of(*events: BinomialRelease) -> float:
    accountant = DominationAccountant(RESERVE)
    for event in events:
        accountant.compose(event)
    return accountant.epsilon(1e-5)


def test_disjoint_cohorts_do_not_add_up() -> None:
    accounts = ClientAccounts(RESERVE)
    accounts.record(["a", "b"], EVENTS)
    accounts.record(["c", "d"], EVENTS)
    spent = accounts.epsilons(1e-5, 1)
    assert spent.server == epsilon_of(EVENT)
    assert spent.outsider == epsilon_of(WIDER)
    assert spent.sybil == epsilon_of(NARROWER)
    assert (spent.secagg_alone, spent.colluders) == (math.inf, 1)


def test_the_busiest_client_is_reported_and_its_pair_stated() -> None:
    accounts = ClientAccounts(RESERVE)
    accounts.record(["a", "b"], EVENTS)
    accounts.record(["b", "c"], EVENTS)
    spent = accounts.epsilons(1e-5, 1)
    assert spent.server == epsilon_of(EVENT, EVENT) == spent.gaussian.epsilon(1e-5)
    assert spent.gaussian.failure == RESERVE.total
    assert spent.as_json()["gaussian"] == {"failure": RESERVE.total, "mu": spent.gaussian.mu}


def test_the_budget_is_checked_for_everybody_invited() -> None:
    accounts = ClientAccounts(RESERVE)
    accounts.record(["a"], EVENTS)
    budget = Budget(epsilon_of(EVENT) * 1.1, 1e-5)
    accounts.check(["b", "c"], EVENT, budget)
    with pytest.raises(BudgetExceededError):
        accounts.check(["b", "a"], EVENT, budget)


def test_an_entry_without_a_cohort_is_charged_to_everybody() -> None:
    accounts = ClientAccounts(RESERVE)
    accounts.replay(EVENTS, ["a"])
    accounts.replay(EVENTS, None)
    assert accounts.epsilons(1e-5, 1).server == epsilon_of(EVENT, EVENT)
    accounts.record(["new"], EVENTS)
    assert accounts.epsilons(1e-5, 1).server == epsilon_of(EVENT, EVENT)


def test_a_reserve_for_moments_is_counted_by_moments() -> None:
    reserve = FailureReserve.from_delta(1e-5, 4, moment_order=4.0)
    accounts = ClientAccounts(reserve)
    accounts.record(["a", "b"], EVENTS)
    one = MomentsAccountant(reserve)
    one.compose(EVENT)
    spent = accounts.epsilons(1e-5, 1)
    assert spent.server == one.epsilon(1e-5)
    assert spent.gaussian is None and "gaussian" not in spent.as_json()
