"""The count-median-of-means sketch: definition, memory, moments, and what the median is for."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom
from sketch_kit import ALPHA, SEED, assert_mean, peaks_of, seed_of

from sketch import CountMeanSketch, CountMedianSketch, LinearSketch, PublicSeed
from sketch.error import sketched_norm_variance
from sketch.hashing import CHUNK, MAX_COLUMNS, buckets, signs

Vector = NDArray[np.float64]
SignSource = Callable[[PublicSeed, int, int], NDArray[np.int8]]


def normal(number: int, size: int) -> Vector:
    """Fixed normal vector number `number`."""
    return np.random.default_rng(number).normal(size=size)


def row_signs(seed: PublicSeed, row: int, count: int) -> NDArray[np.int8]:
    """The signs that the library uses."""
    return signs(seed, row, 0, count)


def draw_signs(seed: PublicSeed, row: int, count: int) -> NDArray[np.int8]:
    """A broken twin: the sign comes from the draw that gives the bucket."""
    return np.where(buckets(seed, row, MAX_COLUMNS, 0, count) >= 2**31, -1, 1).astype(np.int8)


def copy_estimates(
    sketch: CountMedianSketch, x: Vector, seed: PublicSeed, source: SignSource = row_signs
) -> Vector:
    """What each copy alone makes of x, straight from the definition: float64[M, d]."""
    estimates = np.zeros((sketch.copies, x.size))
    for row in range(sketch.copies * sketch.rows):
        bucket, sign = buckets(seed, row, sketch.columns, 0, x.size), source(seed, row, x.size)
        table = np.bincount(bucket, weights=sign * x, minlength=sketch.columns)
        estimates[row // sketch.rows] += sign * table[bucket] / sketch.rows
    return estimates


class TestDefinition:
    @pytest.mark.parametrize(
        ("dimension", "rows", "columns", "copies"),
        [(1, 1, 1, 3), (9, 2, 5, 3), (300, 3, 40, 5), (130, 1, 7, 9), (2 * CHUNK + 11, 2, 31, 3)],
    )
    def test_median_of_the_copies(
        self, dimension: int, rows: int, columns: int, copies: int
    ) -> None:
        sketch = CountMedianSketch(dimension, rows, columns, copies, SEED)
        x = normal(0, dimension)
        expected = np.median(copy_estimates(sketch, x, SEED), axis=0)
        np.testing.assert_allclose(sketch.decode(sketch.encode(x)), expected, atol=1e-9)

    def test_encodes_as_a_mean_of_all_rows(self) -> None:
        x = normal(0, 500)
        ours = CountMedianSketch(500, 3, 20, 5, SEED)
        mean = CountMeanSketch(500, 15, 20, SEED)
        assert ours.size == mean.size == 300
        np.testing.assert_array_equal(ours.encode(x), mean.encode(x))

    def test_decodes_any_sketch(self) -> None:
        """Noise is in no sketch of a vector; the definition is applied to it all the same."""
        sketch = CountMedianSketch(200, 2, 6, 3, SEED)
        y = normal(3, sketch.size)
        table = y.reshape(3, 2, 6) * math.sqrt(3 / 2)
        copies = np.zeros((3, 200))
        for row in range(6):
            bucket = buckets(SEED, row, 6, 0, 200)
            copies[row // 2] += signs(SEED, row, 0, 200) * table[row // 2, row % 2, bucket]
        np.testing.assert_allclose(sketch.decode(y), np.median(copies, axis=0), atol=1e-12)

    def test_interface(self) -> None:
        sketch = CountMedianSketch(50, 2, 6, 3, SEED)
        assert isinstance(sketch, LinearSketch)
        sizes = (sketch.dimension, sketch.rows, sketch.columns, sketch.copies, sketch.size)
        assert sizes == (50, 2, 6, 3, 36)
        assert repr(sketch).startswith(
            "CountMedianSketch(dimension=50, rows=2, columns=6, copies=3, seed=PublicSeed("
        )

    def test_memory_is_that_of_the_vector(self) -> None:
        """Neither M d estimates nor R d hashes: little beside the result."""
        dimension, rows, copies = 2**20, 3, 7
        sketch = CountMedianSketch(dimension, rows, 20, copies, SEED)
        x = normal(0, dimension)
        encode_peak, decode_peak = peaks_of(sketch, x)
        assert encode_peak < 2**20
        # One copy's estimates of all coordinates would be 2^23 bytes.
        assert decode_peak - x.nbytes < 8 * copies * CHUNK + 2**20 < 2**23


@pytest.mark.statistical
class TestMoments:
    """Over the seed, with tolerances from the sample size."""

    DIMENSION, ROWS, COLUMNS, COPIES, SAMPLES = 40, 2, 8, 3, 3000
    X = np.linspace(0.2, 2.0, DIMENSION)

    def build(self, seed: PublicSeed) -> CountMedianSketch:
        """The map of a seed."""
        return CountMedianSketch(self.DIMENSION, self.ROWS, self.COLUMNS, self.COPIES, seed)

    def test_unbiased_under_noise_that_is_not(self) -> None:
        """Noise of mean 0.3 and a long tail: the signs make every copy's error symmetric."""
        rng = np.random.default_rng(1)
        decoded = []
        for i in range(self.SAMPLES):
            sketch = self.build(seed_of(i))
            noise = rng.exponential(0.3, size=sketch.size)
            decoded.append(sketch.decode(sketch.encode(self.X) + noise))
        assert_mean(np.array(decoded), self.X)

    def test_one_draw_for_bucket_and_sign_is_biased(self) -> None:
        def decoded(source: SignSource) -> Vector:
            samples = [
                copy_estimates(self.build(seed_of(i)), self.X, seed_of(i), source)
                for i in range(300)
            ]
            return np.median(np.array(samples), axis=1)

        assert_mean(decoded(row_signs), self.X)
        with pytest.raises(AssertionError, match="mean off"):
            assert_mean(decoded(draw_signs), self.X)

    def test_norm_is_kept_on_average(self) -> None:
        size = self.ROWS * self.COLUMNS * self.COPIES
        norms = np.array(
            [np.sum(self.build(seed_of(i)).encode(self.X) ** 2) for i in range(self.SAMPLES)]
        )
        squared = self.X @ self.X
        variance = sketched_norm_variance(size, squared, float(np.sum(self.X**4)))
        assert_mean(norms, squared, variance)
        assert_mean((norms - squared) ** 2, variance)


@pytest.mark.statistical
class TestRobustness:
    """Three coordinates of size 1000 beside one of size 1: docs/sketching.md, "The median"."""

    DIMENSION, COLUMNS, COPIES, SAMPLES = 64, 50, 5, 2000
    HEAVY, AT = 3, 17

    def wrong(self, decode: Callable[[Vector, PublicSeed], Vector]) -> int:
        """Seeds for which the light coordinate is missed by more than rounding."""
        x = np.zeros(self.DIMENSION)
        x[: self.HEAVY], x[self.AT] = 1000.0, 1.0
        return sum(abs(decode(x, seed_of(i))[self.AT] - 1.0) > 1e-9 for i in range(self.SAMPLES))

    def limit(self) -> int:
        """More than this many wrong seeds have probability alpha at most, for the median.

        A copy of one row is wrong only if a heavy coordinate is in the light one's bucket; the
        median is only if most copies are.
        """
        copy = 1.0 - (1.0 - 1.0 / self.COLUMNS) ** self.HEAVY
        majority = float(binom.sf(self.COPIES // 2, self.COPIES, copy))
        return int(binom.isf(ALPHA, self.SAMPLES, majority))

    def test_median(self) -> None:
        def decode(x: Vector, seed: PublicSeed) -> Vector:
            sketch = CountMedianSketch(self.DIMENSION, 1, self.COLUMNS, self.COPIES, seed)
            return sketch.decode(sketch.encode(x))

        assert self.wrong(decode) <= self.limit()

    def test_mean_of_the_same_sketch_is_not(self) -> None:
        def decode(x: Vector, seed: PublicSeed) -> Vector:
            sketch = CountMeanSketch(self.DIMENSION, self.COPIES, self.COLUMNS, seed)
            return sketch.decode(sketch.encode(x))

        assert self.wrong(decode) > 10 * self.limit()
