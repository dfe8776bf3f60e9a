"""Runs with correlated noise in ledgers and accountants: order, reserves, and a second replay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dp import Budget, BudgetExceededError, Ledger, NonPrivateRelease, UnsupportedEventError
from dp.accounting import DominationAccountant, epsilons
from dp.audit import read_ledger, replayed_epsilon
from dp.correlated import CorrelatedAccountant, CorrelatedRelease, correlated_epsilon
from dp.correlated.accountant import promises_of
from dp.errors import LedgerError
from dp.events import Composition, GaussianRelease
from dp.records import decode_event, encode_event

FIRST = CorrelatedRelease(
    index=1,
    fresh_variance=600.0,
    returned_variance=0.0,
    l2_sensitivity=20.0,
    dimension=1000,
    rounds=20,
    least_fresh=500.0,
    largest_return=400.0,
    smallest_part=10.0,
    most_parts=60,
    least_kept=100.0,
)


def run(
    taking_part: set[int], rounds: int = 20, back: float = 400.0, seed: int | None = None
) -> Iterator[CorrelatedRelease]:
    """Rounds in which the client is in some; with a seed, fresh and returned noise vary."""
    rng = np.random.default_rng(seed)
    for t in range(1, rounds + 1):
        fresh, returned = 500.0, back if t > 1 else 0.0
        if seed is not None:
            fresh, returned = 500.0 + 300.0 * rng.random(), returned * rng.random()
        bound = 20.0 if t in taking_part else 0.0
        yield replace(
            FIRST,
            index=t,
            fresh_variance=fresh,
            returned_variance=returned,
            l2_sensitivity=bound,
        )


def composed(events: Iterable[CorrelatedRelease]) -> CorrelatedAccountant:
    accountant = CorrelatedAccountant()
    for event in events:
        accountant.compose(event)
    return accountant


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
@pytest.mark.parametrize("rounds", [1, 7, 20])
def test_both_ways_agree(seed: int | None, rounds: int) -> None:
    events = list(run({2, 7, 12, 17}, rounds, seed=seed))
    first = composed(events).epsilon(1e-5)
    second = replayed_epsilon([encode_event(event) for event in events], 1e-5)
    assert first == pytest.approx(second, rel=1e-9, abs=1e-12)
    assert (first > 0.0) == (rounds > 1)


def test_epsilon_stays_while_the_client_is_away() -> None:
    """If all comes back it is what the reserve said; if less does, it falls."""
    accountant = composed(run({3}, 3))
    after = accountant.epsilon(1e-5)
    for event in list(run({3}))[3:]:
        accountant.compose(event)
        assert accountant.epsilon(1e-5) == pytest.approx(after, rel=1e-9)
    assert composed(run({3}, back=200.0)).epsilon(1e-5) < 0.99 * after


class OwnRoundsOnly(CorrelatedAccountant):
    """Charges what a client's own rounds told, and nothing for what comes back later."""

    @property
    def mu_squared(self) -> float:
        return self._charge.mu_squared


def test_a_budget_is_the_filter() -> None:
    """Refused rounds go on without the client; the whole run stays within the goal."""

    def played(accountant: CorrelatedAccountant, budget: Budget) -> tuple[float, int]:
        times = 0
        for event in run(set(range(1, 21))):
            try:
                budget.check(accountant, event)
                times += 1
            except BudgetExceededError:
                event = replace(event, l2_sensitivity=0.0)
            accountant.compose(event)
        last = accountant._charge.mu_squared
        return correlated_epsilon(last, promises_of(FIRST), budget.delta), times

    budget = Budget(8.0, 1e-5)
    epsilon, times = played(CorrelatedAccountant(), budget)
    assert epsilon <= 8.0 and 1 < times < 20
    assert played(OwnRoundsOnly(), budget)[0] > 8.5


def test_rounds_are_counted_in_order() -> None:
    accountant = CorrelatedAccountant()
    events = list(run({1}))
    with pytest.raises(UnsupportedEventError, match=r"round 2 .* cannot follow round 0"):
        accountant.compose(events[1])
    accountant.compose(events[0])
    before = accountant.epsilon(1e-5)
    with pytest.raises(UnsupportedEventError, match=r"round 1 .* cannot follow round 1"):
        accountant.compose(events[0])
    with pytest.raises(UnsupportedEventError, match="promised other noise"):
        accountant.compose(replace(events[1], dimension=999))
    with pytest.raises(ValueError, match="count must be 1"):
        accountant.compose(events[1], 2)
    # All of a composition or none of it.
    with pytest.raises(UnsupportedEventError, match="no theorem for Gaussian"):
        accountant.compose(Composition((events[1], GaussianRelease(1.0, 1.0))))
    with pytest.raises(UnsupportedEventError, match="cannot follow"):
        accountant.compose(Composition((events[1], events[1])))
    assert (accountant.releases, accountant.epsilon(1e-5)) == (1, before)


def test_more_than_was_fresh_cannot_come_back() -> None:
    events = list(run({1}))
    accountant = composed(events[:1])
    odd = replace(events[1], least_fresh=500.0, returned_variance=400.0)
    object.__setattr__(odd, "returned_variance", 601.0)
    with pytest.raises(UnsupportedEventError, match="returned must be at most"):
        accountant.compose(odd)


def test_copies_are_independent() -> None:
    accountant = composed(run({1}, 2))
    twin = accountant.copy()
    twin.compose(list(run({1, 3}))[2])
    assert (accountant.releases, twin.releases) == (2, 3)
    assert twin.epsilon(1e-5) > accountant.epsilon(1e-5)


def test_a_release_without_noise_is_infinite() -> None:
    accountant = composed(run({1}, 1))
    accountant.compose(NonPrivateRelease())
    assert accountant.epsilon(1e-5) == math.inf


def test_other_accountants_refuse_such_rounds() -> None:
    with pytest.raises(UnsupportedEventError, match="CorrelatedRelease"):
        DominationAccountant().compose(FIRST)


def test_the_report_has_one_bound() -> None:
    report = epsilons(list(run({1, 6, 11})), 1e-5)
    assert report.winner == "correlated" and set(report.by_accountant) == {"correlated"}
    assert report.epsilon == composed(run({1, 6, 11})).epsilon(1e-5)
    weak = [replace(event, smallest_part=0.05) for event in run({1})]
    report = epsilons(weak, 1e-5)
    assert report.epsilon == math.inf and "too small" in report.reasons["correlated"]


def test_replacing_an_update_costs_twice_the_mu() -> None:
    once, twice = composed(run({1, 6})), CorrelatedAccountant()
    for event in run({1, 6}):
        twice.compose(event.replace_one())
    assert twice.mu_squared == pytest.approx(4.0 * once.mu_squared)


def test_a_ledger_holds_them(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    events = list(run({1, 6}, 8, seed=4))
    with Ledger.open(path) as ledger:
        for event in events:
            ledger.append(event, {})
    with Ledger.open(path) as ledger:
        assert [entry.event for entry in ledger.entries()] == events
    written = [entry.event for entry in read_ledger(path)]
    assert replayed_epsilon(written, 1e-5) == pytest.approx(
        composed(events).epsilon(1e-5), rel=1e-9
    )


def test_the_replay_refuses_rounds_out_of_order() -> None:
    written = [encode_event(event) for event in run({1}, 3)]
    for wrong in ([written[1]], [written[0], written[2]], [written[0], written[0]]):
        with pytest.raises(LedgerError, match="is not its round"):
            replayed_epsilon(wrong, 1e-5)
    with pytest.raises(LedgerError, match="malformed"):
        replayed_epsilon([{**written[0], "fresh_variance": -1.0}], 1e-5)
    with pytest.raises(LedgerError, match="malformed"):
        replayed_epsilon([{**written[0], "extra": 1.0}], 1e-5)
    long = {**written[0], "rounds": 1 << 19}
    with pytest.raises(UnsupportedEventError, match="no room"):
        replayed_epsilon([long], 1e-5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"index": 0}, "index must lie in 1..20"),
        ({"index": 21}, "index must lie in 1..20"),
        ({"rounds": 0}, "rounds must lie in"),
        ({"dimension": 0}, "dimension must be at least 1"),
        ({"returned_variance": 1.0}, "returned_variance must be at most 0.0"),
        ({"index": 2, "returned_variance": 401.0}, "returned_variance must be at most 400.0"),
        ({"fresh_variance": 499.0}, "fresh_variance must be finite and at least 500.0"),
        ({"least_fresh": 450.0}, "least_fresh must be finite and at least 500.0"),
        ({"least_kept": 9.0}, "least_kept must be finite and at least 10.0"),
        ({"smallest_part": 0.0}, "smallest_part must be positive"),
        ({"l2_sensitivity": math.nan}, "l2_sensitivity must be finite"),
    ],
)
def test_bad_rounds(changes: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(FIRST, **changes)
    if not math.isnan(changes.get("l2_sensitivity", 0.0)):
        with pytest.raises(LedgerError, match="out of range"):
            decode_event({**encode_event(FIRST), **changes})


def test_integers_are_no_sizes() -> None:
    with pytest.raises(TypeError, match="fresh_variance must be a float"):
        replace(FIRST, fresh_variance=600)
