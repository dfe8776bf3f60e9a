"""The domination theorem checked by brute force, and its implementation by a plain one."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from dp_laws import gaussian_sum_masses
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal, special

from dp.accounting import domination
from dp.accounting.discrete_gaussian import DiscreteGaussianSum
from dp.accounting.domination import effective_sigma
from dp.accounting.gaussian import gaussian_delta
from dp.accounting.laws import SkellamNoise

STEP = 2.0**-12
"""Grid of privacy losses in the brute-force check; losses are rounded up, against us."""


def _loss_distribution(coins: int, shift: int) -> tuple[np.ndarray, int, float]:
    """Return (masses, index of the first, mass at infinity) of ln P_shift / P_0 under P_shift.

    Losses are rounded *up* to multiples of STEP, so every divergence computed from the result
    is at least the true one.
    """
    half = coins // 2
    log_p = [math.log(math.comb(coins, i)) - coins * math.log(2) for i in range(coins + 1)]
    finite = range(shift - half, half + 1)
    infinite = sum(math.exp(log_p[z - shift + half]) for z in range(half + 1, half + 1 + shift))
    losses = [log_p[z - shift + half] - log_p[z + half] for z in finite]
    indices = [math.ceil(loss / STEP - 1e-9) for loss in losses]
    first = min(indices)
    masses = np.zeros(max(indices) - first + 1)
    for z, index in zip(finite, indices, strict=True):
        masses[index - first] += math.exp(log_p[z - shift + half])
    return masses, first, infinite


def _divergences(coins: int, vector: tuple[int, ...], epsilons: np.ndarray) -> np.ndarray:
    """Return upper estimates of the hockey-stick divergence of M(v) from M(0)."""
    masses, first, surely_finite = np.ones(1), 0, 1.0
    for shift in vector:
        more, offset, infinite = _loss_distribution(coins, shift)
        masses = np.maximum(signal.fftconvolve(masses, more), 0.0)
        first += offset
        surely_finite *= 1.0 - infinite
    losses = (first + np.arange(masses.size)) * STEP
    gains = [masses @ np.maximum(-np.expm1(e - np.maximum(losses, e)), 0.0) for e in epsilons]
    return np.array(gains) + (1.0 - surely_finite)


def _plain_sigma(coins: int, l2: float, linf: int, delta0: float) -> float:
    """The definition of section "Gaussian domination", vertex by vertex in 40 digits."""
    with mpmath.workdps(40):
        half = coins // 2
        counts = [math.comb(coins, i) for i in range(coins + 1)]
        total = mpmath.mpf(2) ** coins

        def upper(x: int) -> mpmath.mpf:
            return mpmath.mpf(sum(counts[max(0, x + half) :])) / total

        def zq(q: mpmath.mpf) -> mpmath.mpf:
            if q <= 0:
                return mpmath.inf
            guess = float(-special.ndtri(float(q)))
            return mpmath.findroot(lambda z: mpmath.log(mpmath.ncdf(-z) / q), guess)

        best = mpmath.inf
        for k in range(1, min(linf, int(l2)) + 1):
            delta = mpmath.mpf(delta0) * k**2 / mpmath.mpf(l2) ** 2
            mu = -mpmath.inf
            for x in range(-half, half + k + 2):
                alpha, beta = upper(x), 1 - upper(x - k)
                if alpha < 1 - delta and beta < 1 - delta:
                    mu = max(mu, zq(alpha / (1 - delta)) + zq(beta / (1 - delta)))
            best = min(best, k / mu)
        return float(best)


@pytest.mark.parametrize(
    ("coins", "l2", "linf", "delta0"),
    [
        (16, 1.0, 1, 1e-3),
        (64, 2.0, 2, 1e-6),
        (64, 5.0, 3, 1e-4),
        (128, 7.5, 2, 1e-9),
        (30, 3.0, 3, 0.01),
    ],
)
def test_agrees_with_the_definition_from_below(
    coins: int, l2: float, linf: int, delta0: float
) -> None:
    exact = _plain_sigma(coins, l2, linf, delta0)
    fast = effective_sigma(coins, l2, linf, delta0)
    assert fast <= exact
    # What the safe side costs: zq(U) instead of zq(U / (1 - delta)) is of the order of delta.
    assert fast >= exact * (1 - 1e-6 - 3 * delta0 * math.sqrt(coins))


def _skellam(variance: float, reach: int) -> list[mpmath.mpf]:
    """P[Z = z] for z = -reach..reach, by the power series of the Bessel functions."""
    half = [mpmath.besseli(j, variance) * mpmath.exp(-variance) for j in range(reach + 1)]
    return [*half[:0:-1], *half]


def _polygon_ratio(masses: list[mpmath.mpf], l2: float, linf: int, delta0: float) -> float:
    """Largest mu_k / k over the vertices of the polygon of masses for -reach..reach."""
    reach = len(masses) // 2
    upper = {reach + 1: mpmath.mpf(0)}
    for x in range(reach, -reach - 1, -1):
        upper[x] = upper[x + 1] + masses[x + reach]

    def zq(q: mpmath.mpf) -> mpmath.mpf:
        guess = float(-special.ndtri(float(q)))
        return mpmath.findroot(lambda z: mpmath.log(mpmath.ncdf(-z) / q), guess)

    best = -mpmath.inf
    for k in range(1, min(linf, int(l2)) + 1):
        delta = mpmath.mpf(delta0) * k**2 / mpmath.mpf(l2) ** 2
        for x in range(-reach + k + 1, reach):
            alpha, beta = upper[x] / (1 - delta), (1 - upper[x - k]) / (1 - delta)
            if 0 < alpha < 1 and 0 < beta < 1:
                best = max(best, (zq(alpha) + zq(beta)) / k)
    return float(best)


@pytest.mark.parametrize(
    ("law", "reach", "l2", "linf", "delta0"),
    [
        (SkellamNoise(4.0), 26, 2.0, 2, 1e-5),
        (SkellamNoise(20.0), 50, 5.0, 3, 1e-4),
        (DiscreteGaussianSum(9.0, 1), 30, 3.0, 3, 1e-5),
        (DiscreteGaussianSum(0.6, 7), 22, 2.0, 2, 1e-4),
        (DiscreteGaussianSum(2.0, 3), 26, 3.5, 3, 1e-6),
    ],
    ids=str,
)
def test_other_noise_agrees_with_its_polygon_from_below(
    law: SkellamNoise | DiscreteGaussianSum, reach: int, l2: float, linf: int, delta0: float
) -> None:
    """Every vertex in 40 digits: mu is never too small, and not much too large."""
    with mpmath.workdps(40):
        if isinstance(law, SkellamNoise):
            masses = _skellam(law.variance, reach)
        else:
            masses = gaussian_sum_masses(law.local_variance, law.contributors, reach)
        exact = 1.0 / _polygon_ratio(masses, l2, linf, delta0)
    fast = effective_sigma(law, l2, linf, delta0)
    assert fast <= exact
    assert fast >= exact * (1 - 2e-6 - 5 * delta0 * math.sqrt(law.variance))


@settings(max_examples=30, deadline=None)
@given(st.floats(2.0, 2000.0), st.floats(1.01, 3.0), st.floats(1.0, 30.0), st.integers(1, 12))
def test_more_noise_of_any_law_never_hurts(
    variance: float, factor: float, l2: float, linf: int
) -> None:
    for less, more in (
        (SkellamNoise(variance), SkellamNoise(variance * factor)),
        (DiscreteGaussianSum(variance, 1), DiscreteGaussianSum(variance * factor, 1)),
        (DiscreteGaussianSum(variance, 2), DiscreteGaussianSum(variance, 3)),
    ):
        low, high = (effective_sigma(law, l2, linf, 1e-7) for law in (less, more))
        assert low <= high * (1 + 1e-8)


def test_a_larger_sigma_would_be_caught() -> None:
    """Broken twin: claiming the plain standard deviation fails the same check."""
    coins, delta0 = 64, 1e-6
    mu = 3.0 / math.sqrt(coins / 4)
    epsilons = np.linspace(0.0, 2.5 * mu**2 + 6 * mu, 60)
    bound = np.array([delta0 + (1 - delta0) * gaussian_delta(e, mu) for e in epsilons])
    assert (_divergences(coins, (3,), epsilons) - bound).max() > 1e-7


@pytest.mark.parametrize("coins", [1024, 4096, 2**14])
@pytest.mark.parametrize("shift", [2, 8, 32])
def test_planning_approximation(coins: int, shift: int) -> None:
    """The form sigma (1 - (3 z^2 - 1)/(48 sigma^2)) is pessimistic for shifts up to two sigma."""
    sigma, delta0 = math.sqrt(coins / 4), 1e-7
    z = float(special.ndtri(1 - delta0))
    loss = (3 * z**2 - 1) / (48 * sigma**2)
    found = 1 - effective_sigma(coins, float(shift), shift, delta0) / sigma
    assert 0.0 < found < loss
    if shift >= sigma:
        assert found > 0.6 * loss


def test_planning_approximation_fails_for_large_shifts() -> None:
    """Beyond two sigma it is optimistic, which is why it is for planning only."""
    loss = (3 * float(special.ndtri(1 - 1e-7)) ** 2 - 1) / (48 * 8.0**2)
    assert 1 - effective_sigma(256, 64.0, 64, 1e-7) / 8.0 > 3 * loss


@pytest.mark.parametrize(("sigma", "loss"), [(8, 0.03), (16, 0.007), (32, 0.0015)])
def test_absolute_noise_decides_how_near_the_gaussian_is(sigma: int, loss: float) -> None:
    assert effective_sigma(4 * sigma**2, 16.0, 16, 1e-7) >= sigma * (1 - 1.1 * loss)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(20, 20_000),
    st.integers(1, 8000),
    st.floats(1.0, 200.0),
    st.integers(1, 40),
    st.integers(10, 60),
)
def test_more_coins_never_hurt(coins: int, more: int, l2: float, linf: int, bits: int) -> None:
    less_noise = effective_sigma(coins, l2, linf, 2.0**-bits)
    assert effective_sigma(coins + more, l2, linf, 2.0**-bits) >= less_noise * (1 - 1e-8)


@settings(max_examples=40, deadline=None)
@given(st.integers(50, 20_000), st.floats(1.0, 200.0), st.integers(1, 40), st.integers(10, 60))
def test_monotone_in_every_other_argument(coins: int, l2: float, linf: int, bits: int) -> None:
    base = effective_sigma(coins, l2, linf, 2.0**-bits)
    slack = 1 + 1e-8
    sigma = math.sqrt(coins / 4)
    # A little above sigma is possible: delta0 pays for some of the distance, and the centre of a
    # binomial is flatter than that of its Gaussian by a factor 1 - 1/(4 N).
    assert base <= sigma * (1 + 1 / coins + 3 * sigma * 2.0**-bits) * slack
    assert effective_sigma(coins, l2, linf, 2.0 ** (1 - bits)) >= base / slack
    assert effective_sigma(coins, l2, linf + 1, 2.0**-bits) <= base * slack
    # A larger D2 lowers every delta_k, hence sigma_eff, hence raises mu = D2 / sigma_eff.
    assert effective_sigma(coins, l2 * 1.5, linf, 2.0**-bits) <= base * slack


def test_an_odd_coin_is_not_counted() -> None:
    assert effective_sigma(1001, 4.0, 4, 1e-6) == effective_sigma(1000, 4.0, 4, 1e-6)


def test_blocks_of_shifts_are_a_lower_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = (40_000, 150.0, 150, 1e-7)
    dense = effective_sigma(*arguments)
    monkeypatch.setattr(domination, "DENSE_SHIFTS", 32)
    effective_sigma.cache_clear()
    blocks = effective_sigma(*arguments)
    effective_sigma.cache_clear()
    assert dense * (1 - 1 / 32) <= blocks <= dense * (1 + 1e-9)


@pytest.mark.parametrize("shift", [1, 7, 512, 513, 700, 5000])
def test_blocks_cover_every_shift_once(shift: int) -> None:
    blocks = domination._shift_blocks(shift, 1e4, 1e-6)
    pairs = zip(blocks.smallest, blocks.largest, strict=True)
    covered = list(itertools.chain.from_iterable(range(a, b + 1) for a, b in pairs))
    assert covered == list(range(1, shift + 1))
    assert np.all(blocks.largest - blocks.smallest <= blocks.smallest / 512)


def test_extremes() -> None:
    assert effective_sigma(100, 0.0, 1, 1e-6) == math.inf
    assert effective_sigma(100, 0.99, 5, 1e-6) == math.inf
    assert effective_sigma(0, 1.0, 1, 1e-6) == 0.0
    assert effective_sigma(1, 1.0, 1, 1e-6) == 0.0
    assert effective_sigma(16, 100.0, 16, 1e-6) == 0.0
    # A shift the failure probability cannot hide: P[Z beyond the overlap] > delta.
    assert effective_sigma(8, 4.0, 4, 1e-9) == 0.0
    assert effective_sigma(100, 1e200, 4, 1e-9) == 0.0
    # Its table would not fit into memory.
    assert effective_sigma(SkellamNoise(1e9), 1e12, 1 << 40, 1e-9) == 0.0


def test_deep_shifts_do_not_underflow() -> None:
    assert 0.0 < effective_sigma(4096, 1000.0, 1000, 1e-9) < 32.0
