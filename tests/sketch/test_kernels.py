"""Compiled loops against plain NumPy, at the borders of their unrolled parts."""

from __future__ import annotations

import numpy as np
import pytest

from sketch._kernels import copy_finite, flip_signs, median_columns


@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 64, 65, 127, 128, 200, 1000])
def test_flip_signs(size: int) -> None:
    rng = np.random.default_rng(size)
    values = rng.normal(size=size)
    values[::5] = 0.0
    sign_bytes = rng.integers(0, 256, size=size // 8 + 1).astype(np.uint8)
    sign = 1.0 - 2.0 * np.unpackbits(sign_bytes, bitorder="little")[:size]
    expected = values * sign
    flip_signs(values, sign_bytes)
    # Bytes, so that zeros of either sign differ.
    assert values.tobytes() == expected.tobytes()


@pytest.mark.parametrize("copies", [1, 3, 5, 7, 9, 15])
@pytest.mark.parametrize("count", [1, 5, 64, 100])
def test_median_columns(copies: int, count: int) -> None:
    rng = np.random.default_rng(copies)
    estimates = rng.integers(-4, 5, size=(copies, 100)).astype(np.float64)
    kept, out = estimates.copy(), np.empty(count)
    median_columns(estimates, out)
    np.testing.assert_array_equal(out, np.median(kept[:, :count], axis=0))
    np.testing.assert_array_equal(estimates[:, count:], kept[:, count:])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
class TestCopyFinite:
    @pytest.mark.parametrize("size", [0, 1, 9, 100])
    def test_copies(self, size: int, dtype: type) -> None:
        values = np.random.default_rng(0).normal(size=size).astype(dtype)
        out = np.empty(size)
        assert copy_finite(values, out)
        np.testing.assert_array_equal(out, values)

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    def test_sees_every_place(self, bad: float, dtype: type) -> None:
        for where in range(37):
            values = np.zeros(37, dtype=dtype)
            values[where] = bad
            assert not copy_finite(values, np.empty(37))

    def test_the_largest_numbers_are_finite(self, dtype: type) -> None:
        assert copy_finite(np.array([np.finfo(dtype).max] * 3, dtype=dtype), np.empty(3))
