"""The cross-polytope: exact audit with repeats, no bias, variances, the mixture of vertices."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from dp_statistics import ALPHA, chi_square_p_value, mean_tolerance
from local_laws import is_within, product_law

from dp.errors import NonFiniteUpdateError, SensitivityExceededError
from dp.events import LocalRelease
from dp.keystream import NoiseSeed
from dp.local import CrossPolytope, LocalRandomizer
from dp.local._kernels import draw_vertices
from dp.local.audit import audit_laws, worst_exact_ratio

RUNS = 60_000
VECTOR = np.array([0.6, -0.2, 0.0, 0.1])


def _vertex_laws(randomizer: CrossPolytope) -> list[list[Fraction]]:
    """The law of one vertex of the report for each true vertex; every input is a mixture."""
    law = randomizer.law
    rows = range(2 * randomizer.dimension)
    return [[Fraction(int(w), law.total) for w in law.weights(vertex)] for vertex in rows]


@pytest.mark.parametrize("dimension", [1, 2, 5])
@pytest.mark.parametrize("epsilon", [0.1, 2.0, 9.0, 50.0, 3000.0])
def test_exact_audit(dimension: int, epsilon: float) -> None:
    laws = _vertex_laws(CrossPolytope(dimension, epsilon))
    assert is_within(worst_exact_ratio(laws), epsilon)
    if epsilon < 44.0:
        twin = _vertex_laws(CrossPolytope(dimension, 1.0001 * epsilon))
        assert not is_within(worst_exact_ratio(twin), epsilon)


@pytest.mark.parametrize("repeats", [2, 3])
def test_repeats_are_counted(repeats: int) -> None:
    epsilon = 1.5
    # All true vertices may differ from one repeat to the next; the same in all is the worst.
    one = _vertex_laws(CrossPolytope(2, epsilon, repeats))
    assert is_within(worst_exact_ratio([product_law(*[row] * repeats) for row in one]), epsilon)
    # Twin: every repeat spends the whole, as if the others did not happen.
    uncounted = _vertex_laws(CrossPolytope(2, epsilon))
    laws = [product_law(*[row] * repeats) for row in uncounted]
    assert not is_within(worst_exact_ratio(laws), epsilon)
    assert is_within(worst_exact_ratio(laws), repeats * epsilon)


def test_audit_of_inputs() -> None:
    vectors = [np.eye(3)[0], -np.eye(3)[1], np.zeros(3), np.full(3, 3**-0.5)]
    randomizer = CrossPolytope(3, 2.0)
    audit = audit_laws([randomizer.probabilities(v) for v in vectors], randomizer.epsilon)
    assert audit.holds
    assert audit.margin > 0.01


@pytest.mark.statistical
@pytest.mark.parametrize("repeats", [1, 4])
@pytest.mark.parametrize("epsilon", [2.0, 4.0])
def test_law_bias_and_variance(repeats: int, epsilon: float, seed: NoiseSeed) -> None:
    randomizer = CrossPolytope(4, epsilon, repeats)
    reports = randomizer.randomize(np.tile(VECTOR, (RUNS, 1)), seed)
    counts = np.bincount(reports.vertices.reshape(-1), minlength=8)
    assert chi_square_p_value(counts, randomizer.probabilities(VECTOR)) > ALPHA
    assert chi_square_p_value(counts, randomizer.probabilities(-VECTOR)) < ALPHA
    deviations = np.sqrt(randomizer.variance(VECTOR))
    tolerance = mean_tolerance(1.0, RUNS) * deviations
    assert (np.abs(reports.total() / RUNS - VECTOR) < tolerance).all()
    # Twin: the share of lies is not divided out.
    twin = reports.total() / RUNS * randomizer.law.gain
    assert abs(twin[0] - VECTOR[0]) > tolerance[0]


@pytest.mark.parametrize("repeats", [1, 5])
def test_variance_is_that_of_the_law(repeats: int) -> None:
    randomizer = CrossPolytope(4, 2.0, repeats)
    law = randomizer.probabilities(VECTOR)
    assert law.sum() == pytest.approx(1.0, rel=1e-14)
    vertices = math.sqrt(4.0) / randomizer.law.gain * np.vstack([np.eye(4), -np.eye(4)])
    assert law @ vertices == pytest.approx(VECTOR, abs=1e-14)
    one = law @ np.square(vertices) - VECTOR**2
    assert randomizer.variance(VECTOR) == pytest.approx(one / repeats)
    total = one.sum() / repeats
    assert total == pytest.approx(randomizer.worst_variance - VECTOR @ VECTOR / repeats)
    assert randomizer.variance(np.zeros(4)).sum() == pytest.approx(randomizer.worst_variance)


def test_the_mixture_has_the_vector_as_its_mean() -> None:
    vertices = 2.0 * np.vstack([np.eye(4), -np.eye(4)])
    for vector in (VECTOR, np.zeros(4), np.eye(4)[2], np.full(4, -0.5), np.full(4, 0.5 + 2e-10)):
        mixture = CrossPolytope(4, 1.0).mixture(vector)
        assert (mixture >= 0.0).all()
        assert mixture.sum() == pytest.approx(1.0, rel=1e-14)
        assert mixture @ vertices == pytest.approx(vector, abs=1e-9)


def test_words_choose_vertices() -> None:
    # |v|_1 = 1.5 of sqrt(4) = 2: three quarters of the words name a coordinate, the others any.
    vector = np.array([[0.5, -0.5, 0.0, 0.5]])
    eighth = 1 << 61
    words = [0, 2 * eighth - 1, 2 * eighth, 4 * eighth - 1, 4 * eighth, 6 * eighth - 1]
    words += [6 * eighth, 6 * eighth + eighth // 4 - 1, 8 * eighth - 1]
    out = np.empty((1, len(words)), dtype=np.int64)
    draw_vertices(vector, np.array(words, dtype=np.uint64), np.empty(4), out)
    assert out[0].tolist() == [0, 0, 5, 5, 3, 3, 0, 0, 7]
    # At the edge of the ball nothing is left over, whatever the word.
    edge = np.full((1, 4), -0.5)
    draw_vertices(edge, np.array(words, dtype=np.uint64), np.empty(4), out)
    assert out[0].tolist() == [4, 4, 5, 5, 6, 6, 7, 7, 7]


def test_the_contract(seed: NoiseSeed) -> None:
    randomizer = CrossPolytope(1000, 3.0, 2)
    contract: LocalRandomizer = randomizer
    assert contract.report_bits == 2 * 11
    assert contract.event() == LocalRelease(3.0)
    vectors = np.random.default_rng(1).normal(size=(6, 1000))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    reports = randomizer.randomize(vectors, seed)
    each = np.array([reports.estimate(i) for i in range(len(reports))])
    assert reports.total() == pytest.approx(each.sum(axis=0))


def test_bad_arguments(seed: NoiseSeed) -> None:
    randomizer = CrossPolytope(2, 1.0)
    with pytest.raises(SensitivityExceededError, match="1 of 2"):
        randomizer.randomize(np.array([[1.0, 0.1], [1.0, 0.0]]), seed)
    with pytest.raises(SensitivityExceededError, match="1 of 1"):
        randomizer.randomize(np.array([[1e300, 0.1]]), seed)
    with pytest.raises(NonFiniteUpdateError):
        randomizer.randomize(np.array([[math.inf, 0.1]]), seed)
    with pytest.raises(TypeError, match="float64"):
        randomizer.randomize(np.zeros((1, 2), dtype=np.int64), seed)
