"""How often an adversary may guess right against a release that is accounted for.

With both worlds equally likely, whoever tells them apart with accuracy a refutes every
(epsilon, delta) with a > (e^epsilon + delta) / (1 + e^epsilon): the total variation T between the
worlds is at most (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), and a is at most (1 + T) / 2
(Kairouz, Oh and Viswanath 2015, arXiv 1311.0776, Theorem 2.1). An accountant states an epsilon for
every delta, and all of these hold at once, so the smallest of the bounds holds. It is the one at
the smallest delta that goes with epsilon 0, where the bound is (1 + delta) / 2.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from dp import DominationAccountant, Event
from simulations.audits.base import Claim, Figures, Floats, Integers
from simulations.threats.game.rates import rate

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
