"""From a goal (epsilon, delta, rounds) to the parameters of one round.

The scale is the smallest at which rounding costs at most a stated share of sensitivity and of
variance, and the aggregate noise is at least 16 integer units, where binomial noise is within 1 %
of the Gaussian (docs/accounting.md). Then come the coins that meet the goal with the fewest honest
survivors the round tolerates, then the smallest field that holds the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from dp import FailureReserve, coins_for_epsilon, noise_multiplier_for_epsilon, quantized_l2_bound
from protocol.setup import RoundParameters
from secagg import ParameterError
from sketch import PublicSeed, SketchSpec, flat_bound
from sketch.spec import SketchKind

SMALLEST_SIGMA = 16.0
"""Aggregate noise in integer units from which binomial noise is practically Gaussian."""

ROUNDING_SHARE = 0.01
"""Rounding may raise the Euclidean sensitivity by this share; less costs more bits."""

ROUNDING_VARIANCE = 1.0 / 6.0
"""Mean of f (1 - f) over uniform fractions f: what rounding adds to the variance of a coordinate of
one client, in squared integer units."""

ROUNDING_VARIANCE_SHARE = 0.01
"""Rounding may add this share of the noise variance: it depends on private data, so that what is
stated about the noise of a mean is true up to this share. One client's coins must then have at
least this many times the variance of its rounding; it costs at most log2(n)/2 bits."""

COORDINATE_CLIP_PROBABILITY = 1e-3
"""Chance that the rotation leaves any coordinate of one client beyond the coordinate clip. It is a
matter of utility only: the clip is applied to every vector, so privacy never rests on it."""


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
        if not (math.isfinite(self.epsilon) and self.epsilon > 0.0):
            raise ParameterError("epsilon", self.epsilon, "positive and finite")
        if not 0.0 < self.delta < 1.0:
            raise ParameterError("delta", self.delta, "strictly between 0 and 1")
        if self.rounds < 1:
            raise ParameterError("rounds", self.rounds, "at least 1")

    @property
    def reserve(self) -> FailureReserve:
        """The part of delta set aside beforehand: the controller sizes later rounds from earlier
        releases, so the split of delta must not be chosen afterwards (docs/accounting.md)."""
        return FailureReserve.from_delta(self.delta, self.rounds)


def sketch_clip(clip_l2: float, sketch: SketchSpec) -> float:
    """B: two standard deviations of |Sx| above C, or C itself if there is no compression.

    Var |Sx|^2 <= 2 C^4 / L for a vector on the bound, so |Sx| has standard deviation at most
    about C / sqrt(2 L). Source: docs/sketching.md.
    """
    if sketch.kind is SketchKind.IDENTITY:
        return clip_l2
    return clip_l2 * (1.0 + math.sqrt(2.0 / sketch.size))


def calibrate(
    goal: PrivacyGoal,
    *,
    fewest_honest: int,
    sketch: SketchSpec,
    clip_l2: float,
    tolerated_dropouts: int,
    model_digest: bytes,
    public_seed: PublicSeed,
) -> RoundParameters:
    """Parameters of one round, `goal.rounds` of which together meet the goal.

    Args:
        fewest_honest: fewest survivors of any sum that is released, less the tolerated colluders.

    Raises:
        ParameterError: nobody honest is left to add noise, or the goal needs too many coins.
    """
    if fewest_honest < 1:
        raise ParameterError(
            "fewest_honest", fewest_honest, "at least 1: lower the dropouts or the colluders"
        )
    bound = sketch_clip(clip_l2, sketch)
    scale, linf_bound, coins = _integers(goal, fewest_honest, bound, sketch.size)
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
    )


@lru_cache(maxsize=1024)
def _integers(
    goal: PrivacyGoal, fewest_honest: int, bound: float, length: int
) -> tuple[float, int, int]:
    """(scale, coordinate clip, coins per client) for vectors of norm `bound` and a length."""
    multiplier = noise_multiplier_for_epsilon(goal.epsilon, goal.delta, goal.rounds)
    sigma = math.sqrt(fewest_honest * ROUNDING_VARIANCE / ROUNDING_VARIANCE_SHARE)
    scale = _scale(bound, length, max(sigma, SMALLEST_SIGMA) / (multiplier * bound))
    linf_bound = math.ceil(scale * flat_bound(bound, length, COORDINATE_CLIP_PROBABILITY))
    l2_bound = quantized_l2_bound(bound, scale, length)
    try:
        total = coins_for_epsilon(
            goal.epsilon, goal.delta, l2_bound, linf_bound, goal.rounds, goal.reserve
        )
    except ValueError as error:
        raise ParameterError("epsilon", goal.epsilon, str(error)) from None
    return scale, linf_bound, math.ceil(total / fewest_honest)


def _scale(bound: float, length: int, lowest: float) -> float:
    """Smallest scale, from the lowest that noise allows, that keeps rounding within its share."""

    def inflation(scale: float) -> float:
        return quantized_l2_bound(bound, scale, length) / (bound * scale) - 1.0

    high = lowest
    while inflation(high) > ROUNDING_SHARE:
        high *= 2.0
    if high == lowest:
        return lowest
    low = high / 2.0
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if inflation(middle) > ROUNDING_SHARE else (low, middle)
    return high
