"""Runs with correlated noise in ledgers and accountants: order, reserves, and a second replay."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dp import Budget, BudgetExceededError, Ledger, NonPrivateRelease, UnsupportedEventError
from dp.accounting import DominationAccountant
from dp.audit import replayed_epsilon
from dp.correlated import CorrelatedAccountant, CorrelatedRelease, correlated_epsilon
from dp.correlated.accountant import promises_of
from dp.correlated.replay import _largest_group
from dp.correlated.theorem import theta_rest
from dp.errors import LedgerError
from dp.events import Composition, GaussianRelease
from dp.ledger_reader import read_ledger
from dp.records import decode_event, encode_event
from dp.report import epsilons

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


def test_both_ways_agree_on_more_parts_than_a_float_has_ways_to_choose_from() -> None:
    events = [replace(event, most_parts=40_000, smallest_part=3.0) for event in run({2, 7}, 7)]
    second = replayed_epsilon([encode_event(event) for event in events], 1e-5)
    assert composed(events).epsilon(1e-5) == pytest.approx(second, rel=1e-9)


def test_the_second_way_sums_over_all_supports() -> None:
    """Where the sum of sixty parts is larger than that of two, and beside whole numbers."""
    parts, part = 60, 0.3
    exact = math.fsum(
        math.comb(parts, support)
        * theta_rest(2.0 * math.pi**2 * part * (1.0 - min(support, parts // 2) / parts)) ** support
        for support in range(1, parts + 1)
    )
    assert _largest_group(part, parts) == pytest.approx(exact, rel=1e-9)
    assert _largest_group(part, 2) < exact < 1.0 < _largest_group(part, 1000)
    assert (_largest_group(part, 1), _largest_group(1e4, 2)) == (0.0, 0.0)


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


def returning_more(seed: int, rounds: int = 20) -> list[CorrelatedRelease]:
    """Any round may return all that it added but w: often more than F - w, at times more than F."""
    rng = np.random.default_rng(seed)
    events: list[CorrelatedRelease] = []
    for t in range(1, rounds + 1):
        fresh = 500.0 + rng.choice([0.0, 60.0, 900.0]) * rng.random()
        most = min(700.0, events[-1].fresh_variance - 100.0) if events else 0.0
        returned = most * rng.choice([0.0, rng.random(), 1.0])
        taken = replace(FIRST, index=t, largest_return=700.0, fresh_variance=float(fresh))
        bound = float(rng.choice([0.0, 20.0]))
        events.append(replace(taken, returned_variance=float(returned), l2_sensitivity=bound))
    return events


@pytest.mark.parametrize("rounds", [1, 2, 19, 20])
@pytest.mark.parametrize("seed", range(25))
def test_both_ways_agree_where_rounds_return_more_than_the_least(seed: int, rounds: int) -> None:
    events = returning_more(seed, rounds)
    second = replayed_epsilon([encode_event(event) for event in events], 1e-5)
    assert composed(events).epsilon(1e-5) == pytest.approx(second, rel=1e-9, abs=1e-12)


class LastRoundLikeAnyOther(CorrelatedAccountant):
    """Lets only so much of the last round come back as of a later one."""

    @property
    def mu_squared(self) -> float:
        assert self._last is not None
        later = self._last.returnable_later
        return self._charge.reserve(20 - self._last.index, self._last.least_fresh, later)


def ever_passed(kind: type[CorrelatedAccountant], share: float) -> float:
    """How far the charge of a client that went away came above what was once stated."""
    worst = 0.0
    for seed in range(40):
        accountant, stated = kind(), math.inf
        for event in returning_more(seed):
            last = accountant._last
            if last is not None and last.index > 1:
                back = share * last.returnable
                event = replace(event, l2_sensitivity=0.0, returned_variance=back)
            accountant.compose(event)
            worst = max(worst, accountant._charge.mu_squared / stated if stated else 0.0)
            stated = accountant.mu_squared if event.index > 1 else math.inf
    return worst


def test_a_round_that_added_more_may_return_more() -> None:
    assert ever_passed(CorrelatedAccountant, 1.0) <= 1.0 + 1e-12
    assert ever_passed(CorrelatedAccountant, 0.6) <= 1.0 + 1e-12
    assert ever_passed(LastRoundLikeAnyOther, 1.0) > 1.05


def test_no_more_comes_back_than_does_not_stay() -> None:
    events = [replace(e, largest_return=700.0, fresh_variance=600.0) for e in run({1})]
    accountant = composed(events[:1])
    most = replace(events[1], returned_variance=500.0)
    accountant.copy().compose(most)
    odd = replace(events[1], returned_variance=500.1)
    with pytest.raises(UnsupportedEventError, match=r"round 2 .* must be at most 500.0, .* 500.1"):
        accountant.compose(odd)
    first = encode_event(events[0])
    assert replayed_epsilon([first, encode_event(most)], 1e-5) > 0.0
    with pytest.raises(LedgerError, match=r"entry 2 .* takes back 500.1, .* at most 500.0 may"):
        replayed_epsilon([first, encode_event(odd)], 1e-5)


def test_what_may_come_back_is_at_least_nothing() -> None:
    """Where all of a round stays, but for a rounding."""
    event = replace(FIRST, least_fresh=100.0 * (1 - 1e-13), largest_return=700.0)
    assert (event.returnable, event.returnable_later) == (500.0, 0.0)


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
        ({"least_fresh": 99.0}, "least_fresh must be finite and at least 100.0"),
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
