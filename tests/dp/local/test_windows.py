"""The integer law: its promise, its mean and its moments without rounding, and its sampler."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from dp_statistics import ALPHA, chi_square_p_value
from local_laws import INPUTS, exact_law, exact_mean, is_within

from dp.keystream import NoiseSeed
from dp.local._kernels import REFUSED, draw_window, round_to_shifts
from dp.local.audit import worst_exact_ratio
from dp.local.windows import MAX_POINTS, WindowLaw, round_inputs, window_law

SHAPES = [(2, 1), (3, 1), (3, 2), (7, 2), (8, 3), (16, 1), (16, 15)]
EPSILONS = [1e-6, 0.1, 0.61, 1.0, 2.5, 10.0, 40.0, 44.36, 44.4, 44.6, 3000.0, 1e6]
TOP = (1 << 64) - 1


@pytest.mark.parametrize(("points", "width"), [*SHAPES, (1 << 20, 7018), (MAX_POINTS, 1)])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_ratio_is_within_the_promise_and_hardly_less(
    points: int, width: int, epsilon: float
) -> None:
    law = window_law(points, width, epsilon)
    assert is_within(Fraction(law.inside, law.outside), epsilon)
    # One count more would break the promise, or the words end.
    more = Fraction(law.inside + 1, law.outside)
    assert not is_within(more, epsilon) or law.total + width > 1 << 64
    # Words that no message takes cost a second draw at most every second time.
    assert law.total >= 1 << 63


@pytest.mark.parametrize(("points", "width"), SHAPES)
@pytest.mark.parametrize("epsilon", [1e-6, 0.61, 2.5, 44.6])
def test_audit_of_every_input_and_message(points: int, width: int, epsilon: float) -> None:
    law = window_law(points, width, epsilon)
    laws = [exact_law(law, value) for value in INPUTS]
    assert is_within(worst_exact_ratio(laws), epsilon)


@pytest.mark.parametrize(("points", "width"), SHAPES)
@pytest.mark.parametrize("epsilon", [1e-6, 0.61, 2.5])
def test_the_audit_refuses_one_part_in_a_billion(points: int, width: int, epsilon: float) -> None:
    twin = window_law(points, width, epsilon * (1.0 + 1e-9))
    assert not is_within(worst_exact_ratio([exact_law(twin, v) for v in INPUTS]), epsilon)


@pytest.mark.parametrize(("points", "width"), SHAPES)
@pytest.mark.parametrize("epsilon", [1e-6, 0.61, 2.5, 44.6])
def test_the_mean_is_the_input_exactly(points: int, width: int, epsilon: float) -> None:
    law = window_law(points, width, epsilon)
    unit = Fraction(2 * law.total, width * (law.inside - law.outside) * law.highest)
    assert law.unit == pytest.approx(float(unit), rel=1e-14)
    for value in INPUTS:
        assert unit * exact_mean(law, exact_law(law, value)) == value


@pytest.mark.parametrize(("points", "width"), SHAPES)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 20.0, 50.0])
def test_moments_are_those_of_the_law(points: int, width: int, epsilon: float) -> None:
    law = window_law(points, width, epsilon)
    estimates = law.estimates(np.arange(points))
    inputs = np.linspace(-1.0, 1.0, 2001)
    found = []
    for value in inputs:
        probabilities = law.probabilities(float(value))
        assert probabilities.sum() == pytest.approx(1.0, rel=1e-12)
        assert probabilities @ estimates == pytest.approx(value, abs=1e-10 * law.unit * points)
        found.append(probabilities @ np.square(estimates) - value**2)
    scale = law.unit**2 * points**2
    assert law.moments.variance(inputs) == pytest.approx(found, abs=1e-10 * scale)
    # Between two of the inputs a variance changes by less than its slope, 2 max |estimate|.
    step = 2e-3 * (abs(estimates).max() * law.highest + 1.0)
    assert max(found) - 1e-10 * scale <= law.moments.worst <= max(found) + step


@pytest.mark.parametrize(
    ("constant", "curvature"), [(1.0, 0.0), (0.1, 0.9), (0.2, 1.7), (0.0, 3.0)]
)
@pytest.mark.parametrize("highest", [1, 2, 5, 8])
def test_the_worst_input_is_found_wherever_it_lies(
    constant: float, curvature: float, highest: int
) -> None:
    law = window_law(2, 1, 1.0)
    moments = type(law.moments)(constant, curvature * 4.0 / highest**2, highest)
    grid = np.linspace(-1.0, 1.0, 16 * 9 * 5 * 7 + 1)
    assert moments.worst == pytest.approx(moments.variance(grid).max(), abs=2e-6)
    assert moments.worst >= moments.variance(grid).max() - 1e-12


def test_words_are_cut_as_the_law_says() -> None:
    law = WindowLaw(points=5, width=2, inside=7 << 58, outside=1 << 58)
    split = 2 * law.inside
    words = [0, law.inside - 1, law.inside, split - 1, split, split + law.outside - 1]
    words += [split + law.outside, law.total - 1, law.total, TOP]
    expected = [1, 1, 2, 2, 0, 0, 3, 4, REFUSED, REFUSED]
    out = np.empty(len(words), dtype=np.int64)
    refused = draw_window(
        np.full(len(words), 1, dtype=np.int64),
        np.array(words, dtype=np.uint64),
        np.int64(law.width),
        np.uint64(law.inside),
        np.uint64(law.outside),
        np.uint64(law.total - 1),
        out,
    )
    assert out.tolist() == expected
    assert refused == 2


def test_rounding_compares_all_64_bits() -> None:
    values = np.array([-1.0, 1.0, 0.0, 0.0, 0.5, 0.5, -1e-300, 2.0**-40])
    half = 1 << 63
    words = [TOP, 0, half - 1, half, half + (half >> 1) - 1, half + (half >> 1), half - 1, half]
    out = np.empty(values.size, dtype=np.int64)
    round_to_shifts(values, 1.0, np.array(words, dtype=np.uint64), out)
    assert out.tolist() == [0, 1, 1, 0, 1, 0, 1, 1]


@pytest.mark.statistical
def test_refused_words_are_drawn_again(seed: NoiseSeed) -> None:
    law = WindowLaw(points=3, width=1, inside=1 << 62, outside=1 << 61)
    assert law.total == 1 << 63
    messages = law.draw(np.full(40_000, 1, dtype=np.int64), seed)
    counts = np.bincount(messages, minlength=3)
    assert chi_square_p_value(counts, np.array([0.25, 0.5, 0.25])) > ALPHA
    assert chi_square_p_value(counts, np.array([0.26, 0.48, 0.26])) < ALPHA


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.3, 2.0, 6.0])
def test_messages_follow_the_law(epsilon: float, seed: NoiseSeed) -> None:
    law, value = window_law(16, 5, epsilon), 0.3
    shifts = round_inputs(np.full(200_000, value), law.highest, seed)
    counts = np.bincount(law.draw(shifts, seed), minlength=16)
    assert chi_square_p_value(counts, law.probabilities(value)) > ALPHA
    # Twins: the input not rounded at random, and a ratio of one tenth more.
    nearest = law.probabilities(2.0 * round(0.65 * law.highest) / law.highest - 1.0)
    assert chi_square_p_value(counts, nearest) < ALPHA
    assert chi_square_p_value(counts, window_law(16, 5, 1.1 * epsilon).probabilities(value)) < ALPHA


def test_the_same_seed_gives_the_same_messages(seed: NoiseSeed) -> None:
    law = window_law(1 << 20, 1000, 2.0)
    shifts = np.arange(70_000, dtype=np.int64)
    assert np.array_equal(law.draw(shifts, seed), law.draw(shifts, seed))
    assert not np.array_equal(law.draw(shifts, seed), law.draw(shifts, NoiseSeed(bytes(32))))
