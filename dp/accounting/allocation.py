"""A block of rounds of which a client joins one, by a secret coin: random allocation.

Let P and Q be the laws of what an outsider sees of a block with the client and without it. For t
rounds with unit Gaussian noise and a client of length mu they are dominated by

    P = (1/t) sum over i of N(mu e_i, I_t)        Q = N(0, I_t)

whose likelihood ratio R = dP/dQ is the mean of t independent lognormal variables under Q. The law
of R *under Q alone* says everything: P has the density R, and both directions follow,

    H(P, Q) = E_Q max(0, R - e^eps)               H(Q, P) = E_Q max(0, 1 - e^eps R).

Rounding against us. An outcome of ratio r between two grid points is split in two, on the grid
points, with the same total probability under P and under Q; joining the parts again is a
post-processing. So laws only grow in the convex order, by the second order of the step. Means of
independent variables keep that order, so means of split laws may be formed and split again: t is
reached by doubling. Far tails are split as well, between the end of the grid and a ratio of zero
or infinity, which count as open failures.

Sums are direct: everything is positive, so that every mass keeps its relative accuracy, and masses
are raised for rounding errors. Logarithms of ratios are right to 1e-12 nats, which is not raised.

Theorem and proof: docs/accounting.md, "One round of a block". Source of the scheme and the pair:
Feldman, Shenfeld 2025 (arXiv 2502.08202).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import scipy

from dp.accounting.failing_gaussian import INTERVAL
from dp.accounting.laws import FloatArray
from dp.checks import require_at_least, require_in

MAX_MU: Final = 25.0
"""Longest contribution, in standard deviations: beyond, nothing is hidden and ratios overflow."""

_POINTS: Final = 1000
"""Intervals of a grid; it adds a few parts in ten thousand to an epsilon above 0.1."""

_REACH: Final = 9.3
"""Standard deviations of a round on the grid; 1e-20 lies beyond."""

_NEGLIGIBLE: Final = 1e-18
"""Mass at either end that is moved to a ratio of zero or infinity whenever laws are joined."""

_MOST_ROUNDS: Final = 1 << 24
"""A longer block counts as one of so many."""

_CHUNK: Final = 256
"""Rows of an outer product at a time: two megabytes each."""

_SPLIT_ROUNDING: Final = 1e-14
_TAIL_ROUNDING: Final = 1e-12
"""Over the step, the share of a mass by which both its parts are raised: of a split; of the first
split, which takes differences of normal tails."""


@dataclass(frozen=True, slots=True)
class _Grid:
    """Ratios 0 and exp(INTERVAL stride j) for ``size`` integers j from ``first`` on."""

    stride: int
    first: int
    size: int

    @classmethod
    def over(cls, low: float, high: float) -> _Grid:
        """Return the grid whose logarithms reach from ``low`` or below to ``high`` or above."""
        stride = max(1, math.ceil((high - low) / (_POINTS * INTERVAL)))
        first = math.floor(low / (stride * INTERVAL))
        return cls(stride, first, math.ceil(high / (stride * INTERVAL)) - first + 1)

    @property
    def step(self) -> float:
        """Return the difference of two logarithms."""
        return self.stride * INTERVAL

    @property
    def logs(self) -> FloatArray:
        """Return the logarithms, but for that of 0."""
        result: FloatArray = self.step * (self.first + np.arange(self.size, dtype=np.float64))
        return result

    def split(self, ratios: FloatArray, masses: FloatArray) -> FloatArray:
        """Return masses on the grid, 0 first: each is split between its two neighbours."""
        points, size = np.append(0.0, np.exp(self.logs)), self.size + 1
        with np.errstate(divide="ignore"):
            place = np.floor(np.log(ratios) / self.step) - self.first + 1.0
        lower = np.clip(place, 0, self.size - 1).astype(np.int64)
        share = np.clip((ratios - points[lower]) / (points[lower + 1] - points[lower]), 0.0, 1.0)
        raised = _SPLIT_ROUNDING / self.step
        result = np.zeros(size)
        result += np.bincount(lower, masses * (1.0 - share + raised), size)
        result += np.bincount(lower + 1, masses * (share + raised), size)
        return result


@dataclass(frozen=True, slots=True, eq=False)
class RatioLaw:
    """The likelihood ratio R = dP/dQ of a pair, on a grid: its law under Q.

    Attributes:
        stride: ``masses[j]`` belongs to R = exp(INTERVAL stride (first + j)).
        first: index of the lowest ratio but zero.
        masses: float64[size], under Q.
        zero: mass of R = 0, under Q.
        infinite: mass of an infinite R, under P.
    """

    stride: int
    first: int
    masses: FloatArray
    zero: float
    infinite: float

    @property
    def logs(self) -> FloatArray:
        """Return float64[size]: ln R of every mass."""
        return _Grid(self.stride, self.first, self.masses.size).logs

    def deltas(self, epsilon: float) -> tuple[float, float]:
        """Return H(P, Q) and H(Q, P) at ``epsilon``, any real number of nats."""
        ratios, odds = np.exp(self.logs), math.exp(epsilon)
        present = self.infinite + float(self.masses @ np.maximum(ratios - odds, 0.0))
        absent = self.zero + float(self.masses @ np.maximum(1.0 - odds * ratios, 0.0))
        return present, absent

    def trimmed(self) -> RatioLaw:
        """Split what is negligible between the next ratio and zero or infinity."""
        ratios, masses = np.exp(self.logs), self.masses
        start = int(np.searchsorted(np.cumsum(masses), _NEGLIGIBLE))
        above = np.cumsum((masses * ratios)[::-1])
        stop = masses.size - int(np.searchsorted(above, _NEGLIGIBLE))
        low, high, kept = masses[:start], masses[stop:], masses[start:stop].copy()
        nearer = float(low @ ratios[:start]) / ratios[start]
        kept[0] += nearer
        kept[-1] += float(np.sum(high))
        zero = self.zero + float(np.sum(low)) - nearer
        infinite = self.infinite + float(high @ (ratios[stop:] - ratios[stop - 1]))
        return RatioLaw(self.stride, self.first + start, kept, zero, infinite)

    def to_pld(self) -> Any:
        """Return dp-accounting's privacy loss distribution, at ``INTERVAL``, of both directions."""
        # Loading the library takes about a second.
        from dp_accounting.pld import privacy_loss_distribution as losses

        present, absent = self.masses * np.exp(self.logs), self.masses
        index = [self.stride * (self.first + j) for j in range(self.masses.size)]
        return losses.PrivacyLossDistribution.create_from_rounded_probability(
            dict(zip(index, present.tolist(), strict=True)),
            self.infinite,
            INTERVAL,
            rounded_probability_mass_function_add=dict(
                zip([-i for i in index], absent.tolist(), strict=True)
            ),
            infinity_mass_add=self.zero,
            symmetric=False,
        )


def gaussian_ratio(mu: float) -> RatioLaw:
    """Return the ratio of N(mu, 1) to N(0, 1), a lognormal variable, every cell split exactly."""
    reach = mu * (mu / 2.0 + _REACH)
    grid = _Grid.over(-reach, reach)
    points = np.exp(grid.logs)
    x = grid.logs / mu + mu / 2.0
    under_q, under_p = _normal_masses(x), _normal_masses(x - mu)
    inner, cells = under_q[1:-1], under_p[1:-1] / points[:-1]
    upper = np.clip((cells - inner) / math.expm1(grid.step), 0.0, inner)
    raised = inner * (_TAIL_ROUNDING / grid.step)
    masses = np.append(inner - upper + raised, 0.0)
    masses[1:] += upper + raised
    low = float(under_p[0] / points[0])
    masses[0] += low
    masses[-1] += under_q[-1]
    zero = max(0.0, float(under_q[0]) - low)
    infinite = max(0.0, float(under_p[-1] - points[-1] * under_q[-1]))
    return RatioLaw(grid.stride, grid.first, masses, zero, infinite)


def _normal_masses(x: FloatArray) -> FloatArray:
    """Return the standard normal masses below, between and above points, from the nearer tail."""
    below, above = scipy.special.ndtr(x), scipy.special.ndtr(-x)
    between = np.where(x[:-1] > 0.0, above[:-1] - above[1:], below[1:] - below[:-1])
    result: FloatArray = np.concatenate([below[:1], between, above[-1:]])
    return result


def joined(one: RatioLaw, rounds: int, other: RatioLaw, more: int) -> RatioLaw:
    """Return the ratio of a block that consists of two parts of so many rounds.

    The client is in a part as often as it has rounds: R = (rounds R_one + more R_other) / sum.
    """
    share = rounds / (rounds + more)
    low = min(one.logs[0], other.logs[0])
    grid = _Grid.over(float(low), float(max(one.logs[-1], other.logs[-1])))
    whole = np.zeros(grid.size + 1)
    for part in _products(one, other, share):
        whole += grid.split(*part)
    infinite = share * one.infinite + (1.0 - share) * other.infinite
    return RatioLaw(grid.stride, grid.first, whole[1:], float(whole[0]), infinite).trimmed()


def _products(
    one: RatioLaw, other: RatioLaw, share: float
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Yield means of two ratios with their masses, some rows of the outer product at a time."""
    ratios = share * np.append(0.0, np.exp(one.logs))
    masses = np.append(one.zero, one.masses)
    column = (1.0 - share) * np.append(0.0, np.exp(other.logs))
    weights = np.append(other.zero, other.masses)
    for i in range(0, ratios.size, _CHUNK):
        rows = slice(i, i + _CHUNK)
        yield np.add.outer(ratios[rows], column).ravel(), np.outer(masses[rows], weights).ravel()


@lru_cache(maxsize=64)
def allocated_ratio(mu: float, rounds: int) -> RatioLaw:
    """Return the ratio of one block of ``rounds`` rounds, rounded against us.

    Args:
        mu: length of the client's contribution in standard deviations of a round's noise,
            in (0, ``MAX_MU``].
        rounds: t, >= 1; with 1 nothing is hidden.
    """
    require_in("mu", mu, 0.0, MAX_MU, "(]")
    require_at_least("rounds", rounds, 1)
    # More rounds hide more, but masses are raised at every doubling.
    rounds = min(rounds, _MOST_ROUNDS)
    power, size = gaussian_ratio(mu), 1
    result, done = None, 0
    while True:
        if rounds & 1:
            result = power if result is None else joined(result, done, power, size)
            done += size
        rounds >>= 1
        if rounds == 0 and result is not None:
            return result
        power, size = joined(power, size, power, size), 2 * size
