"""Gaussian noise of a trusted server, round by round: independent, returned, or a banded matrix.

Noise is made in units of what independent noise would have in the same run, and is computed on as
the server goes: what it has to remember is of the size of a model, or a few of them.

**Outsiders only: the server is trusted.** Of noise that is not independent the whole run is charged
before its first round: later rounds take noise back, and leak of earlier ones.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

import numpy as np

from dp.correlated.strategies import BandedStrategy
from simulations.learning.configuration import RunConfig
from simulations.learning.noise_schedule import banded_plan, returned_plan
from simulations.learning.sources.base import NOTHING, Arrays, Floats

RETURNED: Final = "noise/returned"
PAST: Final = "noise/past"
STRATEGY: Final = "noise/strategy"


class ServerNoise(Protocol):
    """The noise of a run. Every round asks once, in order."""

    fixed: bool
    """Whether rounds must have the same sketch and the same divisor, for noise to cancel."""

    @property
    def arrays(self) -> Arrays:
        """What it remembers."""

    def variance(self, number: int) -> float:
        """Of one coordinate in round `number`, over that of independent noise."""

    def draw(self, number: int, rng: np.random.Generator, size: int, deviation: float) -> Floats:
        """Noise of round `number`, float64[size].

        Args:
            deviation: standard deviation that independent noise would have.
        """

    def mu(self, participations: int, multiplier: float) -> float:
        """What outsiders learn of a client, as the mu of a Gaussian mechanism."""


class IndependentNoise:
    """Every round has its own."""

    fixed = False
    arrays: Arrays = NOTHING

    def variance(self, number: int) -> float:
        """1 in every round."""
        del number
        return 1.0

    def draw(self, number: int, rng: np.random.Generator, size: int, deviation: float) -> Floats:
        """Noise of one round."""
        del number
        return rng.normal(0.0, deviation, size)

    def mu(self, participations: int, multiplier: float) -> float:
        """Rounds so far, one by one."""
        return math.sqrt(participations) / multiplier


class ReturnedNoise:
    """A share of a round's noise is taken back in the next one."""

    fixed = True

    def __init__(self, share: float, fresh: float, participations: int, kept: Arrays) -> None:
        self._share, self._fresh, self._participations = share, fresh, participations
        self._before = kept.get(RETURNED, np.zeros(0))

    @property
    def arrays(self) -> Arrays:
        """What the next round takes back."""
        return {RETURNED: self._before}

    def variance(self, number: int) -> float:
        """Fresh noise, and what is taken back."""
        return self._fresh * (1.0 + (self._share if number else 0.0))

    def draw(self, number: int, rng: np.random.Generator, size: int, deviation: float) -> Floats:
        """What stays, what will come back, less what does so now."""
        fresh = math.sqrt(self._fresh)
        stays = rng.normal(0.0, fresh * math.sqrt(1.0 - self._share), size)
        comes_back = rng.normal(0.0, fresh * math.sqrt(self._share), size)
        before, self._before = self._before, comes_back
        noise = stays + comes_back
        return deviation * (noise - before if number else noise)

    def mu(self, participations: int, multiplier: float) -> float:
        """The whole run's, from the first round on."""
        del participations
        return math.sqrt(self._participations) / multiplier


class BandedNoise:
    """Row after row of C^-1 Z for a banded matrix C."""

    fixed = True

    def __init__(self, strategy: BandedStrategy, participations: int, kept: Arrays) -> None:
        # Not planned again: a search may end in other last digits elsewhere, as with other noise.
        self._strategy = BandedStrategy(kept[STRATEGY]) if STRATEGY in kept else strategy
        self._participations = participations
        self._past = kept.get(PAST, np.zeros((0, 0)))

    @property
    def arrays(self) -> Arrays:
        """The noise of the last rounds, the last one first, and the matrix."""
        return {PAST: self._past, STRATEGY: self._strategy.diagonals}

    def variance(self, number: int) -> float:
        """Of a row of the inverse."""
        return float(self._strategy.round_variances[number])

    def draw(self, number: int, rng: np.random.Generator, size: int, deviation: float) -> Floats:
        """One more row."""
        past = self._past if number else np.zeros((0, size))
        noise = self._strategy.noise(number, rng.normal(size=size), past)
        self._past = np.concatenate([noise[None], past])[: self._strategy.bands - 1]
        return deviation * noise

    def mu(self, participations: int, multiplier: float) -> float:
        """The whole run's, from the first round on."""
        del participations
        return math.sqrt(self._participations) / multiplier


def server_noise(config: RunConfig, kept: Arrays = NOTHING) -> ServerNoise:
    """The noise that a configuration names."""
    participations = config.participations
    if config.noise.kind == "returned":
        plan = returned_plan(config)
        return ReturnedNoise(plan.returned_share, plan.fresh_ratio, participations, kept)
    if config.noise.kind == "banded":
        return BandedNoise(banded_plan(config).strategy, participations, kept)
    return IndependentNoise()
