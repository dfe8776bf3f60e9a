"""The outsider: each sampling scheme with its own formula, checked by integrals and enumeration."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest
from accounts import epsilon_of
from scipy import stats

from dp.accounting import (
    DominationAccountant,
    ExactAccountant,
    MomentsAccountant,
    OutsiderAccountant,
    PublishedAccountant,
    Theorem1Accountant,
    outsider,
)
from dp.accounting.outsider import INTERVAL, fixed_size_profile
from dp.errors import UnsupportedEventError
from dp.event_kinds import Event
from dp.events import (
    Allocated,
    BinomialRelease,
    Composition,
    FixedSizeSampled,
    GaussianRelease,
    NonPrivateRelease,
    PoissonSampled,
    SkellamRelease,
)
from dp.report import epsilons

DELTA = 1e-5
COINS = BinomialRelease(14262, 16.0, 16, 100)
GAUSSIAN = GaussianRelease(60.0, 16.0)


_epsilon = partial(epsilon_of, OutsiderAccountant)


@pytest.mark.parametrize("rate", [0.01, 0.3])
@pytest.mark.parametrize("rounds", [1, 50])
def test_poisson_sampling_agrees_with_dp_accounting(rate: float, rounds: int) -> None:
    """For Gaussian noise it is that library's figure; integer noise costs a little more."""
    import dp_accounting
    from dp_accounting import pld

    library = pld.PLDAccountant()
    multiplier = GAUSSIAN.sigma / GAUSSIAN.l2_sensitivity
    gaussian = dp_accounting.GaussianDpEvent(multiplier)
    library.compose(dp_accounting.PoissonSampledDpEvent(rate, gaussian), rounds)
    tight = library.get_epsilon(DELTA)
    assert _epsilon(PoissonSampled(rate, GAUSSIAN), rounds=rounds) == pytest.approx(tight, rel=1e-6)
    integer = _epsilon(PoissonSampled(rate, BinomialRelease(14400, 16.0, 16, 9)), rounds=rounds)
    assert tight < integer < 1.03 * tight


@pytest.mark.parametrize("inner", [COINS, GAUSSIAN, SkellamRelease(3600.0, 16.0, 16, 9)])
@pytest.mark.slow
def test_order_of_the_schemes(inner: Event) -> None:
    """Poisson < fixed size < known cohort: never the Poisson figure for a fixed size."""
    poisson = _epsilon(PoissonSampled(0.05, inner), rounds=10)  # type: ignore[arg-type]
    fixed = _epsilon(FixedSizeSampled(50, 1000, inner), rounds=10)  # type: ignore[arg-type]
    known = _epsilon(inner, rounds=10)
    assert poisson < fixed < known


def test_sampling_everybody_is_not_sampling() -> None:
    known = _epsilon(COINS, rounds=3)
    assert _epsilon(FixedSizeSampled(10, 10, COINS), rounds=3) == pytest.approx(known, rel=1e-3)
    assert _epsilon(PoissonSampled(1.0, COINS), rounds=3) == pytest.approx(known, rel=1e-3)
    assert known <= epsilon_of(DominationAccountant, COINS, rounds=3)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "other", [-2.0, pytest.param(-1.0, marks=SLOW), 0.0, pytest.param(1.0, marks=SLOW), 2.0]
)
@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_fixed_size_profile_holds_for_every_stand_in(other: float, rate: float) -> None:
    """Two mixtures against each other, by numerical integration.

    They are q N(v) + (1-q) N(w) and q N(0) + (1-q) N(w) with |v| = 2 >= |w|, where w is what the
    client that takes the place contributes. Both directions, several epsilons.
    """
    size, population = round(1000 * rate), 1000
    profile = fixed_size_profile(FixedSizeSampled(size, population, GaussianRelease(1.0, 2.0)), 0.1)
    y = np.linspace(-14, 14, 200_001)
    normal = stats.norm.pdf
    with_client = rate * normal(y, 2.0) + (1 - rate) * normal(y, other)
    without = rate * normal(y) + (1 - rate) * normal(y, other)
    for epsilon in (0.0, 0.2, 0.7, 1.5):
        limit = profile[round(epsilon / INTERVAL)]
        for p, q in ((with_client, without), (without, with_client)):
            found = np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0.0), y)
            assert found <= limit * (1 + 1e-6)


def test_the_poisson_formula_would_be_wrong_for_a_fixed_size() -> None:
    """Broken twin: a stand-in with the opposite vector exceeds the Poisson profile."""
    rate, epsilon = 0.05, 0.7
    y = np.linspace(-14, 14, 200_001)
    normal = stats.norm.pdf
    stand_in = (1 - rate) * normal(y, -2.0)
    fixed = np.maximum(
        rate * normal(y, 2.0) + stand_in - math.exp(epsilon) * (rate * normal(y) + stand_in), 0.0
    )
    poisson = np.maximum(
        rate * normal(y, 2.0) + (1 - rate) * normal(y) - math.exp(epsilon) * normal(y), 0.0
    )
    assert np.trapezoid(fixed, y) > 1.2 * np.trapezoid(poisson, y)


def test_fixed_size_with_integer_noise_by_enumeration() -> None:
    """Three clients, cohorts of one or two, every choice of inputs: within the stated profile."""
    coins, largest = 64, 2
    event = BinomialRelease(coins, 2.0, 2, 1)
    half = coins // 2
    p = np.array([math.comb(coins, i) / 2**coins for i in range(coins + 1)])

    def law(shift: int) -> np.ndarray:
        full = np.zeros(coins + 21)
        full[10 + shift : 10 + shift + coins + 1] = p
        return full

    assert half > 10
    for size in (1, 2):
        bounds = [fixed_size_profile(FixedSizeSampled(size, 3, event), d0) for d0 in (1e-3, 1e-6)]
        values = range(-largest, largest + 1)
        for mine, second, third in itertools.product((1, 2), values, values):
            pair = []
            for own in (mine, 0):
                inputs = (own, second, third)
                cohorts = list(itertools.combinations(inputs, size))
                pair.append(sum(law(sum(c)) for c in cohorts) / len(cohorts))
            for epsilon in (0.0, 0.2, 0.6):
                limit = min(b[min(round(epsilon / INTERVAL), b.size - 1)] for b in bounds)
                for one, two in (pair, pair[::-1]):
                    found = float(np.maximum(one - math.exp(epsilon) * two, 0.0).sum())
                    assert found <= limit * (1 + 1e-9)


def test_the_replace_one_bound_uses_twice_the_sensitivity() -> None:
    """It is a valid bound of Gaussian noise, and here the weaker one."""
    accountant = OutsiderAccountant()
    accountant.compose(FixedSizeSampled(10, 1000, GAUSSIAN), 20)
    by_losses, by_renyi = accountant._by_losses(DELTA), accountant._by_renyi(DELTA)
    assert accountant.epsilon(DELTA) == by_losses < by_renyi < math.inf
    integer = OutsiderAccountant()
    integer.compose(FixedSizeSampled(10, 1000, COINS))
    assert integer._by_renyi(DELTA) == math.inf  # no theorem for three integer laws at once


def test_mixtures_of_schemes_and_plain_releases() -> None:
    mixed = Composition((PoissonSampled(0.1, COINS), FixedSizeSampled(5, 50, GAUSSIAN), COINS))
    assert _epsilon(COINS) < _epsilon(mixed) < _epsilon(Composition((COINS, COINS, GAUSSIAN)))
    together = Composition((PoissonSampled(0.1, GAUSSIAN), FixedSizeSampled(5, 50, GAUSSIAN)))
    accountant = OutsiderAccountant()
    accountant.compose(together)
    assert accountant._by_renyi(DELTA) < math.inf


def test_tiny_deltas_rest_on_renyi_bounds() -> None:
    accountant = OutsiderAccountant()
    accountant.compose(PoissonSampled(0.01, COINS), 10)
    assert accountant._by_losses(1e-12) == math.inf
    assert 0.0 < accountant.epsilon(1e-12) < math.inf


def test_extremes() -> None:
    assert _epsilon(NonPrivateRelease()) == math.inf
    assert _epsilon(PoissonSampled(0.1, BinomialRelease(0, 1.0, 1, 1))) == math.inf
    assert _epsilon(FixedSizeSampled(1, 10, BinomialRelease(0, 1.0, 1, 1))) == math.inf
    assert _epsilon(PoissonSampled(0.1, BinomialRelease(100, 0.0, 1, 1))) == 0.0
    assert _epsilon(PoissonSampled(0.1, BinomialRelease(100, 0.5, 1, 1))) == 0.0
    assert _epsilon(PoissonSampled(0.1, GaussianRelease(1e-3, 1.0))) > 1e3
    assert OutsiderAccountant().epsilon(DELTA) == 0.0


@pytest.mark.parametrize(
    "event",
    [PoissonSampled(0.1, COINS), FixedSizeSampled(1, 10, COINS), Allocated(10, COINS)],
)
@pytest.mark.parametrize(
    "kind",
    [
        DominationAccountant,
        MomentsAccountant,
        ExactAccountant,
        PublishedAccountant,
        Theorem1Accountant,
    ],
)
def test_accountants_against_the_server_refuse_sampling_by_name(kind: type, event: Event) -> None:
    with pytest.raises(UnsupportedEventError, match=rf"{type(event).__name__}.*knows the cohort"):
        kind().compose(event)
    with pytest.raises(UnsupportedEventError, match=type(event).__name__):
        epsilons([COINS, event], DELTA)


def test_lower_hull() -> None:
    x = np.array([0.0, 1.0, 2.0, 3.0])
    assert list(outsider._convex_minorant(x, [1.0, 0.9, 0.2, 0.1])) == pytest.approx(
        [1.0, 0.6, 0.2, 0.1]
    )
