"""Clip, scale, randomise: what a client does whose algorithm is a randomiser and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp.clipping import clip_l2
from dp.keystream import NoiseSeed
from dp.local import LocalRandomizer, Reports
from simulations.learning.local_dp.base import require_fitting
from simulations.learning.local_dp.memory import ClientMemory
from sketch import PublicSeed

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ScaledReports:
    """Reports of scaled vectors, in the units of an update again."""

    inner: Reports
    factor: float

    def __len__(self) -> int:
        """Return the number n of reports."""
        return len(self.inner)

    def estimate(self, index: int) -> Floats:
        """Return float64[d]: the estimate of one client's clipped update."""
        return self.factor * self.inner.estimate(index)

    def total(self) -> Floats:
        """Return float64[d]: the sum of all estimates."""
        return self.factor * self.inner.total()


@dataclass(frozen=True, slots=True, eq=False)
class RandomizedVectors:
    """The client side of a memoryless algorithm; a ``LocalAlgorithm``."""

    randomizer: LocalRandomizer  # of vectors in its unit ball
    # brings float64[n, d] into the ball of radius ``bound``
    clip: Callable[[Floats, float], Floats]
    bound: float  # in units of an update

    @property
    def epsilon(self) -> float:
        """The epsilon of one report."""
        return self.randomizer.epsilon

    @property
    def report_bytes(self) -> float:
        """The size of one report in whole bytes."""
        return float(-(-self.randomizer.report_bits // 8))

    def reports(
        self,
        clients: Sequence[int],
        updates: Floats,
        memory: ClientMemory,
        round_seed: PublicSeed,
        noise: NoiseSeed,
    ) -> ScaledReports:
        """Make the reports of one round; see ``LocalAlgorithm``."""
        require_fitting(clients, updates, memory, self.randomizer.dimension)
        inside = self.clip(updates, self.bound) / self.bound
        return ScaledReports(self.randomizer.randomize(inside, noise), self.bound)


def clip_coordinates(updates: Floats, bound: float) -> Floats:
    """Clip every coordinate to [-bound, bound]; NaN stays NaN, and randomisers refuse it."""
    return np.clip(updates, -bound, bound)


def clip_rows(updates: Floats, bound: float) -> Floats:
    """Clip every row to an l2 norm of at most ``bound``."""
    return np.stack([clip_l2(update, bound).values for update in updates])
