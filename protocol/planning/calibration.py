"""From a goal (epsilon, delta, rounds) to the parameters of one round.

Integers cost accuracy: rounding raises the sensitivity and adds variance, coins are no Gaussian and
come in whole numbers, a part of delta is set aside. All of it vanishes as the scale grows, at the
price of bits. The scale here is the smallest at which the noise of the mean has at most a stated
share more variance than the Gaussian mechanism at the same epsilon. Then come the coins that meet
the goal with the fewest honest survivors the round tolerates, and the field that holds the sum.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from dp import (
    BinomialRelease,
    MomentsAccountant,
    coins_for_epsilon,
    noise_multiplier_for_epsilon,
    quantized_l2_bound,
)
from dp.accounting import renyi_to_epsilon
from dp.accounting.laws import MAX_TOTAL_COINS
from dp.calibration import MOMENTS_UP_TO
from dp.coins import MAX_COINS
from dp.rounding import ROUNDING_VARIANCE
from dp.search import bracketed
from protocol.goal import PrivacyGoal
from protocol.round.parameters import RoundParameters
from secagg import ParameterError
from sketch import PublicSeed, SketchSpec, flat_bound

ERROR_SHARE = 0.01
"""Variance beyond that of the Gaussian mechanism; halving it costs about half a bit."""

SMALLEST_ERROR_SHARE = 5e-3
"""The part of delta that is set aside alone costs about 0.004."""

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

_WORTH_MOMENTS = 0.02
"""Part of the scale, about a thirtieth of a bit, from which on moments are worth another bound."""


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
        linf_bound = _linf_bound(bound, scale, length)
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
    raise ParameterError("error_share", error_share, "larger: no scale brings the noise this close")


def sharpest(
    goal: PrivacyGoal, *, fewest_honest: int, bound: float, length: int, error_share: float
) -> PrivacyGoal:
    """The goal with the bound that meets it at the smaller scale; domination unless moments gain.

    Each bound holds for a whole run by itself; which one counts has to be settled before the first
    round and from public figures, as here. A later round of another length is calibrated with the
    bound that was chosen.

    Args:
        goal: what it says of the bound is ignored.
        fewest_honest: as for `calibrate`.
        bound: B, on the sketch of an update.
        length: of the sketch of the first round.
        error_share: as for `calibrate`.
    """
    plain = replace(goal, moment_order=None)
    figures = (fewest_honest, bound, length, error_share)
    event = _likely_release(plain, *figures)
    if event.coins / 4.0 > MOMENTS_UP_TO:
        return plain
    moments = MomentsAccountant()
    moments.compose(event, goal.rounds)
    excess = moments.best_order(goal.delta) - 1.0
    # The best order for the likely release, and some for others near it.
    counted = [replace(goal, moment_order=1.0 + excess * factor) for factor in (1.0, 0.7, 1.4)]
    best = min(counted, key=lambda each: _least_scale(each, *figures))
    gains = _least_scale(best, *figures) < (1.0 - _WORTH_MOMENTS) * _least_scale(plain, *figures)
    return best if gains else plain


def _least_scale(
    goal: PrivacyGoal, fewest_honest: int, bound: float, length: int, error_share: float
) -> float:
    """The scale of a calibrated round; infinite where there is none."""
    try:
        return _integers(goal, fewest_honest, bound, length, error_share)[0]
    except ParameterError:
        return math.inf


def _likely_release(
    goal: PrivacyGoal, fewest_honest: int, bound: float, length: int, error_share: float
) -> BinomialRelease:
    """What a round calibrated by domination releases; or nearly, where it has no such round."""
    figures = (fewest_honest, bound, length, error_share)
    try:
        scale, linf_bound, coins = _integers(goal, *figures)
    except ParameterError:
        scale = _predicted_scale(goal, *figures)
        linf_bound = _linf_bound(bound, scale, length)
        sigma = goal.noise_multiplier * bound * scale
        coins = math.ceil(4.0 * (1.0 + error_share) * sigma**2 / fewest_honest)
    l2_bound = quantized_l2_bound(bound, scale, length)
    return BinomialRelease(
        min(fewest_honest * coins, MAX_TOTAL_COINS), l2_bound, linf_bound, length
    )


def _linf_bound(bound: float, scale: float, length: int) -> int:
    return math.ceil(scale * flat_bound(bound, length, COORDINATE_CLIP_PROBABILITY))


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
    left = goal.delta - goal.reserve.total
    if goal.moment_order is None:
        multiplier = noise_multiplier_for_epsilon(goal.epsilon, left, goal.rounds)
        lattice_cost = _LATTICE_COST
    else:
        multiplier, lattice_cost = _moments_multiplier(goal, goal.moment_order, left), 0.0

    def variance(scale: float) -> float:
        needed = (multiplier * quantized_l2_bound(bound, scale, length)) ** 2
        # Coins are fewer standard deviations wide than a Gaussian; half a coin each is rounded up.
        return needed + lattice_cost + fewest_honest * (0.125 + ROUNDING_VARIANCE)

    def enough(scale: float) -> bool:
        return variance(scale / bound) <= (1.0 + error_share) * (gaussian * scale / bound) ** 2

    return bracketed(enough, *_SCALES, geometric=True)[1] / bound


def _moments_multiplier(goal: PrivacyGoal, order: float, delta: float) -> float:
    """The noise multiplier at which Gaussian noise meets a goal by its moment of one order.

    That of order a is a rounds / (2 multiplier^2); see `dp.accounting.moments.renyi_to_epsilon`.
    """
    most = goal.epsilon - renyi_to_epsilon(order, 0.0, delta)
    if not most > 0.0:
        raise ParameterError("moment_order", order, "larger: no noise meets the goal at this order")
    return math.sqrt(0.5 * order * goal.rounds / most)
