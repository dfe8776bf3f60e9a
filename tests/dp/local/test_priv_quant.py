"""PrivQuant against enumeration in fractions: promise, mean, variance, and what is drawn."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from dp_statistics import ALPHA, chi_square_p_value, mean_tolerance
from local_laws import is_within
from scipy import stats

from dp.errors import NonFiniteUpdateError, SensitivityExceededError
from dp.events import LocalRelease
from dp.keystream import NoiseSeed
from dp.local import PrivQuant, best_priv_quant
from dp.local.audit import AuditedRatio, audit_laws, worst_exact_ratio
from dp.local.calibration import printed_priv_quant
from dp.local.priv_quant import MAX_OUTCOMES, LevelReports
from dp.local.quantizer import LevelQuantizer

SMALL = [
    PrivQuant(1, 2, 1.0, 0, 0.75),
    PrivQuant(1, 7, 1.0, 0, 0.25),
    PrivQuant(3, 2, 1.0, -2, 0.9375),
    PrivQuant(3, 3, 2.0, 0, 0.625),
    PrivQuant(4, 3, 0.5, -1, 0.75),
    PrivQuant(5, 2, 1.0, 2, 0.5),
    PrivQuant(3, 5, 1.0, 2, 0.5),
    best_priv_quant(4, 4, 10.0, 2.0),
    printed_priv_quant(5, 3, 1.0, 9.0),
]
ids = {"ids": repr}

Factor = Callable[[PrivQuant], Fraction]


def exact_laws(randomizer: PrivQuant) -> list[list[Fraction]]:
    """The law of the report of every vector of levels, by counting."""
    vectors = list(product(range(randomizer.levels), repeat=randomizer.dimension))
    p = Fraction(randomizer.probability)

    def agreeing(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        return sum(x == y for x, y in zip(a, b, strict=True)) >= randomizer.threshold

    high = sum(agreeing(vectors[0], other) for other in vectors)
    chances = p / high, (1 - p) / (len(vectors) - high)
    return [[chances[0] if agreeing(a, b) else chances[1] for b in vectors] for a in vectors]


def derived_factor(randomizer: PrivQuant) -> Fraction:
    """The constant m as we derive it."""
    return _factor(randomizer, randomizer.threshold - 1)


def misprinted_factor(randomizer: PrivQuant) -> Fraction:
    """The constant m with the second binomial coefficient of the paper's appendix."""
    return _factor(randomizer, randomizer.dimension - randomizer.threshold - 1)


def _factor(randomizer: PrivQuant, chosen_below: int) -> Fraction:
    d, k, tau = randomizer.dimension, randomizer.levels, randomizer.threshold
    weights = [math.comb(d, i) * (k - 1) ** (d - i) for i in range(d + 1)]
    p, others = Fraction(randomizer.probability), (k - 1) ** (d - tau)
    first = p * math.comb(d - 1, tau - 1) * others / sum(weights[tau:])
    below = math.comb(d - 1, chosen_below) if chosen_below >= 0 else 0
    return first - (1 - p) * below * others / sum(weights[:tau])


def exact_means(randomizer: PrivQuant) -> list[tuple[Fraction, Fraction]]:
    """(x_1, E[V_1 | x]) for every vector of levels x; levels as whole numbers around zero."""
    firsts = [
        2 * vector[0] - (randomizer.levels - 1)
        for vector in product(range(randomizer.levels), repeat=randomizer.dimension)
    ]
    laws = exact_laws(randomizer)
    return [
        (Fraction(first), sum((p * v for p, v in zip(law, firsts, strict=True)), Fraction(0)))
        for first, law in zip(firsts, laws, strict=True)
    ]


def is_unbiased(randomizer: PrivQuant, factor: Factor) -> bool:
    """Say whether E[V_1 | x] = m x_1 exactly, for every vector of levels."""
    m = factor(randomizer)
    return all(mean == m * value for value, mean in exact_means(randomizer))


@pytest.mark.parametrize("randomizer", SMALL, **ids)
def test_the_promise_is_exact(randomizer: PrivQuant) -> None:
    ratio = worst_exact_ratio(exact_laws(randomizer))
    assert ratio is not None
    audited = AuditedRatio(randomizer.epsilon, math.log(ratio))
    print(randomizer, audited)
    assert is_within(ratio, randomizer.epsilon)
    # The promise is rounded up, and by no more than doubles are coarse.
    assert not is_within(ratio, randomizer.epsilon * (1.0 - 1e-15))
    assert randomizer.event() == LocalRelease(randomizer.epsilon)


@pytest.mark.parametrize("randomizer", SMALL, **ids)
def test_the_promise_holds_between_levels(
    randomizer: PrivQuant, generator: np.random.Generator
) -> None:
    inputs = generator.uniform(-randomizer.bound, randomizer.bound, (20, randomizer.dimension))
    ends = np.full((2, randomizer.dimension), randomizer.bound) * [[1], [-1]]
    audited = audit_laws([randomizer.pmf(row) for row in [*inputs, *ends]], randomizer.epsilon)
    assert audited.margin > -1e-13


@pytest.mark.parametrize("randomizer", SMALL, **ids)
def test_the_factor_makes_reports_unbiased(randomizer: PrivQuant) -> None:
    assert is_unbiased(randomizer, derived_factor)
    assert randomizer.factor == pytest.approx(float(derived_factor(randomizer)), rel=1e-13)


def test_the_misprinted_factor_is_found_out() -> None:
    # C(d-1, d-tau-1) for C(d-1, tau-1): they are the same number only where d = 2 tau.
    wrong = [each for each in SMALL if each.dimension != 2 * each.threshold]
    assert len(wrong) > 5
    assert not any(is_unbiased(each, misprinted_factor) for each in wrong)


@pytest.mark.parametrize("levels", [2, 16])
@pytest.mark.parametrize("epsilon", [1.0, 400.0, 3000.0])
def test_the_factor_of_a_million_coordinates(levels: int, epsilon: float) -> None:
    # E[V_1 | x] = x_1 (K E[l]/d - 1)/(K - 1), with E[l] from binomial laws by scipy.
    d = 10**6
    randomizer = best_priv_quant(d, levels, 1.0, epsilon)
    tau, law = randomizer.threshold, stats.binom(d, 1.0 / levels)
    window = np.arange(tau, min(d, tau + 20_000) + 1)
    high = np.exp(law.logpmf(window) - law.logpmf(tau))
    above = float(high @ (window - tau) / high.sum()) + tau
    bulk = np.arange(max(0, d // levels - 20_000), tau)
    low = law.pmf(bulk)
    below = float(low @ (bulk - d / levels) / low.sum()) + d / levels
    mean = randomizer.probability * above + (1.0 - randomizer.probability) * below
    assert randomizer.factor == pytest.approx((levels * mean / d - 1) / (levels - 1), rel=1e-6)


@pytest.mark.parametrize("randomizer", SMALL, **ids)
def test_mean_and_variance_are_those_of_the_law(
    randomizer: PrivQuant, generator: np.random.Generator
) -> None:
    shape = (randomizer.levels,) * randomizer.dimension
    numbers = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape))
    estimates = randomizer.quantizer.values(numbers) / randomizer.factor
    for row in generator.uniform(-randomizer.bound, randomizer.bound, (5, randomizer.dimension)):
        law = randomizer.pmf(row)
        assert law.sum() == pytest.approx(1.0, abs=1e-12)
        assert estimates @ law == pytest.approx(row, abs=1e-9 / randomizer.factor)
        moments = estimates**2 @ law - row**2
        assert randomizer.variance(row) == pytest.approx(moments, rel=1e-9)
    grid = np.linspace(-randomizer.bound, randomizer.bound, 2001)
    assert randomizer.worst_variance >= randomizer.variance(grid).max() * (1.0 - 1e-12)
    assert randomizer.worst_variance == pytest.approx(randomizer.variance(grid).max(), rel=1e-5)


def drawn_p_value(reports: LevelReports, law: np.ndarray) -> float:
    """The p-value of many reports of one vector."""
    levels, d = reports.randomizer.levels, reports.randomizer.dimension
    numbers = reports.levels.astype(np.int64) @ levels ** np.arange(d)[::-1]
    return chi_square_p_value(np.bincount(numbers, minlength=levels**d), law)


@pytest.mark.parametrize("randomizer", [SMALL[0], SMALL[3], SMALL[5], SMALL[7]], **ids)
def test_reports_have_the_law(
    randomizer: PrivQuant, seed: NoiseSeed, generator: np.random.Generator
) -> None:
    vector = generator.uniform(-randomizer.bound, randomizer.bound, randomizer.dimension)
    reports = randomizer.randomize(np.tile(vector, (150_000, 1)), seed)
    assert drawn_p_value(reports, randomizer.pmf(vector)) > ALPHA
    # Twins: another p, and a vector that is not rounded at random but to the nearest levels.
    other = PrivQuant(
        randomizer.dimension,
        randomizer.levels,
        randomizer.bound,
        randomizer.kappa,
        math.floor((randomizer.probability + 0.03) * 2**60) / 2**60,
    )
    assert drawn_p_value(reports, other.pmf(vector)) < ALPHA
    quantizer = randomizer.quantizer
    place = np.round((vector / randomizer.bound + 1.0) * 0.5 * (randomizer.levels - 1))
    assert drawn_p_value(reports, randomizer.pmf(quantizer.values(place))) < ALPHA


def is_mean_right(reports: LevelReports, vector: np.ndarray, scale: float = 1.0) -> bool:
    """Test the mean of what estimates have of the vector: <Z, x>/|x|^2, of mean 1."""
    values = reports.randomizer.quantizer.values(reports.levels) / reports.randomizer.factor
    parts = scale * (values @ vector) / float(vector @ vector)
    return abs(float(parts.mean()) - 1.0) <= mean_tolerance(float(parts.std()), len(reports))


def test_many_estimates_have_the_mean_of_the_vector(
    seed: NoiseSeed, generator: np.random.Generator
) -> None:
    # tau = 13 of 24 with K = 2: the misprinted coefficient is C(23, 10) for C(23, 12).
    randomizer = PrivQuant(24, 2, 3.0, 1, 0.5)
    vector = generator.uniform(-3.0, 3.0, 24)
    reports = randomizer.randomize(np.tile(vector, (100_000, 1)), seed)
    assert is_mean_right(reports, vector)
    wrong = randomizer.factor / float(misprinted_factor(randomizer))
    assert not is_mean_right(reports, vector, wrong)
    # Coordinate by coordinate, with the closed form of the variance.
    errors = np.abs(reports.total() / len(reports) - vector)
    deviations = np.sqrt(randomizer.variance(vector))
    assert (errors <= [mean_tolerance(float(each), len(reports)) for each in deviations]).all()


def test_sums_of_levels_are_sums_of_estimates(
    seed: NoiseSeed, generator: np.random.Generator
) -> None:
    randomizer = best_priv_quant(9000, 16, 2.0, 30.0)
    reports = randomizer.randomize(generator.uniform(-2, 2, (7, 9000)), seed)
    assert len(reports) == 7 and reports.levels.dtype == np.int8
    summed = sum(reports.estimate(index) for index in range(7))
    assert reports.total() == pytest.approx(summed, abs=1e-6)
    assert (reports.level_sum() == reports.levels.sum(axis=0, dtype=np.int64)).all()
    assert randomizer.decode_sum(reports.level_sum(), 7) == pytest.approx(summed, abs=1e-6)
    assert randomizer.report_bits == 9000 * 4
    assert printed_priv_quant(10, 129, 1.0, 50.0).quantizer.dtype == np.int16
    assert PrivQuant(10, 129, 1.0, 9, 0.5).report_bits == 80


def test_a_million_coordinates_are_reported(
    seed: NoiseSeed, generator: np.random.Generator
) -> None:
    randomizer = printed_priv_quant(10**6, 16, 1.0, 400.0)
    vector = generator.uniform(-1.0, 1.0, (1, 10**6))
    error = randomizer.randomize(vector, seed).total() - vector[0]
    # Coordinates of one report are all but independent at m = 0.007.
    expected = float(randomizer.variance(vector[0]).sum())
    assert float(error @ error) == pytest.approx(expected, rel=0.01)
    assert float(error @ vector[0]) / 10**6 == pytest.approx(0.0, abs=0.3)


def test_layout_is_fixed(seed: NoiseSeed) -> None:
    vectors = np.linspace(-1.0, 1.0, 3 * 700).reshape(3, 700)
    levels = best_priv_quant(700, 8, 1.0, 20.0).randomize(vectors, seed).levels
    digest = hashlib.sha256(levels.tobytes()).hexdigest()
    assert digest[:16] == "936f10116d498a41"


def test_bad_vectors_are_refused(seed: NoiseSeed) -> None:
    randomizer = SMALL[3]
    for vectors, error in (
        (np.zeros((2, 4)), ValueError),
        (np.zeros(3), ValueError),
        (np.zeros((0, 3)), ValueError),
        (np.zeros((1, 3), np.float32), TypeError),
        (np.full((1, 3), math.nan), NonFiniteUpdateError),
        (np.full((1, 3), math.inf), NonFiniteUpdateError),
        (np.full((1, 3), 2.1), SensitivityExceededError),
    ):
        with pytest.raises(error):
            randomizer.randomize(vectors, seed)
    # Rounding errors of a clip are cut off.
    randomizer.randomize(np.full((1, 3), 2.0 * (1.0 + 1e-12)), seed)
    with pytest.raises(ValueError, match="K\\^d must be at most"):
        PrivQuant(MAX_OUTCOMES.bit_length(), 2, 1.0, 0, 0.75).pmf(np.zeros(13))


def test_bad_reports_are_refused() -> None:
    randomizer = SMALL[3]
    for levels in (
        np.zeros((2, 3), np.int16),
        np.zeros((2, 4), np.int8),
        np.full((2, 3), 3, np.int8),
        np.full((2, 3), -1, np.int8),
    ):
        with pytest.raises(ValueError, match="levels must"):
            LevelReports(randomizer, levels)
    for total in (np.zeros(4, np.int64), np.full(3, 5), np.full(3, -1)):
        with pytest.raises(ValueError, match="level_sum must"):
            randomizer.decode_sum(total, 2)


@pytest.mark.parametrize(("levels", "bound"), [(2, 1.0), (7, 0.5), (300, 10.0)])
def test_rounding_is_unbiased(
    levels: int, bound: float, seed: NoiseSeed, generator: np.random.Generator
) -> None:
    quantizer = LevelQuantizer(levels, bound)
    values = generator.uniform(-bound, bound, 50)
    edges = quantizer.values(np.arange(levels))
    assert edges[0] == -bound and edges[-1] == pytest.approx(bound)
    assert np.mean(edges**2) == pytest.approx(quantizer.mean_square)
    law = quantizer.law(values)
    assert law @ edges == pytest.approx(values, abs=1e-12 * bound)
    assert law @ edges**2 == pytest.approx(quantizer.second_moment(values))
    rows = 20_000
    drawn = quantizer.values(quantizer.quantize(np.tile(values, (rows, 1)), seed))
    deviations = np.sqrt(quantizer.second_moment(values) - values**2)
    tolerances = np.array([mean_tolerance(float(each), rows) for each in deviations])
    assert (np.abs(drawn.mean(axis=0) - values) <= tolerances).all()
    assert set(np.unique(np.abs(drawn - values) <= quantizer.step)) == {True}
    # Equation 6 as printed goes up with probability k (x - B_k)/(2U), k counted from 1.
    lower = np.minimum(np.floor((values / bound + 1) * 0.5 * (levels - 1)), levels - 2)
    start = quantizer.values(lower)
    printed = start + quantizer.step * (lower + 1) * (values - start) / (2 * bound)
    wrong = np.abs(drawn.mean(axis=0) - printed) > tolerances
    assert wrong.any() == (levels > 2)
