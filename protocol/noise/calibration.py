"""From a goal (epsilon, delta, rounds) to the parameters of one round.

Integers cost accuracy: rounding raises the sensitivity and adds variance, coins are no Gaussian and
come in whole numbers, a part of delta is set aside. All of it vanishes as the scale grows, at the
price of bits. The scale here is the smallest at which the noise of the mean has at most a stated
share more variance than the Gaussian mechanism at the same epsilon. Then come the least noise that
meets the goal with the fewest honest survivors the round tolerates, and the field that holds the
sum.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from dp import (
    BinomialMechanism,
    DiscreteGaussianMechanism,
    MomentsAccountant,
    Sensitivities,
    noise_multiplier_for_epsilon,
    quantized_l2_bound,
)
from dp.accounting import renyi_to_epsilon
from dp.calibration import MOMENTS_UP_TO, NARROWEST_SUMMAND, mechanism_for_epsilon
from dp.coins import MAX_COINS
from dp.mechanisms import DistributedMechanism, mechanism_of
from dp.rounding import ROUNDING_VARIANCE
from dp.sampling.laws import MAX_VARIANCE, MIN_VARIANCE
from dp.search import bracketed
from protocol.checks import RANGES
from protocol.goal import PrivacyGoal
from protocol.round.parameters import RoundParameters
from secagg import ParameterError
from sketch import PublicSeed, SketchSpec, flat_bound

ERROR_SHARE = 0.01
"""Variance beyond that of the Gaussian mechanism; halving it costs about half a bit."""

COORDINATE_CLIP_PROBABILITY = 1e-3
"""Chance that the rotation leaves any coordinate of one client beyond the coordinate clip. It is a
matter of utility only: the clip is applied to every vector, so privacy never rests on it."""

_SHARES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_FACTORS = (2, 4, 8, 16)
"""What is tried where nothing meets a goal."""
_EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
"""What is tried where a goal needs more noise than there is."""
_SOON_KNOWN = 2.0**23
"""Variance of a sum up to which calibration takes a second at most."""

_STEP = 2.0**0.0625
_MOST_STEPS = 16
_SCALES = (1e-3, 2.0**40)
"""Where a scale is looked for, in integer units for a vector on the bound."""

_COIN_COST = 0.125
"""Variance of half a coin, by which those of every client are rounded up on average."""

_LATTICE_COST = 4.0
"""Variance, in squared integer units, by which coins must exceed the Gaussian they replace: the
relative loss (3 z^2 - 1) / (24 sigma^2) of variance at z = 5.7."""

_WORTH_MOMENTS = 0.02
"""Part of the scale, about a thirtieth of a bit, from which on moments are worth another bound."""


@dataclass(frozen=True, slots=True)
class _Round:
    """What integers are chosen for: see `calibrate`; `bound` is B, `length` that of the sketch."""

    mechanism: str
    fewest_honest: int
    bound: float
    length: int
    error_share: float
    errors: float = 0.0

    @property
    def each(self) -> float:
        """Variance of a client's coordinate that is neither signal nor noise."""
        return ROUNDING_VARIANCE + self.errors


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
    mechanism: str = BinomialMechanism.name,
    errors: float = 0.0,
    linf_bound: int | None = None,
) -> RoundParameters:
    """Parameters of one round, `goal.rounds` of which together meet the goal.

    Args:
        linf_bound: as of `OfRound`.
        errors: `Scheme.ERROR_VARIANCE`.
    """
    RANGES["error_share"].require("error_share", error_share)
    if fewest_honest < 1:
        raise ParameterError(
            "fewest_honest", fewest_honest, "at least 1: lower the dropouts or the colluders"
        )
    bound = clip_l2 if sketch_clip_l2 is None else sketch_clip_l2
    of = _Round(mechanism, fewest_honest, bound, sketch.size, error_share, errors)
    integers = linf_bound is not None
    try:
        if linf_bound is not None:
            scale, noise = 1.0, noise_of_integers(goal, mechanism, bound, linf_bound, fewest_honest)
        else:
            scale, linf_bound, noise = _integers(goal, of)
    except ParameterError as error:
        known = integers or error.argument == "moment_order"
        if known or not (found := tuple(_remedies(goal, of))):
            raise
        valid = (
            f"one that noise in integers can meet; or, all else unchanged: {'; or '.join(found)}"
        )
        raise ParameterError("epsilon", goal.epsilon, valid) from None
    return RoundParameters(
        model_digest=model_digest,
        clip_l2=clip_l2,
        sketch=sketch,
        sketch_clip_l2=bound,
        public_seed=public_seed,
        scale=scale,
        linf_bound=linf_bound,
        mechanism=noise,
        tolerated_dropouts=tolerated_dropouts,
        wrap_probability=wrap_probability,
        integers=integers,
    )


@lru_cache(maxsize=64)
def noise_of_integers(
    goal: PrivacyGoal, mechanism: str, l2_bound: float, linf_bound: int, fewest_honest: int
) -> DistributedMechanism:
    """The noise of one client, such that sums of integers with these sensitivities meet a goal.

    Raises:
        ParameterError: none does.
    """
    sensitivities = Sensitivities(l2_bound, linf_bound)
    try:
        return mechanism_for_epsilon(
            mechanism,
            goal.epsilon,
            goal.delta,
            sensitivities,
            fewest_honest,
            goal.rounds,
            goal.reserve,
        )
    except ValueError as error:
        valid = f"such that noise can meet it: {error}"
        raise ParameterError("epsilon", goal.epsilon, valid) from None


@lru_cache(maxsize=1024)
def _integers(goal: PrivacyGoal, of: _Round) -> tuple[float, int, DistributedMechanism]:
    """(scale, coordinate clip, noise of a client) of a round."""
    gaussian = goal.noise_multiplier * of.bound
    scale = _predicted_scale(goal, of)
    for _ in range(_MOST_STEPS):
        bounds = _sensitivities(of, scale)
        noise = noise_of_integers(goal, of.mechanism, bounds.l2, bounds.linf, of.fewest_honest)
        variance = of.fewest_honest * (noise.variance + of.each)
        if variance <= (1.0 + of.error_share) * (gaussian * scale) ** 2:
            return scale, bounds.linf, noise
        scale *= _STEP
    valid = "larger: no scale brings the noise this close"
    raise ParameterError("error_share", of.error_share, valid)


def _remedies(goal: PrivacyGoal, of: _Round) -> Iterator[str]:
    """The nearest values, each on a coarse grid, with which a round that failed is calibrated."""
    shares = [share for share in _SHARES if share > of.error_share]
    place = bisect_left(
        shares, True, key=lambda share: _is_feasible(goal, replace(of, error_share=share))
    )
    # Where a larger share helps, noise is too large for integers; where it does not, too small.
    too_large = place < len(shares)
    if too_large:
        yield f"error_share = {shares[place]:g}"
    for factor in _FACTORS:
        epsilon = goal.epsilon * factor if too_large else goal.epsilon / factor
        if _is_feasible(replace(goal, epsilon=epsilon), of):
            yield f"epsilon = {epsilon:g}"
            break
    if not too_large:
        for factor in _FACTORS:
            if _is_feasible(goal, replace(of, fewest_honest=factor * of.fewest_honest)):
                yield f"{factor} times as many clients"
                break
        for epsilon in (each for each in _EPSILONS if each > goal.epsilon):
            if _is_feasible(replace(goal, epsilon=epsilon), of, of.fewest_honest * MAX_COINS / 4.0):
                yield f"epsilon = {epsilon:g}"
                break


def _is_feasible(goal: PrivacyGoal, of: _Round, most: float = _SOON_KNOWN) -> bool:
    """Whether a round is calibrated, if its noise has at most so much variance in the sum.

    Beyond the usual bound it takes a second or more; an error must not take minutes.
    """
    try:
        sigma = goal.noise_multiplier * of.bound * _predicted_scale(goal, of)
    except ParameterError:
        return False
    return sigma**2 <= most and math.isfinite(_least_scale(goal, of))


def sharpest(
    goal: PrivacyGoal,
    *,
    fewest_honest: int,
    bound: float,
    length: int,
    error_share: float,
    mechanism: str = BinomialMechanism.name,
    errors: float = 0.0,
) -> PrivacyGoal:
    """The goal with the bound that meets it at the smaller scale; domination unless moments gain.

    Each bound holds for a whole run by itself; which one counts has to be settled before the first
    round and from public figures, as here. A later round of another length is calibrated with the
    bound that was chosen.
    """
    plain = replace(goal, moment_order=None)
    of = _Round(mechanism, fewest_honest, bound, length, error_share, errors)
    noise, sensitivities = _likely_noise(plain, of)
    if fewest_honest * noise.variance > MOMENTS_UP_TO:
        return plain
    moments = MomentsAccountant()
    moments.compose(noise.event(sensitivities, fewest_honest, length), goal.rounds)
    excess = moments.best_order(goal.delta) - 1.0
    # The best order for the likely release, and some for others near it.
    counted = [replace(goal, moment_order=1.0 + excess * factor) for factor in (1.0, 0.7, 1.4)]
    best = min(counted, key=lambda each: _least_scale(each, of))
    gains = _least_scale(best, of) < (1.0 - _WORTH_MOMENTS) * _least_scale(plain, of)
    return best if gains else plain


def _least_scale(goal: PrivacyGoal, of: _Round) -> float:
    """The scale of a calibrated round; infinite where there is none."""
    try:
        return _integers(goal, of)[0]
    except ParameterError:
        return math.inf


def _likely_noise(goal: PrivacyGoal, of: _Round) -> tuple[DistributedMechanism, Sensitivities]:
    """That of a round calibrated by domination; or nearly, where it has no such round."""
    try:
        scale, _, noise = _integers(goal, of)
    except ParameterError:
        scale = _predicted_scale(goal, of)
        sigma = goal.noise_multiplier * of.bound * scale
        noise = _of_variance(of.mechanism, (1.0 + of.error_share) * sigma**2 / of.fewest_honest)
    return noise, _sensitivities(of, scale)


def _of_variance(mechanism: str, variance: float) -> DistributedMechanism:
    """A mechanism with about this variance, or as near to it as there is one."""
    if mechanism == BinomialMechanism.name:
        return BinomialMechanism(min(math.ceil(4.0 * variance), MAX_COINS))
    return mechanism_of(mechanism, min(max(variance, MIN_VARIANCE), MAX_VARIANCE))


def _sensitivities(of: _Round, scale: float) -> Sensitivities:
    """Of vectors on the bound, in integer units; the largest coordinate is the clip."""
    linf_bound = math.ceil(scale * flat_bound(of.bound, of.length, COORDINATE_CLIP_PROBABILITY))
    return Sensitivities(quantized_l2_bound(of.bound, scale, of.length), linf_bound)


def _predicted_scale(goal: PrivacyGoal, of: _Round) -> float:
    """Smallest scale at which the closed forms stay within the share; the accountant decides.

    Source: docs/accounting.md for how close coins come to a Gaussian.
    """
    gaussian = goal.noise_multiplier * of.bound
    # What is left of delta once the part for failures is set aside.
    left = goal.delta - goal.reserve.total
    if goal.moment_order is None:
        multiplier = noise_multiplier_for_epsilon(goal.epsilon, left, goal.rounds)
        lattice_cost = _LATTICE_COST
    else:
        multiplier, lattice_cost = _moments_multiplier(goal, goal.moment_order, left), 0.0
    coins = of.mechanism == BinomialMechanism.name
    # What is said here of the lattice is said of coins; other noise takes what it needs, unless
    # that is too narrow.
    lattice_cost, coin_cost = (lattice_cost, _COIN_COST) if coins else (0.0, 0.0)
    discrete = of.mechanism == DiscreteGaussianMechanism.name
    narrowest = of.fewest_honest * NARROWEST_SUMMAND if discrete else 0.0

    def variance(scale: float) -> float:
        needed = (multiplier * quantized_l2_bound(of.bound, scale, of.length)) ** 2
        # Coins are fewer standard deviations wide than a Gaussian; half a coin each is rounded up.
        noise = max(needed + lattice_cost, narrowest)
        return noise + of.fewest_honest * (coin_cost + of.each)

    def enough(scale: float) -> bool:
        least = (1.0 + of.error_share) * (gaussian * scale / of.bound) ** 2
        return variance(scale / of.bound) <= least

    return bracketed(enough, *_SCALES, geometric=True)[1] / of.bound


def _moments_multiplier(goal: PrivacyGoal, order: float, delta: float) -> float:
    """The noise multiplier at which Gaussian noise meets a goal by its moment of one order.

    That of order a is a rounds / (2 multiplier^2); see `dp.accounting.moments.renyi_to_epsilon`.
    """
    most = goal.epsilon - renyi_to_epsilon(order, 0.0, delta)
    if not most > 0.0:
        raise ParameterError("moment_order", order, "larger: no noise meets the goal at this order")
    return math.sqrt(0.5 * order * goal.rounds / most)
