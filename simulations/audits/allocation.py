"""Blocks of rounds whose cohorts are hidden, in two worlds, as somebody sees them who is told none.

Rounds are the product's, from the clip to the decoded sum, and so are the coins. A client sends an
update on the clip in one round of each block, in world 0 zeros; the adversary knows what all others
send. Coordinates are independent, so that each is a block of its own, with a coin of its own. The
score is the best there is without the coin, the likelihood ratio: the mean over the rounds.

Source: docs/accounting.md, "One round of a block".
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from dp import BinomialRelease, OutsiderAccountant
from dp.events import Allocated
from protocol import Pipeline, PrivacyGoal
from protocol.allocation import Hiding
from protocol.checks import of_kind
from protocol.round.turns import drawn_turn
from simulations.audits.base import ALPHA, Audit, Claim, Figures, Floats, noise_seed
from simulations.audits.paths import PathSettings, WholePath, repeatable
from simulations.audits.two_worlds import two_worlds
from sketch import Rotation, SketchSpec

BLOCK: Final = 4
"""Rounds of a block."""
DELTA: Final = 0.05
"""So large that as many runs as an audit has find nearly all of what is claimed."""

_CLIENTS: Final = 4
_LENGTH: Final = 20_000
_GOAL: Final = PrivacyGoal(11.0, 1e-5, 1)
_SUMS: Final = 2  # times the clients' coins, with the server's, are in a sum


class HiddenMistake(enum.Enum):
    """What a twin does wrong."""

    NONE = "nothing"
    TOLD = "cohorts told"
    BARE = "the server adds no coins"
    AGAIN = "a coin is drawn again after the client's round"


@dataclass(frozen=True, slots=True)
class AllocatedBlock:
    """What is released in a block, as one score; see ``AuditedRelease``."""

    mistake: HiddenMistake = HiddenMistake.NONE
    path_seed: int = 0  # fixes what all runs have in common

    def _path(self, length: int, seed: int) -> WholePath:
        settings = PathSettings(
            SketchSpec.identity(length),
            _GOAL,
            cohort=_CLIENTS,
            tolerated_dropouts=0,
            tolerated_colluders=0,
            error_share=0.02,
            alone=True,
        )
        return WholePath(settings, self.path_seed, noise_seed_of=seed)

    def event(self) -> BinomialRelease:
        """What one round of one coordinate is accounted with."""
        claimed = self._path(1, 0).claimed_release(_CLIENTS, colluders=False)
        release = of_kind("event", claimed, BinomialRelease)
        return replace(release, coins=_SUMS * release.coins)

    def release(self, world: int, count: int, seed: int) -> Floats:
        """Run blocks; float64[count]."""
        length = min(count, _LENGTH)
        batches = range(-(-count // length))
        return np.concatenate([self._scores(world, length, seed, each) for each in batches])[:count]

    def _scores(self, world: int, length: int, seed: int, batch: int) -> Floats:
        path = self._path(length, seed)
        setup = path.claimed
        coins = repeatable(seed, "coins of clients", batch)
        turns = np.array([drawn_turn(BLOCK, coins) for _ in range(length)])
        second = np.array([drawn_turn(BLOCK - 1, coins) for _ in range(length)])
        rotation = Rotation(length, setup.parameters.public_seed)
        own = round(4.0 * _CLIENTS * setup.noise_left(_CLIENTS).variance)
        kept = own if self.mistake is HiddenMistake.BARE else _SUMS * own
        sigma, scale = math.sqrt(kept / 4.0), setup.parameters.scale
        mu = path.settings.clip_l2 * scale / sigma
        seen = np.zeros((BLOCK, length))
        for turn in range(BLOCK):
            comes = turns == turn
            if self.mistake is HiddenMistake.AGAIN:
                # Among the rounds that are left, as if its own one had not been there.
                comes |= (second + (second >= turns)) == turn
            table = np.zeros((_CLIENTS, length))
            table[0] = rotation.inverse(world * comes * path.settings.clip_l2)
            number = batch * BLOCK + turn
            hiding = Hiding(_CLIENTS, kept, noise_seed(seed, "added", number))
            release = Pipeline(setup).decode(path.total(number, table, {}), hiding=hiding)
            seen[turn] = rotation.forward(release.mean_sketch) * (_CLIENTS * scale / sigma)
        if self.mistake is HiddenMistake.TOLD:
            return np.asarray(seen[turns, np.arange(length)], np.float64)
        ratios: Floats = np.mean(np.exp(mu * seen - mu**2 / 2.0), axis=0)
        return np.log(ratios)


def audit_allocation(runs: int, seed: int, alpha: float = ALPHA) -> Audit:
    """Hidden cohorts: who is told none finds no more than `OutsiderAccountant` says."""
    honest = AllocatedBlock(path_seed=seed)

    def figures(mistake: HiddenMistake) -> Figures:
        claim = Claim.of_event(Allocated(BLOCK, honest.event()), DELTA, OutsiderAccountant())
        twin = replace(honest, mistake=mistake)
        # The route through a Gaussian says nothing here: a block is none.
        found = two_worlds(twin, runs, seed, DELTA, 1.0 - alpha, lambda scores: scores)
        return {
            "runs_in_each_world": found.runs,
            "confidence": found.confidence,
            "claimed_epsilon": claim.epsilon,
            "epsilon_at_least": found.epsilon,
            "epsilon_ceiling": found.epsilon_ceiling,
            "rejected": found.epsilon > claim.epsilon,
        }

    return Audit(
        "privacy-two-worlds-allocation",
        "Blocks whose cohorts are hidden: no bound above the outsider's epsilon",
        partial(figures, HiddenMistake.NONE),
        {
            each.value: partial(figures, each)
            for each in HiddenMistake
            if each is not HiddenMistake.NONE
        },
    )
