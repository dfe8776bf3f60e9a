"""The main accountant, by Gaussian domination, and the yardstick beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from dp.accounting.base import EventCounter, Release, law_of, nominal_mu_squared
from dp.accounting.domination import MAX_DELTA0, effective_sigma
from dp.accounting.failing_gaussian import FailingGaussian
from dp.accounting.gaussian import gaussian_epsilon
from dp.checks import require_at_least, require_between_0_and_1, require_in
from dp.event_kinds import IntegerRelease
from dp.events import GaussianRelease

_GRID_BITS: Final = 14
"""delta0 is searched over the powers of two in the 14 octaves below delta / T."""

_GRID_STRIDE: Final = 2


AGGREGATION_SHARE: Final = 0.01
"""Part of delta for failures of secure aggregation, where a reserve is made from a delta."""


@dataclass(frozen=True, slots=True)
class FailureReserve:
    """A part of delta set aside for open failures before the first release.

    Attributes:
        delta0: failure probability of every release, in (0, 1/2); where moments count, the
            probability that the truncation of every release may cost.
        releases: the most releases that may ever happen; beyond it, epsilon is infinite.
        aggregation: probability, for every release, that the secure aggregation in front of the
            noise fails and shows everything, in [0, 1/2). Whoever runs it sees that it is no more.
        moment_order: None to count by Gaussian domination; an order above 1 to count by truncated
            moments of this one order. See ``reserved_accountant``.
    """

    delta0: float
    releases: int
    aggregation: float = 0.0
    moment_order: float | None = None

    def __post_init__(self) -> None:
        require_in("delta0", self.delta0, 0.0, MAX_DELTA0, "()")
        require_at_least("releases", self.releases, 1)
        require_in("aggregation", self.aggregation, 0.0, MAX_DELTA0, "[)")
        order = self.moment_order
        if order is not None and not 1.0 < order < math.inf:
            raise ValueError(f"moment_order must be None, or finite and above 1, got {order!r}")

    @classmethod
    def from_delta(
        cls,
        delta: float,
        releases: int,
        share: float = 1 / 32,
        moment_order: float | None = None,
    ) -> FailureReserve:
        """Set aside ``share`` of ``delta`` for noise, and a hundredth for secure aggregation.

        Both are split evenly over ``releases``, and move epsilon by a few parts in a thousand.
        """
        require_at_least("releases", releases, 1)
        aggregation = delta * AGGREGATION_SHARE / releases
        return cls(delta * share / releases, releases, aggregation, moment_order)

    @property
    def total(self) -> float:
        """Return the whole reserve, rounded up."""
        return math.nextafter(self.releases * (self.delta0 + self.aggregation), math.inf)


class DominationAccountant(EventCounter):
    """Gaussian domination: the tight bound, for any mixture of integer and Gaussian noise.

    With T integer releases and one delta0 for all of them, the whole run is dominated by an open
    failure of probability T delta0, else a Gaussian with mu^2 = sum of D2^2 / sigma_eff^2. So

        epsilon(delta) = min over delta0 of  epsilon_Gauss(mu(delta0), delta - T delta0)

    delta0 runs over powers of two, so that growing T meets the same cached values again. A
    ``GaussianRelease`` never fails and adds its own mu^2.

    This is for releases whose parameters (coins, sensitivities, number of rounds) do not depend
    on earlier results; the inputs may. Where a controller chooses the next parameters from what
    was released, pass a ``FailureReserve``: the part of delta for failures is then fixed before
    the first release, and a ``dp.budget.Budget`` checked before every release is a valid stop.
    """

    name: ClassVar[str] = "domination"

    def __init__(self, reserve: FailureReserve | None = None) -> None:
        """Start with no events, and with a fixed reserve if parameters will be adaptive."""
        super().__init__()
        if reserve is not None and reserve.moment_order is not None:
            raise ValueError(
                f"reserve must be for domination, got moment_order {reserve.moment_order!r}"
            )
        self._reserve = reserve

    def copy(self) -> Self:
        """Return an independent accountant with the same events and reserve."""
        twin = super().copy()
        twin._reserve = self._reserve
        return twin

    def gaussian(self, delta: float) -> FailingGaussian | None:
        """Return what dominates all events so far: an open failure, else a Gaussian.

        Unlike epsilon it says everything at once: see ``FailingGaussian``.

        Args:
            delta: where the pair is to be tightest, if no reserve fixes it; it holds at every
                other delta as well.

        Returns:
            None where there is no such pair: something was released without noise, with noise that
            hides too little, or with bounded losses (Laplace noise), which no Gaussian dominates.
        """
        require_between_0_and_1("delta", delta)
        if self._non_private or self._pure:
            return None
        if not self._counts:
            return FailingGaussian(0.0, 0.0)
        if self._reserve is not None:
            if self.releases > self._reserve.releases:
                return None
            delta0, failure = self._reserve.delta0, self._reserve.total
        elif self._failures() == 0:
            delta0, failure = MAX_DELTA0, 0.0
        else:
            delta0 = math.ldexp(1.0, -self._best_exponent(delta))
            failure = self._failures() * delta0
        mu = self._mu(delta0)
        return FailingGaussian(failure, mu) if mu < math.inf and failure < 1.0 else None

    def _epsilon_of_releases(self, delta: float) -> float:
        """Use the reserve if there is one; else search delta0 on its grid."""
        if self._reserve is None:
            return self._searched(delta)
        remaining = delta - self._reserve.total
        if self.releases > self._reserve.releases or not remaining > 0.0:
            return math.inf
        return gaussian_epsilon(self._mu(self._reserve.delta0), remaining)

    def _failures(self) -> int:
        """Return the number of releases that may fail openly: those with integer noise."""
        return sum(n for event, n in self._counts.items() if not isinstance(event, GaussianRelease))

    def _searched(self, delta: float) -> float:
        """Return the bound at the best delta0 of the grid."""
        if self._failures() == 0:
            return gaussian_epsilon(self._mu(MAX_DELTA0), delta)
        return self._at(self._best_exponent(delta), delta)

    def _best_exponent(self, delta: float) -> int:
        """Search the grid of delta0 = 2^-exponent coarsely, then the neighbours of the best."""
        first = math.floor(-math.log2(delta / self._failures())) + 1
        coarse = {e: self._at(e, delta) for e in range(first, first + _GRID_BITS, _GRID_STRIDE)}
        best = min(coarse, key=lambda exponent: coarse[exponent])
        found = {e: self._at(e, delta) for e in (best, best - 1, best + 1)}
        return min(found, key=lambda exponent: found[exponent])

    def _at(self, exponent: int, delta: float) -> float:
        """Return the bound with ``delta0 = 2^-exponent``; ``inf`` if that leaves no delta."""
        delta0 = math.ldexp(1.0, -exponent)
        remaining = delta - self._failures() * delta0
        if not (0.0 < remaining and 0.0 < delta0 < MAX_DELTA0):
            return math.inf
        return gaussian_epsilon(self._mu(delta0), remaining)

    def _mu(self, delta0: float) -> float:
        """Return the mean shift of the Gaussian that dominates all releases together."""
        return math.sqrt(sum(n * mu_squared(event, delta0) for event, n in self._counts.items()))


def mu_squared(event: Release, delta0: float) -> float:
    """Return (D2 / sigma_eff)^2 of one release; ``inf`` where nothing can be promised."""
    if isinstance(event, IntegerRelease):
        law = law_of(event)
        noise = 0 if law is None else law
        sigma = effective_sigma(noise, event.l2_sensitivity, event.linf_sensitivity, delta0)
    elif isinstance(event, GaussianRelease):
        sigma = event.sigma if event.l2_sensitivity > 0.0 else math.inf
    else:
        return math.inf
    if sigma == 0.0:
        return math.inf
    return (event.l2_sensitivity / sigma) ** 2


class GaussianReference(EventCounter):
    """Epsilon of Gaussian noise with the same variance: a yardstick, **not a bound**.

    Integer noise is not Gaussian. The figure says what an ideal of equal variance would give,
    and how little is left to gain.
    """

    name: ClassVar[str] = "Gaussian of equal variance (reference, not a bound)"
    is_bound: ClassVar[bool] = False

    def _supports_leaf(self, leaf: object) -> bool:
        """Accept any amount of noise: no table is needed."""
        return isinstance(leaf, IntegerRelease) or super()._supports_leaf(leaf)

    def _epsilon_of_releases(self, delta: float) -> float:
        """Compose Gaussians of equal variance."""
        squares = sum(n * nominal_mu_squared(event) for event, n in self._counts.items())
        return gaussian_epsilon(math.sqrt(squares), delta)
