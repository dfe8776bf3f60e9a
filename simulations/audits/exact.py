"""Audits without chance: enumeration against what the accountants publish.

Integer noise has countably many outcomes, so its privacy loss can be computed. ``ExactAccountant``
does that for small sensitivities; every other accountant must never claim less. A randomiser with
finitely many inputs and outcomes is a matrix of probabilities, from which both forms of privacy
follow at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from dp import BinomialRelease, DiscreteGaussianRelease, SkellamRelease
from dp.accounting import (
    Accountant,
    ContractionAccountant,
    DominationAccountant,
    ExactAccountant,
    MomentsAccountant,
    PublishedAccountant,
)
from secagg import ParameterError
from simulations.audits.base import Audit, Figures, Floats

GRID_SLACK: Final = 2e-4
"""Relative room for the exact side, which rounds epsilon up by less than 1e-4 of itself."""

ROW_SLACK: Final = 1e-9
"""How far a row of probabilities may be from 1 in total."""

IntegerNoise = BinomialRelease | DiscreteGaussianRelease | SkellamRelease

RUNS: Final[tuple[tuple[IntegerNoise, int], ...]] = (
    (BinomialRelease(64, 1.0, 1, 1), 1),
    (BinomialRelease(64, 1.0, 1, 1), 16),
    (BinomialRelease(100, 5.0, 5, 1), 1),
    (BinomialRelease(301, 3.5, 3, 20), 1),
    (BinomialRelease(301, 3.5, 3, 20), 4),
    (BinomialRelease(2000, 5.4, 2, 1000), 2),
    (SkellamRelease(30.0, 4.0, 4, 50), 1),
    (SkellamRelease(30.0, 4.0, 4, 50), 4),
    (DiscreteGaussianRelease(2.5, 8, 4.0, 3, 50), 2),
)
"""Releases and how many of them: small sensitivities, which alone can be enumerated; narrow and
wide noise, one coordinate and many."""

ACCOUNTANTS: Final[tuple[Callable[[], Accountant], ...]] = (
    DominationAccountant,
    ContractionAccountant,
    MomentsAccountant,
    PublishedAccountant,
)


@dataclass(frozen=True, slots=True)
class Margin:
    """The smallest ratio of a claimed epsilon to the exact one, and where it was found."""

    ratio: float  # below one, some claim is too good
    comparisons: int  # pairs of an accountant and a run that were compared
    too_good: int  # pairs whose ratio is below one
    worst: str  # the accountant and the run of the smallest ratio

    def figures(self) -> Figures:
        """Return the figures for a check."""
        return {
            "smallest_claimed_over_exact": self.ratio,
            "comparisons": self.comparisons,
            "claims_too_good": self.too_good,
            "at": self.worst,
            "rejected": self.too_good > 0,
        }


def doubled_noise(event: IntegerNoise) -> IntegerNoise:
    """The mistake of the twin: the same release with twice the noise variance in its event."""
    match event:
        case BinomialRelease():
            return replace(event, coins=2 * event.coins)
        case SkellamRelease():
            return replace(event, variance=2.0 * event.variance)
        case DiscreteGaussianRelease():
            return replace(event, contributors=2 * event.contributors)


def accountant_margin(
    runs: Sequence[tuple[IntegerNoise, int]] = RUNS,
    delta: float = 1e-6,  # in (0, 1)
    reported: Callable[[IntegerNoise], IntegerNoise] = lambda event: event,
) -> Margin:
    """Compare every accountant with enumeration.

    Args:
        runs: what is released and how often; small enough to enumerate.
        reported: what the accountants under audit are told instead of an event.

    Raises:
        UnsupportedEventError: a run is too large to enumerate.
    """
    found: list[tuple[float, str]] = []
    for event, count in runs:
        exact = _epsilon(ExactAccountant(), event, count, delta)
        for make in ACCOUNTANTS:
            accountant = make()
            if accountant.supports(event):
                claimed = _epsilon(accountant, reported(event), count, delta)
                found.append((claimed / exact, f"{accountant.name}, {count} x {event!r}"))
    ratio, worst = min(found)
    return Margin(ratio, len(found), sum(r < 1.0 - GRID_SLACK for r, _ in found), worst)


def _epsilon(accountant: Accountant, event: IntegerNoise, count: int, delta: float) -> float:
    """Return epsilon of some releases by one accountant."""
    accountant.compose(event, count)
    return accountant.epsilon(delta)


def probability_rows(pmf: ArrayLike) -> Floats:
    """Return a checked matrix: row i holds the probabilities of all outputs for input i."""
    rows = np.asarray(pmf, np.float64)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ParameterError("pmf", f"shape {rows.shape}", "a matrix [inputs, outputs]")
    if not np.all(rows >= 0.0):  # NaN too
        raise ParameterError("pmf", "a negative or non-finite entry", "probabilities")
    totals = rows.sum(axis=1)
    if not np.all(np.abs(totals - 1.0) <= ROW_SLACK):
        row = int(np.argmax(np.abs(totals - 1.0)))
        raise ParameterError(
            "pmf", f"row {row} adds up to {float(totals[row])!r}", "rows that add up to 1"
        )
    return rows


def largest_log_ratio(pmf: ArrayLike) -> float:
    """Return the exact epsilon of a finite randomiser: the largest ln P[y | x] / P[y | x'].

    Infinite if an output is possible for one input and impossible for another.

    Args:
        pmf: float64[inputs, outputs], rows add up to 1.

    Raises:
        ParameterError: not a matrix of probabilities.
    """
    rows = probability_rows(pmf)
    top, bottom = rows.max(axis=0), rows.min(axis=0)
    possible = top > 0.0
    if np.any(bottom[possible] == 0.0):
        return math.inf
    return float(np.max(np.log(top[possible]) - np.log(bottom[possible])))


def largest_hockey_stick(pmf: ArrayLike, epsilon: float) -> float:
    """Return the exact delta of a finite randomiser at ``epsilon``.

    The largest sum over y of max(0, P[y | x] - e^epsilon P[y | x']), over all pairs of inputs.
    """
    rows = probability_rows(pmf)
    growth = math.exp(epsilon)
    return max(float(np.maximum(row - growth * rows, 0.0).sum(axis=1).max()) for row in rows)


def randomised_response(outcomes: int, epsilon: float) -> Floats:
    """Return the matrix of k-ary randomised response: the example of a finite randomiser.

    Source: Kairouz, Oh and Viswanath 2014 (arXiv 1407.1338), section 4.
    """
    other = 1.0 / (math.exp(epsilon) + outcomes - 1.0)
    return np.full((outcomes, outcomes), other) + np.eye(outcomes) * (1.0 - outcomes * other)


def randomiser_figures(pmf: ArrayLike, epsilon: float) -> Figures:
    """Hold a finite randomiser against the epsilon that is claimed for it."""
    exact = largest_log_ratio(pmf)
    return {
        "claimed_epsilon": epsilon,
        "exact_epsilon": exact,
        "rejected": not exact <= epsilon * (1.0 + ROW_SLACK),
    }


def audit_accountants() -> Audit:
    """No accountant claims less than enumeration finds; told twice the noise, it does."""
    return Audit(
        "privacy-exact-accountants",
        "No published epsilon is below the one found by enumeration",
        lambda: accountant_margin().figures(),
        {"told twice the noise": lambda: accountant_margin(reported=doubled_noise).figures()},
    )


def audit_randomiser(outcomes: int = 8, epsilon: float = 1.0) -> Audit:
    """Randomised response has exactly its epsilon; with one entry changed it has more."""
    pmf = randomised_response(outcomes, epsilon)
    broken = pmf.copy()
    moved = 0.05 * broken[0, 1]
    broken[0, 1] -= moved
    broken[0, 0] += moved
    return Audit(
        "privacy-exact-randomiser",
        "A finite randomiser has the epsilon claimed for it",
        partial(randomiser_figures, pmf, epsilon),
        {"one entry 5 % smaller": partial(randomiser_figures, broken, epsilon)},
    )
