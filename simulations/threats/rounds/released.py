"""Rounds whose released sums an adversary looks at: with the product's noise, and without any."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from dp import BinomialMechanism, DominationAccountant, Event
from protocol import PrivacyGoal, RoundParameters, RoundSetup
from simulations.audits.base import Claim, Figures, Floats, Integers, public_keys
from simulations.audits.paths import PathSettings, WholePath
from simulations.threats.game.rates import rate
from sketch import Rotation, SketchSpec

STEP: Final = 1e-4
"""How closely the smallest delta is looked for: the bound is at most half of it too large."""


def accuracy_bound(claim: Claim) -> float:
    """The highest accuracy that one (epsilon, delta) allows, both worlds being equally likely."""
    # The same as (e^epsilon + delta) / (1 + e^epsilon), for any epsilon.
    shrunk = math.exp(-claim.epsilon)
    return (1.0 + claim.delta * shrunk) / (1.0 + shrunk)


def allowed_accuracy(event: Event) -> float:
    """The highest accuracy that what an event is accounted with allows any adversary."""
    accountant = DominationAccountant()
    accountant.compose(event)
    best, low, high = 1.0, 0.0, 1.0
    while high - low > STEP:
        delta = (low + high) / 2.0
        epsilon = accountant.epsilon(delta)
        if epsilon < math.inf:
            best = min(best, accuracy_bound(Claim(epsilon, delta)))
        low, high = (delta, high) if epsilon > 0.0 else (low, delta)
    return best


def epsilon_of(event: Event, delta: float) -> float:
    """What an event alone is accounted with at a delta."""
    accountant = DominationAccountant()
    accountant.compose(event)
    return accountant.epsilon(delta)


def guessing_rate(scores: Floats, worlds: Integers, middle: float, allowed: float) -> Figures:
    """How often "world 1 iff the score is above the middle" is right, held against what is allowed.

    Args:
        scores: float64[N], larger in world 1.
        worlds: int64[N], 0 or 1.
    """
    right = int(np.count_nonzero((scores > middle) == (worlds == 1)))
    return {**rate(right, worlds.size, allowed), "accuracy": right / worlds.size}


GOAL: Final = PrivacyGoal(1.0, 1e-5, 1)
LENGTH: Final = 8

SMALL: Final = PathSettings(
    SketchSpec.identity(LENGTH), GOAL, cohort=4, tolerated_dropouts=1, tolerated_colluders=0
)
"""A round that is run hundreds of times."""


@dataclass(frozen=True)
class BareRounds(WholePath):
    """The same rounds by clients that add no coins."""

    @cached_property
    def _bare(self) -> RoundSetup:
        parameters = replace(self.settings.parameters(self.seed), mechanism=BinomialMechanism(0))
        return self.settings.plan.setup(parameters, public_keys(self.identities), bytes(16), 0)

    def setup(self, number: int) -> RoundSetup:
        """See `WholePath.setup`; one and the same for all rounds, so only for the ideal sum."""
        return self._bare


def on_grid(parameters: RoundParameters, integers: Integers) -> Floats:
    """Updates that turn into these integers without any rounding.

    Args:
        integers: int64[L] or int64[n, L] in integer units, of norm at most clip times scale.
    """
    rotation = Rotation(parameters.length, parameters.public_seed)
    rows = np.atleast_2d(integers) / parameters.scale
    updates = np.stack([rotation.inverse(row) for row in rows])
    return updates.reshape(integers.shape)


def long_vector(norm: float) -> Integers:
    """int64[LENGTH]: an integer vector that is nearly as long as the norm, and not longer."""
    vector = np.zeros(LENGTH, np.int64)
    # Coordinate by coordinate, as large as the coordinate clip of such short vectors allows.
    for index in range(LENGTH):
        left = norm**2 - float(np.sum(vector**2))
        vector[index] = int(min(np.sqrt(max(left, 0.0)), norm / np.sqrt(LENGTH) * 1.5))
    return vector


def play(
    path: WholePath, score: Callable[[int, int], float], middle: float, rounds: int, seed: int
) -> Figures:
    """A guessing game over rounds: a fair coin decides the world of each."""
    worlds = np.random.default_rng(seed).integers(0, 2, rounds)
    scores = np.array([score(number, int(world)) for number, world in enumerate(worlds)])
    event = path.claimed.events(path.settings.cohort).server
    return guessing_rate(scores, worlds, middle, allowed_accuracy(event))
