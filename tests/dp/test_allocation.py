"""One round of each block by a secret coin: figures, exact integrals, adversaries that adapt."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from accounts import epsilon_of
from recount import allocated
from scipy import special

from dp.accounting import OutsiderAccountant, gaussian_mu
from dp.accounting.allocation import (
    MAX_MU,
    RatioLaw,
    allocated_ratio,
    gaussian_ratio,
    joined,
)
from dp.accounting.laws import FloatArray
from dp.event_kinds import NoisyRelease
from dp.events import (
    Allocated,
    BinomialRelease,
    Composition,
    GaussianRelease,
    PoissonSampled,
)

DELTA = 1e-5
_epsilon = partial(epsilon_of, OutsiderAccountant)

FIGURES = [  # goal, rounds of a block, blocks, to an outsider, the same with Poisson sampling
    (5.0, 3, 4, 2.89, 3.43),
    (5.0, 5, 12, 2.05, 2.19),
    (8.0, 10, 10, 2.29, 2.51),
    (5.0, 100, 10, 0.40, 0.41),
]


def _mu(goal: float, blocks: int) -> float:
    """Return the length, over the noise of a round, that meets the goal in so many rounds."""
    return gaussian_mu(goal, DELTA) / math.sqrt(blocks)


def _release(goal: float, blocks: int) -> GaussianRelease:
    return GaussianRelease(1.0, _mu(goal, blocks))


@pytest.mark.parametrize(("goal", "rounds", "blocks", "figure", "poisson"), FIGURES)
def test_figures_and_those_of_poisson_sampling(
    goal: float, rounds: int, blocks: int, figure: float, poisson: float
) -> None:
    release = _release(goal, blocks)
    found = _epsilon(Allocated(rounds, release), rounds=blocks)
    assert found == pytest.approx(figure, abs=0.006)
    flipped = _epsilon(PoissonSampled(1.0 / rounds, release), rounds=rounds * blocks)
    assert flipped == pytest.approx(poisson, abs=0.006)
    assert flipped > found + 0.005


def test_the_figure_of_integers_by_fourier() -> None:
    """The demo's with coins: what failures leave of delta, once for a goal and once for a run."""
    delta0, aggregation = DELTA / 128, DELTA / 400
    mu = gaussian_mu(5.0, DELTA - 4 * (delta0 + aggregation)) / 2.0
    assert allocated(mu, 3, 4, DELTA - 12 * delta0) == pytest.approx(2.9005, abs=5e-4)


X = np.linspace(-9.0, 12.0, 801)
WIDTH = X[1] - X[0]
EPSILONS = (-0.5, 0.5, 1.5, 3.0)


def _both(p: FloatArray, q: FloatArray, epsilon: float) -> FloatArray:
    """Both hockey-stick divergences of densities over a square, by the first coordinate."""
    odds = math.exp(epsilon)
    worse = [np.maximum(p - odds * q, 0.0), np.maximum(q - odds * p, 0.0)]
    found: FloatArray = np.array(worse).sum(axis=2) * WIDTH**2
    return found


def _at(first: float, second: float | FloatArray) -> FloatArray:
    """Density of two rounds with unit noise; the second mean may follow the first result."""
    second = np.broadcast_to(np.asarray(second), X.shape)
    squares = (X[:, None] - first) ** 2 + (X[None, :] - second[:, None]) ** 2
    density: FloatArray = np.exp(-squares / 2.0) / (2.0 * math.pi)
    return density


@pytest.mark.parametrize("mu", [0.3, 1.5, 3.0])
def test_two_rounds_are_what_they_are_by_integration(mu: float) -> None:
    law = allocated_ratio(mu, 2)
    for epsilon in EPSILONS:
        exact = _both((_at(mu, 0.0) + _at(0.0, mu)) / 2.0, _at(0.0, 0.0), epsilon).sum(axis=1)
        assert np.all(exact < np.array(law.deltas(epsilon)) + 1e-12)
        assert law.deltas(epsilon) == pytest.approx(exact, rel=2e-3, abs=1e-9)


def test_no_adversary_gains_by_adapting_to_results() -> None:
    """The second contribution is the worst at every result of the first, for each direction."""
    mu = 1.5
    law, base = allocated_ratio(mu, 2), _at(0.0, 0.0)
    for epsilon in EPSILONS:
        worst = np.zeros((2, X.size))
        for shift in np.linspace(-mu, mu, 7):
            found = _both((_at(mu, 0.0) + _at(0.0, shift)) / 2.0, base, epsilon)
            worst = np.maximum(worst, found)
        assert np.all(worst.sum(axis=1) <= law.deltas(epsilon))


def test_what_breaks_a_condition_breaks_the_bound() -> None:
    """Broken twins: a stand-in takes the place and contributes the opposite; one coin for all."""
    mu = epsilon = 1.5
    with_it, without = _at(mu, -mu) + _at(-mu, mu), _at(0.0, -mu) + _at(-mu, 0.0)
    fixed_size = _both(with_it / 2.0, without / 2.0, epsilon).sum(axis=1)
    assert np.all(fixed_size > 1.5 * np.array(allocated_ratio(mu, 2).deltas(epsilon)))
    two_blocks = allocated_ratio(mu, 2).to_pld().self_compose(2).get_delta_for_epsilon(epsilon)
    assert max(allocated_ratio(mu * math.sqrt(2.0), 2).deltas(epsilon)) > 1.1 * two_blocks


def test_rounding_the_other_way_would_be_seen() -> None:
    """Broken twin: cells are joined at their mean, and the divergence falls below the true one."""
    mu, epsilon = 1.0, 1.0
    law = gaussian_ratio(mu)
    edges = law.logs / mu + mu / 2.0
    under_q, under_p = np.diff(special.ndtr(edges)), np.diff(special.ndtr(edges - mu))
    optimistic = float(np.maximum(under_p - math.exp(epsilon) * under_q, 0.0).sum())
    exact = float(special.ndtr(mu / 2.0 - epsilon / mu))
    exact -= math.exp(epsilon) * float(special.ndtr(-mu / 2.0 - epsilon / mu))
    assert optimistic < exact < law.deltas(epsilon)[0] < exact * (1.0 + 1e-3)


@pytest.mark.parametrize("mu", [1e-6, 1e-3, 0.05, 1.0, 6.0, MAX_MU])
@pytest.mark.parametrize("rounds", [1, 2, 7, 1000])
def test_masses_add_up_under_both_laws(mu: float, rounds: int) -> None:
    """None is lost, and rounding raises them by little."""
    law = allocated_ratio(mu, rounds)
    for total in (law.masses.sum() + law.zero, law.masses @ np.exp(law.logs) + law.infinite):
        assert 1.0 <= total < 1.0 + 1e-4
    assert law.zero < 1e-12
    assert law.infinite < 1e-12


HEAVY = RatioLaw(1000, -2, np.array([0.3, 0.1, 0.0, 0.2, 0.3]), 0.1, 0.2)
LIGHT = RatioLaw(1000, -3, np.array([0.2, 0.3, 0.4]), 0.4, 0.01)


@pytest.mark.parametrize("law", [HEAVY, LIGHT])
@pytest.mark.parametrize("epsilon", [0.0, 0.15, 0.45, 0.8])
def test_a_loss_distribution_has_both_directions(law: RatioLaw, epsilon: float) -> None:
    found = law.to_pld()
    present, absent = law.deltas(epsilon)
    assert found._pmf_remove.get_delta_for_epsilon(epsilon) == pytest.approx(present)
    assert found._pmf_add.get_delta_for_epsilon(epsilon) == pytest.approx(absent)


def test_parts_of_a_block_by_enumeration() -> None:
    """Two rounds like one law and one like another: every pair of outcomes, split and not lost."""
    one, other = replace(HEAVY, zero=0.0), replace(LIGHT, zero=0.0)
    law = joined(one, 2, other, 1)
    ratios = np.add.outer(2.0 * np.exp(one.logs), np.exp(other.logs)) / 3.0
    masses = np.outer(one.masses, other.masses)
    for odds in (0.5, 0.9, 1.3):
        present = (2.0 * one.infinite + other.infinite) / 3.0
        present += float(np.sum(masses * np.maximum(ratios - odds, 0.0)))
        absent = float(np.sum(masses * np.maximum(1.0 - odds * ratios, 0.0)))
        assert law.deltas(math.log(odds)) == pytest.approx((present, absent), rel=1e-4, abs=1e-12)


def test_far_tails_keep_their_probability_under_both_laws() -> None:
    tail = np.array([4e-19, 2e-18, 1.0, 2e-18, 4e-19])
    law = RatioLaw(1000, -2, tail, 0.0, 0.0)
    cut, approx = law.trimmed(), partial(pytest.approx, rel=1e-9, abs=0.0)
    assert list(cut.masses[[0, -1]]) == approx([2e-18 + 4e-19 * math.exp(-0.1), 2.4e-18])
    assert cut.zero == approx(-4e-19 * math.expm1(-0.1))
    assert cut.infinite == approx(4e-19 * (math.exp(0.2) - math.exp(0.1)))


COINS = BinomialRelease(14400, 16.0, 16, 9)
PLAIN = GaussianRelease(60.0, 16.0)


def test_integer_noise_costs_a_little_more_and_every_round_may_fail() -> None:
    gaussian = _epsilon(Allocated(5, PLAIN), rounds=4)
    assert gaussian < _epsilon(Allocated(5, COINS), rounds=4) < 1.02 * gaussian
    accountant = OutsiderAccountant()
    accountant.compose(Allocated(5, COINS), 4)
    accountant.compose(PoissonSampled(0.5, COINS), 3)
    assert accountant._remaining(DELTA, 1e-9) == pytest.approx(DELTA - 23e-9, rel=1e-12)


def test_with_other_releases() -> None:
    """It composes with all kinds, costs no more than a known cohort, and less in longer blocks."""
    mixed = Composition((Allocated(3, COINS), PoissonSampled(0.1, PLAIN), PLAIN))
    assert _epsilon(PLAIN) < _epsilon(mixed) < _epsilon(Composition((COINS, PLAIN, PLAIN)))
    found = [_epsilon(Allocated(rounds, PLAIN), rounds=10) for rounds in (1, 2, 3, 8)]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(_epsilon(PLAIN, rounds=10))  # one round hides nothing
    assert _epsilon(Allocated(3, COINS), delta=1e-13) <= _epsilon(COINS, delta=1e-13)


@pytest.mark.parametrize(
    ("inner", "epsilon"),
    [
        (BinomialRelease(0, 1.0, 1, 1), math.inf),
        (BinomialRelease(100, 0.5, 1, 1), 0.0),
        (GaussianRelease(1.0, 0.0), 0.0),
        (GaussianRelease(0.0, 1.0), math.inf),
    ],
)
def test_extremes(inner: NoisyRelease, epsilon: float) -> None:
    assert _epsilon(Allocated(4, inner)) == epsilon
    assert _epsilon(Allocated(4, GaussianRelease(1e-3, 1.0))) > 1e3


@pytest.mark.parametrize(
    ("blocks", "mu", "delta"),
    [(100_000, 0.01, 2e-11), (30_000, 3.0 / math.sqrt(30_000), 1e-10), (1000, 0.1, 2e-10)],
)
def test_many_blocks_never_come_below_what_hides_nothing(
    blocks: int, mu: float, delta: float
) -> None:
    """Blocks of one round are plain Gaussian releases; transforms alone come out below."""
    plain = GaussianRelease(1.0, mu)
    exact = _epsilon(plain, delta=delta, rounds=blocks)
    assert _epsilon(Allocated(1, plain), delta=delta, rounds=blocks) >= exact * (1.0 - 1e-9)
