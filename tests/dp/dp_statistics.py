"""One significance level and the few statistical tests that the dp tests use.

Seeds are fixed, so a test that passes keeps passing; ALPHA is the probability that a *correct*
sampler would have failed for the seed that happened to be chosen. Every test has a broken twin
that the same procedure must reject, so tolerances cannot be silently useless.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

ALPHA = 1e-6

_MIN_EXPECTED = 20.0
"""Smallest expected count of a cell: below it, chi-square is a poor approximation."""


def binomial_probabilities(coins: int) -> NDArray[np.float64]:
    """Return P[Bin(coins, 1/2) = i] for i = 0..coins."""
    i = np.arange(coins + 1, dtype=np.float64)
    log_choose = special.gammaln(coins + 1) - special.gammaln(i + 1)
    return np.exp(log_choose - special.gammaln(coins - i + 1) - coins * math.log(2))


def chi_square_p_value(counts: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
    """Return the p-value of observed counts, rare cells pooled into their inner neighbours."""
    total = int(counts.sum())
    observed, expected = [], []
    pooled_count, pooled_mass = 0.0, 0.0
    for count, probability in zip(counts, probabilities, strict=True):
        pooled_count += float(count)
        pooled_mass += float(probability) * total
        if pooled_mass >= _MIN_EXPECTED:
            observed.append(pooled_count)
            expected.append(pooled_mass)
            pooled_count, pooled_mass = 0.0, 0.0
    observed[-1] += pooled_count
    expected[-1] += pooled_mass
    statistic = sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    return float(stats.chi2.sf(statistic, len(expected) - 1))


def binomial_p_value(samples: NDArray[np.int64], coins: int) -> float:
    """Return the chi-square p-value of samples against Bin(coins, 1/2); 0 outside its support."""
    if samples.min() < 0 or samples.max() > coins:
        return 0.0
    counts = np.bincount(samples, minlength=coins + 1)
    return chi_square_p_value(counts, binomial_probabilities(coins))


def mean_tolerance(deviation: float, count: int) -> float:
    """Return the two-sided tolerance of a mean at level ALPHA (central limit)."""
    return float(stats.norm.isf(ALPHA / 2)) * deviation / math.sqrt(count)


def variance_tolerance(variance: float, count: int) -> float:
    """Return the two-sided tolerance of a near-Gaussian sample variance at level ALPHA."""
    return float(stats.norm.isf(ALPHA / 2)) * variance * math.sqrt(2.0 / count)
