"""PrivQuant's kappa and p for a wanted epsilon: as printed, and the best there is.

epsilon = ln(S_lo/S_hi) + ln(p/(1-p)): kappa fixes the first part and p the second. The paper
gives nine tenths to kappa and one to p. The factor m of a report, and with it the variance of every
coordinate, is best for another division, which ``best_priv_quant`` finds: for each threshold p is
what is left over, and m then rises with the threshold once and falls, so that bisection finds the
top.

The paper lets kappa begin at 0, more agreements than disagreements. A random vector of K levels
agrees in d/K places only, and for K > 2 half of the places can be out of reach: at d = 599 and
K = 16 kappa = 0 alone costs 439 nats, more than any epsilon the paper has for it. Here kappa may
be negative; nothing in the proofs needs its sign (docs/local-dp-sqsgd.md).

Source: sqSGD, Section 4, "we use the following method".
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Final

from dp.checks import require_between_0_and_1
from dp.local.agreement import AgreementSums, require_dimension, require_levels
from dp.local.base import require_epsilon
from dp.local.priv_quant import LEAST_EPSILON, PrivQuant

PRINTED_SHARE: Final = 0.9
"""Of epsilon that kappa gets in the paper."""

MAX_PROBABILITY: Final = 1.0 - 2.0**-53
"""The largest double below 1; ln(p/(1-p)) is then 36.7."""

_WORDS: Final = 1 << 64


class InfeasibleEpsilonError(ValueError):
    """No kappa and p of the wanted form make reports that say anything at this epsilon."""


def printed_priv_quant(
    dimension: int, levels: int, bound: float, epsilon: float, share: float = PRINTED_SHARE
) -> PrivQuant:
    """Return the randomiser by the paper's rule.

    kappa is the largest with S_lo/S_hi <= e^(share epsilon), and p is e^b/(1 + e^b) with
    b = (1 - share) epsilon, rounded down to a double below 1.

    Args:
        share: of epsilon that kappa gets, in (0, 1).
    """
    _require(dimension, levels, epsilon)
    require_between_0_and_1("share", share)

    def exceeds(threshold: int) -> bool:
        return AgreementSums(dimension, levels, threshold).log_ratio > share * epsilon

    if exceeds(1):
        raise _infeasible(dimension, levels, epsilon, share)
    threshold = bisect_left(range(dimension + 1), True, lo=2, key=exceeds) - 1
    spare = 1.0 / (1.0 + math.exp(-(1.0 - share) * epsilon))
    sums = AgreementSums(dimension, levels, threshold)
    probability = _fitting(sums, spare, epsilon)
    if sums.log_density_ratio(probability) < LEAST_EPSILON:
        raise _infeasible(dimension, levels, epsilon, share)
    return _randomizer(sums, bound, probability)


def best_priv_quant(dimension: int, levels: int, bound: float, epsilon: float) -> PrivQuant:
    """Return the randomiser with the largest m, and so the smallest variance, at this epsilon.

    Args:
        dimension: d.
        levels: K.
        bound: U.
        epsilon: wanted; the randomiser's own is at most that.

    Raises:
        InfeasibleEpsilonError: p would not fit 64 bits.
    """
    _require(dimension, levels, epsilon)

    def is_top(threshold: int) -> bool:
        # Or beyond it: every step up to the top gains, and none from there on.
        return not AgreementSums(dimension, levels, threshold).gains_beyond(epsilon)

    top = bisect_left(range(dimension), True, lo=1, key=is_top)
    sums = AgreementSums(dimension, levels, top)
    probability = _fitting(sums, sums.probability_for(epsilon), epsilon)
    if sums.log_density_ratio(probability) < LEAST_EPSILON:
        raise _infeasible(dimension, levels, epsilon, None)
    return _randomizer(sums, bound, probability)


def share_of_kappa(randomizer: PrivQuant) -> float:
    """Return ln(S_lo/S_hi) / epsilon: 0.9 in the paper's rule, but for whole numbers."""
    return randomizer.sums.log_ratio / randomizer.epsilon


def _require(dimension: int, levels: int, epsilon: float) -> None:
    """Check what both rules need."""
    require_dimension(dimension)
    require_levels(levels)
    require_epsilon(epsilon)


def _fitting(sums: AgreementSums, wanted: float, epsilon: float) -> float:
    """Round p down to a double of 64 bits at most with which epsilon is kept."""
    probability = math.floor(min(wanted, MAX_PROBABILITY) * _WORDS) / _WORDS
    while 0.0 < probability < 1.0 and sums.log_density_ratio(probability) > epsilon:
        probability = math.floor(math.nextafter(probability, 0.0) * _WORDS) / _WORDS
    if not 0.0 < probability < 1.0:
        raise _infeasible(sums.dimension, sums.levels, epsilon, None)
    return probability


def _randomizer(sums: AgreementSums, bound: float, probability: float) -> PrivQuant:
    """Name the threshold by the largest kappa that has it."""
    kappa = 2 * sums.threshold - sums.dimension - 1
    return PrivQuant(sums.dimension, sums.levels, bound, kappa, probability)


def _infeasible(
    dimension: int, levels: int, epsilon: float, share: float | None
) -> InfeasibleEpsilonError:
    """Say what cannot be had, and what could."""
    divided = "" if share is None else f" with a share of {share:g} for kappa"
    return InfeasibleEpsilonError(
        f"epsilon = {epsilon:g} is not enough for d = {dimension} coordinates of K = {levels} "
        f"levels{divided}: raise epsilon, lower K, or let `best_priv_quant` divide it"
    )
