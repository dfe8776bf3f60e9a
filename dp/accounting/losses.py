"""Privacy loss distributions on a grid, rounded against us without a loss of first order.

For a pair (P, Q) the privacy loss of an outcome is ln P/Q. A ``LossDistribution`` gives the law
of the loss under P on multiples of a step, plus a mass at infinity. From it

    H(eps) = P[loss = infinity] + sum over losses l > eps of mass(l) (1 - e^(eps - l)).

Rounding. An outcome of loss l between two grid points is *split* in two: the parts lie on the
grid points and have the same total probability under P and under Q. The split pair dominates the
old one, since joining the parts again is a post-processing. So H can only grow, and by the second
order of the step only. (Rounding up, the usual way, errs in the first order.)

Convolution is direct, not by Fourier transform: everything is positive, so every mass keeps its
relative accuracy, which ``MASS_ROUNDING`` bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dp.accounting.laws import FloatArray, NoiseLaw
from dp.accounting.tails import tails_of
from dp.search import bracketed

LOSS_SLACK: Final = 1e-9
"""Nats added to every loss, and relative share added to every mass, for errors of the tables."""


@dataclass(frozen=True, slots=True, eq=False)
class LossDistribution:
    """Masses of the privacy loss: ``masses[i]`` belongs to the loss ``(first + i) * step``.

    Attributes:
        step: of the grid, nats.
        first: index of the lowest grid point.
        masses: float64[size], under the first law of the pair.
        infinite: mass of an infinite loss.
    """

    step: float
    first: int
    masses: FloatArray
    infinite: float

    def delta(self, epsilon: float) -> float:
        """Return delta = H(epsilon), the hockey-stick divergence at epsilon."""
        losses = self.step * (self.first + np.arange(self.masses.size))
        gains = -np.expm1(np.minimum(epsilon - losses, 0.0))
        return min(1.0, float(self.masses @ gains) + self.infinite)

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon >= 0 (upper end of a bisection) with H(epsilon) <= delta."""
        low, high = 0.0, self.step * (self.first + self.masses.size)
        if self.delta(0.0) <= delta:
            return 0.0
        if not self.infinite < delta or high <= 0.0:
            return math.inf
        return bracketed(lambda epsilon: self.delta(epsilon) <= delta, low, high, 1e-12)[1]

    def curve(self, first: int, size: int) -> FloatArray:
        """Return H at the losses of grid points first .. first + size - 1.

        With S(j) the mass above grid point j and r = e^-step, H(j - 1) = r H(j) + (1 - r) S(j - 1):
        from the far end all terms are positive and at most 1, so nothing cancels or overflows,
        however large the losses. Below the masses H = S - e^eps E with a constant E.
        """
        # Loading it takes a moment, and only grids need it.
        from scipy import signal

        above = np.cumsum(self.masses[::-1])
        falls = signal.lfilter([-math.expm1(-self.step)], [1.0, -math.exp(-self.step)], above)
        # At every grid point from the one below the lowest mass to the highest one.
        inside = np.append(falls[::-1], 0.0)
        wanted = first + np.arange(size)
        place = np.clip(wanted - (self.first - 1), 0, self.masses.size)
        lower = np.minimum(self.step * (wanted - (self.first - 1)), 0.0)
        # S - e^eps E, from S and from H at the grid point below the lowest mass.
        beyond = above[-1] * -np.expm1(lower) + np.exp(lower) * inside[0]
        curve = np.where(lower < 0.0, beyond, inside[place])
        result: FloatArray = curve + self.infinite
        return result

    def and_then(self, other: LossDistribution, cut: float) -> LossDistribution:
        """Return the distribution of two independent pairs side by side, trimmed by ``cut``."""
        masses = np.convolve(self.masses, other.masses)
        infinite = -math.expm1(math.log1p(-self.infinite) + math.log1p(-other.infinite))
        rounding = 1.0 + min(self.masses.size, other.masses.size) * 2.0**-52
        whole = LossDistribution(self.step, self.first + other.first, masses * rounding, infinite)
        return whole.trimmed(cut)

    def trimmed(self, cut: float) -> LossDistribution:
        """Move mass of at most ``cut`` from each end: up to infinity, or up to what is kept."""
        below, above = np.cumsum(self.masses), np.cumsum(self.masses[::-1])
        start = int(np.searchsorted(below, cut))
        stop = self.masses.size - int(np.searchsorted(above, cut))
        if start >= stop:
            return self
        masses = self.masses[start:stop].copy()
        masses[0] += below[start - 1] if start else 0.0
        lost = float(above[self.masses.size - stop - 1]) if stop < self.masses.size else 0.0
        return LossDistribution(self.step, self.first + start, masses, self.infinite + lost)


def shift_losses(law: NoiseLaw, shift: int, step: float, cut: float) -> LossDistribution:
    """Return the loss distribution of (Z + shift, Z).

    Args:
        step: of the grid, nats.
    """
    reach = int(min(law.support, law.last_likely(math.log(cut)) + shift + 2))
    masses = law.log_masses(reach)
    if not masses.error < 1.0:
        return LossDistribution(step, 0, np.zeros(1), 1.0)
    tail = tails_of(law, masses).upper
    # Noise beyond ``last`` makes an infinite loss: truly so, or by charging a small tail.
    last = min(int(np.searchsorted(-tail, -math.log(cut))), reach - shift)
    if last < -reach:  # the shift is wider than the support
        return LossDistribution(step, 0, np.zeros(1), 1.0)
    z = np.arange(-reach, last + 1)
    here, there = masses.values[np.abs(z)], masses.values[np.abs(z + shift)]
    if not (np.all(np.isfinite(here)) and np.all(np.isfinite(there))):
        return LossDistribution(step, 0, np.zeros(1), 1.0)
    slack = LOSS_SLACK + 2.0 * masses.error
    probabilities = np.exp(here) * (1.0 + slack)
    # What lies below the table has smaller losses than its first entry.
    probabilities[0] += math.exp(tail[-1]) if reach < law.support else 0.0
    infinite = math.exp(tail[last]) if last < tail.size else 0.0
    return _on_grid(here - there + slack, probabilities, step, min(infinite, 1.0))


def _on_grid(
    losses: FloatArray, probabilities: FloatArray, step: float, infinite: float
) -> LossDistribution:
    """Split every outcome between its two neighbours on the grid."""
    index = np.floor(losses / step).astype(np.int64)
    offset = np.clip(losses - index * step, 0.0, step)
    upper = probabilities * np.minimum(1.0, np.expm1(-offset) / math.expm1(-step) * (1.0 + 1e-14))
    first = int(index.min())
    masses = np.zeros(int(index.max()) - first + 2)
    np.add.at(masses, index - first, np.maximum(probabilities - upper, 0.0))
    np.add.at(masses, index - first + 1, upper)
    return LossDistribution(step, first, masses, infinite)


def dominating(distributions: Sequence[LossDistribution]) -> LossDistribution:
    """Return one distribution whose H is at least that of each, at every epsilon.

    The largest of the curves at the grid points is joined by straight lines in e^eps. That curve
    lies above each given one (they are convex in e^eps), is convex, and is the curve of a pair
    on the grid. Source: Zhu, Dong, Wang (arXiv 2106.08567), Proposition 8; Doroshenko et al.
    (arXiv 2207.04380), Algorithm 1.
    """
    if len(distributions) == 1:
        return distributions[0]
    step = distributions[0].step
    first = min(each.first for each in distributions) - 1
    size = max(each.first + each.masses.size for each in distributions) - first + 1
    curve = np.max([each.curve(first, size) for each in distributions], axis=0)
    return from_curve(step, first, np.minimum(curve, 1.0))


def from_curve(step: float, first: int, curve: FloatArray) -> LossDistribution:
    """Return the distribution on grid points first.. with H equal to ``curve`` there, or above.

    With s_i the slope of H between grid points i - 1 and i in terms of e^eps, taken with the
    other sign, the mass at i is e^(loss) (s_i - s_(i+1)). Rounding may make one negative; it is
    raised to zero, which raises H. Where H still came out lower, all masses are raised.
    """
    growth = math.expm1(step)
    # In units of e^(eps_i): slope times e^(eps_i), between i - 1 and i, and below the first.
    falls = (curve[:-1] - curve[1:]) * ((1.0 + growth) / growth)
    scaled = np.concatenate([[1.0 - curve[0]], falls, [0.0]])
    masses = np.maximum(scaled[:-1] - scaled[1:] / (1.0 + growth), 0.0)
    result = LossDistribution(step, first, masses, float(curve[-1]))
    found = result.curve(first, curve.size)
    short = np.max(curve / np.maximum(found, 1e-300), where=found > 0.0, initial=1.0)
    return LossDistribution(step, first, masses * float(short) * (1.0 + 1e-12), result.infinite)
