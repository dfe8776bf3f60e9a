"""Is the noise that was released distributed as accounted?

Two tests share the level. Chi-square looks at the whole law, in at most ``CELLS`` cells that the
law fixes beforehand. The variance test looks where noise that is too small shows first, and its
power has a closed form: the smallest wrong variance that it finds with probability ``POWER`` is
printed beside every result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
from scipy import special, stats

from dp import BinomialRelease, DiscreteGaussianRelease, SkellamRelease
from protocol.checks import FRACTION
from secagg import ParameterError
from secagg.checks import require_int
from simulations.audits.base import (
    ALPHA,
    Figures,
    Floats,
    Integers,
)

ClaimedRelease: TypeAlias = BinomialRelease | SkellamRelease | DiscreteGaussianRelease
"""Events whose noise has a law that is known here."""

CELLS: Final = 64
MIN_EXPECTED: Final = 20.0
"""Smallest expected count of a cell: below it, chi-square is a poor approximation."""

NARROWEST: Final = 1.5
"""Least variance, of each client, from which on a sum of discrete Gaussians is one of them to a
millionth (docs/accounting.md, "Other noise")."""

LATTICE_SLACK: Final = 1e-3
POWER: Final = 0.999
FEWEST_SAMPLES: Final = 200


@dataclass(frozen=True, slots=True)
class LawTest:
    """Released noise held against the law of an event."""

    samples: int  # N
    claimed: ClaimedRelease  # the event
    p_value: float  # of chi-square; 0 for a value that the law never takes
    variance_ratio: float  # mean square over the claimed variance
    tolerance: float  # how far from 1 the ratio may be
    power_below: float  # the largest ratio below 1 found with probability ``POWER``
    power_above: float  # the smallest ratio above 1 found with probability ``POWER``
    alpha: float  # level of both tests together

    @property
    def rejected(self) -> bool:
        """Whether either test, each at half the level, refutes the law."""
        wide = abs(self.variance_ratio - 1.0) > self.tolerance
        return wide or self.p_value < self.alpha / 2.0

    def figures(self) -> Figures:
        """Return the figures for a check."""
        return {
            "samples": self.samples,
            **claimed_figures(self.claimed),
            "chi_square_p_value": self.p_value,
            "variance_ratio": self.variance_ratio,
            "variance_tolerance": self.tolerance,
            "ratio_found_below": self.power_below,
            "ratio_found_above": self.power_above,
            "rejected": self.rejected,
        }


def claimed_figures(claimed: ClaimedRelease) -> Figures:
    """Return the noise of an event as the figures of a check have it."""
    if isinstance(claimed, BinomialRelease):
        return {"claimed_coins": claimed.coins}
    return {"claimed_variance": claimed.noise_variance}


def noise_test(noise: Floats, claimed: ClaimedRelease, alpha: float = ALPHA) -> LawTest:
    """Hold noise against the exact law of an event, less its mean.

    The variance of z^2 is (2 + k) sigma^4 with k the excess kurtosis, so the mean of n squares lies
    within zq sqrt((2 + k)/n) sigma^2 of sigma^2 except with probability alpha/2 (central limit).
    A true ratio r moves and widens that by r, whence both figures of power. k is -2/N for N coins,
    1/V for Skellam noise of variance V, and below 10^-9 for discrete Gaussians.

    Args:
        noise: float64[N], integers or, for odd coins, integers and a half; N >= 200.
        claimed: at least two coins, or a variance of ``NARROWEST``; of discrete Gaussians, of each.
        alpha: level of the test.

    Raises:
        ParameterError: too few samples, too little noise, or a level out of range.
    """
    require_int("noise", int(noise.size), FEWEST_SAMPLES)
    _require_law(claimed)
    FRACTION.require("alpha", alpha)
    variance = claimed.noise_variance
    spread = math.sqrt((2.0 + _excess_kurtosis(claimed)) / noise.size)
    tolerance = float(stats.norm.isf(alpha / 4.0)) * spread
    reach = float(stats.norm.ppf(POWER)) * spread
    return LawTest(
        samples=int(noise.size),
        claimed=claimed,
        p_value=chi_square(noise, claimed),
        variance_ratio=float(np.mean(np.square(noise))) / variance,
        tolerance=tolerance,
        power_below=max(0.0, (1.0 - tolerance) / (1.0 + reach)),
        power_above=(1.0 + tolerance) / (1.0 - reach) if reach < 1.0 else math.inf,
        alpha=alpha,
    )


def _require_law(claimed: ClaimedRelease) -> None:
    """Raise unless the law of an event is known here."""
    if isinstance(claimed, BinomialRelease):
        require_int("coins", claimed.coins, 2)
        return
    each = claimed.variance if isinstance(claimed, SkellamRelease) else claimed.local_variance
    if not each >= NARROWEST:
        raise ParameterError("claimed", claimed, f"a variance of at least {NARROWEST:g}")


def _excess_kurtosis(claimed: ClaimedRelease) -> float:
    """Return the fourth central moment over sigma^4, less 3."""
    if isinstance(claimed, BinomialRelease):
        return -2.0 / claimed.coins
    return 1.0 / claimed.variance if isinstance(claimed, SkellamRelease) else 0.0


def chi_square(noise: Floats, claimed: ClaimedRelease) -> float:
    """Return the p-value of noise against the law of an event.

    It is 0 if a value is impossible: more than the coins can add, or not within 1e-3 of where the
    law has its mass, which is far more than the floating-point part of a decode moves it.

    Args:
        noise: float64[N], centred.
    """
    # Coins count their heads; other noise is symmetric around zero.
    mean = claimed.coins / 2.0 if isinstance(claimed, BinomialRelease) else 0.0
    shifted = noise + mean
    nearest = np.rint(shifted)
    if not np.max(np.abs(shifted - nearest)) <= LATTICE_SLACK:  # NaN too
        return 0.0
    if isinstance(claimed, BinomialRelease) and not (
        nearest.min() >= 0 and nearest.max() <= claimed.coins
    ):
        return 0.0
    cells = _cells_of_law(claimed, int(noise.size))
    inside = np.clip(nearest.astype(np.int64) - cells.first, 0, cells.cell.size - 1)
    observed = np.bincount(cells.cell[inside], minlength=cells.expected.size)
    if cells.expected.size < 2:
        return 1.0
    statistic = float(np.sum((observed - cells.expected) ** 2 / cells.expected))
    return float(stats.chi2.sf(statistic, cells.expected.size - 1))


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """The cell of each outcome from ``first`` on, and how many samples each cell expects."""

    first: int
    cell: Integers
    expected: Floats


@lru_cache(maxsize=64)
def _cells_of_law(claimed: ClaimedRelease, samples: int) -> _Cells:
    """Cut a law into cells; what lies farther out than 20 deviations is no mass."""
    variance = claimed.noise_variance
    reach = math.ceil(20.0 * math.sqrt(variance))
    if isinstance(claimed, BinomialRelease):
        coins = claimed.coins
        first, last = max(0, coins // 2 - reach), min(coins, coins // 2 + reach + 1)
        masses = stats.binom.pmf(np.arange(first, last + 1), coins, 0.5)
    else:
        first = -reach
        steps = np.abs(np.arange(-reach, reach + 1, dtype=np.float64))
        # Of several discrete Gaussians it is that of one, to a millionth: see ``NARROWEST``.
        gaussian = np.exp(-np.square(steps) / (2.0 * variance))
        masses = special.ive(steps, variance) if isinstance(claimed, SkellamRelease) else gaussian
        masses /= masses.sum()
    cell = _cells(masses, samples)
    expected = np.asarray(np.bincount(cell, weights=masses) * samples, np.float64)
    return _Cells(first, cell, expected)


def _cells(masses: Floats, samples: int) -> Integers:
    """Number the cell of each outcome: in order, of near equal mass, none too thin."""
    share = max(1.0 / CELLS, MIN_EXPECTED / samples)
    cells = np.zeros(masses.size, np.int64)
    current, held, left = 0, 0.0, float(masses.sum())
    # A loop over outcomes of the law, not over samples: at most 40 standard deviations.
    for index, mass in enumerate(masses.tolist()):
        if held >= share and left >= share:
            current, held = current + 1, 0.0
        cells[index] = current
        held += mass
        left -= mass
    return cells


def independence_test(first: Floats, second: Floats, alpha: float = ALPHA) -> Figures:
    """Hold two vectors of noise against independence, by their correlation.

    Without correlation r sqrt(N) is close to N(0, 1), so |r| stays below zq(alpha/2)/sqrt(N). The
    smallest correlation found with probability ``POWER`` is that plus zq(POWER)/sqrt(N).

    Args:
        first: float64[N].
        second: float64[N].
        alpha: level of the test.

    Raises:
        ParameterError: unequal lengths, too few samples, or a level out of range.
    """
    require_int("noise", int(first.size), FEWEST_SAMPLES)
    FRACTION.require("alpha", alpha)
    if first.shape != second.shape:
        raise ParameterError("second", f"shape {second.shape}", f"shape {first.shape}")
    correlation = float(np.corrcoef(first, second)[0, 1])
    tolerance = float(stats.norm.isf(alpha / 2.0)) / math.sqrt(first.size)
    return {
        "samples": int(first.size),
        "correlation": correlation,
        "tolerance": tolerance,
        "correlation_found": tolerance + float(stats.norm.ppf(POWER)) / math.sqrt(first.size),
        "rejected": abs(correlation) > tolerance,
    }
