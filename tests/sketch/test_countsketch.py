"""The count-mean sketch: definition, linear algebra, unbiasedness and error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sketch_kit import SEED, assert_mean, peaks_of, seed_of

from sketch import CountMeanSketch, NoSketch, PublicSeed
from sketch.error import compression_error, noise_error, sketched_norm_variance
from sketch.hashing import CHUNK, MAX_COLUMNS, buckets, signs

Vector = NDArray[np.float64]


def matrix(dimension: int, rows: int, columns: int, seed: PublicSeed) -> Vector:
    """The map as a dense matrix, straight from its definition."""
    dense = np.zeros((rows, columns, dimension))
    for r in range(rows):
        bucket = buckets(seed, r, columns, 0, dimension)
        dense[r, bucket, np.arange(dimension)] = signs(seed, r, 0, dimension)
    return dense.reshape(rows * columns, dimension) / np.sqrt(rows)


def normal(number: int, size: int) -> Vector:
    """Fixed normal vector number `number`."""
    return np.random.default_rng(number).normal(size=size)


class TestDefinition:
    @pytest.mark.parametrize(
        ("dimension", "rows", "columns"),
        [(1, 1, 1), (7, 3, 1), (8, 1, 8), (9, 2, 5), (130, 15, 4), (1000, 4, 977)],
    )
    def test_equals_the_matrix(self, dimension: int, rows: int, columns: int) -> None:
        sketch = CountMeanSketch(dimension, rows, columns, SEED)
        dense = matrix(dimension, rows, columns, SEED)
        x, y = normal(0, dimension), normal(1, sketch.size)
        np.testing.assert_allclose(sketch.encode(x), dense @ x, atol=1e-12)
        np.testing.assert_allclose(sketch.decode(y), dense.T @ y, atol=1e-12)

    def test_across_chunks(self) -> None:
        dimension, columns = 2 * CHUNK + 11, 31
        sketch = CountMeanSketch(dimension, 1, columns, SEED)
        x, y = normal(0, dimension), normal(1, columns)
        bucket, sign = buckets(SEED, 0, columns, 0, dimension), signs(SEED, 0, 0, dimension)
        expected = np.bincount(bucket, weights=sign * x, minlength=columns)
        np.testing.assert_allclose(sketch.encode(x), expected, atol=1e-9)
        np.testing.assert_array_equal(sketch.decode(y), sign * y[bucket])

    def test_repr_rebuilds_its_parameters(self) -> None:
        text = repr(CountMeanSketch(5, 1, 2, SEED))
        assert text.startswith("CountMeanSketch(dimension=5, rows=1, columns=2, seed=PublicSeed(")
        assert repr(NoSketch(5)) == "NoSketch(dimension=5)"

    def test_no_allocation_of_the_order_of_the_hashes(self) -> None:
        dimension, rows = 2**18, 15
        sketch = CountMeanSketch(dimension, rows, 10, SEED)
        x = normal(0, dimension)
        encode_peak, decode_peak = peaks_of(sketch, x)
        assert encode_peak < dimension * rows / 4
        assert decode_peak < 8 * dimension + dimension * rows / 4


class TestLinearAlgebra:
    @settings(max_examples=50)
    @given(
        st.integers(1, 200),
        st.integers(1, 6),
        st.integers(1, 40),
        st.binary(min_size=32, max_size=32),
    )
    def test_linear_and_adjoint(self, dimension: int, rows: int, columns: int, key: bytes) -> None:
        sketch = CountMeanSketch(dimension, rows, columns, PublicSeed(key))
        a, b, y = normal(1, dimension), normal(2, dimension), normal(3, sketch.size)
        combined = sketch.encode(2.5 * a - 3.0 * b)
        np.testing.assert_allclose(
            combined, 2.5 * sketch.encode(a) - 3.0 * sketch.encode(b), atol=1e-10
        )
        assert sketch.encode(a) @ y == pytest.approx(a @ sketch.decode(y), abs=1e-9)

    def test_every_column_has_length_one(self) -> None:
        sketch = CountMeanSketch(40, 5, 7, SEED)
        for q in range(40):
            unit = np.zeros(40)
            unit[q] = 1.0
            assert np.linalg.norm(sketch.encode(unit)) == pytest.approx(1.0)

    def test_seeds_differ(self) -> None:
        x = normal(0, 100)
        first, second = (CountMeanSketch(100, 3, 9, seed_of(i)).encode(x) for i in range(2))
        assert not np.allclose(first, second)


def biased_decode(x: Vector, rows: int, columns: int, seed: PublicSeed) -> Vector:
    """A broken twin of decode(encode(x)): one random draw gives both bucket and sign."""
    out = np.zeros_like(x)
    for r in range(rows):
        words = buckets(seed, r, MAX_COLUMNS, 0, x.size).astype(np.uint64)
        bucket = (words * np.uint64(columns)) >> np.uint64(32)
        sign = np.where(words >= 2**31, -1.0, 1.0)
        row = np.bincount(bucket.astype(int), weights=sign * x, minlength=columns)
        out += sign * row[bucket] / rows
    return out


@pytest.mark.statistical
class TestMoments:
    """Over the seed; tolerances from the sample size and the known or sampled variance."""

    DIMENSION, ROWS, COLUMNS, SAMPLES = 60, 3, 10, 3000
    X = np.linspace(0.2, 2.0, DIMENSION)

    def samples(self, what: Callable[[CountMeanSketch, int], object]) -> Vector:
        """`what` of the map of each seed."""
        maps = (
            CountMeanSketch(self.DIMENSION, self.ROWS, self.COLUMNS, seed_of(i))
            for i in range(self.SAMPLES)
        )
        return np.array([what(sketch, i) for i, sketch in enumerate(maps)])

    def test_decoding_is_unbiased(self) -> None:
        decoded = self.samples(lambda s, _: s.decode(s.encode(self.X)))
        # One coordinate's share of Lemma 6 without noise: everything but itself, over L.
        variance = (self.X @ self.X - self.X**2) / (self.ROWS * self.COLUMNS)
        assert_mean(decoded, self.X, variance)

    def test_one_draw_for_bucket_and_sign_is_biased(self) -> None:
        decoded = np.array(
            [biased_decode(self.X, self.ROWS, self.COLUMNS, seed_of(i)) for i in range(300)]
        )
        with pytest.raises(AssertionError, match="mean off"):
            assert_mean(decoded, self.X)

    def test_norm_is_kept_on_average(self) -> None:
        norms = self.samples(lambda s, _: np.sum(s.encode(self.X) ** 2))
        squared = self.X @ self.X
        size = self.ROWS * self.COLUMNS
        variance = sketched_norm_variance(size, squared, float(np.sum(self.X**4)))
        assert_mean(norms, squared, variance)
        assert_mean((norms - squared) ** 2, variance)

    @pytest.mark.parametrize("sigma", [0.0, 0.7])
    def test_lemma_6(self, sigma: float) -> None:
        def squared_error(sketch: CountMeanSketch, number: int) -> float:
            noisy = sketch.encode(self.X) + sigma * normal(number, sketch.size)
            return float(np.sum((sketch.decode(noisy) - self.X) ** 2))

        size, squared = self.ROWS * self.COLUMNS, self.X @ self.X
        expected = compression_error(self.DIMENSION, size, squared)
        expected += noise_error(self.DIMENSION, sigma**2)
        assert_mean(self.samples(squared_error), expected)


class TestArguments:
    def test_opposite_infinities_do_not_cancel(self) -> None:
        with pytest.raises(ValueError, match="values must be finite"):
            CountMeanSketch(2, 1, 1, SEED).encode(np.array([np.inf, -np.inf]))


class TestIdentity:
    def test_copies(self) -> None:
        x = normal(0, 9)
        identity = NoSketch(9)
        assert (identity.dimension, identity.size) == (9, 9)
        for out in (identity.encode(x), identity.decode(x)):
            np.testing.assert_array_equal(out, x)
            assert not np.shares_memory(out, x)
