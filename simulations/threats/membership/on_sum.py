"""Is this client's update in the sum? By an adversary that lacks nothing but the noise.

docs/attacks-on-updates.md, "How A24 works", has the game and the score. For noise that is alike in
all directions no test is more powerful.

Source: Homer et al. 2008 (PLoS Genetics 4(8)) and Dwork et al. 2015 (FOCS) for the inner product;
Kairouz, Oh and Viswanath 2015 (arXiv 1311.0776) for what epsilon permits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp.accounting import gaussian_epsilon
from dp.clipping import clip_l2
from protocol import PrivacyGoal, RoundSetup
from secagg.checks import require_int
from simulations.audits.base import (
    ALPHA,
    AuditedRelease,
    Claim,
    Figures,
    Floats,
    derived_seed,
)
from simulations.audits.intervals import upper_bound
from simulations.threats.game.rates import rate
from simulations.threats.inversion.views import CLIP_L2, GradientRound, announced, released_mean
from simulations.threats.rounds.released import accuracy_bound


@dataclass(frozen=True, slots=True)
class SumGame(AuditedRelease):
    """Rounds with and without client 0, scored."""

    setup: RoundSetup
    updates: NDArray[np.float32]  # float32[n, d], all of them known to the adversary

    @classmethod
    def of(cls, played: GradientRound, goal: PrivacyGoal, seed: int, noised: bool) -> SumGame:
        """Announce the rounds, with noise for the goal or with none."""
        clients, dimension = played.updates.shape
        return cls(announced(clients, dimension, goal, seed, noised), played.updates)

    def release(self, world: int, count: int, seed: int) -> Floats:
        """Play rounds and return their scores, float64[count]; see ``AuditedRelease``."""
        sent = self.updates.copy()
        sent[0] *= world
        clipped = np.stack([clip_l2(update, CLIP_L2).values for update in self.updates])
        others, target = clipped[1:].sum(axis=0), clipped[0]
        direction = target / np.linalg.norm(target)
        means = (released_mean(self.setup, sent, derived_seed(seed, run)) for run in range(count))
        return np.array([(len(sent) * mean - others) @ direction for mean in means])

    def claim(self, delta: float) -> Claim:
        """What such a round is accounted with."""
        return Claim.of_event(self.setup.events(len(self.updates)).server, delta)

    @property
    def threshold(self) -> float:
        """Half of the length that the target's update has after its clip."""
        return float(np.linalg.norm(clip_l2(self.updates[0], CLIP_L2).values)) / 2.0


def audited(wrong: tuple[int, int], runs: int, delta: float, alpha: float) -> float:
    """Bound epsilon from below by the errors of a test that was fixed beforehand.

    The larger of the two bounds of `simulations.audits.two_worlds`: ln((1 - b - delta) / a), and
    the epsilon of the Gaussian with mu = zq(a / (1 - delta)) + zq(b / (1 - delta)), where a and b
    are the rates of false positives and negatives, from above by Clopper and Pearson at alpha / 2
    each. The second refutes domination by such a Gaussian, which is what the accountant claims.
    """
    a, b = (float(upper_bound(count, runs, alpha / 2.0)) for count in wrong)
    if a + b >= 1.0 - delta:
        return 0.0
    mu = -special.ndtri(a / (1.0 - delta)) - special.ndtri(b / (1.0 - delta))
    return max(math.log((1.0 - b - delta) / a), gaussian_epsilon(float(mu), delta))


def sum_figures(game: SumGame, claim: Claim, runs: int, seed: int) -> Figures:
    """Play so many rounds in each world."""
    require_int("runs", runs, 1)
    without, with_client = (
        game.release(world, runs, derived_seed(seed, world)) for world in (0, 1)
    )
    wrong = int((without > game.threshold).sum()), int((with_client <= game.threshold).sum())
    right = 2 * runs - sum(wrong)
    epsilon = audited(wrong, runs, claim.delta, ALPHA)
    allowed = accuracy_bound(claim)
    share = rate(right, 2 * runs, allowed)
    return {
        **share,
        "chance": 0.5,
        "accuracy": right / (2 * runs),
        "allowed_accuracy": allowed,
        "accounted_epsilon": claim.epsilon,
        "audited_epsilon": epsilon,
        "audited_epsilon_ceiling": audited((0, 0), runs, claim.delta, ALPHA),
        "delta": claim.delta,
        "succeeded": bool(share["succeeded"]) or epsilon > claim.epsilon,
    }
