"""Figure 1 of cpSGD: error against epsilon of the binomial mechanism at several scales s.

    M(x) = x + s (Z - N/2),  Z ~ Bin(N, 1/2) on each coordinate,  x on the lattice s Z^d

For every epsilon the fewest coins N are found twice, by the paper's Theorem 1 and by Gaussian
domination, for the very same release at the very same delta. The error is d s^2 N/4, beside that
of Gaussian noise by the paper's Lemma 1 and by its exact condition.

What the paper's text says of Figure 1 is its caption, "at different scales", and that the curves
approach the Gaussian one as s falls. It gives neither d, delta, sensitivities nor scales: those
here are this project's choice.

Source: Agarwal et al. 2018 (arXiv 1805.10559), Section 2.2. The exact condition: Balle and Wang
2018 (arXiv 1805.06530).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dp import (
    BinomialRelease,
    DominationAccountant,
    Theorem1Accountant,
    noise_multiplier_for_epsilon,
    replay,
)
from dp.accounting.laws import MAX_TOTAL_COINS
from dp.events import LevelRelease
from dp.search import smallest

# Theorem 1 is a formula: it needs no table, so that many coins can be asked about
MOST_COINS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What is released: x in Z^d s, of which one client changes a vector of norm ``l2``."""

    dimension: int = 65_536  # d
    delta: float = 1e-9  # of the release
    # D2, equal to Dinf; D1 is at most min(sqrt(d) D2, D2^2 / s), as x is on the lattice
    l2: float = 1.0

    def release(self, coins: int, inverse: int) -> BinomialRelease:
        """Return the event at scale s = 1 / ``inverse``, in units of s."""
        size = self.l2 * inverse
        return BinomialRelease(coins, size, math.ceil(size), self.dimension)


def theorem1_of(release: BinomialRelease | LevelRelease, delta: float) -> float:
    """Return the paper's epsilon of one release."""
    return replay([release], Theorem1Accountant()).epsilon(delta)


def domination_of(release: BinomialRelease, delta: float) -> float:
    """Return our epsilon of one release."""
    return replay([release], DominationAccountant()).epsilon(delta)


def point(query: Query, inverse: int, epsilon: float) -> dict[str, Any]:
    """Return coins and errors at one scale and epsilon; None where no count of coins is known."""
    d, multiplier = query.dimension, noise_multiplier_for_epsilon(epsilon, query.delta)
    sigma = query.l2 * inverse * multiplier

    def coins_by(account: Callable[[BinomialRelease, float], float], limit: int) -> int | None:
        """Return the fewest coins by one accountant, looked for from those of a Gaussian on."""

        def enough(coins: int) -> bool:
            return account(query.release(coins, inverse), query.delta) <= epsilon

        return smallest(enough, math.ceil(4.0 * sigma**2), limit)

    theirs = coins_by(theorem1_of, MOST_COINS)
    ours = coins_by(domination_of, MAX_TOTAL_COINS)
    error = {
        who: None if coins is None else d * coins / (4.0 * inverse**2)
        for who, coins in (("theorem1", theirs), ("domination", ours))
    }
    gaussian = d * (query.l2 * multiplier) ** 2
    # sigma = D2 sqrt(2 ln(1.25/delta))/epsilon
    lemma1 = d * 2.0 * math.log(1.25 / query.delta) * (query.l2 / epsilon) ** 2
    return {
        "inverse_scale": inverse,
        "epsilon": epsilon,
        "coins": {"theorem1": theirs, "domination": ours},
        "error": {**error, "gaussian": gaussian, "lemma1": lemma1},
        "error_ratio": _ratio(error["theorem1"], error["domination"]),
        "bits_saved": None if theirs is None or ours is None else math.log2(theirs / ours),
        "excess_over_gaussian": _ratio(error["domination"], gaussian),
    }


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or below is None else above / below
