"""Two worlds: run a mechanism with and without one client, and try to tell which world it was.

Whoever guesses with false positive rate a and false negative rate b refutes every (epsilon, delta)
with a + e^epsilon b < 1 - delta or b + e^epsilon a < 1 - delta (Kairouz, Oh and Viswanath 2015,
arXiv 1311.0776). With Clopper-Pearson bounds of the rates that is a lower bound of epsilon that
holds with the stated confidence, for *any* mechanism. It can never pass a ceiling that the number
of runs sets, because rates of zero cannot be shown.

The Gaussian route takes the same two rates and reports

    mu = zq(a / (1 - delta)) + zq(b / (1 - delta)),        zq(q) = -Phi^{-1}(q),

the smallest mu for which a Gaussian N(0, 1) against N(mu, 1), that fails openly with probability
delta, is no harder to tell apart. It refutes every claim of domination by a Gaussian of smaller
mu, which is what our accountants claim, whatever the noise is. Its epsilon is that of this
Gaussian: a lower bound of the mechanism's own epsilon only if the mechanism is Gaussian, or nearly
so. Source: Nasr et al. 2023 (arXiv 2302.07956), section 5; Dong, Roth and Su (arXiv 1905.02383).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp.accounting import gaussian_epsilon
from protocol.checks import FRACTION
from secagg import ParameterError
from secagg.checks import require_int
from simulations.audits.base import (
    ALPHA,
    AuditedRelease,
    Claim,
    Figures,
    Floats,
    Integers,
    derived_seed,
)
from simulations.audits.intervals import lower_bound, upper_bound

THRESHOLDS: Final = 512
"""Thresholds tried on the runs held out."""

HELD_OUT: Final = 0.2
"""Share of the runs that chooses the threshold; the rest, which it never saw, measures the rates.
The choice is easy and the bound narrows with the square root of what is left, so not a half."""

FEWEST_RUNS: Final = 20

_NARROWEST: Final = 1e-9
"""Least deviation of scores that are taken for normal ones."""

Counts: TypeAlias = Integers | Floats
"""Errors, or how many are expected."""

Statistic: TypeAlias = Callable[[NDArray[Any]], Floats]
"""From outputs [count] or [count, k] to one score for each run, larger in world 1."""


class Bound(Protocol):
    """A lower bound from false positives and false negatives, each at level ``alpha``."""

    def __call__(
        self, positives: Counts, negatives: Counts, *, trials: int, alpha: float
    ) -> Floats:
        """Return one bound for each pair of counts."""
        ...


@dataclass(frozen=True, slots=True)
class TwoWorldsBound:
    """What N runs in each world certify."""

    runs: int  # N, in each world, those that chose the threshold included
    confidence: float  # with which each bound holds
    delta: float  # that both epsilons are stated at
    epsilon: float  # Clopper-Pearson bound, for any mechanism
    epsilon_ceiling: float  # the most that it could have been with N runs
    mu: float  # bound of the Gaussian route
    gaussian_epsilon: float  # epsilon of a Gaussian with that mu
    gaussian_ceiling: float  # the most that it could have been with N runs
    false_positives: float  # measured rate at the threshold of the Gaussian route
    false_negatives: float  # likewise

    def figures(self, claimed: float) -> Figures:
        """Return the figures for a check of a claimed epsilon at the same delta.

        Refuted if a bound is above the claim. That the second one counts is right for claims of
        domination by a Gaussian, as those of ``DominationAccountant``.
        """
        return {
            "runs_in_each_world": self.runs,
            "confidence": self.confidence,
            "claimed_epsilon": claimed,
            "epsilon_at_least": self.epsilon,
            "epsilon_ceiling": self.epsilon_ceiling,
            "gaussian_epsilon_at_least": self.gaussian_epsilon,
            "gaussian_ceiling": self.gaussian_ceiling,
            "false_positive_rate": self.false_positives,
            "false_negative_rate": self.false_negatives,
            "rejected": max(self.epsilon, self.gaussian_epsilon) > claimed,
        }


def two_worlds(
    mechanism: AuditedRelease,  # whatever is audited
    runs: int,  # N, in each world, >= 20
    seed: int,  # fixes all randomness
    delta: float,  # in (0, 1)
    confidence: float = 0.95,  # of each of the two bounds, in (0, 1)
    statistic: Statistic | None = None,
    held_out: float = HELD_OUT,  # share of the runs that chooses direction and threshold, in (0, 1)
) -> TwoWorldsBound:
    """Run a mechanism in both worlds and bound its epsilon from below.

    Args:
        statistic: scores the outputs; left out, they are projected on the difference of the mean
            outputs of both worlds, as measured on the runs held out. That is the best there is for
            noise that is alike in all directions.

    Raises:
        ParameterError: an argument is out of range, or the mechanism returned another shape.
    """
    return scored_runs(mechanism, runs, seed, statistic, held_out).bound(delta, confidence)


def scored_runs(
    mechanism: AuditedRelease,
    runs: int,
    seed: int,
    statistic: Statistic | None = None,
    held_out: float = HELD_OUT,
) -> ScoredRuns:
    """Run a mechanism in both worlds, for bounds at several levels.

    Args and Raises: as for ``two_worlds``.
    """
    require_int("runs", runs, FEWEST_RUNS)
    FRACTION.require("held_out", held_out)
    outputs = [_outputs(mechanism, world, runs, seed) for world in (0, 1)]
    chosen = min(max(1, round(held_out * runs)), runs - 1)
    score = statistic or _projection(outputs[0][:chosen], outputs[1][:chosen])
    scores = [np.asarray(score(output), np.float64) for output in outputs]
    if any(each.shape != (runs,) for each in scores):
        raise ParameterError(
            "statistic", f"shape {scores[0].shape}", f"one score per run, ({runs},)"
        )
    return ScoredRuns(
        _Scores(np.sort(scores[0][:chosen]), np.sort(scores[1][:chosen])),
        _Scores(np.sort(scores[0][chosen:]), np.sort(scores[1][chosen:])),
    )


def two_worlds_figures(
    mechanism: AuditedRelease, runs: int, seed: int, claim: Claim, alpha: float = ALPHA
) -> Figures:
    """Hold a mechanism against a claim at level ``alpha``, with the usual 95 % bounds beside."""
    scored = scored_runs(mechanism, runs, seed)
    usual = scored.bound(claim.delta, 0.95)
    return {
        **scored.bound(claim.delta, 1.0 - alpha).figures(claim.epsilon),
        "epsilon_at_least_95": usual.epsilon,
        "gaussian_epsilon_at_least_95": usual.gaussian_epsilon,
    }


def _outputs(mechanism: AuditedRelease, world: int, runs: int, seed: int) -> NDArray[Any]:
    """Return checked outputs of one world."""
    output = np.asarray(mechanism.release(world, runs, derived_seed(seed, "world", world)))
    if output.ndim not in (1, 2) or output.shape[0] != runs:
        raise ParameterError("release", f"shape {output.shape}", f"shape ({runs},) or ({runs}, k)")
    if not np.all(np.isfinite(output)):
        raise ParameterError("release", "a NaN or an infinity", "finite outputs")
    return output


def _projection(without: NDArray[Any], with_client: NDArray[Any]) -> Statistic:
    """Return the inner product with the difference of the means."""
    direction = np.asarray(with_client.mean(axis=0) - without.mean(axis=0))
    if direction.ndim == 0:
        sign = math.copysign(1.0, float(direction))
        return lambda output: np.asarray(output, np.float64) * sign
    return lambda output: np.asarray(output @ direction, np.float64)


@dataclass(frozen=True, slots=True)
class _Scores:
    """Sorted scores of both worlds, the same number of each."""

    without: Floats
    with_client: Floats

    @property
    def size(self) -> int:
        """Runs in each world."""
        return int(self.without.size)

    def errors(self, thresholds: Floats) -> tuple[Integers, Integers]:
        """Count false positives and false negatives of "world 1 iff score > threshold"."""
        positives = self.without.size - np.searchsorted(self.without, thresholds, side="right")
        negatives = np.searchsorted(self.with_client, thresholds, side="right")
        return positives.astype(np.int64), negatives.astype(np.int64)

    def normal_rates(self, thresholds: Floats) -> tuple[Floats, Floats]:
        """Return the rates of the same if scores were normal, for a choice that may be wrong."""
        positives, negatives = (
            special.ndtr(sign * (thresholds - each.mean()) / max(float(each.std()), _NARROWEST))
            for sign, each in ((-1.0, self.without), (1.0, self.with_client))
        )
        return positives, negatives

    def thresholds(self) -> Floats:
        """Return thresholds to try: few errors of either kind matter most, so close to the ends."""
        ranks = np.unique(np.geomspace(1, self.without.size, THRESHOLDS // 4).astype(np.int64)) - 1
        both = (self.without, self.with_client)
        ends = [part for sorted_ in both for part in (sorted_[ranks], sorted_[-1 - ranks])]
        return np.unique(np.concatenate(ends))


@dataclass(frozen=True, slots=True)
class ScoredRuns:
    """The runs of both worlds as scores, those that choose thresholds and those that measure."""

    held_out: _Scores  # choose
    fresh: _Scores  # measure

    def bound(self, delta: float, confidence: float) -> TwoWorldsBound:
        """Choose thresholds on the runs held out and measure rates on the others.

        Args and Raises: as for ``two_worlds``.
        """
        FRACTION.require("delta", delta)
        FRACTION.require("confidence", confidence)
        # Two rates are bounded for each bound: half of what may go wrong for each of them.
        alpha, trials = (1.0 - confidence) / 2.0, self.fresh.size
        none = np.zeros(1, np.int64)
        plain, gaussian = (partial(each, delta=delta) for each in (_clopper_pearson, _gaussian))

        def exchanged(positives: Counts, negatives: Counts, *, trials: int, alpha: float) -> Floats:
            return plain(negatives, positives, trials=trials, alpha=alpha)

        tails = [self._chosen(bound, alpha) for bound in (plain, exchanged)]
        swapped = tails[1][0] > tails[0][0]
        first, second = self.fresh.errors(tails[swapped][1])[:: -1 if swapped else 1]
        positives, negatives = self.fresh.errors(self._chosen(gaussian, alpha)[1])
        mu = float(_gaussian(positives, negatives, trials, delta, alpha)[0])
        largest_mu = float(_gaussian(none, none, trials, delta, alpha)[0])
        return TwoWorldsBound(
            runs=self.held_out.size + trials,
            confidence=confidence,
            delta=delta,
            epsilon=float(_clopper_pearson(first, second, trials, delta, alpha)[0]),
            epsilon_ceiling=float(_clopper_pearson(none, none, trials, delta, alpha)[0]),
            mu=mu,
            gaussian_epsilon=gaussian_epsilon(mu, delta),
            gaussian_ceiling=gaussian_epsilon(largest_mu, delta),
            false_positives=float(positives[0]) / trials,
            false_negatives=float(negatives[0]) / trials,
        )

    def _chosen(self, bound: Bound, alpha: float) -> tuple[float, Floats]:
        """Return what a bound is likely to be on the fresh runs, and the threshold for it.

        Of many thresholds the luckiest would win by plain counts, not the best. So two are put
        forward, by normal laws with the means and deviations of the scores, and by counts at a
        level divided by the number of thresholds, and counts decide between these two.
        """
        held_out, fresh = self.held_out.size, self.fresh.size
        thresholds = self.held_out.thresholds()
        counted = self.held_out.errors(thresholds)
        strict = bound(*counted, trials=held_out, alpha=alpha / thresholds.size)
        rates = self.held_out.normal_rates(thresholds)
        fitted = bound(*(fresh * rate for rate in rates), trials=fresh, alpha=alpha)
        picked = [int(np.argmax(strict)), int(np.argmax(fitted))]
        scaled = [np.asarray(count[picked] * (fresh / held_out)) for count in counted]
        likely = bound(*scaled, trials=fresh, alpha=alpha)
        best = int(np.argmax(likely))
        return float(likely[best]), thresholds[[picked[best]]]


def _clopper_pearson(
    positives: Counts, negatives: Counts, trials: int, delta: float, alpha: float
) -> Floats:
    """Return ln((TPR - delta) / FPR) with TPR from below and FPR from above; at least 0."""
    found = lower_bound(trials - negatives, trials, alpha)
    false = upper_bound(positives, trials, alpha)
    return np.log(np.maximum(found - delta, false) / false)


def _gaussian(
    positives: Counts, negatives: Counts, trials: int, delta: float, alpha: float
) -> Floats:
    """Return mu with both rates from above; at least 0."""
    open_failure = 1.0 - delta
    false_positive = np.minimum(upper_bound(positives, trials, alpha) / open_failure, 1.0)
    false_negative = np.minimum(upper_bound(negatives, trials, alpha) / open_failure, 1.0)
    # A rate of one together with one of zero is the guess that never looks: no information.
    useless = (false_positive >= 1.0) | (false_negative >= 1.0)
    mu = -special.ndtri(false_positive) - special.ndtri(false_negative)
    return np.where(useless, 0.0, np.maximum(mu, 0.0))
