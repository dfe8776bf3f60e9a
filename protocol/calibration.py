"""From a goal (epsilon, delta, rounds) to the parameters of one round.

Integers cost accuracy: rounding raises the sensitivity and adds variance, coins are no Gaussian and
come in whole numbers, a part of delta is set aside. All of it vanishes as the scale grows, at the
price of bits. The scale here is the smallest at which the noise of the mean has at most a stated
share more variance than the Gaussian mechanism at the same epsilon. Then come the coins that meet
the goal with the fewest honest survivors the round tolerates, and the field that holds the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from dp import FailureReserve, coins_for_epsilon, noise_multiplier_for_epsilon, quantized_l2_bound
from dp.accounting.gaussian import LARGEST_EPSILON
from dp.coins import MAX_COINS
from protocol.checks import require_int, require_number
from protocol.parameters import RoundParameters
from secagg import ParameterError
from sketch import PublicSeed, SketchSpec, flat_bound

ERROR_SHARE = 0.01
"""Variance beyond that of the Gaussian mechanism; halving it costs about half a bit."""

SMALLEST_ERROR_SHARE = 5e-3
"""The part of delta that is set aside alone costs about 0.004."""

ROUNDING_VARIANCE = 1.0 / 6.0
"""Mean of f (1 - f) over uniform fractions f: what rounding adds to the variance of a coordinate of
one client, in squared integer units."""

COORDINATE_CLIP_PROBABILITY = 1e-3
"""Chance that the rotation leaves any coordinate of one client beyond the coordinate clip. It is a
matter of utility only: the clip is applied to every vector, so privacy never rests on it."""

_STEP = 2.0**0.0625
_MOST_STEPS = 16
_SCALES = (1e-3, 2.0**40)
"""Where a scale is looked for, in integer units for a vector on the bound."""

_LATTICE_COST = 4.0
"""Variance, in squared integer units, by which coins must exceed the Gaussian they replace: the
relative loss (3 z^2 - 1) / (24 sigma^2) of variance at z = 5.7."""


@dataclass(frozen=True, slots=True)
class PrivacyGoal:
    """(epsilon, delta) of any one client over the `rounds` rounds it takes part in, against the
    server.

    Raises:
        ParameterError: a figure is out of range.
    """

    epsilon: float
    delta: float
    rounds: int

    def __post_init__(self) -> None:
        for name in ("epsilon", "delta"):
            require_number(name, getattr(self, name))
        require_int("rounds", self.rounds, 1)
        if not (math.isfinite(self.epsilon) and self.epsilon > 0.0):
            raise ParameterError("epsilon", self.epsilon, "positive and finite")
        if not 0.0 < self.delta < 1.0:
            raise ParameterError("delta", self.delta, "strictly between 0 and 1")

    @property
    def reserve(self) -> FailureReserve:
        """The part of delta set aside beforehand, for noise and for secure aggregation: the
        controller sizes later rounds from earlier releases, so the split of delta must not be
        chosen afterwards (docs/accounting.md)."""
        return FailureReserve.from_delta(self.delta, self.rounds)

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation over sensitivity of the Gaussian mechanism that meets the goal.

        Raises:
            ParameterError: epsilon is so large that there is none: such a goal only counts.
        """
        if not self.epsilon < LARGEST_EPSILON:
            valid = f"below {LARGEST_EPSILON:g} to choose noise by: accounting ends there"
            raise ParameterError("epsilon", self.epsilon, valid)
        return noise_multiplier_for_epsilon(self.epsilon, self.delta, self.rounds)


def calibrate(
    goal: PrivacyGoal,
    *,
    fewest_honest: int,
    sketch: SketchSpec,
    clip_l2: float,
    tolerated_dropouts: int,
    model_digest: bytes,
    public_seed: PublicSeed,
    error_share: float = ERROR_SHARE,
    wrap_probability: float = 0.0,
    sketch_clip_l2: float | None = None,
) -> RoundParameters:
    """Parameters of one round, `goal.rounds` of which together meet the goal.

    Args:
        fewest_honest: fewest survivors of any sum that is released, less the tolerated colluders.
        error_share: how much more variance the noise may have than that of the Gaussian mechanism.
        wrap_probability: see `RoundParameters`.
        sketch_clip_l2: B, bound on the sketch of an update; `clip_l2` if left out. A sketch may be
            a little longer than its update, but room for that costs noise in every coordinate, and
            cutting it off next to nothing (docs/sketching.md, "The clip of a sketch").

    Raises:
        ParameterError: nobody honest is left to add noise, the share is out of range, or the goal
            needs too many coins.
    """
    if not SMALLEST_ERROR_SHARE <= error_share <= 1.0:
        raise ParameterError("error_share", error_share, f"in {SMALLEST_ERROR_SHARE:g} .. 1")
    if fewest_honest < 1:
        raise ParameterError(
            "fewest_honest", fewest_honest, "at least 1: lower the dropouts or the colluders"
        )
    bound = clip_l2 if sketch_clip_l2 is None else sketch_clip_l2
    scale, linf_bound, coins = _integers(goal, fewest_honest, bound, sketch.size, error_share)
    return RoundParameters(
        model_digest=model_digest,
        clip_l2=clip_l2,
        sketch=sketch,
        sketch_clip_l2=bound,
        public_seed=public_seed,
        scale=scale,
        linf_bound=linf_bound,
        coins=coins,
        tolerated_dropouts=tolerated_dropouts,
        wrap_probability=wrap_probability,
    )


@lru_cache(maxsize=1024)
def _integers(
    goal: PrivacyGoal, fewest_honest: int, bound: float, length: int, error_share: float
) -> tuple[float, int, int]:
    """(scale, coordinate clip, coins per client) for vectors of norm `bound` and a length."""
    gaussian = goal.noise_multiplier * bound
    scale = _predicted_scale(goal, fewest_honest, bound, length, error_share)
    for _ in range(_MOST_STEPS):
        linf_bound = math.ceil(scale * flat_bound(bound, length, COORDINATE_CLIP_PROBABILITY))
        l2_bound = quantized_l2_bound(bound, scale, length)
        try:
            total = coins_for_epsilon(
                goal.epsilon, goal.delta, l2_bound, linf_bound, goal.rounds, goal.reserve
            )
        except ValueError as error:
            raise ParameterError("epsilon", goal.epsilon, str(error)) from None
        coins = math.ceil(total / fewest_honest)
        variance = fewest_honest * (coins / 4.0 + ROUNDING_VARIANCE)
        if variance <= (1.0 + error_share) * (gaussian * scale) ** 2:
            _check_coins(coins, fewest_honest)
            return scale, linf_bound, coins
        scale *= _STEP
    raise ParameterError("error_share", error_share, "larger: no scale brings the noise so close")


def _check_coins(coins: int, fewest_honest: int) -> None:
    if coins > MAX_COINS:
        raise ParameterError(
            "coins",
            coins,
            f"at most {MAX_COINS} for each client: raise epsilon, error_share or the number of "
            f"honest survivors (now {fewest_honest}), run fewer rounds, or compress more",
        )


def _predicted_scale(
    goal: PrivacyGoal, fewest_honest: int, bound: float, length: int, error_share: float
) -> float:
    """Smallest scale at which the closed forms stay within the share; the accountant decides.

    Source: docs/accounting.md for how close coins come to a Gaussian.
    """
    gaussian = goal.noise_multiplier * bound
    # What is left of delta once the part for failures is set aside.
    multiplier = noise_multiplier_for_epsilon(
        goal.epsilon, goal.delta - goal.reserve.total, goal.rounds
    )

    def variance(scale: float) -> float:
        needed = (multiplier * quantized_l2_bound(bound, scale, length)) ** 2
        # Coins are fewer standard deviations wide than a Gaussian; half a coin each is rounded up.
        return needed + _LATTICE_COST + fewest_honest * (0.125 + ROUNDING_VARIANCE)

    low, high = _SCALES
    for _ in range(80):
        scale = math.sqrt(low * high)
        enough = variance(scale / bound) <= (1.0 + error_share) * (gaussian * scale / bound) ** 2
        low, high = (low, scale) if enough else (scale, high)
    return high / bound
