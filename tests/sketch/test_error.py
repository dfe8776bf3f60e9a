"""Closed forms: limits, identities between them, and the variance of the norm estimate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sketch_kit import assert_mean, seed_of

from sketch import CountMeanSketch
from sketch.error import (
    compression_error,
    noise_error,
    norm_estimate_variance,
    size_for_error_ratio,
    sketched_norm_variance,
)

POSITIVE = st.floats(1e-6, 1e6)


class TestForms:
    def test_one_coordinate_has_no_compression_error(self) -> None:
        assert compression_error(1, 1, 5.0) == 0.0

    @given(st.integers(2, 10**7), POSITIVE, POSITIVE, st.floats(0.01, 1.0))
    def test_size_rule_balances_the_errors(
        self, dimension: int, norm: float, noise: float, ratio: float
    ) -> None:
        size = math.ceil(size_for_error_ratio(norm, noise, ratio))
        share = compression_error(dimension, size, norm) / noise_error(dimension, noise)
        assert share <= ratio * (1 + 1e-9)

    def test_a_spike_has_no_norm_variance(self) -> None:
        assert sketched_norm_variance(7, 4.0, 16.0) == 0.0
        assert sketched_norm_variance(7, 0.1, 0.1**2 * (1 + 1e-12)) == 0.0

    def test_estimate_of_nothing_is_the_chi_square_variance(self) -> None:
        assert norm_estimate_variance(50, 0.0, 0.0, 3.0) == 2 * 50 * 9

    @given(st.integers(1, 10**6), POSITIVE, st.floats(0.01, 1.0))
    def test_fixed_point(self, size: int, norm: float, ratio: float) -> None:
        noise = norm / (ratio * size)
        std = math.sqrt(norm_estimate_variance(size, norm, 0.0, noise))
        assert std / norm == pytest.approx(math.sqrt(2.0 / size) * (1.0 + 1.0 / ratio))


@pytest.mark.statistical
@pytest.mark.parametrize(("rows", "columns"), [(1, 40), (4, 10), (10, 4)])
@pytest.mark.slow
def test_norm_estimate_moments(rows: int, columns: int) -> None:
    """Mean and variance of |S mu + xi|^2 - L sigma^2; both depend on R and P through L alone."""
    mu, variance = np.linspace(-1.0, 2.0, 50), 0.5
    size, norm = rows * columns, float(mu @ mu)
    rng = np.random.default_rng(rows)
    estimates = np.empty(3000)
    for i in range(estimates.size):
        noise = math.sqrt(variance) * rng.normal(size=size)
        released = CountMeanSketch(mu.size, rows, columns, seed_of(i)).encode(mu) + noise
        estimates[i] = released @ released - size * variance
    expected = norm_estimate_variance(size, norm, float(np.sum(mu**4)), variance)
    assert_mean(estimates, norm, expected)
    assert_mean((estimates - norm) ** 2, expected)


class TestArguments:
    @pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
    def test_norms_and_variances(self, bad: float) -> None:
        for call in (
            lambda: compression_error(5, 5, bad),
            lambda: noise_error(5, bad),
            lambda: sketched_norm_variance(5, bad, 0.0),
            lambda: norm_estimate_variance(5, 1.0, 0.0, bad),
            lambda: size_for_error_ratio(bad, 1.0, 0.1),
        ):
            with pytest.raises(ValueError, match="must be finite and at least 0"):
                call()
