"""Shared by the tests of the linear maps: seeds, tolerances from sample sizes, and releases."""

from __future__ import annotations

import hashlib
import math
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from sketch import LinearSketch, PublicSeed, SketchSpec
from sketch.controllers import ReleasedStats
from sketch.controllers.release import released_stats

SEED = PublicSeed(bytes(range(32)))
# Probability with which a statistical test would fail for a correct program, had its seeds been
# drawn at random. They are fixed, so a test that passes once passes always.
ALPHA = 1e-6


def seed_of(number: int) -> PublicSeed:
    """The public seed number `number`: 32 bytes without structure, the same in every run."""
    return PublicSeed(hashlib.sha256(b"tests/sketch" + number.to_bytes(8, "big")).digest())


def critical_value(comparisons: int = 1) -> float:
    """Standard deviations that one of `comparisons` normal values passes with chance ALPHA."""
    return float(norm.isf(ALPHA / (2 * comparisons)))


def assert_mean(samples: NDArray[np.float64], expected: object, variance: object = None) -> None:
    """Assert that the columns of `samples` have the expected means.

    The tolerance is the critical value for ALPHA, shared between the columns, times the standard
    error from `variance` if it is known, and from the samples otherwise.
    """
    samples = np.asarray(samples, dtype=np.float64)
    samples = samples.reshape(len(samples), -1)
    known = samples.var(axis=0, ddof=1) if variance is None else np.asarray(variance)
    tolerance = critical_value(samples.shape[1]) * np.sqrt(known / len(samples))
    gap = np.abs(samples.mean(axis=0) - np.ravel(expected))
    worst = float(np.max(gap - tolerance))
    assert worst <= 0.0, f"mean off by {worst} more than a correct program at alpha = {ALPHA}"


def estimated(
    norm_squared: float, size: int, noise_variance: float, number: int, **others: Any
) -> ReleasedStats:
    """A release whose estimate of the norm is exactly this; `others` are its other fields."""
    fields = {"dimension": 100_000, "survivors": 10, "update_norm_squared": 1.0, **others}
    return ReleasedStats(
        round_number=number,
        size=size,
        sketch_norm_squared=norm_squared + size * noise_variance,
        noise_variance=noise_variance,
        **fields,
    )


def releases_of(
    spec: SketchSpec, mean: NDArray[np.float64], variance: float, rounds: int
) -> Iterator[ReleasedStats]:
    """What first rounds release of one mean, each with hashes and normal noise of its own."""
    rng = np.random.default_rng(6)
    for seed in map(seed_of, range(rounds)):
        sketch = spec.build(seed)
        sent = sketch.encode(mean) + math.sqrt(variance) * rng.normal(size=sketch.size)
        yield released_stats(
            spec,
            seed,
            sent,
            sketch.decode(sent),
            previous=None,
            round_number=0,
            noise_variance=variance,
            survivors=5,
        )


def peaks_of(sketch: LinearSketch, values: NDArray[np.float64]) -> tuple[int, int]:
    """Most bytes in use at once while a vector is encoded, and while its sketch is decoded."""
    encoded, peaks = sketch.encode(values), []
    for work in (lambda: sketch.encode(values), lambda: sketch.decode(encoded)):
        tracemalloc.start()
        try:
            work()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return peaks[0], peaks[1]
