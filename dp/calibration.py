"""How much noise a target needs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from dp.accounting.accountant import DominationAccountant, FailureReserve
from dp.accounting.gaussian import gaussian_mu
from dp.accounting.laws import MAX_TOTAL_COINS, MAX_VARIANCE
from dp.accounting.moments import MomentsAccountant, reserved_accountant
from dp.checks import require_at_least, require_between_0_and_1, require_positive
from dp.coins import MAX_COINS
from dp.event_kinds import IntegerRelease
from dp.events import BinomialRelease, DiscreteGaussianRelease, SkellamRelease
from dp.mechanisms import (
    MECHANISMS,
    BinomialMechanism,
    DiscreteGaussianMechanism,
    DistributedMechanism,
    Sensitivities,
    mechanism_of,
)
from dp.sampling.laws import MIN_VARIANCE
from dp.search import bracketed, smallest

_GROWTH = 1.125
_VARIANCE_TOLERANCE = 1e-6

NARROWEST_SUMMAND = 1.6
"""Least parameter of a client's discrete Gaussian that a target is met with: from there on a sum of
them is as good as one discrete Gaussian (docs/accounting.md, "Other noise"), for both readers of a
ledger, at a cost of 1.6 squared units of variance for each client."""

_SLOPE_STEPS = 4
_FAR = 2.0
"""Largest factor of epsilon that one step follows."""

MOMENTS_UP_TO = 256.0
"""Largest variance at which truncated moments are asked as well, in squared integer units. Above it
(sigma = 16) they are the better bound for no epsilon below 500, and their sums grow long."""


def noise_multiplier_for_epsilon(epsilon: float, delta: float, rounds: int = 1) -> float:
    """Return sigma / D2 of the Gaussian mechanism that meets (epsilon, delta) over all rounds.

    No amplification by sampling. Binomial noise needs at least this much; ``coins_for_epsilon``
    says how much.

    Args:
        epsilon: target of the whole run, > 0.
        delta: target of the whole run, in (0, 1).
        rounds: adaptive releases of equal noise, >= 1.

    Raises:
        ValueError: an argument is out of range or the target cannot be reached.
    """
    _require_target(epsilon, delta, rounds)
    return math.sqrt(rounds) / gaussian_mu(epsilon, delta)


def coins_for_epsilon(
    epsilon: float,
    delta: float,
    l2_sensitivity: float,
    linf_sensitivity: int,
    rounds: int = 1,
    reserve: FailureReserve | None = None,
) -> int:
    """Return the smallest even number of coins N that meets (epsilon, delta) over all rounds.

    Without a reserve the parameters are fixed in advance, so the smaller of domination and
    truncated moments counts; with one, the bound that it was made for.

    The search starts at the Gaussian of equal variance, follows the slope of epsilon, brackets the
    answer and bisects. The answer is checked, so it always meets the target; that it is the
    smallest rests on epsilon falling as N grows.

    Args:
        epsilon: target of the whole run, > 0.
        delta: target of the whole run, in (0, 1).
        l2_sensitivity: integer units, >= 1.
        linf_sensitivity: integer units, >= 1.
        rounds: adaptive releases, each with N coins, >= 1.
        reserve: what the run's accountant sets aside, if later parameters depend on earlier
            releases; see ``reserved_accountant``.

    Raises:
        ValueError: an argument is out of range, or no N up to 2^32 is enough.
    """
    if not 1.0 <= l2_sensitivity < math.inf:
        raise ValueError(f"l2_sensitivity must be finite and at least 1, got {l2_sensitivity!r}")
    sigma = l2_sensitivity * noise_multiplier_for_epsilon(epsilon, delta, rounds)

    @cache
    def spent(half: int) -> float:
        """Return epsilon of 2 * half coins."""
        event = BinomialRelease(2 * half, float(l2_sensitivity), linf_sensitivity, 1)
        return _spent(event, rounds, delta, reserve)

    # N/4 = sigma^2 and N = 2 half.
    largest = MAX_TOTAL_COINS // 2
    start = max(1, min(math.floor(2.0 * sigma**2), largest))
    half = _smallest_enough(spent, epsilon, start, largest)
    if half is None:
        coins = f"{MAX_TOTAL_COINS} coins"
        raise ValueError(_infeasible(epsilon, delta, rounds, l2_sensitivity, coins))
    return 2 * half


def _spent(
    event: IntegerRelease, rounds: int, delta: float, reserve: FailureReserve | None
) -> float:
    """Return epsilon of ``rounds`` such releases: by the reserve's bound, or the smaller of two."""
    if reserve is not None:
        kinds = [reserved_accountant(reserve)]
    elif event.noise_variance <= MOMENTS_UP_TO:
        kinds = [DominationAccountant(), MomentsAccountant()]
    else:
        kinds = [DominationAccountant()]
    for accountant in kinds:
        accountant.compose(event, rounds)
    return min(accountant.epsilon(delta) for accountant in kinds)


def _smallest_enough(
    spent: Callable[[int], float], target: float, start: int, largest: int
) -> int | None:
    """Return the smallest number up to ``largest`` whose epsilon meets the target, or None."""
    guess = start
    for _ in range(_SLOPE_STEPS):
        # Where epsilon is zero or infinite its slope says nothing: a bounded step.
        ratio = min(max(spent(guess) / target, 1.0 / _FAR), _FAR)
        guess = max(1, min(math.ceil(guess * ratio * ratio), largest))
    return smallest(lambda number: spent(number) <= target, guess, largest)


def variance_for_epsilon(
    epsilon: float,
    delta: float,
    l2_sensitivity: float,
    linf_sensitivity: int,
    rounds: int = 1,
    contributors: int | None = None,
    reserve: FailureReserve | None = None,
) -> float:
    """Return the variance of Skellam or discrete Gaussian noise that meets a target.

    Within one part in 10^6 of the smallest; the answer itself is checked.

    Args:
        epsilon: target of the whole run, > 0.
        delta: target of the whole run, in (0, 1).
        l2_sensitivity: integer units, >= 1.
        linf_sensitivity: integer units, >= 1.
        rounds: adaptive releases of equal noise, >= 1.
        contributors: None for Skellam noise, whose *total* variance is returned; n for the sum
            of n discrete Gaussians, of which *one client's* variance parameter is returned.
        reserve: as for ``coins_for_epsilon``.

    Raises:
        ValueError: an argument is out of range, or no variance up to 2^30 in total is enough.
    """
    n = 1 if contributors is None else contributors
    require_at_least("contributors", n, 1)
    vector = (float(l2_sensitivity), linf_sensitivity, 1)

    def release(total: float) -> IntegerRelease:
        """Return a release whose noise has so much variance in all."""
        if contributors is None:
            return SkellamRelease(total, *vector)
        return DiscreteGaussianRelease(total / n, n, *vector)

    return _least_variance(release, epsilon, delta, rounds, reserve) / n


def mechanism_for_epsilon(
    name: str,
    epsilon: float,
    delta: float,
    sensitivities: Sensitivities,
    contributors: int,
    rounds: int = 1,
    reserve: FailureReserve | None = None,
) -> DistributedMechanism:
    """Return the mechanism with the least noise of which so many clients together meet a target.

    Args:
        delta: target of the whole run, in (0, 1).
    """
    if name not in MECHANISMS:
        raise ValueError(f"name must be one of {', '.join(MECHANISMS)}, got {name!r}")
    require_at_least("contributors", contributors, 1)
    kind = MECHANISMS[name]
    if kind is BinomialMechanism:
        l2, linf = sensitivities.l2, sensitivities.linf
        coins = -(-coins_for_epsilon(epsilon, delta, l2, linf, rounds, reserve) // contributors)
        if coins > MAX_COINS:
            raise ValueError(
                f"{coins} coins of each of {contributors} clients are needed, at most {MAX_COINS} "
                "are possible: raise epsilon or the number of honest survivors, run fewer rounds, "
                "or lower the sensitivity (a smaller scale)"
            )
        return BinomialMechanism(coins)

    def each(total: float) -> DistributedMechanism:
        """Return one client's noise, of so much variance in all."""
        return mechanism_of(name, total / contributors)

    def release(total: float) -> IntegerRelease:
        """Return what all of them release: the very event that is charged."""
        return each(total).event(sensitivities, contributors, 1)

    # Not below what a law can have; nor where sums of them would need a theorem of their own.
    narrowest = NARROWEST_SUMMAND if kind is DiscreteGaussianMechanism else MIN_VARIANCE
    return each(_least_variance(release, epsilon, delta, rounds, reserve, narrowest * contributors))


def _least_variance(
    release: Callable[[float], IntegerRelease],
    epsilon: float,
    delta: float,
    rounds: int,
    reserve: FailureReserve | None,
    least: float = 0.0,
) -> float:
    """Return the least total variance that meets a target, to one part in 10^6; it does meet it."""
    l2_sensitivity = release(max(1.0, least)).l2_sensitivity
    if not 1.0 <= l2_sensitivity < math.inf:
        raise ValueError(f"l2_sensitivity must be finite and at least 1, got {l2_sensitivity!r}")

    def enough(variance: float) -> bool:
        """Say whether a total variance meets the target."""
        return _spent(release(variance), rounds, delta, reserve) <= epsilon

    sigma = l2_sensitivity * noise_multiplier_for_epsilon(epsilon, delta, rounds)
    high = max(min(sigma**2, MAX_VARIANCE), least)
    while not enough(high):
        if high * _GROWTH > MAX_VARIANCE:
            variance = f"a variance of {MAX_VARIANCE:g}"
            raise ValueError(_infeasible(epsilon, delta, rounds, l2_sensitivity, variance))
        high *= _GROWTH
    low = max(high / _GROWTH, least)
    while low > least and enough(low):
        low, high = max(low / _GROWTH, least), low
    return bracketed(enough, low, high, _VARIANCE_TOLERANCE)[1]


def _infeasible(epsilon: float, delta: float, rounds: int, l2_sensitivity: float, what: str) -> str:
    """Return what to say, and what to change, where no amount of noise in range is enough."""
    return (
        f"epsilon {epsilon:g} at delta {delta:g} over {rounds} rounds with l2_sensitivity "
        f"{l2_sensitivity:g} needs more than {what}; raise epsilon or delta, run fewer rounds, "
        "or lower the sensitivity (a smaller scale)"
    )


def _require_target(epsilon: float, delta: float, rounds: int) -> None:
    """Raise ``ValueError`` naming the part of the target that is out of range."""
    require_positive("epsilon", epsilon)
    require_between_0_and_1("delta", delta)
    require_at_least("rounds", rounds, 1)
