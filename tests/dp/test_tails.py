"""Binomial tails against 50-digit arithmetic, and on the right side of it."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import special

from dp.accounting.laws import BinomialNoise
from dp.accounting.tails import TAIL_SLACK, log_tails


def _exact_log_tail(coins: int, j: int) -> mpmath.mpf:
    """Log of P[Z >= j], from integer binomials (small N) or the incomplete beta function."""
    half = coins // 2
    with mpmath.workdps(50):
        if coins <= 4096:
            ones = sum(math.comb(coins, i) for i in range(half + j, coins + 1))
            return mpmath.log(mpmath.mpf(ones)) - coins * mpmath.log(2)
        return _series_log_tail(coins, j)


def _series_log_tail(coins: int, j: int) -> mpmath.mpf:
    """Sum the tail outward from j until the terms no longer matter."""
    half = coins // 2
    gamma = mpmath.loggamma
    term = mpmath.exp(
        gamma(coins + 1) - gamma(half + j + 1) - gamma(half - j + 1) - coins * mpmath.log(2)
    )
    total, i = mpmath.mpf(0), j
    while i <= half and term > total * mpmath.mpf(10) ** -25:
        total += term
        term *= mpmath.mpf(half - i) / (half + i + 1)
        i += 1
    return mpmath.log(total)


@pytest.mark.parametrize(
    ("coins", "reach", "points"),
    [
        (2, 1, [1]),
        (64, 32, [1, 2, 10, 31, 32]),
        (256, 128, [1, 5, 60, 128]),
        (4096, 2048, [1, 100, 700, 2048]),
        (4098, 400, [1, 33, 250]),
        (10**6, 8000, [1, 500, 3500, 5000]),
        (10**7, 20000, [1, 1600, 12000]),
    ],
)
def test_tails_enclose_the_exact_value_closely(coins: int, reach: int, points: list[int]) -> None:
    tails = log_tails(BinomialNoise(coins), reach)
    for j in points:
        exact = _exact_log_tail(coins, j)
        lower, upper = mpmath.mpf(tails.lower[j - 1]), mpmath.mpf(tails.upper[j - 1])
        assert lower < exact < upper
        # The rounding error proper is a hundred times smaller than the slack.
        assert abs(lower + TAIL_SLACK - exact) < TAIL_SLACK / 100
        if j > 1:  # j = 1 may touch the cap at ln(1/2)
            assert abs(upper - TAIL_SLACK - exact) < TAIL_SLACK / 100


def test_a_truncated_table_still_encloses() -> None:
    whole, cut = log_tails(BinomialNoise(1000), 500), log_tails(BinomialNoise(1000), 120)
    assert np.all(cut.upper + 1e-12 >= whole.upper[:120])
    assert np.all(cut.lower - 1e-12 <= whole.lower[:120])


@pytest.mark.parametrize("coins", [2, 64, 1000, 10**5])
def test_tails_fall_and_stay_below_one_half(coins: int) -> None:
    tails = log_tails(BinomialNoise(coins), min(coins // 2, 900))
    assert np.all(np.diff(tails.lower) < 0)
    assert np.all(np.diff(tails.upper) < 0)
    assert np.all(tails.upper <= -math.log(2))
    assert np.all(tails.lower < tails.upper)


@pytest.mark.parametrize("log_p", [-0.6931471805599454, -0.7, -1.0, -5.0, -30.0, -60.0, -700.0])
def test_inverse_normal_error_is_far_below_the_slack_of_mu(log_p: float) -> None:
    """The accountant trusts ndtri_exp to 1e-13 (absolute or relative, values below 40)."""
    with mpmath.workdps(50):
        z = mpmath.mpf(float(special.ndtri_exp(log_p)))
        # Residual over derivative: how far z is from the true root.
        residual = mpmath.log(mpmath.ncdf(z)) - mpmath.mpf(log_p)
        slope = mpmath.npdf(z) / mpmath.ncdf(z)
        assert abs(residual / slope) < 2e-14


@pytest.mark.parametrize("p", [1e-18, 1e-9, 1e-3, 0.2, 0.5, 0.8, 0.999])
def test_inverse_normal_of_plain_probabilities(p: float) -> None:
    with mpmath.workdps(50):
        z = mpmath.mpf(float(special.ndtri(p)))
        assert abs((mpmath.ncdf(z) - mpmath.mpf(p)) / mpmath.npdf(z)) < 2e-14
