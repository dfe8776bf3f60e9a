"""Both sides of every bound of an argument: what is refused, in which words, and what passes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from bounds import Row
from sketch_kit import SEED

from sketch import (
    CountMeanSketch,
    CountMedianSketch,
    LayerShapes,
    Probe,
    PublicSeed,
    Rotation,
    SketchKind,
    SketchSpec,
    flat_bound,
    median_for_size,
    spec_for_size,
    top_k,
)
from sketch.compressors import (
    DeepGradientCompression,
    Denoise,
    ErrorFeedback,
    NoCompression,
    PowerSgd,
    RandomK,
    TopK,
)
from sketch.controllers import Prior
from sketch.controllers.base import LARGEST_SQUARE
from sketch.error import compression_error, size_for_error_ratio, sketched_norm_variance
from sketch.factors import Factors, FactorShapes
from sketch.hashing import MAX_COLUMNS, Usage, buckets, derive_key, signs
from sketch.power_factors import LeftFactorMap, RightFactorMap

NAN, INF = math.nan, math.inf
LAYERS = LayerShapes((("a", (5,)), ("b", (2, 3))))
MEAN, MEDIAN, IDENTITY = SketchKind.COUNT_MEAN, SketchKind.COUNT_MEDIAN, SketchKind.IDENTITY


HASHES = [
    Row(PublicSeed, "value must be 32 bytes", [bytes(n) for n in (0, 16, 31, 33, 64)]),
    Row(PublicSeed, "value must be bytes", [], [bytearray(32), "0" * 32, 5, None], [bytes(32)]),
    Row(lambda row: derive_key(SEED, Usage.SIGN, row), "row must be", [-1, 2**32], [], [2**32 - 1]),
    Row(lambda seed: derive_key(seed, Usage.SIGN, 0), "a PublicSeed", [], [bytes(32)], [SEED]),
    Row(lambda usage: derive_key(SEED, usage, 0), "usage a Usage", [], [2], [Usage.SIGN]),
    Row(
        lambda columns: buckets(SEED, 0, columns, 0, 1),
        "columns must be",
        [0, -3, MAX_COLUMNS + 1],
        [1.0, "1", True, None],
        [1, MAX_COLUMNS],
    ),
    Row(lambda stop: signs(SEED, 0, 5, stop), "stop must be at least 5, not 4", [4], [], [5]),
    Row(lambda start: buckets(SEED, 0, 3, start, 4), "start must be at least 0", [-1], [], [0]),
]

MAPS = [
    *(
        Row(lambda n, at=at: CountMeanSketch(*_sizes(at, n), SEED), name, [0], [1.0], [1])
        for at, name in enumerate(("dimension", "rows", "columns"))
    ),
    *(
        Row(lambda n, at=at: CountMedianSketch(*_sizes(at, n), 3, SEED), name, [0], [1.0], [1])
        for at, name in enumerate(("dimension", "rows", "columns"))
    ),
    Row(
        lambda n: CountMeanSketch(1, 1, n, SEED),
        "columns must be from 1 to 4294967296",
        [2**32 + 1],
        [],
        [2**32],
    ),
    Row(lambda seed: CountMeanSketch(1, 1, 1, seed), "seed must be a PublicSeed", [], [bytes(32)]),
    Row(
        lambda n: CountMedianSketch(5, 1, 2, n, SEED),
        "copies must be",
        [0, 1, 2, 4],
        [True, 3.0, "3", None],
        [3],
    ),
    Row(
        lambda n: CountMedianSketch(5, 2**30, 2, n, SEED),
        "copies must be from 3 to 4, not 5",
        [5],
        [],
        [3],
    ),
    Row(lambda n: Rotation(n, SEED), "length must be", [0, -1], [1.0], [1]),
    Row(lambda seed: Rotation(3, seed), "seed must be a PublicSeed", [], [bytes(32)], [SEED]),
    Row(lambda l2: flat_bound(l2, 3, 0.5), "must be", [-1.0, NAN], [], [0.0]),
    Row(lambda n: flat_bound(1.0, n, 0.5), "must be", [0], [], [1]),
    Row(lambda failure: flat_bound(1.0, 3, failure), "must be", [0.0, 1.5], [], [1.0]),
    Row(Probe, "size must be", [0, -1, MAX_COLUMNS + 1], [5.0], [1, MAX_COLUMNS]),
    Row(lambda s: Probe(5, s), "share must be", [0.0, -0.1, 1.0, 1.5, NAN, INF], ["0.1"], [0.5]),
    Row(lambda k: top_k(np.ones(3), k), "k must be", [0, -1, 4], [1.0], [1, 3]),
    Row(lambda v: top_k(v, 1), "values must have dtype float64", [], [np.ones(3, np.int64)]),
    Row(lambda v: top_k(v, 1), "values must be a NumPy array, not list", [], [[1.0]]),
    Row(lambda v: top_k(v, 1), r"values must have shape \(6,\), not \(2, 3\)", [np.ones((2, 3))]),
    Row(lambda v: top_k(v, 1), "k must be from 1 to 0", [np.ones(0)], [], [np.ones(1)]),
    Row(lambda v: top_k(v, 1), "values must be finite", [np.array([1.0, NAN])]),
    Row(LayerShapes.flat, "dimension must be at least 1", [0], [], [1]),
    Row(
        LayerShapes,
        "shapes must be a tuple of",
        [],
        [[("a", (1,))], (("a", [1]),), (("a", (1.0,)),), ((1, (1,)),), ("ab",)],
        [(("a", (1,)),)],
    ),
    Row(LayerShapes, "names must be different", [(), (("a", (1,)), ("a", (2,)))]),
    Row(LayerShapes, "size of layer 'a' must be", [(("a", (3, 0)),)], [(("a", (True,)),)]),
    Row(lambda fourth: sketched_norm_variance(5, 2.0, fourth), "fourth_power", [4.1], [], [4.0]),
    Row(lambda v: size_for_error_ratio(1.0, v, 0.1), "noise_variance must", [0.0], [], [1e-9]),
    Row(lambda v: compression_error(5, 5, v), "norm_squared must be a real", [], ["1"], [0.0]),
]

FACTORS = [
    Row(lambda rank: FactorShapes(LAYERS, rank), "rank must be", [0], [1.0], [1]),
    Row(
        lambda layers: FactorShapes(layers, 1),
        "layers must be Layer",
        [],
        [LAYERS.shapes],
        [LAYERS],
    ),
    Row(Factors, "bases", [], [[np.eye(2)], (np.eye(2, dtype=np.float32),), (np.ones(2),)]),
    *(
        Row(
            lambda shapes, kind=kind: kind(shapes, Factors(())),
            "must be FactorShapes",
            [],
            [LAYERS],
        )
        for kind in (LeftFactorMap, RightFactorMap)
    ),
    Row(FactorShapes(LAYERS, 1).initial_right, "seed must be a PublicSeed", [], [b"seed"], [SEED]),
]

SPECS = [
    *(
        Row(lambda n, kind=kind: SketchSpec(kind, 7, 1, 7, n), "must be 1 without a median", [3])
        for kind in (IDENTITY, MEAN)
    ),
    Row(lambda n: SketchSpec(MEDIAN, 7, 1, 2, n), "copies must be", [1, 2, 4], [], [3]),
    Row(lambda n: SketchSpec(MEDIAN, 7, n, 2, 3), "to 1431655765", [2**31], [], [1431655765]),
    Row(
        lambda given: SketchSpec(MEAN, 7, 1, 2, 1, given), "probe must be a Probe", [], [5], [None]
    ),
    Row(lambda n: SketchSpec(IDENTITY, 7, n, 7), "of an identity must be 1", [2], [], [1]),
    Row(lambda n: SketchSpec(IDENTITY, 7, 1, n), "of an identity must be 1", [6], [], [7]),
    Row(lambda kind: SketchSpec(kind, 7, 1, 1), "kind must be a SketchKind", [], [1], [MEAN]),
    Row(lambda n: SketchSpec(MEAN, n, 1, 1), "must be", [0], [1.0], [1]),
    Row(lambda n: SketchSpec(MEAN, 5, n, 1), "must be", [0], [1.0], [1]),
    Row(lambda n: SketchSpec(MEAN, 5, 1, n), "must be", [0, 2**32 + 1], [1.0], [1, 2**32]),
    Row(lambda n: median_for_size(n, 1, 3, 1), "must be", [0], [], [1]),
    Row(lambda n: median_for_size(1, n, 3, 1), "must be", [0], [], [1]),
    Row(lambda n: median_for_size(9, 1, n, 1), "must be", [2, 1], [], [3]),
    Row(lambda n: median_for_size(9, 1, 3, n), "must be", [0], [], [1]),
    Row(lambda n: spec_for_size(n, 1, 1), "must be", [0], [], [1]),
    Row(lambda n: spec_for_size(1, n, 1), "must be", [0], [], [1]),
    Row(lambda n: spec_for_size(1, 1, n), "must be", [0], [], [1]),
    Row(
        lambda v: Prior(norm_squared=v, noise_variance=1.0),
        "norm_squared must be",
        [-1.0, INF, 1e141],
        [None],
        [0.0, LARGEST_SQUARE],
    ),
    Row(
        lambda v: Prior(norm_squared=1.0, noise_variance=v),
        "noise_variance must be",
        [1e-141, 1e141, 0.0, NAN],
        ["1"],
        [1e-9, LARGEST_SQUARE],
    ),
]


def denoise(**change: Any) -> object:
    """A good filter, but for the change."""
    good = {"inner": NoCompression(3), "momentum": 0.5, "residual_decay": 0.5}
    return Denoise(**{**good, **change})


COMPRESSORS = [
    Row(lambda v: denoise(momentum=v), "momentum must be", [-0.1, 1.1, 1.0, NAN], ["1"], [0.0]),
    Row(
        lambda v: denoise(residual_decay=v), "residual_decay must", [-0.1, 1.1, NAN], [], [0.0, 1.0]
    ),
    Row(lambda v: denoise(clip_l2=v), "clip_l2 must be", [0.0, -1.0, INF, NAN], [], [1e-9, None]),
    Row(
        lambda v: ErrorFeedback(NoCompression(3), v), "decay must", [-0.1, 1.1, NAN], [], [0.0, 1.0]
    ),
    Row(
        lambda bits: NoCompression(3, bits),
        "value_bits must be",
        [9, 0, 33, 63, 65, -1],
        [16.0, True, None, "16"],
        [10, 32, 64],
    ),
    Row(lambda bits: TopK(LAYERS, 16, value_bits=bits), "from 10 to 32, or 64, not 8", [8]),
    Row(lambda rate: TopK(LAYERS, rate), "rate must be", [0.99, 0, -1, INF, NAN], ["16"], [1.0]),
    Row(lambda layers: TopK(layers, 16), "layers must be LayerShapes", [], [100], [LAYERS]),
    Row(
        lambda v: DeepGradientCompression(LAYERS, 2.0, momentum=v),
        "momentum must be",
        [-0.1, 1.0],
        ["1"],
        [0.0],
    ),
    Row(lambda rank: PowerSgd(LAYERS, rank, SEED), "rank must be", [0], [2.0], [1]),
    Row(lambda seed: PowerSgd(LAYERS, 1, seed), "seed must be a PublicSeed", [], [b"seed"], [SEED]),
    Row(lambda rank: PowerSgd(LAYERS, rank, SEED), "no layer is large enough .* at rank 99", [99]),
    *(
        Row(
            feedback,
            "inner must keep no residual",
            [ErrorFeedback(NoCompression(3)), DeepGradientCompression(LAYERS, 2)],
        )
        for feedback in (ErrorFeedback, lambda inner: denoise(inner=inner))
    ),
    Row(lambda rate: RandomK(3, rate, SEED), "rate must be", [0.99, NAN], ["1"], [1.0]),
    Row(lambda n: RandomK(n, 1.0, SEED), "dimension must be", [0, 2**32], [1.0], [1]),
    Row(lambda seed: RandomK(3, 1.0, seed), "seed must be a PublicSeed", [], [bytes(32)], [SEED]),
]


def _sizes(at: int, size: object) -> list[Any]:
    """Dimension, rows and columns of 1, but for one of them."""
    return [size if place == at else 1 for place in range(3)]


@pytest.mark.parametrize(
    "row", [*HASHES, *MAPS, *FACTORS, *SPECS, *COMPRESSORS], ids=lambda row: row.words
)
def test_both_sides_of_a_bound(row: Row) -> None:
    row.check()
