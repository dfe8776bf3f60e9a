"""Local reports of one client: pure epsilons, added up or composed at a delta.

Every (epsilon, 0)-private mechanism is a post-processing of one randomised response, whose loss is
+epsilon with probability e^epsilon/(1 + e^epsilon) and -epsilon otherwise. Composing randomised
responses therefore bounds every adaptive run of reports with these epsilons. Of the bounds that
follow the smallest is reported:

* **sum**: the epsilons add up, at every delta;
* **deviation**: the losses have mean epsilon tanh(epsilon/2) and lie in [-epsilon, epsilon], so
  that by Hoeffding's inequality they exceed

      sum of epsilon tanh(epsilon/2) + sqrt(2 ln(1/delta) sum of epsilon^2)

  with probability delta at most;
* **optimal**: for n equal epsilons the composition of n randomised responses itself, evaluated
  term by term, which no accountant can improve on that knows epsilon only:

      delta(e') = sum over i, (n - 2i) epsilon > e', of
                  C(n, i) e^{(n-i) epsilon}/(1 + e^epsilon)^n (1 - e^{e' - (n - 2i) epsilon});

* **losses**: for different epsilons, dp-accounting's privacy loss distributions.

Above an epsilon of about 10 a report is so rarely a lie that only the sum is left; all four are
valid at any epsilon, and where one cannot be computed it is infinite.

The epsilons must be fixed beforehand; what is asked may depend on earlier reports.

Source: Kairouz, Oh, Viswanath 2015 (arXiv 1311.0776), Theorems 3.2 to 3.5; Murtagh and Vadhan 2016
(arXiv 1507.03113) for different epsilons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np
import scipy
from numpy.typing import NDArray

from dp.accounting.base import EventCounter
from dp.checks import require_between_0_and_1
from dp.events import Adjacency, LocalRelease, NonPrivateRelease
from dp.search import bracketed

MAX_TERMS: Final = 1 << 17
"""Most equal reports that are composed term by term."""

INTERVAL: Final = 1e-4
"""Grid of privacy losses, nats; dp-accounting rounds against us."""

MAX_LOSSES: Final = 400.0
"""Largest sum of different epsilons that is put on a grid."""

MAX_KINDS: Final = 64
"""Most different epsilons that are put on a grid."""

_SMALLEST_LOSSES_DELTA: Final = 1e-11
"""Below it the Fourier transforms of dp-accounting are not trusted."""

_TRANSFORM_ERROR: Final = 1e-14
"""Above it they are, to this much of delta."""

_ROUNDING: Final = 1e-15
_SMALLEST: Final = 1e-300


class LocalAccountant(EventCounter):
    """Epsilon of one client's reports, against everybody: nobody else's noise is counted on."""

    name: ClassVar[str] = "local"
    adjacency: ClassVar[Adjacency] = Adjacency.ANY_INPUT

    def bounds(self, delta: float) -> Mapping[str, float]:
        """Return every bound of the reports so far by name; ``inf`` where one has no value."""
        require_between_0_and_1("delta", delta)
        counts = self._local_counts()
        if self.non_private:
            return dict.fromkeys(("sum", "deviation", "optimal", "losses"), math.inf)
        return {
            "sum": _total(counts),
            "deviation": _deviation(counts, delta),
            "optimal": _optimal(counts, delta),
            "losses": _losses(counts, delta),
        }

    def _local_counts(self) -> dict[float, int]:
        """Return epsilon to the number of reports with it, in an order that is always the same."""
        found = {
            event.epsilon: count
            for event, count in self._counts.items()
            if isinstance(event, LocalRelease)
        }
        return dict(sorted(found.items()))

    def _supports_leaf(self, leaf: object) -> bool:
        """Accept local reports, and what is not private at all."""
        return isinstance(leaf, LocalRelease | NonPrivateRelease)

    def _epsilon_of_releases(self, delta: float) -> float:
        """Return the smallest bound of the whole run."""
        return min(self.bounds(delta).values())


def _total(counts: Mapping[float, int]) -> float:
    """Return the sum of all epsilons, rounded up; ``inf`` if that is no float."""
    exact = sum((n * Fraction(epsilon) for epsilon, n in counts.items()), start=Fraction(0))
    try:
        total = float(exact)
    except OverflowError:
        return math.inf
    return total if Fraction(total) >= exact else math.nextafter(total, math.inf)


def _deviation(counts: Mapping[float, int], delta: float) -> float:
    """Return the bound by mean and Hoeffding deviation, rounded up."""
    mean = sum(n * epsilon * math.tanh(epsilon / 2.0) for epsilon, n in counts.items())
    squares = sum(n * epsilon * epsilon for epsilon, n in counts.items())
    return (mean + math.sqrt(-2.0 * math.log(delta) * squares)) * (
        1.0 + (8 + len(counts)) * _ROUNDING
    )


def _optimal(counts: Mapping[float, int], delta: float) -> float:
    """Return the optimal bound of equal reports: the upper end of a bisection."""
    if len(counts) != 1:
        return 0.0 if not counts else math.inf
    ((epsilon, n),) = counts.items()
    whole = _total(counts)
    if n > MAX_TERMS or not math.isfinite(whole):
        return math.inf
    low, high = 0.0, whole
    if composed_delta(epsilon, n, low) <= delta:
        return 0.0
    return bracketed(lambda total: composed_delta(epsilon, n, total) <= delta, low, high)[1]


def composed_delta(epsilon: float, count: int, total: float) -> float:
    """Return an upper bound, tight to rounding, of the delta of ``count`` reports at ``total``."""
    # Terms with a loss n epsilon - 2 i epsilon above the total, and one more for the rounding.
    reach = min(count, max(0, math.ceil((count - total / epsilon) / 2.0)))
    i = np.arange(reach + 1, dtype=np.float64)
    log_mass = _log_choose(count)[: reach + 1] - i * epsilon
    log_mass -= count * math.log1p(math.exp(-epsilon))
    # A log-gamma is off by a few units in its last place, a loss by some of its own size.
    mass_error = (
        16.0 * _ROUNDING * (1.0 + float(scipy.special.gammaln(count + 1.0)) + count * epsilon)
    )
    loss_error = 8.0 * _ROUNDING * (1.0 + total + count * epsilon)
    gaps = -np.expm1(np.minimum(total - (count - 2.0 * i) * epsilon, 0.0))
    reached = (count - 2.0 * i) * epsilon > total - loss_error
    masses = np.exp(log_mass) * (gaps + loss_error) * reached
    found = float(masses.sum()) * math.exp(mass_error) * (1.0 + count * _ROUNDING)
    # The floor covers masses too small for a double, which are not the same as none.
    return min(1.0, found + _SMALLEST)


@lru_cache(maxsize=4)
def _log_choose(count: int) -> NDArray[np.float64]:
    """Return ln C(count, i) for i = 0 .. count."""
    i = np.arange(count + 1, dtype=np.float64)
    whole = scipy.special.gammaln(count + 1.0)
    return np.asarray(
        whole - scipy.special.gammaln(i + 1.0) - scipy.special.gammaln(count - i + 1.0)
    )


def _losses(counts: Mapping[float, int], delta: float) -> float:
    """Compose the loss distributions of different reports; ``inf`` where that is not sensible."""
    few = 1 < len(counts) <= MAX_KINDS
    if not few or _total(counts) > MAX_LOSSES or delta < _SMALLEST_LOSSES_DELTA:
        return 0.0 if not counts else math.inf
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as losses

    composed: Any = losses.identity(value_discretization_interval=INTERVAL)
    for epsilon, n in counts.items():
        parameters = common.DifferentialPrivacyParameters(epsilon, 0.0)
        part = losses.from_privacy_parameters(parameters, INTERVAL)
        composed = composed.compose(part.self_compose(n) if n > 1 else part)
    return float(composed.get_epsilon_for_delta(delta * (1.0 - 1e-9) - _TRANSFORM_ERROR))
