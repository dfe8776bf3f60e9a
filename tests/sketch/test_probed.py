"""Two sketches in one vector: definition, the norm of the pair, independence of their hashes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2_contingency
from sketch_kit import ALPHA, SEED, assert_mean, seed_of

from sketch import (
    CountMeanSketch,
    CountMedianSketch,
    LinearSketch,
    NoSketch,
    Probe,
    PublicSeed,
    SketchKind,
    SketchSpec,
)
from sketch.error import sketched_norm_variance
from sketch.hashing import buckets, signs
from sketch.probed import ProbedSketch

Vector = NDArray[np.float64]
MAINS: list[LinearSketch] = [
    CountMeanSketch(40, 3, 5, SEED),
    CountMedianSketch(40, 1, 5, 3, SEED),
    NoSketch(40),
]


def normal(number: int, size: int) -> Vector:
    """Fixed normal vector number `number`."""
    return np.random.default_rng(number).normal(size=size)


class TestDefinition:
    @pytest.mark.parametrize("main", MAINS, ids=lambda main: type(main).__name__)
    @pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
    def test_two_weighted_sketches(self, main: LinearSketch, share: float) -> None:
        probe = Probe(7, share)
        both = ProbedSketch(main, probe, SEED)
        x = normal(0, 40)
        encoded = both.encode(x)
        second = CountMeanSketch(40, 1, 7, SEED.probe()).encode(x)
        assert (both.dimension, both.size) == (40, main.size + 7)
        np.testing.assert_allclose(encoded[: main.size], math.sqrt(1 - share) * main.encode(x))
        np.testing.assert_allclose(encoded[main.size :], math.sqrt(share) * second)
        np.testing.assert_allclose(both.decode(encoded), main.decode(main.encode(x)))
        assert isinstance(both, LinearSketch)

    def test_decoding_ignores_the_second(self) -> None:
        both = ProbedSketch(CountMeanSketch(40, 3, 5, SEED), Probe(7), SEED)
        sent = both.encode(normal(0, 40))
        changed = sent.copy()
        changed[15:] = 99.0
        np.testing.assert_array_equal(both.decode(sent), both.decode(changed))

    def test_spec_builds_and_splits_it(self) -> None:
        spec = SketchSpec(SketchKind.COUNT_MEAN, 40, 3, 5, probe=Probe(7, 0.2))
        both = spec.build(SEED)
        assert isinstance(both, ProbedSketch)
        x = normal(0, 40)
        main, second = spec.split(both.encode(x))
        assert second is not None
        np.testing.assert_allclose(main, CountMeanSketch(40, 3, 5, SEED).encode(x))
        np.testing.assert_allclose(second, Probe(7).build(40, SEED).encode(x))

    def test_repr(self) -> None:
        text = repr(ProbedSketch(NoSketch(5), Probe(2), SEED))
        assert text == "ProbedSketch(NoSketch(dimension=5), Probe(size=2, share=0.1))"


@pytest.mark.statistical
class TestNorm:
    """|S' x|^2 over the seed; one row and as many buckets in both, so that a twin can share."""

    X = np.linspace(-1.0, 2.0, 50)
    COLUMNS, SHARE, SAMPLES = 12, 0.4, 3000

    def norms(self, probe_seed: Callable[[PublicSeed], PublicSeed]) -> Vector:
        """|S' x|^2 for each seed, the second sketch built from `probe_seed` of it."""
        found = np.empty(self.SAMPLES)
        for i in range(self.SAMPLES):
            main = CountMeanSketch(self.X.size, 1, self.COLUMNS, seed_of(i)).encode(self.X)
            other = CountMeanSketch(self.X.size, 1, self.COLUMNS, probe_seed(seed_of(i)))
            second = other.encode(self.X)
            found[i] = (1 - self.SHARE) * (main @ main) + self.SHARE * (second @ second)
        return found

    def variance(self) -> float:
        """((1 - w)^2 / L + w^2 / L2) * 2 (|x|_2^4 - |x|_4^4), for independent sketches."""
        one = sketched_norm_variance(self.COLUMNS, float(self.X @ self.X), float(np.sum(self.X**4)))
        return ((1 - self.SHARE) ** 2 + self.SHARE**2) * one

    def test_mean_and_variance(self) -> None:
        def norm(i: int) -> float:
            main = CountMeanSketch(self.X.size, 1, self.COLUMNS, seed_of(i))
            sent = ProbedSketch(main, Probe(self.COLUMNS, self.SHARE), seed_of(i)).encode(self.X)
            return float(sent @ sent)

        norms = np.array([norm(i) for i in range(self.SAMPLES)])
        np.testing.assert_allclose(norms[:20], self.norms(PublicSeed.probe)[:20])
        assert_mean(norms, self.X @ self.X, self.variance())
        assert_mean((norms - self.X @ self.X) ** 2, self.variance())

    def test_one_seed_for_both_is_caught(self) -> None:
        shared = self.norms(lambda seed: seed)
        with pytest.raises(AssertionError, match="mean off"):
            assert_mean((shared - self.X @ self.X) ** 2, self.variance())


def pair_p_value(first: PublicSeed, second: PublicSeed) -> float:
    """Chi-square test that the buckets and signs of two seeds are independent."""
    count, columns = 2**15, 8
    cells = [
        2 * buckets(seed, 0, columns, 0, count).astype(int) + (signs(seed, 0, 0, count) > 0)
        for seed in (first, second)
    ]
    table = np.zeros((2 * columns, 2 * columns))
    np.add.at(table, tuple(cells), 1)
    return float(chi2_contingency(table + 1e-9).pvalue)


@pytest.mark.statistical
class TestIndependence:
    def test_streams(self) -> None:
        for i in range(5):
            assert pair_p_value(seed_of(i), seed_of(i).probe()) > ALPHA

    def test_one_seed_for_both_is_caught(self) -> None:
        assert pair_p_value(seed_of(0), seed_of(0)) < ALPHA

    def test_probe_of_a_probe_is_another(self) -> None:
        assert len({seed_of(0), seed_of(0).probe(), seed_of(0).probe().probe()}) == 3
