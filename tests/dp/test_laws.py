"""Noise laws against 50-digit arithmetic; sums of discrete Gaussians against their proof."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_laws import gaussian_masses, gaussian_sum_masses

from dp.accounting import discrete_gaussian
from dp.accounting.discrete_gaussian import DiscreteGaussianSum, convolution_gap
from dp.accounting.laws import MAX_VARIANCE, BinomialNoise, NoiseLaw, SkellamNoise
from dp.accounting.tails import TAIL_SLACK, log_tails

LAWS: list[NoiseLaw] = [
    BinomialNoise(64),
    BinomialNoise(10_000),
    SkellamNoise(0.3),
    SkellamNoise(16.0),
    SkellamNoise(40_000.0),
    DiscreteGaussianSum(0.5, 1),
    DiscreteGaussianSum(64.0, 1),
    DiscreteGaussianSum(2.56, 100),
    DiscreteGaussianSum(0.5, 60),
    DiscreteGaussianSum(0.1, 4),
]


def _skellam_log_mass(variance: float, j: int) -> mpmath.mpf:
    """Log of e^-V I_j(V): the power series where it is short, else an integral at its saddle."""
    v = mpmath.mpf(variance)
    if variance <= 2e4:
        return mpmath.log(mpmath.besseli(j, v)) - v
    tilt, width = mpmath.asinh(j / v), 14 / mpmath.sqrt(v)

    def integrand(t: mpmath.mpf) -> mpmath.mpf:
        return mpmath.re(mpmath.exp(v * (mpmath.cos(t + 1j * tilt) - 1) + 1j * j * (t + 1j * tilt)))

    total = mpmath.quad(integrand, mpmath.linspace(-width, width, 9))
    return mpmath.log(total / (2 * mpmath.pi))


@pytest.mark.parametrize(
    ("variance", "points"),
    [
        (0.01, [0, 1, 30]),
        (0.5, [0, 1, 2, 60]),
        (16.0, [0, 1, 17, 150]),
        (12345.678, [0, 1, 500, 3000]),
        (2.5e6, [0, 1, 8000, 20_000]),
        (MAX_VARIANCE, [0, 100_000, 300_000]),
    ],
)
def test_skellam_masses(variance: float, points: list[int]) -> None:
    """Rounding stays a hundred times below the slack of tails, ten below that of moments."""
    masses = SkellamNoise(variance).log_masses(max(points))
    assert masses.error == 0.0
    with mpmath.workdps(50):
        for j in points:
            error = _skellam_log_mass(variance, j) - mpmath.mpf(float(masses.values[j]))
            assert abs(error) < TAIL_SLACK / 100


@pytest.mark.parametrize("variance", [0.3, 4.0, 1000.0])
def test_one_discrete_gaussian(variance: float) -> None:
    radius = math.ceil(30 * math.sqrt(variance))
    values = DiscreteGaussianSum(variance, 1).log_masses(radius // 2).values
    with mpmath.workdps(50):
        exact = gaussian_masses(variance, radius)[radius:]
        for j in (0, 1, radius // 4, radius // 2):
            assert abs(mpmath.log(exact[j]) - mpmath.mpf(float(values[j]))) < TAIL_SLACK / 100


@pytest.mark.parametrize(("variance", "contributors"), [(0.5, 5), (0.3, 9), (1.0, 4), (0.1, 4)])
def test_convolutions_state_their_error(variance: float, contributors: int) -> None:
    reach = math.ceil(5 * math.sqrt(variance * contributors))
    masses = DiscreteGaussianSum(variance, contributors).log_masses(reach)
    assert 0.0 < masses.error < 1e-9
    with mpmath.workdps(40):
        exact = gaussian_sum_masses(variance, contributors, 6 * reach)[6 * reach :]
        for j in range(reach + 1):
            error = mpmath.log(exact[j]) - mpmath.mpf(float(masses.values[j]))
            assert abs(error) < masses.error + 1e-12


@pytest.mark.parametrize(("variance", "contributors"), [(0.25, 2), (0.3, 5), (0.6, 4), (1.0, 8)])
def test_the_gap_bounds_the_distance_to_a_discrete_gaussian(
    variance: float, contributors: int
) -> None:
    """Every mass within e^+-gap; for two contributors the truth is a good part of it."""
    radius = math.ceil(14 * math.sqrt(variance * contributors))
    with mpmath.workdps(40):
        total = gaussian_sum_masses(variance, contributors, radius)
        plain = gaussian_masses(variance * contributors, radius)
        middle = range(radius // 2, 3 * radius // 2)
        worst = max(abs(mpmath.log(total[z] / plain[z])) for z in middle)
    gap = convolution_gap(variance, contributors)
    assert worst <= gap
    assert contributors > 2 or worst > gap / 20


def test_the_gap_of_many_contributors_needs_no_sum_over_all() -> None:
    k = np.arange(1, 20_000)
    plain = 5 * np.exp(-2 * math.pi**2 * k / (k + 1)).sum()
    assert plain <= convolution_gap(1.0, 20_000) < 1.01 * plain
    assert convolution_gap(0.2, 2) == math.inf
    assert convolution_gap(0.2, 1) == 0.0
    assert convolution_gap(4.0, 10**6) < 1e-10


def test_wide_sums_that_cannot_be_convolved_are_widened(monkeypatch: pytest.MonkeyPatch) -> None:
    law = DiscreteGaussianSum(1.0, 400)
    narrow = log_tails(law, 100)
    monkeypatch.setattr(discrete_gaussian, "_LARGEST_RADIUS", 1)
    wide = log_tails(law, 100)
    gap = convolution_gap(1.0, 400)
    assert np.all(wide.lower < narrow.lower) and np.all(wide.upper[1:] > narrow.upper[1:])
    assert np.allclose((wide.upper - wide.lower)[1:40], 2 * gap, atol=2e-5)


@pytest.mark.parametrize("law", LAWS, ids=str)
class TestEveryLaw:
    """What the theorems assume of a law, and what accountants assume of its tables."""

    def test_it_is_log_concave(self, law: NoiseLaw) -> None:
        values = law.log_masses(int(min(law.support, 40))).values
        assert np.all(np.diff(values, 2) <= 1e-9)
        assert values[1] <= values[0]

    def test_masses_sum_to_one(self, law: NoiseLaw) -> None:
        reach = int(min(law.support, law.last_likely(-60.0)))
        masses = law.log_masses(reach)
        total = math.exp(masses.values[0]) + 2 * float(np.exp(masses.values[1:]).sum())
        assert total == pytest.approx(1.0, abs=masses.error + 1e-11)

    def test_variance_is_near_the_stated_one(self, law: NoiseLaw) -> None:
        values = law.log_masses(int(min(law.support, law.last_likely(-60.0)))).values
        j = np.arange(values.size)
        found = 2 * float((j**2 * np.exp(values)).sum())
        if isinstance(law, DiscreteGaussianSum):
            assert found <= law.variance * (1 + 1e-9)
        else:
            assert found == pytest.approx(law.variance, rel=1e-9)

    @pytest.mark.parametrize("log_probability", [-1.0, -10.0, -30.0])
    def test_last_likely(self, law: NoiseLaw, log_probability: float) -> None:
        last = law.last_likely(log_probability)
        if last < law.support:
            assert log_tails(law, last + 1).upper[-1] <= log_probability

    def test_a_longer_table_says_the_same(self, law: NoiseLaw) -> None:
        reach = int(min(law.support, 30))
        longer = int(min(law.support, 60))
        difference = law.log_masses(longer).values[: reach + 1] - law.log_masses(reach).values
        assert np.abs(difference).max() < 1e-9

    def test_equal_laws_are_one_key(self, law: NoiseLaw) -> None:
        twin = type(law)(**{name: getattr(law, name) for name in law.__slots__})  # type: ignore[attr-defined]
        assert {law: 1}[twin] == 1
