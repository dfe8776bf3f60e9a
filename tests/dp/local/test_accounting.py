"""What local reports add up to: against exact sums, dp-accounting, and every other accountant."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from pathlib import Path

import mpmath
import pytest

from dp import (
    Adjacency,
    BinomialRelease,
    Budget,
    BudgetExceededError,
    Composition,
    DominationAccountant,
    Event,
    ExactAccountant,
    GaussianReference,
    GaussianRelease,
    Ledger,
    LocalAccountant,
    LocalRelease,
    MomentsAccountant,
    NonPrivateRelease,
    OutsiderAccountant,
    PublishedAccountant,
    Theorem1Accountant,
    UnsupportedEventError,
    epsilons,
    four_epsilons,
    local_epsilons,
    replay,
)
from dp.accounting.local import INTERVAL, MAX_TERMS, composed_delta
from dp.events import LaplaceRelease

DELTA = 1e-5
OTHERS = [
    DominationAccountant,
    ExactAccountant,
    GaussianReference,
    MomentsAccountant,
    OutsiderAccountant,
    PublishedAccountant,
    Theorem1Accountant,
]


def _account(*counted: tuple[float, int]) -> LocalAccountant:
    accountant = LocalAccountant()
    for epsilon, count in counted:
        accountant.compose(LocalRelease(epsilon), count)
    return accountant


def _enumerated_delta(shares: list[float], total: float) -> mpmath.mpf:
    """Hockey-stick divergence of randomised responses, outcome by outcome."""
    with mpmath.workdps(50):
        found = mpmath.mpf(0)
        for signs in product((1, -1), repeat=len(shares)):
            losses = [
                sign * mpmath.mpf(epsilon) for sign, epsilon in zip(signs, shares, strict=True)
            ]
            mass = mpmath.fprod(1 / (1 + mpmath.exp(-loss)) for loss in losses)
            found += mass * max(0, 1 - mpmath.exp(mpmath.mpf(total) - mpmath.fsum(losses)))
        return found


def _binomial_delta(epsilon: float, count: int, total: float) -> mpmath.mpf:
    """The same for equal shares, summed over the number of lies."""
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)
        found = mpmath.mpf(0)
        for i in range(count + 1):
            loss = (count - 2 * i) * e
            if loss > total:
                mass = mpmath.binomial(count, i) * mpmath.exp((count - i) * e)
                mass /= (1 + mpmath.exp(e)) ** count
                found += mass * (1 - mpmath.exp(mpmath.mpf(total) - loss))
        return found


@pytest.mark.parametrize("total", [0.0, 0.3, 1.0, 2.5])
def test_the_two_references_agree(total: float) -> None:
    one, other = _enumerated_delta([0.5] * 6, total), _binomial_delta(0.5, 6, total)
    assert float(one) == pytest.approx(float(other), rel=1e-30, abs=1e-40)


@pytest.mark.parametrize(
    ("epsilon", "count"), [(1.0, 1), (0.5, 10), (0.1, 200), (2.0, 30), (9.0, 5), (300.0, 10)]
)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 0.7, 0.99])
def test_composed_delta_is_an_upper_bound_and_tight(
    epsilon: float, count: int, share: float
) -> None:
    total = share * epsilon * count
    exact = _binomial_delta(epsilon, count, total)
    found = composed_delta(epsilon, count, total)
    assert found >= exact
    assert found == pytest.approx(float(exact), rel=1e-8, abs=1e-11)


@pytest.mark.parametrize(
    ("epsilon", "count"), [(1.0, 1), (0.5, 10), (0.1, 200), (2.0, 30), (9.0, 5)]
)
def test_the_optimal_bound_is_where_delta_is_reached(epsilon: float, count: int) -> None:
    accountant = _account((epsilon, count))
    found = accountant.bounds(DELTA)["optimal"]
    assert _binomial_delta(epsilon, count, found) <= DELTA
    # A little less would not be enough.
    assert _binomial_delta(epsilon, count, found * (1 - 1e-6)) > DELTA
    assert accountant.epsilon(DELTA) == found <= epsilon * count


@pytest.mark.parametrize("shares", [[1.0, 0.5, 0.25], [0.3] * 4 + [0.8] * 3, [0.2, 3.0, 0.7, 0.7]])
@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-5])
def test_different_reports_against_enumeration(shares: list[float], delta: float) -> None:
    bounds = _account(*((share, 1) for share in shares)).bounds(delta)
    assert bounds["optimal"] == math.inf
    for bound in bounds.values():
        assert bound == math.inf or _enumerated_delta(shares, bound) <= delta
    lower = max(bounds["losses"] - 2 * INTERVAL * len(shares), 0.0)
    assert lower == 0.0 or _enumerated_delta(shares, lower) > delta


def test_equal_reports_against_dp_accounting() -> None:
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as losses

    one = losses.from_privacy_parameters(common.DifferentialPrivacyParameters(0.3, 0.0), INTERVAL)
    theirs = one.self_compose(40).get_epsilon_for_delta(DELTA)
    assert _account((0.3, 40)).epsilon(DELTA) == pytest.approx(theirs, abs=1e-3)


@pytest.mark.parametrize(("epsilon", "count"), [(0.7, 3), (0.1, 10), (0.3, 7), (0.25, 8)])
def test_the_sum_is_rounded_up(epsilon: float, count: int) -> None:
    """Three times 0.7 is less in doubles than in fractions."""
    exact = count * Fraction(epsilon)
    for counted in ([(epsilon, count)], [(epsilon, count - 1), (epsilon / 2.0, 2)]):
        account = _account(*counted)
        found = account.bounds(1e-300)["sum"]
        assert Fraction(found) >= exact > Fraction(math.nextafter(found, 0.0))
        assert account.epsilon(1e-300) == found


def test_large_epsilons_fall_back_to_the_sum() -> None:
    assert _account((3000.0, 7)).epsilon(DELTA) == pytest.approx(21000.0, rel=1e-9)
    assert _account((300.0, 2), (200.0, 3)).epsilon(DELTA) == 1200.0
    assert _account((1e300, 1), (1e300 / 3, 1)).epsilon(DELTA) == pytest.approx(4e300 / 3)
    assert _account((1e308, 3)).epsilon(DELTA) == math.inf
    assert set(_account((1e308, 1), (1.1e308, 1)).bounds(DELTA).values()) == {math.inf}
    overflown = epsilons([(LocalRelease(1e308), 3)], DELTA)
    assert overflown.reasons == {"local": "the epsilons add up to more than a float holds"}


def test_very_many_small_reports() -> None:
    few, many = _account((1e-3, MAX_TERMS)), _account((1e-3, MAX_TERMS + 1))
    assert many.bounds(DELTA)["optimal"] == math.inf
    assert many.epsilon(DELTA) == many.bounds(DELTA)["deviation"] < many.bounds(DELTA)["sum"]
    assert few.epsilon(DELTA) < many.epsilon(DELTA) < 1.5 * few.epsilon(DELTA)


def test_reports_and_something_without_noise() -> None:
    accountant = _account((1.0, 2))
    accountant.compose(NonPrivateRelease())
    assert accountant.epsilon(DELTA) == math.inf
    assert set(accountant.bounds(DELTA).values()) == {math.inf}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_accountants_refuse_local_reports(kind: type[DominationAccountant]) -> None:
    assert not kind().supports(LocalRelease(1.0))
    with pytest.raises(UnsupportedEventError, match="local reports promise something else"):
        kind().compose(LocalRelease(1.0))


@pytest.mark.parametrize(
    "event", [GaussianRelease(1.0, 1.0), BinomialRelease(100, 1.0, 1, 1), LaplaceRelease(1.0, 1)]
)
def test_it_refuses_all_other_events(event: Event) -> None:
    with pytest.raises(UnsupportedEventError, match=type(event).__name__):
        LocalAccountant().compose(Composition((LocalRelease(1.0), event)))
    with pytest.raises(UnsupportedEventError, match="LocalRelease"):
        epsilons([event, LocalRelease(1.0)], DELTA)


def test_report_and_adjacency() -> None:
    report = epsilons([(LocalRelease(0.5), 10), LocalRelease(0.5)], DELTA)
    assert report.winner == "local"
    assert report.adjacency is Adjacency.ANY_INPUT
    assert report.epsilon == _account((0.5, 11)).epsilon(DELTA)
    assert "any input" in report.as_json()["adjacency"]
    broken = epsilons([LocalRelease(0.5), NonPrivateRelease()], DELTA)
    assert broken.epsilon == math.inf
    assert broken.reasons == {"local": "something was released without noise"}


def test_everybody_is_promised_the_same() -> None:
    four = local_epsilons([(LocalRelease(0.5), 10)], DELTA, colluders=3)
    assert four.server == four.outsider == four.sybil == _account((0.5, 10)).epsilon(DELTA)
    assert four.secagg_alone == math.inf
    assert not four.amplified
    assert "any input of one client replaced by any other" in four.text()
    with pytest.raises(UnsupportedEventError):
        local_epsilons([GaussianRelease(1.0, 1.0)], DELTA)
    with pytest.raises(UnsupportedEventError):
        four_epsilons([LocalRelease(1.0)], [LocalRelease(1.0)], [LocalRelease(1.0)], DELTA)


def test_ledger_and_budget(tmp_path: Path) -> None:
    budget = Budget(3.0, DELTA)
    accountant = LocalAccountant()
    with Ledger.open(tmp_path / "ledger") as ledger:
        for _ in range(3):
            budget.check(accountant, LocalRelease(0.9))
            accountant.compose(LocalRelease(0.9))
            ledger.append(LocalRelease(0.9), {"client": "a"})
    with pytest.raises(BudgetExceededError):
        budget.check(accountant, LocalRelease(0.9))
    with Ledger.open(tmp_path / "ledger") as ledger:
        again = replay(ledger.events(), LocalAccountant())
    assert again.epsilon(DELTA) == accountant.epsilon(DELTA)
    assert again.releases == 3


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_bad_delta(delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        _account((1.0, 1)).bounds(delta)
