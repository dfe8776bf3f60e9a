"""The Gaussian form of docs/correlated-noise.md: its certificate, exact laws, and its twins."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from correlated_transcripts import Game, Table, hockey_stick_leaf
from probit_certificate import certify, curvature
from scipy import special
from test_correlated_theorem import PROMISES, promises_of
from test_correlated_transcripts import over_budgets

from dp.accounting.gaussian import gaussian_delta, gaussian_epsilon
from dp.accounting.moments import renyi_to_epsilon
from dp.correlated import CorrelatedRelease, correlated_epsilon
from dp.correlated.accountant import promises_of as promises_of_event
from dp.correlated.replay import replayed_run
from dp.correlated.theorem import ORDERS

LOST = 0.1
LIMIT = 1.0 / (4.0 - LOST)


@pytest.mark.slow
def test_the_certificate() -> None:
    found = certify()
    assert found.holds
    assert found.limit == pytest.approx(LIMIT)


def reference_curvature(s: float) -> float:
    """-(ln G)'' as the mean and the variance of docs/correlated-noise.md."""
    x = s + np.arange(60)
    weights = x * np.exp(-(x * x - s * s) / 8)
    weights /= weights.sum()
    d = 1 / x - x / 4
    mean = float(weights @ d)
    return float(weights @ (0.25 + 1 / x**2) - weights @ (d - mean) ** 2)


@pytest.mark.parametrize("eighths", range(4, 100, 7))
def test_the_certificate_bounds_what_it_says(eighths: int) -> None:
    low = Fraction(eighths, 8)
    least, most = curvature(low, low + Fraction(1, 1000))
    for s in (float(low), float(low) + 0.0005, float(low) + 0.001):
        assert least <= reference_curvature(s) <= most
    assert 0.0 < least < most < LIMIT
    assert most - least < 1e-4


def centred(variance: float, centre: float) -> tuple[Table, Table]:
    """Probits of P[n >= m] and of P[n < m] of a discrete Gaussian with this real centre."""
    n = np.arange(-60, 61)
    masses = np.exp(-((n - centre) ** 2) / (2 * variance))
    masses /= masses.sum()
    upper, lower = np.cumsum(masses[::-1])[::-1][1:], np.cumsum(masses)[:-1]
    probit = np.where(upper < 0.5, special.ndtri(upper), -special.ndtri(lower))
    return probit, -probit


def largest_mu_over_shift(variance: float) -> float:
    """Of real centres and shifts: the least Gaussian that dominates, over its plain one."""
    worst = 0.0
    for centre in np.linspace(0.0, 1.0, 9):
        up, _ = centred(variance, centre)
        for shift in (0.01, 0.1, 0.37, 1.0, 1.9, 4.3):
            _, low = centred(variance, centre + shift)
            seen = (up > -8) & (low > -8)
            mu = -(up + low)[seen].min()
            worst = max(worst, mu * math.sqrt(variance) / shift)
    return worst


@pytest.mark.parametrize("variance", [4.0, 5.3, 9.0, 16.0, 64.0])
def test_exact_laws_with_real_centres_and_shifts(variance: float) -> None:
    worst = largest_mu_over_shift(variance)
    assert worst <= 1 / math.sqrt(1 - LOST / variance)
    # The constant is hardly too large: 1/12 is met to a part in a hundred.
    assert worst >= 1 / math.sqrt(1 - 0.0825 / variance)


@pytest.mark.parametrize(
    "game",
    [
        Game(2, 1.0, 3.0, 1, 1.0),
        Game(2, 2.0, 2.0, 1, 1.0, largest=2),
        Game(2, 2.0, 3.0, 1, 1.0),
        pytest.param(Game(2, 4.0, 12.0, 1, 1.0, largest=2), marks=pytest.mark.slow),
    ],
)
def test_no_adaptive_adversary_beats_the_form(game: Game) -> None:
    """Not even without its gap; and the Gaussian of the plain mu is beaten (a twin)."""
    worst = plain = 0.0
    for played in over_budgets(game):
        mu = math.sqrt(played.budget)
        for epsilon in (0.1, 0.5, 1.0, 2.0):
            delta = played.best(hockey_stick_leaf(epsilon))
            if delta > 1e-12:
                worst = max(
                    worst, delta / gaussian_delta(epsilon, mu / math.sqrt(1 - LOST / game.fresh))
                )
                plain = max(plain, delta / gaussian_delta(epsilon, mu))
                claimed = promises_of(game).gaussian_form(played.budget, delta)
                assert claimed >= epsilon * (1 - 1e-9)
    assert 0.98 < worst <= 1.0 < plain


def test_the_smaller_bound_counts() -> None:
    form = PROMISES.gaussian_form(1.0, 1e-5)
    moments = min(renyi_to_epsilon(a, PROMISES.renyi(1.0, a), 1e-5) for a in ORDERS)
    assert correlated_epsilon(1.0, PROMISES, 1e-5) == form < moments
    larger = math.sqrt(1 / (1 - LOST / PROMISES.fresh))
    assert form == pytest.approx(gaussian_epsilon(larger, 1e-5), rel=1e-9)
    few = replace(PROMISES, dimension=1, smallest_part=3.9, kept=3.9, fresh=3.9)
    assert few.gaussian_form(1.0, 1e-5) == math.inf > correlated_epsilon(1.0, few, 1e-5)
    small = replace(PROMISES, smallest_part=0.05)
    assert small.gaussian_form(1.0, 1e-5) == math.inf


@pytest.mark.parametrize("part", [1.4, 3.0, 4.0, 5.4])
@pytest.mark.parametrize("bound", [1e-4, 0.3, 3.0, 30.0, 300.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.1])
def test_the_replay_has_a_form_of_its_own(part: float, bound: float, delta: float) -> None:
    event = CorrelatedRelease(
        index=1,
        fresh_variance=80.0,
        returned_variance=0.0,
        l2_sensitivity=bound,
        dimension=10**6,
        rounds=60,
        least_fresh=80.0,
        largest_return=0.0,
        smallest_part=part,
        most_parts=64,
        least_kept=8 * part,
    )
    written = {name: getattr(event, name) for name in event.__dataclass_fields__}
    claimed = correlated_epsilon(bound**2 / 80.0, promises_of_event(event), delta)
    replayed = replayed_run([{"tag": event.tag, **written}], delta)
    # Of small parts the accountant rounds the gap up a little further.
    assert claimed == pytest.approx(replayed, rel=3e-6 if part > 2.0 else 3e-3, abs=1e-12)
    assert claimed >= replayed * (1.0 - 3e-6)
