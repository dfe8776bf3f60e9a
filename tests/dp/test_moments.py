"""Truncated moments: the definition in plain words, composition, and what the bound is worth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from accounts import epsilon_of

from dp.accounting import (
    DominationAccountant,
    ExactAccountant,
    MomentsAccountant,
    gaussian_epsilon,
    moments,
)
from dp.accounting.laws import BinomialNoise, SkellamNoise
from dp.accounting.moments import renyi_to_epsilon, truncated_renyi
from dp.event_kinds import Event
from dp.events import BinomialRelease, DiscreteGaussianRelease, GaussianRelease, SkellamRelease

DELTA = 1e-5


def _plain(coins: int, l2: float, linf: int, cut: float, order: float) -> float:
    """tau_a by its definition, from exact integer binomials."""
    half = coins // 2
    p = {z: math.comb(coins, z + half) / 2**coins for z in range(-half, half + 1)}
    best = 0.0
    for k in range(1, min(linf, int(l2)) + 1):
        tail, last = 0.0, half
        while tail + p[last] <= cut * k * k / l2**2:
            tail += p[last]
            last -= 1
        if last + k > half:
            return math.inf
        log_p = {z: math.log(p[z]) for z in p}
        terms = (order * log_p[z] + (1 - order) * log_p[z + k] for z in range(-half, last + 1))
        total = math.fsum(math.exp(term) for term in terms)
        best = max(best, math.log(total) / (order - 1) / k**2)
    return l2**2 * best


@pytest.mark.parametrize(
    ("coins", "l2", "linf", "cut"),
    [(64, 3.0, 3, 1e-4), (256, 4.0, 4, 1e-6), (256, 8.5, 2, 1e-3), (1024, 16.0, 16, 1e-7)],
)
@pytest.mark.parametrize("order", [1.2, 2.0, 7.5, 20.0])
def test_agrees_with_the_definition_from_above(
    coins: int, l2: float, linf: int, cut: float, order: float
) -> None:
    found = truncated_renyi(BinomialNoise(coins), l2, linf, cut, order)
    plain = _plain(coins, l2, linf, cut, order)
    assert plain <= found <= plain * (1 + 1e-5) + 1e-7


def test_the_ratio_neither_always_rises_nor_always_falls() -> None:
    """Why every k is evaluated: truncation pulls large shifts down, thin tails pull them up."""

    def ratios(coins: int, last: int | None, order: float) -> list[float]:
        masses, out = BinomialNoise(coins).log_masses(coins // 2).values, np.empty(1)
        found = []
        for k in range(1, 17):
            cut = coins // 2 - k if last is None else last
            moments.log_moments(masses, k, -coins // 2, cut, np.array([order]), out)
            found.append(float(out[0]) / ((order - 1) * k * k))
        return found

    assert np.all(np.diff(ratios(256, 20, 9.0)) < 0)
    assert np.any(np.diff(ratios(64, None, 1.5)) > 0)


def test_conversion_is_the_best_for_one_order() -> None:
    """exp((a-1)(tau-eps)) (1-1/a)^(a-1)/a meets delta exactly."""
    order, tau = 5.0, 0.3
    epsilon = renyi_to_epsilon(order, tau, DELTA)
    reached = math.exp((order - 1) * (tau - epsilon)) * (1 - 1 / order) ** (order - 1) / order
    assert reached == pytest.approx(DELTA, rel=1e-12)
    assert renyi_to_epsilon(order, 0.0, 0.9) == 0.0
    assert renyi_to_epsilon(order, math.inf, DELTA) == math.inf
    assert renyi_to_epsilon(1.0, 0.1, DELTA) == math.inf


def test_conversion_agrees_with_dp_accounting() -> None:
    from dp_accounting import rdp

    orders = [1.5, 3.0, 10.0, 40.0]
    taus = [0.2 * a for a in orders]
    ours = min(renyi_to_epsilon(a, tau, DELTA) for a, tau in zip(orders, taus, strict=True))
    assert ours == pytest.approx(rdp.compute_epsilon(orders, taus, DELTA)[0], rel=1e-12)


@pytest.mark.parametrize("rounds", [1, 2, 6])
@pytest.mark.parametrize(
    "event",
    [
        BinomialRelease(64, 3.0, 3, 10),
        BinomialRelease(256, 4.0, 4, 10**6),
        SkellamRelease(16.0, 3.0, 3, 10),
        DiscreteGaussianRelease(0.64, 100, 4.0, 4, 100),
    ],
)
def test_a_bound_of_the_exact_value_over_adaptive_rounds(event: Event, rounds: int) -> None:
    exact = epsilon_of(ExactAccountant, *[event] * rounds)
    assert exact <= epsilon_of(MomentsAccountant, *[event] * rounds) <= 1.12 * exact


def test_it_can_beat_domination() -> None:
    """Weak noise over several rounds: two valid bounds, and neither always wins."""
    event = BinomialRelease(64, 3.0, 3, 10)
    assert epsilon_of(MomentsAccountant, *[event] * 8) < epsilon_of(
        DominationAccountant, *[event] * 8
    )
    assert epsilon_of(MomentsAccountant, event) > epsilon_of(DominationAccountant, event)


def test_gaussian_noise_is_its_own_renyi_divergence() -> None:
    event = GaussianRelease(8.0, 4.0)
    found = epsilon_of(MomentsAccountant, event, event)
    tight = gaussian_epsilon(math.sqrt(2) / 2, DELTA)
    assert tight < found < 1.15 * tight


def test_wide_noise_approaches_the_gaussian_moment() -> None:
    """tau_a = a D2^2 / (2 V) in the limit."""
    for law in (BinomialNoise(4 * 10**6), SkellamNoise(1e6)):
        found = truncated_renyi(law, 10.0, 10, 1e-12, 4.0)
        assert found == pytest.approx(4.0 * 100 / 2e6, rel=3e-4)


def test_what_cannot_be_stated_is_infinite() -> None:
    assert truncated_renyi(BinomialNoise(64), 1000.0, 1000, 1e-6, 2.0) == math.inf
    assert truncated_renyi(BinomialNoise(16), 8.0, 8, 1e-9, 2.0) == math.inf
    assert truncated_renyi(SkellamNoise(1e8), 1e4, 10_000, 1e-9, 2.0) == math.inf  # too long
    assert epsilon_of(MomentsAccountant, BinomialRelease(0, 4.0, 4, 1)) == math.inf
    assert epsilon_of(MomentsAccountant, BinomialRelease(64, 0.5, 1, 1)) == 0.0
    assert truncated_renyi(BinomialNoise(64), 0.5, 1, 1e-6, 2.0) == 0.0


def test_monotone_in_noise_sensitivity_and_rounds() -> None:
    def at(coins: int, l2: float, rounds: int) -> float:
        return epsilon_of(MomentsAccountant, *[BinomialRelease(coins, l2, 4, 10)] * rounds)

    assert np.all(np.diff([at(n, 4.0, 1) for n in (128, 256, 1024, 8192)]) < 0)
    assert np.all(np.diff([at(1024, l2, 1) for l2 in (2.0, 4.0, 8.0, 16.0)]) > 0)
    assert np.all(np.diff([at(1024, 4.0, t) for t in (1, 2, 4, 8)]) > 0)
