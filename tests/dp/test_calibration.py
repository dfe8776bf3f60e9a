"""Calibration: the answer meets its target, and two coins fewer would not."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from accounts import epsilon_of

from dp import BinomialMechanism, DiscreteGaussianMechanism, Sensitivities, calibration
from dp.accounting import (
    DominationAccountant,
    FailureReserve,
    MomentsAccountant,
    gaussian_epsilon,
    reserved_accountant,
)
from dp.calibration import (
    NARROWEST_SUMMAND,
    coins_for_epsilon,
    mechanism_for_epsilon,
    noise_multiplier_for_epsilon,
    variance_for_epsilon,
)
from dp.event_kinds import Event
from dp.events import BinomialRelease, DiscreteGaussianRelease, SkellamRelease
from dp.mechanisms import MECHANISMS, DistributedMechanism, mechanism_of


def _smaller(event: Event, rounds: int, delta: float) -> float:
    """Epsilon by the better of the two bounds."""
    kinds = DominationAccountant, MomentsAccountant
    return min(epsilon_of(kind, event, delta=delta, rounds=rounds) for kind in kinds)


@pytest.mark.parametrize(
    ("epsilon", "delta", "l2", "linf", "rounds"),
    [
        (1.0, 1e-5, 16.0, 16, 1),
        (8.0, 1e-6, 4.0, 2, 1),
        (2.0, 1e-6, 20.0, 8, 50),
        (50.0, 1e-5, 2.0, 1, 1),
        (0.3, 1e-9, 1.0, 1, 3),
        (3.0, 0.2, 1.0, 1, 1),
        (0.05, 0.1, 3.0, 3, 1),
    ],
)
def test_smallest_even_number_of_coins(
    epsilon: float, delta: float, l2: float, linf: int, rounds: int
) -> None:
    coins = coins_for_epsilon(epsilon, delta, l2, linf, rounds)
    assert coins % 2 == 0
    spent, of_fewer = (
        _smaller(BinomialRelease(n, l2, linf, 1), rounds, delta) for n in (coins, coins - 2)
    )
    assert spent <= epsilon < of_fewer


def test_published_check_value() -> None:
    """Coins for epsilon 1: 14,272 when counted in steps of 64."""
    coins = coins_for_epsilon(1.0, 1e-5, 16.0, 16)
    assert 64 * math.ceil(coins / 64) == 14272


@pytest.mark.parametrize("rounds", [1, 100])
def test_noise_multiplier(rounds: int) -> None:
    multiplier = noise_multiplier_for_epsilon(2.0, 1e-6, rounds)
    assert gaussian_epsilon(math.sqrt(rounds) / multiplier, 1e-6) == pytest.approx(2.0, rel=1e-9)


def test_binomial_noise_needs_a_little_more_than_the_gaussian() -> None:
    sigma = 16.0 * noise_multiplier_for_epsilon(1.0, 1e-5)
    coins = coins_for_epsilon(1.0, 1e-5, 16.0, 16)
    assert 4 * sigma**2 <= coins <= 1.01 * 4 * sigma**2


def test_infeasible_targets_say_what_to_change() -> None:
    with pytest.raises(ValueError, match="raise epsilon or delta, run fewer rounds"):
        coins_for_epsilon(0.01, 1e-9, 1000.0, 10, 100)
    with pytest.raises(ValueError, match="raise epsilon or delta"):
        variance_for_epsilon(0.001, 1e-9, 5000.0, 4)


@pytest.mark.parametrize("factor", [0.2, 3.0])
def test_the_search_does_not_trust_its_starting_point(
    monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    expected = coins_for_epsilon(1.0, 1e-5, 16.0, 16)
    start = noise_multiplier_for_epsilon(1.0, 1e-5)
    monkeypatch.setattr(calibration, "noise_multiplier_for_epsilon", lambda *_: factor * start)
    assert coins_for_epsilon(1.0, 1e-5, 16.0, 16) == expected


def test_a_failure_reserve_costs_a_few_coins_and_meets_the_target() -> None:
    """The answer holds with that reserve, where the plain one might fall short."""
    reserve = FailureReserve.from_delta(1e-5, 10)
    plain = coins_for_epsilon(4.0, 1e-5, 64.0, 16, 10)
    reserved = coins_for_epsilon(4.0, 1e-5, 64.0, 16, 10, reserve)
    assert plain < reserved < 1.02 * plain
    event = BinomialRelease(reserved, 64.0, 16, 1)
    assert epsilon_of(DominationAccountant, event, rounds=10, reserve=reserve) <= 4.0


@pytest.mark.parametrize("contributors", [None, 1, 64])
@pytest.mark.parametrize(("epsilon", "rounds"), [(1.0, 1), (4.0, 20), (30.0, 2)])
def test_smallest_variance(contributors: int | None, epsilon: float, rounds: int) -> None:
    """Meets the target; a thousandth less would not."""
    found = variance_for_epsilon(epsilon, 1e-5, 8.0, 4, rounds, contributors)

    def reached(variance: float) -> float:
        event = (
            SkellamRelease(variance, 8.0, 4, 1)
            if contributors is None
            else DiscreteGaussianRelease(variance, contributors, 8.0, 4, 1)
        )
        return _smaller(event, rounds, 1e-5)

    assert reached(found) <= epsilon < reached(found * 0.999)


@pytest.mark.parametrize("order", [None, 12.0])
@pytest.mark.parametrize("contributors", [1, 7, 300])
@pytest.mark.parametrize("name", MECHANISMS)
def test_the_least_noise_of_one_client(name: str, contributors: int, order: float | None) -> None:
    """What is charged meets the target to the last digit; a little less would not."""
    reserve = FailureReserve.from_delta(1e-5, 3, moment_order=order)
    sensitivities = Sensitivities(40.0, 12)
    mechanism = mechanism_for_epsilon(name, 4.0, 1e-5, sensitivities, contributors, 3, reserve)
    assert mechanism.name == name

    def spent(each: DistributedMechanism) -> float:
        accountant = reserved_accountant(reserve)
        accountant.compose(each.event(sensitivities, contributors, 1000), 3)
        return accountant.epsilon(1e-5)

    less = mechanism.amount - 1 if name == "binomial" else mechanism.amount * (1.0 - 2e-6)
    assert spent(mechanism) <= 4.0 < spent(mechanism_of(name, less))


def test_narrow_summands_are_widened() -> None:
    """Both readers of a ledger have a theorem for what is met a target with."""
    few = Sensitivities(3.0, 2)
    found = mechanism_for_epsilon("discrete-gaussian", 8.0, 1e-5, few, 1000)
    assert found == DiscreteGaussianMechanism(NARROWEST_SUMMAND)
    assert mechanism_for_epsilon("binomial", 8.0, 1e-5, few, 1000) == BinomialMechanism(1)


@pytest.mark.parametrize(
    ("name", "contributors", "match"),
    [
        ("laplace", 3, "binomial, skellam, discrete-gaussian"),
        ("skellam", 0, "contributors"),
        ("binomial", 1, "coins of each of 1 clients"),
    ],
)
def test_no_mechanism_meets_a_target(name: str, contributors: int, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        mechanism_for_epsilon(name, 0.01, 1e-5, Sensitivities(40.0, 12), contributors)


def test_weak_noise_is_calibrated_by_the_better_bound() -> None:
    """At sigma near 3 truncated moments ask for fewer coins; from 16 on they are not asked."""
    figures = (20.0, 1e-5, 4.0, 4, 10)
    coins = coins_for_epsilon(*figures)
    by_domination = FailureReserve.from_delta(1e-5, 10, 1e-6)
    assert 1.05 * coins < coins_for_epsilon(*figures, by_domination)
    assert coins / 4.0 < calibration.MOMENTS_UP_TO


def test_a_reserve_names_the_one_bound_that_counts() -> None:
    """Where parameters depend on results, the smaller of two bounds is no bound."""
    by_moments = FailureReserve.from_delta(1e-5, 10, moment_order=2.4)
    by_domination = FailureReserve.from_delta(1e-5, 10)
    for reserve, kind in ((by_moments, MomentsAccountant), (by_domination, DominationAccountant)):
        coins = coins_for_epsilon(20.0, 1e-5, 4.0, 4, 10, reserve)
        spent, of_fewer = (
            epsilon_of(kind, BinomialRelease(n, 4.0, 4, 1), rounds=10, reserve=reserve)
            for n in (coins, coins - 2)
        )
        assert spent <= 20.0 < of_fewer


def test_the_page_has_both_bounds_as_they_are() -> None:
    """The table of docs/accounting.md, "Which bound counts a run"."""
    page = (Path(__file__).parents[2] / "docs" / "accounting.md").read_text()
    rows = re.findall(r"^\| (\d+) \|((?: [\d.inf]+ / [\d.inf]+ \|){6})$", page, re.MULTILINE)
    assert [int(sigma) for sigma, _ in rows] == [2, 3, 4, 6, 8, 12, 16]
    columns = [(l2, linf, t) for l2, linf in ((2.0, 1), (4.0, 4)) for t in (1, 10, 100)]
    for sigma, cells in rows:
        for cell, (l2, linf, rounds) in zip(cells.split("|"), columns, strict=False):
            event = BinomialRelease(4 * int(sigma) ** 2, l2, linf, 1)
            kinds = DominationAccountant, MomentsAccountant
            found = [f"{epsilon_of(kind, event, rounds=rounds):.4g}" for kind in kinds]
            assert cell.strip() == " / ".join(found)
