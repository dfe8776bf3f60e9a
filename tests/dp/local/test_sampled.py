"""Sampled coordinates: which ones, what each spends, no bias, and the audit of whole reports."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from dp_statistics import ALPHA, chi_square_p_value, mean_tolerance
from local_laws import exact_law, is_within, product_law

from dp.errors import NonFiniteUpdateError, SensitivityExceededError
from dp.events import LocalRelease
from dp.keystream import NoiseSeed
from dp.local import (
    LocalRandomizer,
    Piecewise,
    SampledCoordinates,
    sampled_hybrid,
    sampled_piecewise,
)
from dp.local._kernels import choose_coordinates
from dp.local.audit import worst_exact_ratio
from dp.local.sampled import sample_coordinates, sampled_count

RUNS = 60_000
MAKERS = [sampled_piecewise, sampled_hybrid]


@pytest.mark.parametrize(
    ("dimension", "epsilon", "k"),
    [(10, 0.1, 1), (10, 2.4, 1), (10, 5.0, 2), (10, 24.9, 9), (10, 1e6, 10), (1, 30.0, 1)],
)
def test_the_number_of_coordinates(dimension: int, epsilon: float, k: int) -> None:
    assert sampled_count(dimension, epsilon) == k
    assert sampled_piecewise(dimension, epsilon).sampled == k


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("epsilon", [0.7, 7.6, 33.3, 300.0, 2999.9])
def test_the_shares_never_exceed_the_whole(
    make: Callable[[int, float], SampledCoordinates], epsilon: float
) -> None:
    randomizer = make(1000, epsilon)
    k, each = randomizer.sampled, randomizer.scalar.epsilon
    assert Fraction(each) * k <= Fraction(epsilon)
    assert each == pytest.approx(epsilon / k, rel=1e-15)
    contract: LocalRandomizer = randomizer
    assert contract.event() == LocalRelease(epsilon)


def _whole_law(randomizer: SampledCoordinates, vector: tuple[Fraction, ...]) -> list[Fraction]:
    """The law of coordinates and messages together."""
    scalar = randomizer.scalar
    assert isinstance(scalar, Piecewise)
    choices = list(combinations(range(randomizer.dimension), randomizer.sampled))
    laws = [product_law(*(exact_law(scalar.law, vector[i]) for i in each)) for each in choices]
    return [p / len(choices) for law in laws for p in law]


@pytest.mark.parametrize(("dimension", "epsilon"), [(2, 1.0), (2, 6.0), (3, 6.0)])
def test_exact_audit_of_whole_reports(dimension: int, epsilon: float) -> None:
    vectors = list(product([Fraction(-1), Fraction(1, 5), Fraction(1)], repeat=dimension))
    randomizer = sampled_piecewise(dimension, epsilon, 3)
    assert is_within(worst_exact_ratio([_whole_law(randomizer, v) for v in vectors]), epsilon)
    # Twin: every sampled coordinate spends a little more than its share.
    greedy = Piecewise(1.001 * epsilon / randomizer.sampled, 3)
    with pytest.raises(ValueError, match="may spend"):
        SampledCoordinates(dimension, epsilon, randomizer.sampled, greedy)
    twin = SampledCoordinates(dimension, 1.01 * epsilon, randomizer.sampled, greedy)
    assert not is_within(worst_exact_ratio([_whole_law(twin, v) for v in vectors]), epsilon)


@pytest.mark.statistical
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("epsilon", [0.5, 5.5, 40.0])
def test_no_bias_and_the_variance(
    make: Callable[[int, float], SampledCoordinates], epsilon: float, seed: NoiseSeed
) -> None:
    vector = np.array([0.0, 1.0, -0.3, 0.8, -1.0])
    randomizer = make(5, epsilon)
    reports = randomizer.randomize(np.tile(vector, (RUNS, 1)), seed)
    deviations = np.sqrt(randomizer.variance(vector))
    tolerance = mean_tolerance(1.0, RUNS) * deviations
    assert (np.abs(reports.total() / RUNS - vector) < tolerance).all()
    each = np.array([reports.estimate(i) for i in range(2000)])
    largest = (1.0 + np.abs(each).max()) ** 2
    near = mean_tolerance(1.0, 2000) * np.sqrt(largest * deviations**2)
    assert (np.abs(np.square(each - vector).mean(axis=0) - deviations**2) < near).all()
    # Twin: not scaled for the coordinates that were left out.
    twin = reports.total() / RUNS / randomizer.factor
    assert randomizer.factor == 1.0 or (np.abs(twin - vector) > tolerance)[[1, 4]].all()


def test_worst_variance_is_that_of_the_worst_value() -> None:
    for epsilon in (0.5, 5.5, 9.0):
        randomizer = sampled_piecewise(7, epsilon, 4)
        grid = np.linspace(-1.0, 1.0, 5001)
        found = randomizer.scalar.moments.scaled(randomizer.factor).variance(grid).max()
        assert randomizer.worst_variance == pytest.approx(found, rel=1e-3)
        assert randomizer.worst_variance >= found * (1.0 - 1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize(("dimension", "count"), [(4, 2), (5, 5), (7, 1)])
def test_every_choice_is_equally_likely(dimension: int, count: int, seed: NoiseSeed) -> None:
    chosen = sample_coordinates(RUNS, count, dimension, seed)
    assert (np.diff(np.sort(chosen, axis=1), axis=1) > 0).all()
    codes = chosen @ dimension ** np.arange(count)
    _, counts = np.unique(codes, return_counts=True)
    cells = math.perm(dimension, count)
    assert counts.size == cells
    uniform = np.full(cells, 1.0 / cells)
    assert chi_square_p_value(counts, uniform) > ALPHA
    twin = counts.copy()
    twin[0], twin[1] = 1.5 * counts[0], counts[1] - counts[0] // 2
    assert chi_square_p_value(twin, uniform) < ALPHA


def test_words_that_favour_a_coordinate_stop_the_row() -> None:
    order = np.arange(3, dtype=np.int32)
    out = np.empty((3, 1), dtype=np.int32)
    # 2^64 = 3 q + 1: the word 0 is the one too many, and every coordinate has q others.
    q = ((1 << 64) - 1) // 3
    words = np.array([1, 0, 5], dtype=np.uint64)
    assert choose_coordinates(words, order, out) == 1
    for word, place in [(1, 0), (q, 0), (q + 1, 1), (2 * q, 1), (2 * q + 1, 2), (3 * q, 2)]:
        fresh = np.arange(3, dtype=np.int32)
        assert choose_coordinates(np.array([word], dtype=np.uint64), fresh, out[:1]) == 1
        assert out[0, 0] == place


def test_a_long_vector_in_pieces(seed: NoiseSeed) -> None:
    randomizer = sampled_piecewise(50_000, 2000.0)
    vectors = np.random.default_rng(3).uniform(-1.0, 1.0, (3, 50_000))
    reports = randomizer.randomize(vectors, seed)
    assert reports.coordinates.shape == (3, 800)
    assert len(reports) == 3
    each = np.array([reports.estimate(i) for i in range(3)])
    assert reports.total() == pytest.approx(each.sum(axis=0))
    assert (np.count_nonzero(each, axis=1) <= 800).all()
    assert sample_coordinates(1500, 1000, 1200, seed).shape == (1500, 1000)


def test_report_bits() -> None:
    assert sampled_piecewise(1000, 5.0, 12).report_bits == 2 * (12 + 10)
    assert sampled_piecewise(2, 5.0, 12).report_bits == 2 * 12
    assert sampled_hybrid(1024, 0.5, 12).report_bits == 1 + 10


def test_bad_arguments(seed: NoiseSeed) -> None:
    randomizer = sampled_piecewise(3, 1.0)
    with pytest.raises(ValueError, match=r"\(clients, 3\)"):
        randomizer.randomize(np.zeros((2, 4)), seed)
    with pytest.raises(NonFiniteUpdateError, match="1 of 3"):
        randomizer.randomize(np.array([[0.0, math.nan, 0.0]]), seed)
    with pytest.raises(SensitivityExceededError, match="2 of 3"):
        randomizer.randomize(np.array([[2.0, 0.0, -1.1]]), seed)
