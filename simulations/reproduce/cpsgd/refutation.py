"""Where Theorem 1 of cpSGD is false as printed: large epsilon.

Its leading term is D2 sqrt(2 ln(1.25/delta))/sigma, the textbook's figure for Gaussian noise,
which the textbook states for epsilon below one. The privacy loss has mean D2^2/(2 sigma^2) too, of
which no term of the theorem takes account; with a wide enough noise its other terms vanish.

A proof by numbers. One client adds v to each of d coordinates. Whoever adds the coordinates up
sees S ~ Bin(N d, 1/2) or S + d v, so by post-processing, for every threshold t,

    delta(epsilon) >= P[S + d v >= t] - e^epsilon P[S >= t].

The tails are those of dp.accounting.tails, each taken on its safe side.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dp.accounting import BinomialNoise, Theorem1Parameters, theorem1_epsilon
from dp.accounting.tails import log_tails
from dp.calibration import noise_multiplier_for_epsilon
from dp.search import bracketed

_DEVIATIONS = 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatShift:
    """One client adds ``shift`` to every coordinate; ``coins`` fair coins hide it."""

    coins: int = 10**7  # N per coordinate, even; N d within the tables of tails
    dimension: int = 400  # d
    shift: int = 237  # v, in units of a coin
    delta: float = 1e-5  # at which Theorem 1 is asked

    @property
    def theorem1_epsilon(self) -> float:
        """What Theorem 1 promises; D1, D2 and Dinf are those of the shift itself."""
        length = math.sqrt(self.dimension) * self.shift
        total = float(self.dimension * self.shift)
        return theorem1_epsilon(
            Theorem1Parameters(self.coins, total, length, float(self.shift), self.dimension),
            self.delta,
        )

    def true_delta_at_least(self, epsilon: float) -> float:
        """Return a lower bound of the delta that really belongs to ``epsilon``."""
        total = self.coins * self.dimension
        moved = self.dimension * self.shift
        reach = moved + math.ceil(_DEVIATIONS * math.sqrt(total) / 2.0)
        tails = log_tails(BinomialNoise(total), reach)
        # Entry i is j = i + 1. With t = moved + j, P[S + moved >= t] = U(j).
        near, far = tails.lower[: reach - moved], tails.upper[moved:]
        return float(np.max(np.exp(near) - np.exp(epsilon + far)))

    def figures(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        promised = self.theorem1_epsilon
        at_least = self.true_delta_at_least(promised)
        sigma = math.sqrt(self.coins) / 2.0
        return {
            **asdict(self),
            "l2_over_sigma": math.sqrt(self.dimension) * self.shift / sigma,
            "theorem1_epsilon": promised,
            "true_delta_at_least": at_least,
            "false": at_least > self.delta,
        }


def lemma1_limit(delta: float) -> float:
    """Return the epsilon above which sqrt(2 ln(1.25/delta))/epsilon is too little Gaussian noise.

    Found by bisection of the exact condition; Theorem 1 tends to Lemma 1 as s falls.
    """
    factor = math.sqrt(2.0 * math.log(1.25 / delta))

    def too_little(epsilon: float) -> bool:
        return factor / epsilon < noise_multiplier_for_epsilon(epsilon, delta)

    return bracketed(too_little, 1.0, 64.0, 1.5e-7)[0]
