"""What a run is dominated by, as two numbers that say everything: an open failure, else a Gaussian.

``FailingGaussian`` is the pair R(failure, mu) of docs/accounting.md: with probability ``failure``
everything is told, otherwise N(0, 1) is shown under the first hypothesis and N(mu, 1) under the
second. A run under Gaussian domination is a random map of it. So each of the following is a promise
about the run: its trade-off curve, its (epsilon, delta) at *every* delta, its zero-concentrated
privacy but for the failure, and its privacy loss distribution, which other libraries compose on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dp.accounting.gaussian import gaussian_delta, gaussian_epsilon
from dp.accounting.laws import FloatArray
from dp.accounting.losses import LossDistribution, from_curve
from dp.checks import require_in, require_not_negative, require_positive

INTERVAL: Final = 1e-4
"""Grid of privacy losses in nats: dp-accounting's own choice."""

MOST_POINTS: Final = 1 << 22
"""Most grid points of a privacy loss distribution."""

_NEGLIGIBLE_LOG: Final = -50.0
"""Logarithm of the mass beyond either end of a grid; it is counted as an open failure."""

_CURVE_ROUNDING: Final = 1e-13
"""What the type II error is lowered by, relative and absolute, for errors of the normal tails."""


@dataclass(frozen=True, slots=True)
class FailingGaussian:
    """An open failure, else two unit Gaussians at a distance: dominates a run.

    Attributes:
        failure: probability of an open failure, in [0, 1).
        mu: distance of the means in standard deviations, finite, >= 0; "mu-GDP" but for failures.
    """

    failure: float
    mu: float

    def __post_init__(self) -> None:
        require_in("failure", self.failure, 0.0, 1.0, "[)")
        require_not_negative("mu", self.mu)

    @property
    def rho(self) -> float:
        """Return rho = mu^2 / 2: ``failure``-approximate rho-zCDP, and plain zCDP without failures.

        Given no failure, the Renyi divergence of every order a is at most a rho. Source: Bun and
        Steinke 2016 (arXiv 1605.02065) for zCDP, its approximate form, and that of the Gaussian.
        """
        return self.mu * self.mu / 2.0

    def delta(self, epsilon: float) -> float:
        """Return the delta of the run at ``epsilon`` >= 0."""
        delta = self.failure + (1.0 - self.failure) * gaussian_delta(epsilon, self.mu)
        return min(1.0, math.nextafter(delta, math.inf)) if delta > 0.0 else 0.0

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of the run at ``delta``; ``inf`` if all of it goes on failures."""
        return gaussian_epsilon(self.mu, delta - self.failure)

    def type_two_error(self, type_one_error: ArrayLike) -> FloatArray:
        """Return the least type II error that any test of the run can have: its trade-off curve.

        (1 - failure) Phi(Phi^{-1}(1 - a / (1 - failure)) - mu), and 0 where a >= 1 - failure.

        Args:
            type_one_error: float64[...], a in [0, 1].

        Returns:
            float64 of the same shape, rounded down.
        """
        first = np.asarray(type_one_error, dtype=np.float64)
        if not np.all((first >= 0.0) & (first <= 1.0)):
            raise ValueError("type_one_error must lie in [0, 1]")
        kept = 1.0 - self.failure
        second = kept * scipy.special.ndtr(
            -scipy.special.ndtri(np.minimum(first / kept, 1.0)) - self.mu
        )
        lowered = second * (1.0 - _CURVE_ROUNDING) - _CURVE_ROUNDING
        result: FloatArray = np.where(first == 0.0, kept, np.maximum(lowered, 0.0))
        return result

    def losses(self, interval: float = INTERVAL) -> LossDistribution:
        """Return the privacy loss on a grid, rounded against us: it dominates this pair.

        Args:
            interval: of the grid in nats, > 0.

        Raises:
            ValueError: the interval is not positive, or so small that the grid has too many points.
        """
        require_positive("interval", interval)
        # The loss is N(mu^2/2, mu^2), but for failures; beyond so many deviations lies e^-50, which
        # ends up in the infinite loss.
        reach = self.rho + self.mu * math.sqrt(-2.0 * _NEGLIGIBLE_LOG)
        top = math.ceil(reach / interval)
        if 2 * top + 1 > MOST_POINTS:
            raise ValueError(
                f"interval must be at least {2.0 * reach / (MOST_POINTS - 3):.3g} for mu = "
                f"{self.mu:g}, got {interval!r}"
            )
        above = np.array([self.delta(interval * i) for i in range(top + 1)])
        # From the other direction below zero: H(-e) = 1 - e^-e + e^-e H(e).
        steps = -interval * np.arange(top, 0, -1)
        below = -np.expm1(steps) + np.exp(steps) * above[:0:-1]
        return from_curve(interval, -top, np.minimum(np.concatenate([below, above]), 1.0))

    def to_pld(self, interval: float = INTERVAL) -> Any:
        """Return it as a ``PrivacyLossDistribution`` of dp-accounting, to compose with others.

        Both directions are the same pair, so one distribution stands for either. It bounds every
        delta from above, but for the rounding of Fourier transforms where the library composes.

        Args and Raises: as for ``losses``.
        """
        # Loading the library takes about a second.
        from dp_accounting.pld import privacy_loss_distribution as losses

        found = self.losses(interval)
        masses = {found.first + i: float(mass) for i, mass in enumerate(found.masses)}
        return losses.PrivacyLossDistribution.create_from_rounded_probability(
            masses, found.infinite, interval
        )
