"""Noise that never fails (docs/accounting.md): its lemma, exact laws, and its twins."""

from __future__ import annotations

import math
from functools import reduce
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special

from dp import (
    BinomialRelease,
    DiscreteGaussianRelease,
    DominationAccountant,
    GaussianRelease,
    NonPrivateRelease,
    SkellamRelease,
    UnsupportedEventError,
    epsilons,
)
from dp.accounting import ContractionAccountant
from dp.accounting.contraction import contracted_mu_squared, curvature
from dp.events import LaplaceRelease

UNIT = (1.0, 1, 1)
"""One coordinate that changes by one."""
SUMS = [(1, 1.01), (1, 2.5), (1, 64.0), (2, 0.7), (3, 0.5), (8, 0.5), (10, 1.6), (40, 2.0)]
VARIANCES = [1.5, 4.0, 9.5, 64.0, 400.0]
EVENTS = [
    *(DiscreteGaussianRelease(s, n, *UNIT) for n, s in SUMS),
    *(SkellamRelease(v, *UNIT) for v in VARIANCES),
]


def log_masses(event: DiscreteGaussianRelease | SkellamRelease) -> list[Any]:
    """Logarithms of numbers proportional to P[Z = j], j = 0, 1, .. ."""
    reach = math.ceil(12 * math.sqrt(event.noise_variance)) + 8
    if isinstance(event, SkellamRelease):
        return [mpmath.log(mpmath.besseli(j, event.noise_variance)) for j in range(reach)]
    x = np.arange(-reach, reach + 1)
    one = np.exp(-np.minimum(x * x / (2 * event.local_variance), 600.0))
    # Positive numbers: a convolution keeps their relative accuracy.
    total = reduce(np.convolve, [one] * event.contributors)
    return [mpmath.log(total[total.size // 2 + j]) for j in range(reach)]


def steps(logs: list[Any]) -> np.ndarray:
    """h(j + 1) - h(j) for j = 0, 1, ..: what the Gaussian must move between two integers."""
    masses = [mpmath.exp(x - logs[0]) for x in logs]
    total = masses[0] + 2 * sum(masses[1:])
    tails, tail = [], mpmath.mpf(0)
    for mass in reversed(masses[1:]):
        tail += mass
        tails.append(float(mpmath.log(tail / total)))
    # The last tails miss what lies beyond the table.
    h = -special.ndtri_exp(np.array(tails[::-1][: -math.ceil(0.1 * len(tails))]))
    return np.diff(np.concatenate([[-h[0]], h]))


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_exact_laws_move_no_faster_and_bend_no_more(event: Any) -> None:
    with mpmath.workdps(40):
        logs = log_masses(event)
        bends = [2 * logs[j] - logs[abs(j - 1)] - logs[j + 1] for j in range(len(logs) - 1)]
        largest = steps(logs).max()
        assert max(bends) <= curvature(event) + 1e-12
    claimed = math.sqrt(contracted_mu_squared(event))
    assert largest <= claimed
    # The plain Gaussian is beaten (a twin), and so is one with a little less taken off.
    assert largest > 1 / math.sqrt(event.noise_variance - 1 / 13)
    if isinstance(event, SkellamRelease):
        assert max(bends) == bends[0] >= curvature(event) * (1 - 2e-9)
        assert all(later < former for former, later in pairwise(bends))
    elif event.contributors == 1:
        assert largest > claimed * (1 - 0.008 / event.noise_variance**2)


def test_what_the_lemma_says_of_three_cells_of_a_gaussian() -> None:
    """Its first inequality up to a^2 = 6; the second one, which excludes wide cells, beyond."""
    for a in np.linspace(0.05, 6.0, 240):
        h = np.linspace(-a / 2, 9.0, 400)
        cells = [special.log_ndtr(-(h + i * a)) for i in (-1, 0, 1, 2)]
        logs = [one + np.log(-np.expm1(two - one)) for one, two in pairwise(cells)]
        found = (2 * logs[1] - logs[0] - logs[2]).min()
        assert found >= (a * a * (1 - a * a / 12) if a * a <= 6 else 1.0) - 1e-9
        if a < 0.5:  # no better constant than 12 would do
            assert found < a * a * (1 - a * a / 12.5)


@pytest.mark.parametrize("variance", [1.6, 30.0, 93.0, 1e3, 8729.0, 1e6, 129672271.0, 1e9])
@pytest.mark.parametrize("kind", [DiscreteGaussianRelease, SkellamRelease])
def test_mu_is_rounded_up_and_by_little(kind: Any, variance: float) -> None:
    """SciPy's Bessel functions and all roundings; of some of these c alone is below the exact."""
    noise = (variance,) if kind is SkellamRelease else (variance, 1)
    accountant = ContractionAccountant()
    accountant.compose(kind(*noise, *UNIT))
    pair = accountant.gaussian()
    assert pair is not None
    with mpmath.workdps(40):
        c = 1 / mpmath.mpf(variance)
        if kind is SkellamRelease:
            c = 2 * mpmath.log(mpmath.besseli(0, variance) / mpmath.besseli(1, variance))
        exact = mpmath.sqrt(2 * c / (1 + mpmath.sqrt(1 - c / 3)))
        assert exact <= pair.mu <= exact * (1 + 1e-5)


def test_nothing_is_set_aside() -> None:
    """No failure, nor a largest number of releases; domination spends a little of delta on both."""
    event = DiscreteGaussianRelease(25.0, 10, 16.0, 16, 1000)
    accountant, other = ContractionAccountant(), DominationAccountant()
    accountant.compose(event, 50)
    other.compose(event, 50)
    pair = accountant.gaussian()
    assert pair is not None and pair.failure == 0.0
    assert pair.epsilon(1e-5) == accountant.epsilon(1e-5) < other.epsilon(1e-5)
    assert accountant.epsilon(1e-5) == pytest.approx(other.epsilon(1e-5), rel=1e-4)
    assert epsilons([(event, 50)], 1e-5).winner == "contraction"


def test_what_it_does_not_cover() -> None:
    with pytest.raises(UnsupportedEventError, match="BinomialRelease"):
        ContractionAccountant().compose(BinomialRelease(4096, *UNIT))
    for event in (
        DiscreteGaussianRelease(1.0, 1, *UNIT),
        DiscreteGaussianRelease(0.2, 100, *UNIT),
        DiscreteGaussianRelease(1.0, 0, *UNIT),
        SkellamRelease(0.0, *UNIT),
    ):
        assert contracted_mu_squared(event) == math.inf
        assert epsilons([event], 1e-5).winner != "contraction"
    # Squares that are no normal doubles: the noise's own figures would come out too small.
    tiny, rest = GaussianRelease(1.6e-162, 1.57e-162), DiscreteGaussianRelease(1e6, 1, *UNIT)
    assert contracted_mu_squared(tiny) == math.inf
    assert epsilons([tiny, rest], 1e-5).epsilon > 4.28
    accountant = ContractionAccountant()
    accountant.compose(GaussianRelease(2.0, 1.0))
    assert contracted_mu_squared(GaussianRelease(2.0, 1.0)) == 0.25
    for bare in (LaplaceRelease(2.0, 1), NonPrivateRelease()):
        more = accountant.copy()
        more.compose(bare)
        assert more.gaussian() is None
    assert contracted_mu_squared(DiscreteGaussianRelease(0.5, 1, 0.5, 1, 9)) == 0.0
