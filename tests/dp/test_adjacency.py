"""Replace-one: what twice the sensitivities promise, against every replacement by brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from accounts import epsilon_of
from numpy.typing import NDArray

from dp import NoiseSeed, quantize, replace_one
from dp.accounting import DominationAccountant, ExactAccountant
from dp.clipping import clip_l2
from dp.errors import UnsupportedEventError
from dp.event_kinds import Event
from dp.events import (
    AboveThresholdRelease,
    Adjacency,
    Allocated,
    BinomialRelease,
    Composition,
    DiscreteGaussianRelease,
    FixedSizeSampled,
    GaussianRelease,
    LaplaceRelease,
    LevelRelease,
    LocalRelease,
    NonPrivateRelease,
    PoissonSampled,
    SkellamRelease,
)
from dp.protection import four_epsilons
from dp.report import epsilons

DELTA = 1e-4
COINS, SQUARE, LARGEST = 36, 3, 1


def _masses(coins: int) -> dict[int, float]:
    half = coins // 2
    return {i - half: math.comb(coins, i) / 2**coins for i in range(coins + 1)}


def _divergence(vector: tuple[int, ...], epsilon: float, coins: int) -> float:
    """H(M(v) || M(0)) of independent binomial noise, over all outcomes of the non-zero part."""
    noise = _masses(coins)
    p, q = np.ones(1), np.ones(1)
    for shift in vector:
        here = np.array(list(noise.values()))
        there = np.array([noise.get(z + shift, 0.0) for z in noise])
        p, q = np.outer(p, here).ravel(), np.outer(q, there).ravel()
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def _differences(square: int, largest: int, dimension: int) -> set[tuple[int, ...]]:
    """The differences u - w of all integer vectors within bounds, up to order, sign and zeros."""
    inside = [
        np.array(v)
        for v in itertools.product(range(-largest, largest + 1), repeat=dimension)
        if sum(x * x for x in v) <= square
    ]
    return {
        tuple(sorted((abs(int(x)) for x in u - w if x), reverse=True))
        for u, w in itertools.product(inside, repeat=2)
    }


@pytest.fixture(scope="module")
def differences() -> set[tuple[int, ...]]:
    """Of two contributions in four coordinates; the longest is (2, 2, 2), twice the norm."""
    found = _differences(SQUARE, LARGEST, 4)
    assert (2, 2, 2) in found and max(map(len, found)) == 4
    return found


def _worst(differences: set[tuple[int, ...]], epsilon: float) -> float:
    return max(_divergence(v, epsilon, COINS) for v in differences if v)


EVENT = BinomialRelease(COINS, math.sqrt(SQUARE), LARGEST, 4)


@pytest.mark.parametrize("kind", [DominationAccountant, ExactAccountant])
def test_twice_the_sensitivities_cover_every_replacement(
    differences: set[tuple[int, ...]], kind: type[DominationAccountant | ExactAccountant]
) -> None:
    epsilon = epsilon_of(kind, replace_one(EVENT), delta=DELTA)
    reached = _worst(differences, epsilon)
    assert 0.1 * DELTA < reached <= DELTA


def test_once_the_sensitivities_does_not(differences: set[tuple[int, ...]]) -> None:
    """The twin: calling the zero-out epsilon one of replace-one is caught."""
    epsilon = epsilon_of(ExactAccountant, EVENT, delta=DELTA)
    assert _worst(differences, epsilon) > 50.0 * DELTA
    zero_out = {(1,) * size for size in range(1, SQUARE + 1)}
    assert _worst(zero_out, epsilon) <= DELTA


def test_both_contributions_are_rounded_at_random() -> None:
    """The mixture over both roundings stays within the bound: one coordinate, exactly."""
    noise = _masses(64)
    event = BinomialRelease(64, 2.0, 2, 1)
    epsilon = epsilon_of(DominationAccountant, replace_one(event), delta=DELTA)
    x = range(-40, 41)

    def law(chances: dict[int, float]) -> NDArray[np.float64]:
        return np.array([sum(c * noise.get(z - u, 0.0) for u, c in chances.items()) for z in x])

    for u, w in itertools.product(({2: 0.7, 1: 0.3}, {2: 1.0}), ({-2: 0.4, -1: 0.6}, {-2: 1.0})):
        p, q = law(u), law(w)
        assert np.maximum(p - math.exp(epsilon) * q, 0.0).sum() <= DELTA
        assert np.maximum(q - math.exp(epsilon) * p, 0.0).sum() <= DELTA


def test_two_rounded_vectors_differ_by_no_more_than_twice_the_bound() -> None:
    rng = np.random.default_rng(5)
    longest = 0.0
    for _ in range(200):
        update = rng.normal(size=12)
        one = quantize(clip_l2(update, 1.0), 5.0, 4, NoiseSeed(rng.bytes(32)))
        two = quantize(clip_l2(-update, 1.0), 5.0, 4, NoiseSeed(rng.bytes(32)))
        difference = one.values - two.values
        assert np.linalg.norm(difference) <= 2.0 * math.sqrt(one.square_bound)
        assert np.abs(difference).max() <= 2 * one.linf_bound
        longest = max(longest, float(np.linalg.norm(difference)))
    assert longest > 1.2 * math.sqrt(one.square_bound)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (BinomialRelease(64, 2.5, 2, 9), BinomialRelease(64, 5.0, 4, 9)),
        (SkellamRelease(9.0, 2.5, 2, 9), SkellamRelease(9.0, 5.0, 4, 9)),
        (DiscreteGaussianRelease(9.0, 3, 1.0, 1, 9), DiscreteGaussianRelease(9.0, 3, 2.0, 2, 9)),
        (GaussianRelease(3.0, 1.5), GaussianRelease(3.0, 3.0)),
        (LaplaceRelease(3.0, 2), LaplaceRelease(3.0, 4)),
        (AboveThresholdRelease(3.0, 4.0, 1), AboveThresholdRelease(3.0, 4.0, 2)),
        (NonPrivateRelease(), NonPrivateRelease()),
        (LocalRelease(1.0), LocalRelease(1.0)),
        (
            Composition((GaussianRelease(3.0, 1.5), NonPrivateRelease())),
            Composition((GaussianRelease(3.0, 3.0), NonPrivateRelease())),
        ),
    ],
)
def test_every_event(event: Event, expected: Event) -> None:
    assert replace_one(event) == expected


@pytest.mark.parametrize(
    "event",
    [
        PoissonSampled(0.1, GaussianRelease(1.0, 1.0)),
        FixedSizeSampled(2, 9, GaussianRelease(1.0, 1.0)),
        Allocated(3, GaussianRelease(1.0, 1.0)),
        LevelRelease(64, 0.5, 4, 1.0, 9, False),
    ],
)
def test_events_without_a_theorem_are_refused(event: Event) -> None:
    with pytest.raises(UnsupportedEventError, match="replace-one"):
        replace_one(event)


def test_the_report_is_asked_for_an_adjacency() -> None:
    report = epsilons([(EVENT, 2)], DELTA, Adjacency.REPLACE_ONE)
    assert report.adjacency is Adjacency.REPLACE_ONE
    assert report.epsilon == epsilons([(replace_one(EVENT), 2)], DELTA).epsilon
    four = four_epsilons([EVENT], [EVENT], [EVENT], DELTA, adjacency=Adjacency.REPLACE_ONE)
    assert four.adjacency is Adjacency.REPLACE_ONE
    assert four.server == epsilons([EVENT], DELTA, Adjacency.REPLACE_ONE).epsilon
    assert "replace-one" in four.text()
    local = epsilons([LocalRelease(1.0)], DELTA, Adjacency.REPLACE_ONE)
    assert local.adjacency is Adjacency.ANY_INPUT
    with pytest.raises(ValueError, match="ZERO_OUT or REPLACE_ONE, got ANY_INPUT"):
        epsilons([EVENT], DELTA, Adjacency.ANY_INPUT)
    sampled = PoissonSampled(0.1, EVENT)
    with pytest.raises(UnsupportedEventError):
        four_epsilons([EVENT], [sampled], [EVENT], DELTA, adjacency=Adjacency.REPLACE_ONE)
