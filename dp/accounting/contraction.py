"""The Gaussian that dominates integer noise and never fails, from the curvature of the noise.

Let c bound the curvature of the logarithm of the masses: for every integer j

    2 ln P[j] - ln P[j - 1] - ln P[j + 1] <= c <= 1.

Then noise that is symmetric and log-concave, as the two kinds here are, is at least as good as a
Gaussian of variance

    sigma_c^2 = (1 + sqrt(1 - c/3)) / (2 c) = 1/c - 1/12 - c/144 - ...,

for all integer vectors, in any number of coordinates and releases, with nothing added to delta.
The curvature of binomial noise grows without limit towards the end of its support: it is refused.

Source: docs/accounting.md, "Noise that never fails".
"""

from __future__ import annotations

import math
from typing import ClassVar, Final

import scipy

from dp.accounting.base import EventCounter, Release, nominal_mu_squared
from dp.accounting.discrete_gaussian import convolution_gap
from dp.accounting.failing_gaussian import FailingGaussian
from dp.accounting.gaussian import gaussian_epsilon
from dp.event_kinds import NoisyRelease
from dp.events import (
    BinomialRelease,
    DiscreteGaussianRelease,
    GaussianRelease,
    SkellamRelease,
)

_LARGEST_CURVATURE: Final = 1.0 - 1e-9
"""The theorem is proved up to 1; c may be off by a few roundings."""
_BESSEL_ERROR: Final = 1e-14
"""Absolute widening of c where it is the logarithm of a ratio of two Bessel functions of SciPy."""


def curvature(event: Release) -> float:
    """Return c of one coordinate's noise; ``inf`` where no bound is known."""
    match event:
        case DiscreteGaussianRelease(contributors=n, local_variance=local) if n * local > 0.0:
            return 1.0 / (n * local) + 2.0 * convolution_gap(local, n)
        case SkellamRelease(variance=variance) if variance > 0.0:
            # Largest at j = 0: ln(I_0^2 / I_1^2).
            zero, one = scipy.special.ive(0, variance), scipy.special.ive(1, variance)
            return 2.0 * math.log(float(zero / one)) + _BESSEL_ERROR
    return math.inf


def contracted_mu_squared(event: Release) -> float:
    """Return (D2 / sigma_c)^2 of one release; ``inf`` where nothing is proved."""
    if not isinstance(event, NoisyRelease):
        return math.inf
    if event.is_silent:
        return 0.0
    if isinstance(event, GaussianRelease):
        return nominal_mu_squared(event)
    c = curvature(event)
    if not c <= _LARGEST_CURVATURE:
        return math.inf
    return event.l2_sensitivity**2 * 2.0 * c / (1.0 + math.sqrt(1.0 - c / 3.0))


class ContractionAccountant(EventCounter):
    """Gaussian differential privacy without a failure probability.

    For Gaussian, Skellam and discrete Gaussian noise. Its mu is a filter by itself: parameters may
    depend on earlier results, and neither a delta0 nor a number of releases is fixed beforehand.
    """

    name: ClassVar[str] = "contraction"

    def _supports_leaf(self, leaf: object) -> bool:
        """Refuse coins, whose curvature has no bound."""
        return super()._supports_leaf(leaf) and not isinstance(leaf, BinomialRelease)

    def gaussian(self) -> FailingGaussian | None:
        """Return the Gaussian that dominates all events so far; None if there is none."""
        mu = math.inf if self._non_private or self._pure else self._mu()
        return FailingGaussian(0.0, mu) if mu < math.inf else None

    def _epsilon_of_releases(self, delta: float) -> float:
        """Return epsilon of the Gaussian that dominates all releases together."""
        return gaussian_epsilon(self._mu(), delta)

    def _mu(self) -> float:
        """Return the mean shift of all releases together, raised by more than all roundings."""
        squares = (n * contracted_mu_squared(event) for event, n in self._counts.items())
        return math.sqrt(math.fsum(squares)) * (1.0 + 1e-12)
