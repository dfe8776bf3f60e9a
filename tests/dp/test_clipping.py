"""Clipping: the bound always holds, and nothing that is not a finite vector gets through."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dp._kernels import sum_of_squares
from dp.clipping import MAX_L2_BOUND, MIN_L2_BOUND, Bounded, clip_l2, l2_norm, require_finite
from dp.errors import NonFiniteUpdateError, SensitivityExceededError

finite_vectors = hnp.arrays(
    np.float64,
    st.integers(0, 40),
    elements=st.floats(allow_nan=False, allow_infinity=False, width=64),
)


@given(finite_vectors, st.floats(MIN_L2_BOUND, MAX_L2_BOUND))
def test_any_finite_vector_is_brought_within_the_bound(values: np.ndarray, bound: float) -> None:
    clipped = clip_l2(values, bound)
    assert clipped.l2_bound == bound
    assert l2_norm(clipped.values) <= bound * (1 + 1e-9)
    # Direction: no coordinate changes sign or grows.
    assert np.all(np.abs(clipped.values) * (1 - 1e-9) <= np.abs(values))
    assert np.all(clipped.values * np.sign(values) >= 0)


@pytest.mark.parametrize(
    ("values", "norm"),
    [
        ([3.0, 4.0], 5.0),
        ([3e200, 4e200], 5e200),
        ([3e-200, 4e-200], 5e-200),
        ([3e-310, 4e-310], 5e-310),
        ([5e-324], 5e-324),
        ([1e308, 1e308, 1e308, 1e308], math.inf),
        ([], 0.0),
        ([0.0, -0.0], 0.0),
    ],
)
def test_norm_survives_overflow_and_underflow_of_squares(values: list[float], norm: float) -> None:
    assert l2_norm(np.array(values)) == pytest.approx(norm, rel=1e-12, abs=0.0)


def test_a_norm_beyond_the_doubles_is_still_clipped() -> None:
    clipped = clip_l2(np.full(10_000, 1.5e308), 2.0)
    np.testing.assert_allclose(clipped.values, 0.02, rtol=1e-12)


def test_short_vectors_are_left_alone_and_not_lengthened() -> None:
    values = np.array([0.1, -0.2, 0.0])
    np.testing.assert_array_equal(clip_l2(values, 1.0).values, values)


def test_the_argument_is_not_modified_and_the_result_is_read_only() -> None:
    values = np.array([3.0, 4.0])
    clipped = clip_l2(values, 1.0)
    np.testing.assert_array_equal(values, [3.0, 4.0])
    assert values.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        clipped.values[0] = 9.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        clipped.l2_bound = 9.0  # type: ignore[misc]


def test_single_precision_is_accepted() -> None:
    clipped = clip_l2(np.array([3.0, 4.0], dtype=np.float32), 1.0)
    assert clipped.values.dtype == np.float64
    np.testing.assert_allclose(clipped.values, [0.6, 0.8], rtol=1e-12)


def test_another_layout_compiles_nothing() -> None:
    values = np.repeat(np.array([3.0, 4.0], dtype=np.float32), 2)[::2]
    values.flags.writeable = False
    clip_l2(values.copy(), 1.0)
    versions = len(sum_of_squares.dispatcher.overloads)
    np.testing.assert_allclose(clip_l2(values, 1.0).values, [0.6, 0.8], rtol=1e-12)
    assert len(sum_of_squares.dispatcher.overloads) == versions


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_non_finite_updates_are_refused(bad: float, dtype: type) -> None:
    values = np.array([1.0, bad, 2.0], dtype=dtype)
    with pytest.raises(NonFiniteUpdateError, match="1 of 3 coordinates"):
        clip_l2(values, 1.0)
    with pytest.raises(NonFiniteUpdateError):
        require_finite(values)


def test_an_all_nan_vector_is_refused_by_the_type_itself() -> None:
    with pytest.raises(NonFiniteUpdateError):
        Bounded(np.full(3, math.nan), 1.0)


def test_a_claim_that_does_not_hold_cannot_be_built() -> None:
    with pytest.raises(SensitivityExceededError, match=r"l2_bound 0\.99"):
        Bounded(np.array([1.0]), 0.99)
    Bounded(np.array([1.0]), 1.0)


def test_an_isometry_keeps_the_bound(generator: np.random.Generator) -> None:
    rotation, _ = np.linalg.qr(generator.normal(size=(8, 8)))
    bounded = clip_l2(generator.normal(size=8), 1.0)
    rotated = bounded.map_isometry(lambda values: rotation @ values)
    assert rotated.l2_bound == 1.0
    assert l2_norm(rotated.values) == pytest.approx(1.0, rel=1e-12)


def test_a_false_isometry_is_caught() -> None:
    bounded = clip_l2(np.array([3.0, 4.0]), 1.0)
    with pytest.raises(SensitivityExceededError):
        bounded.map_isometry(lambda values: values * 1.001)
