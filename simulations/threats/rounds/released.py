"""Rounds whose released sums an adversary looks at, and how often it may guess right.

With the product's noise, and without any; one by one, and two over sets that differ in one client.

With both worlds equally likely, whoever tells them apart with accuracy a refutes every
(epsilon, delta) with a > (e^epsilon + delta) / (1 + e^epsilon): the total variation T between the
worlds is at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), and a is at most (1 + T) / 2
(Kairouz, Oh and Viswanath 2015, arXiv 1311.0776, Theorem 2.1). An accountant states an epsilon for
every delta, and all of these hold at once, so the smallest of the bounds holds. It is the one at
the smallest delta that goes with epsilon 0, where the bound is (1 + delta) / 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Final

import numpy as np

from dp import BinomialMechanism, DominationAccountant, Event
from protocol import Dropouts, PrivacyGoal, RoundParameters, RoundSetup, Stage
from protocol.schemes.pairwise import pairwise_setup
from simulations.audits.base import Claim, Figures, Floats, Integers, derived_seed, public_keys
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
    """How often "world 1 iff the score is above the middle" is right, against what is allowed."""
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
        return pairwise_setup(
            self.settings.plan, parameters, public_keys(self.identities), bytes(16), 0
        )

    def setup(self, number: int) -> RoundSetup:
        """See `WholePath.setup`; one and the same for all rounds, so only for the ideal sum."""
        return self._bare


def on_grid(parameters: RoundParameters, integers: Integers) -> Floats:
    """Updates that turn into these integers, int64[L] or int64[n, L], without any rounding.

    Their norm is at most clip times scale.
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


TARGET: Final = 1
_WITHOUT_TARGET: Final[Dropouts] = {TARGET: Stage.INPUT}


def smallest_difference(survivors: Sequence[Collection[int]]) -> int:
    """The fewest clients by which two of these sets differ; 0 if all are alike."""
    pairs = combinations(map(frozenset, survivors), 2)
    return min((len(one ^ other) for one, other in pairs if one != other), default=0)


@dataclass(frozen=True)
class Differencing:
    """Pairs of rounds in which all clients but the target put in the same."""

    path: WholePath
    others: Floats  # float64[n, d], updates on the integer grid, so that rounding hides nothing
    integers: Integers  # int64[L], what the target's update is before noise, in world 1
    update: Floats  # float64[d], the same as an update

    @classmethod
    def draw(cls, path: WholePath, seed: int) -> Differencing:
        """Random inputs of the others, nearly the longest of the target."""
        parameters = path.claimed.parameters
        rng = np.random.default_rng(derived_seed(seed, "others"))
        others = rng.integers(-1, 2, (path.settings.cohort, LENGTH))
        integers = long_vector(parameters.sketch_clip_l2 * parameters.scale)
        return cls(path, on_grid(parameters, others), integers, on_grid(parameters, integers))

    def difference(self, number: int, world: int) -> Floats:
        """float64[L]: the sum with the target less the sum without, in integer units."""
        table = self.others.copy()
        table[TARGET] = world * self.update
        with_target, _ = self.path.released(2 * number, table)
        without, _ = self.path.released(2 * number + 1, table, _WITHOUT_TARGET)
        return with_target - without

    def score(self, number: int, world: int) -> float:
        """Inner product with what the target may have put in."""
        return float(self.integers @ self.difference(number, world))

    def is_exact(self, number: int) -> bool:
        """Whether the difference is the target's integers, every one of them."""
        # Decoding divides and multiplies again: far less than half a unit.
        found = np.rint(self.difference(number, 1)).astype(np.int64)
        return bool(np.array_equal(found, self.integers))

    def survivors(self) -> list[tuple[int, ...]]:
        """The sets of clients that both sums are over."""
        rounds: tuple[tuple[int, Dropouts], ...] = ((0, {}), (1, _WITHOUT_TARGET))
        return [self.path.total(n, self.others, lost).survivors for n, lost in rounds]
