"""Shared by the tests of the linear maps: seeds, and tolerances computed from sample sizes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from sketch import PublicSeed

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


@pytest.fixture(scope="session")
def seeds() -> Callable[[int], PublicSeed]:
    """Function from a number to a fixed public seed."""
    return seed_of


@pytest.fixture(scope="session")
def mean_check() -> Callable[..., None]:
    """Assertion that samples have an expected mean; see `assert_mean`."""
    return assert_mean


@pytest.fixture(scope="session")
def critical() -> Callable[..., float]:
    """Function from a number of comparisons to the critical value for ALPHA."""
    return critical_value


@pytest.fixture(scope="session")
def alpha() -> float:
    """Probability with which a statistical test may fail for a correct program."""
    return ALPHA
