"""Exact laws of whole runs with returned noise: one coordinate, two or three rounds.

Round t releases y_t = x_t + b_t + a_t - r_{t-1} a_{t-1}. The parts are sums of discrete Gaussians;
the returns r_t in {0, 1} and the victim's contributions D_t are chosen by an adversary that has
seen y_1 .. y_{t-1}. With the victim the released vector has the law p_R(y - D), without it p_R(y),
and what an adversary can make of that is a maximum over its choices, round by round, of a sum over
all transcripts. So it is computed, not estimated.

Everything here is written out for these small cases and shares no code with the product.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
Leaf = Callable[[Table, Table], Table]
"""What one transcript adds to the objective, from its two masses."""


def discrete_gaussian(variance: float, adders: int, reach: int) -> Table:
    """Masses at -reach .. reach of a sum of discrete Gaussians of one parameter."""
    z = np.arange(-reach, reach + 1, dtype=np.float64)
    one = np.exp(-z * z / (2.0 * variance))
    one /= one.sum()
    total = one
    for _ in range(adders - 1):
        total = np.convolve(total, one)[reach : 3 * reach + 1]
    return total


@dataclass(frozen=True)
class Game:
    """A run of `rounds` rounds whose parts have these variances.

    Args:
        budget: mu_max^2, in units where contributions are integers.
    """

    rounds: int
    kept: float
    returned: float
    adders: int
    budget: float
    largest: int = 1

    @property
    def fresh(self) -> float:
        """V, what each round adds."""
        return self.adders * (self.kept + self.returned)

    @property
    def share(self) -> float:
        """Lambda V, what may come back."""
        return self.adders * self.returned

    @cached_property
    def reach(self) -> int:
        """Parts are followed so far out that their masses fall to e^-280."""
        return math.ceil(math.sqrt(2.0 * 280.0 * max(self.fresh, 0.5)))

    @property
    def inner(self) -> int:
        """Transcripts are looked at up to here: their masses owe nothing to parts beyond reach."""
        return self.reach // 2

    @cached_property
    def laws(self) -> tuple[Table, Table]:
        """Of b_t and a_t."""
        return tuple(
            discrete_gaussian(each, self.adders, self.reach) for each in (self.kept, self.returned)
        )  # type: ignore[return-value]

    def covariance(self, returns: tuple[int, ...]) -> Table:
        """Sigma of the rounds that have happened, len(returns) + 1 of them."""
        size = len(returns) + 1
        sigma = np.diag(np.full(size, self.fresh))
        for t, back in enumerate(returns):
            sigma[t + 1, t + 1] += back * self.share
            sigma[t, t + 1] = sigma[t + 1, t] = -back * self.share
        return sigma

    def charge(self, shifts: tuple[int, ...], returns: tuple[int, ...]) -> float:
        """mu^2 of what has happened, if everything that may come back does, to the end."""
        left = self.rounds - len(shifts)
        ahead = self.fresh
        for _ in range(left):
            ahead = self.fresh - self.share**2 / (self.share + ahead)
        sigma = self.covariance(returns)
        sigma[-1, -1] -= self.fresh - ahead
        d = np.array(shifts, dtype=np.float64)
        return float(d @ np.linalg.solve(sigma, d))

    def joint(self, returns: tuple[int, ...]) -> Table:
        """p_R over (-reach .. reach)^t, t = len(returns) + 1 rounds."""
        b, a = self.laws
        size, reach = b.size, self.reach
        # state[n_1 .. n_t, a_t], built round by round
        add = np.zeros((size, size))  # add[n, a] = b(n - a) a(a)
        n = np.arange(size)
        for j in range(size):
            rest = n - (j - reach)
            inside = (rest >= 0) & (rest < size)
            add[inside, j] = b[rest[inside]] * a[j]
        state = add
        for back in returns:
            shifted = np.zeros((size, size, size))  # [a_before, n, a]
            for before in range(size):
                move = -back * (before - reach)
                source = n - move
                inside = (source >= 0) & (source < size)
                shifted[before, inside] = add[source[inside]]
            state = np.tensordot(state, shifted, axes=(-1, 0))
        return state.sum(axis=-1)

    @cached_property
    def joints(self) -> dict[tuple[int, ...], Table]:
        """p_R for all records of the whole run."""
        records = itertools.product((0, 1), repeat=self.rounds - 1)
        return {returns: self.joint(returns) for returns in records}

    def best(self, leaf: Leaf) -> float:
        """The largest sum over transcripts of `leaf(with the victim, without)`.

        The adversary chooses D_1; then, for every y_1, what comes back in round 2 and D_2; and so
        on. A choice is allowed while `charge` is within the budget.
        """
        return max(
            float(self._best_after(leaf, (first,), ()).sum())
            for first in range(-self.largest, self.largest + 1)
            if self.charge((first,), ()) <= self.budget * (1 + 1e-12)
        )

    def _best_after(self, leaf: Leaf, shifts: tuple[int, ...], returns: tuple[int, ...]) -> Table:
        """For every y_1 .. y_t the most that the rest can add up to."""
        if len(shifts) == self.rounds:
            return leaf(self._seen(returns, shifts), self._seen(returns, (0,) * self.rounds))
        options = [
            self._best_after(leaf, (*shifts, shift), (*returns, back)).sum(axis=-1)
            for shift, back in self._moves(shifts, returns)
        ]
        return np.max(options, axis=0)

    def _seen(self, returns: tuple[int, ...], shifts: tuple[int, ...]) -> Table:
        """p_R(y - D) for all y within the inner window."""
        middle, half = self.reach, self.inner
        window = tuple(slice(middle - half - d, middle + half + 1 - d) for d in shifts)
        return self.joints[returns][window]

    def _moves(
        self, shifts: tuple[int, ...], returns: tuple[int, ...]
    ) -> Iterator[tuple[int, int]]:
        for shift in range(-self.largest, self.largest + 1):
            for back in (0, 1):
                after = self.charge((*shifts, shift), (*returns, back))
                # Without a contribution a client cannot keep its charge from growing to the
                # reserve, which was checked before.
                if not shift or after <= self.budget * (1 + 1e-12):
                    yield shift, back


def renyi_leaf(order: float) -> Leaf:
    """p^a q^(1-a), whose sum is exp((a - 1) D_a)."""

    def leaf(p: Table, q: Table) -> Table:
        both = (p > 1e-300) & (q > 1e-300)
        safe_p, safe_q = np.where(both, p, 1.0), np.where(both, q, 1.0)
        value = np.exp(order * np.log(safe_p) + (1.0 - order) * np.log(safe_q))
        return np.where(both, value, 0.0)

    return leaf


def hockey_stick_leaf(epsilon: float) -> Leaf:
    """(p - e^epsilon q)+, whose sum is delta."""
    return lambda p, q: np.maximum(p - math.exp(epsilon) * q, 0.0)
