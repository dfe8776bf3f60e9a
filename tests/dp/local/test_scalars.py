"""Duchi, Piecewise, Hybrid: exact audits, no bias, variances, and the published formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from dp_statistics import ALPHA, chi_square_p_value, mean_tolerance
from local_laws import INPUTS, continuous_piecewise_variance, exact_law, is_within

from dp.errors import NonFiniteUpdateError, SensitivityExceededError
from dp.events import LocalRelease
from dp.keystream import NoiseSeed
from dp.local import Duchi, Hybrid, LocalRandomizer, Piecewise
from dp.local.audit import worst_exact_ratio
from dp.local.scalars import DUCHI_BELOW

Scalar = Duchi | Piecewise | Hybrid
KINDS: dict[str, Callable[[float], Scalar]] = {
    "duchi": Duchi,
    "piecewise": lambda epsilon: Piecewise(epsilon, 4),
    "hybrid": lambda epsilon: Hybrid(epsilon, 4),
}
EPSILONS = [0.05, 0.61, 0.62, 1.0, 2.5, 8.0, 50.0, 3000.0]
COUNT = 100_000


def _exact(randomizer: Scalar, value: Fraction) -> list[Fraction]:
    """The law of a message without any rounding."""
    if not isinstance(randomizer, Hybrid):
        return exact_law(randomizer.law, value)
    share = Fraction(randomizer.piecewise_words, 1 << 64)
    first, second = exact_law(randomizer.law, value), exact_law(randomizer.duchi.law, value)
    return [share * p for p in first] + [(1 - share) * p for p in second]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", EPSILONS)
class TestEveryKind:
    """What all three randomisers promise."""

    def test_exact_audit(self, kind: str, epsilon: float) -> None:
        laws = [_exact(KINDS[kind](epsilon), value) for value in INPUTS]
        assert is_within(worst_exact_ratio(laws), epsilon)
        if epsilon < 44.0:
            twin = [_exact(KINDS[kind](1.0001 * epsilon), value) for value in INPUTS]
            assert not is_within(worst_exact_ratio(twin), epsilon)

    def test_law_is_the_exact_one(self, kind: str, epsilon: float) -> None:
        randomizer = KINDS[kind](epsilon)
        for value in (Fraction(-1), Fraction(0), Fraction(1, 6), Fraction(1)):
            expected = [float(p) for p in _exact(randomizer, value)]
            assert randomizer.probabilities(float(value)) == pytest.approx(expected, rel=1e-12)

    def test_mean_and_variance_of_the_law(self, kind: str, epsilon: float) -> None:
        randomizer = KINDS[kind](epsilon)
        inputs = np.linspace(-1.0, 1.0, 401)
        found = []
        for value in inputs:
            law = randomizer.probabilities(float(value))
            estimates = randomizer.estimates(np.arange(law.size))
            size = float(np.abs(estimates).max())
            assert law @ estimates == pytest.approx(value, abs=1e-11 * size)
            found.append(law @ np.square(estimates) - value**2)
            assert randomizer.variance(float(value)) == pytest.approx(
                found[-1], rel=1e-9, abs=1e-11 * size**2
            )
        assert randomizer.worst_variance >= max(found) * (1.0 - 1e-9)
        # No input between two of these is worse by more than a slope allows.
        assert randomizer.worst_variance <= max(found) + 5e-3 * 4.0 * size**2

    def test_event_and_bits(self, kind: str, epsilon: float) -> None:
        randomizer = KINDS[kind](epsilon)
        contract: LocalRandomizer = randomizer
        assert contract.dimension == 1
        assert contract.event() == LocalRelease(epsilon)
        messages = randomizer.probabilities(0.0)
        assert np.count_nonzero(messages) <= 2**randomizer.report_bits
        assert np.count_nonzero(messages) > 2 ** (randomizer.report_bits - 1)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_samples_follow_the_law_without_bias(kind: str, epsilon: float, seed: NoiseSeed) -> None:
    randomizer, value = KINDS[kind](epsilon), -0.4
    reports = randomizer.randomize(np.full((COUNT, 1), value), seed)
    law = randomizer.probabilities(value)
    counts = np.bincount(reports.messages, minlength=law.size)
    assert chi_square_p_value(counts, law) > ALPHA
    tolerance = mean_tolerance(math.sqrt(randomizer.variance(value)), COUNT)
    assert abs(reports.total()[0] / COUNT - value) < tolerance
    # Twin: messages read as if epsilon were another.
    twin = KINDS[kind](0.5 * epsilon)
    assert abs(twin.estimates(reports.messages).mean() - value) > tolerance
    assert chi_square_p_value(counts, twin.probabilities(value)) < ALPHA


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.3, 2.5, 6.0])
def test_full_grid_has_no_bias_and_the_variance(epsilon: float, seed: NoiseSeed) -> None:
    randomizer = Piecewise(epsilon)
    values = np.random.default_rng(5).uniform(-1.0, 1.0, (COUNT, 1))
    errors = randomizer.randomize(values, seed).values() - values[:, 0]
    variance = float(np.mean(randomizer.moments.variance(values)))
    assert abs(errors.mean()) < mean_tolerance(math.sqrt(variance), COUNT)
    # Squared errors are bounded by (2 C)^2, which bounds their deviation.
    largest = (2.0 + randomizer.law.unit * randomizer.law.points / 2.0) ** 2
    tolerance = mean_tolerance(math.sqrt(largest * variance), COUNT)
    assert abs(np.mean(errors**2) - variance) < tolerance
    twin = float(np.mean(Piecewise(0.9 * epsilon).moments.variance(values)))
    assert abs(np.mean(errors**2) - twin) > tolerance


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 2.5, 5.0, 10.0])
def test_the_grid_costs_next_to_nothing(epsilon: float) -> None:
    for value in (0.0, 0.3, -0.77, 1.0):
        continuous = continuous_piecewise_variance(epsilon, value)
        assert Piecewise(epsilon).variance(value) == pytest.approx(continuous, rel=6e-5)
        assert Piecewise(epsilon, 12).variance(value) == pytest.approx(continuous, rel=0.05)


def test_published_formulas() -> None:
    for epsilon in (0.5, 1.0, 3.0):
        c = (math.exp(epsilon) + 1.0) / (math.exp(epsilon) - 1.0)
        assert Duchi(epsilon).estimates(np.array([0, 1])) == pytest.approx([-c, c], rel=1e-14)
        plus = 0.5 + 0.3 * (math.exp(epsilon) - 1.0) / (2.0 * math.exp(epsilon) + 2.0)
        assert Duchi(epsilon).probabilities(0.3) == pytest.approx([1.0 - plus, plus], rel=1e-14)
        root = math.exp(epsilon / 2.0)
        law = Piecewise(epsilon).law
        largest = Piecewise(epsilon).estimates(np.array([law.points - 1]))[0]
        assert largest == pytest.approx((root + 1.0) / (root - 1.0), rel=1e-4)
        inside = law.width * law.inside / law.total
        assert inside == pytest.approx(root / (root + 1.0), rel=1e-5)


def test_the_mixture_is_never_worse_than_both_parts() -> None:
    assert Hybrid(DUCHI_BELOW).worst_variance == Duchi(DUCHI_BELOW).worst_variance
    assert Hybrid(DUCHI_BELOW).report_bits == 1.0
    for epsilon in (0.62, 1.0, 2.5, 5.0):
        best = min(Duchi(epsilon).worst_variance, Piecewise(epsilon).worst_variance)
        assert Hybrid(epsilon).worst_variance < best


def test_estimates_of_single_reports_add_up(seed: NoiseSeed) -> None:
    reports = Hybrid(2.0).randomize(np.linspace(-1.0, 1.0, 50)[:, None], seed)
    assert len(reports) == 50
    each = np.array([reports.estimate(i) for i in range(50)])
    assert each.shape == (50, 1)
    assert reports.total() == pytest.approx(each.sum(axis=0))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("vectors", "error", "message"),
    [
        ([[0.5]], TypeError, "list"),
        (np.zeros((2, 1), np.float32), TypeError, "float64"),
        (np.zeros(3), ValueError, "shape"),
        (np.zeros((3, 2)), ValueError, "shape"),
        (np.zeros((0, 1)), ValueError, "shape"),
        (np.array([[math.nan]]), NonFiniteUpdateError, "1 of 1"),
        (np.array([[-math.inf], [0.0]]), NonFiniteUpdateError, "1 of 2"),
        (np.array([[0.0], [1.0 + 1e-15]]), SensitivityExceededError, "1 of 2"),
    ],
)
def test_bad_vectors(
    kind: str, vectors: np.ndarray, error: type[Exception], message: str, seed: NoiseSeed
) -> None:
    with pytest.raises(error, match=message):
        KINDS[kind](1.0).randomize(vectors, seed)
