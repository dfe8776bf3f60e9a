"""Conditional rounding: exact bounds always, no bias beyond what is stated."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from dp_statistics import mean_tolerance
from hypothesis import given, settings
from hypothesis import strategies as st

from dp import rounding
from dp.clipping import Bounded, clip_l2
from dp.coins import Coins
from dp.errors import SensitivityExceededError
from dp.keystream import NoiseSeed
from dp.noised import Noised
from dp.rounding import (
    MAX_LINF_BOUND,
    Quantized,
    largest_square,
    quantize,
    quantized_l2_bound,
    rounded_l2_bound,
)


class WorstWords:
    """Stands in for the keystream: every word is zero, so every fraction rounds up."""

    def __init__(self, seed: NoiseSeed) -> None:
        pass

    def chunks(self, dtype: np.dtype, total: int) -> Iterator[np.ndarray]:
        yield np.zeros(total, dtype=dtype)


def _seeds(count: int) -> list[NoiseSeed]:
    return [NoiseSeed(i.to_bytes(32, "little")) for i in range(count)]


def test_bound_formula_at_hand_computed_points() -> None:
    # C = 3, D = 4, sqrt(2 ln(1/beta)) = 1: min(5, sqrt(9 + 1 + 1 * (3 + 1))) = sqrt(14).
    assert rounded_l2_bound(3.0, 4) == pytest.approx(math.sqrt(14.0), rel=1e-15)
    # beta so small that only the certain bound is left.
    assert rounded_l2_bound(3.0, 4, beta=1e-300) == 5.0


@given(st.floats(0.01, 1e6), st.integers(1, 10**7), st.floats(1e-9, 0.999))
def test_bound_is_at_least_the_unrounded_norm(l2: float, dimension: int, beta: float) -> None:
    bound = rounded_l2_bound(l2, dimension, beta)
    assert l2 <= bound <= (l2 + math.sqrt(dimension)) * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 300),
    st.floats(1e-3, 1e4),
    st.integers(1, 1000),
    st.integers(0, 2**32 - 1),
)
def test_both_bounds_hold_exactly(dimension: int, scale: float, linf: int, number: int) -> None:
    values = np.random.default_rng(number).normal(size=dimension)
    bounded = clip_l2(values, 1.0)
    result = quantize(bounded, scale, linf, NoiseSeed(number.to_bytes(32, "little")))
    assert sum(int(v) ** 2 for v in result.values) <= result.square_bound
    # The float that is accounted with is exactly no less.
    assert result.square_bound <= Fraction(quantized_l2_bound(1.0, scale, dimension)) ** 2
    assert np.abs(result.values).max() <= linf
    scaled = np.clip(bounded.values * scale, -linf, linf)
    assert np.abs(result.values - scaled).max() <= 1.0


def test_integers_are_kept_exactly(seed: NoiseSeed) -> None:
    values = np.array([0.0, 1.0, -2.0, 3.0, -4.0])
    result = quantize(Bounded(values, 6.0), 1.0, 10, seed)
    np.testing.assert_array_equal(result.values, values)


def test_coordinates_are_clipped_before_rounding(seed: NoiseSeed) -> None:
    result = quantize(Bounded(np.array([-9.0, 9.0, 2.0]), 20.0), 1.0, 3, seed)
    np.testing.assert_array_equal(result.values, [-3, 3, 2])
    assert result.linf_bound == 3


def test_same_seed_same_result(generator: np.random.Generator) -> None:
    bounded = clip_l2(generator.normal(size=50_000), 1.0)
    first, again, other = (quantize(bounded, 400.0, 9, s) for s in [*_seeds(1) * 2, _seeds(2)[1]])
    np.testing.assert_array_equal(first.values, again.values)
    assert np.any(first.values != other.values)


def test_vector_for_a_fixed_seed(seed: NoiseSeed) -> None:
    """Pins the layout of rounding words: four bytes per coordinate, in order."""
    result = quantize(Bounded(np.linspace(-2.0, 2.0, 12), 5.0), 1.0, 4, seed)
    assert result.values.tolist() == EXPECTED_ROUNDING


@pytest.mark.statistical
def test_rounding_is_unbiased() -> None:
    """Short vectors in a roomy bound are never redrawn, so the mean must be exact."""
    fractions = np.array([-1.75, -0.5, -0.01, 0.0, 0.3, 0.999])
    bounded = Bounded(np.repeat(fractions, 20_000), 1e4)
    rounded = quantize(bounded, 1.0, 4, _seeds(1)[0]).values.reshape(6, -1)
    for fraction, row in zip(fractions, rounded, strict=True):
        up = fraction - math.floor(fraction)
        tolerance = mean_tolerance(math.sqrt(up * (1 - up)), row.size)
        assert abs(row.mean() - fraction) <= tolerance + 2.0**-33


@pytest.mark.statistical
def test_redrawing_adds_no_more_bias_than_stated() -> None:
    """At the edge of the clip: |bias| <= sqrt(D) P / (1 - P), with P < beta; in fact far less."""
    dimension, runs = 64, 4_000
    bounded = clip_l2(np.ones(dimension), 1.0)
    total = np.zeros(dimension)
    for number in _seeds(runs):
        total += quantize(bounded, 4.0, 4, number).values
    bias = total.mean() / runs - 0.5
    beta = math.exp(-0.5)
    assert abs(bias) <= beta / (1 - beta)
    assert abs(bias) <= 0.02


@pytest.mark.statistical
def test_rounding_to_nearest_would_be_rejected() -> None:
    """Broken twin: deterministic rounding fails the same tolerance by far."""
    broken = np.rint(np.full(20_000, 0.3))
    assert abs(broken.mean() - 0.3) > mean_tolerance(math.sqrt(0.21), broken.size)


@pytest.mark.statistical
def test_the_redraw_rate_is_below_beta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acceptance is at least 1 - beta = 0.39 even for a vector on the edge of its clip."""
    calls = 0
    once = rounding._round_once

    def counted(*arguments: object) -> int:
        nonlocal calls
        calls += 1
        return once(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(rounding, "_round_once", counted)
    runs = 2_000
    bounded = clip_l2(np.ones(64), 1.0)
    for number in _seeds(runs):
        quantize(bounded, 4.0, 4, number)
    assert calls / runs <= 1.0 / (1.0 - math.exp(-0.5)) + 0.2


def test_without_the_condition_the_bound_would_break() -> None:
    """Broken twin: an unconditional rounding of the same input exceeds the bound."""
    bounded = clip_l2(np.ones(400), 1.0)
    out = np.empty(400, dtype=np.int64)
    squares = rounding._round_once(bounded.values, 1.0, 2, WorstWords(_seeds(1)[0]), out)  # type: ignore[arg-type]
    limit = largest_square(quantized_l2_bound(1.0, 1.0, 400))
    assert squares == 400 > limit
    with pytest.raises(SensitivityExceededError):
        Quantized(out, limit, 2)


def test_fall_back_keeps_the_bound_when_every_draw_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounding, "Keystream", WorstWords)
    # Every zero word rounds up, so the short entries alone add 400 to a limit of about 147.
    failing = Bounded(np.concatenate([np.full(400, 0.06), [3.7, 2.2]]), 5.5)
    result = quantize(failing, 1.0, 8, _seeds(1)[0])
    np.testing.assert_array_equal(result.values, np.trunc(failing.values))


def test_an_empty_vector_is_refused(seed: NoiseSeed) -> None:
    with pytest.raises(ValueError, match="dimension"):
        quantize(Bounded(np.empty(0), 1.0), 1.0, 1, seed)


@pytest.mark.parametrize(
    ("values", "square", "linf"),
    [([3, 4], 24, 4), ([3, 4], 25, 3), ([-(2**63)], 1 << 200, MAX_LINF_BOUND)],
)
def test_false_claims_are_refused(values: list[int], square: int, linf: int) -> None:
    with pytest.raises(SensitivityExceededError):
        Quantized(np.array(values, dtype=np.int64), square, linf)


def test_vectors_on_the_edge_are_accepted_also_where_its_root_is_no_float() -> None:
    """The bound was a float: at the root of 3, 6 or 11 it was one too small."""
    for ones in range(1, 200):
        vector = np.ones(ones, np.int64)
        assert Quantized(vector, ones, 1).square_bound == ones
        with pytest.raises(SensitivityExceededError, match=f"exceed square_bound {ones - 1}"):
            Quantized(vector, ones - 1, 1)
    assert largest_square(math.sqrt(3.0)) == 2


@pytest.mark.parametrize("square", [5.0, -1, True])
def test_a_bound_of_squares_is_a_whole_number(square: Any) -> None:
    for build in (Quantized, lambda *of: Noised(of[0], Coins(4), *of[1:])):
        with pytest.raises((TypeError, ValueError), match="square_bound"):
            build(np.zeros(2, np.int64), square, 4)


def test_square_norm_is_exact_beyond_64_bits() -> None:
    values = np.full(100_000, MAX_LINF_BOUND)
    values[::2] *= -1
    exact = 100_000 * MAX_LINF_BOUND**2
    assert exact > 2**64
    Quantized(values.copy(), exact, MAX_LINF_BOUND)
    with pytest.raises(SensitivityExceededError, match="square_bound"):
        Quantized(values, exact - 1, MAX_LINF_BOUND)


@pytest.mark.parametrize("root", [1.0, math.sqrt(2.0), 3.0, 1e8 + 0.5, 12345.678])
def test_largest_square_is_exact(root: float) -> None:
    limit = largest_square(root)
    assert limit <= Fraction(root) ** 2 < limit + 1


EXPECTED_ROUNDING = [-2, -1, -1, -1, 0, 0, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(("bound", "width"), [(16, 1), (127, 1), (128, 2), (40_000, 4)])
def test_packed_values_are_read_back(bound: int, width: int) -> None:
    values = np.array([bound, -bound, 0, 1], np.int64)
    packed = Quantized(values, 4 * bound**2, bound).packed()
    assert np.frombuffer(packed, f"<i{width}").tolist() == values.tolist()
