"""Accountants: they take events and state epsilon at a delta.

All of them share three habits. ``compose`` checks the whole event before it changes anything.
An event without a theorem is refused by name. A computation that fails yields ``inf``.

Every epsilon is about zero-out adjacency and an adversary who knows who took part: no
amplification by sampling is claimed anywhere in this module.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Final, Protocol, Self

from dp.accounting.domination import MAX_DELTA0, MAX_TOTAL_COINS, effective_sigma
from dp.accounting.gaussian import gaussian_epsilon
from dp.accounting.theorem1 import Theorem1Parameters, theorem1_epsilon
from dp.errors import UnsupportedEventError
from dp.events import Adjacency, BinomialRelease, Event, NonPrivateRelease, leaves

_GRID_BITS: Final = 14
"""delta0 is searched over the powers of two in the 14 octaves below delta / T."""

_GRID_STRIDE: Final = 2


class Accountant(Protocol):
    """What every accountant can do."""

    name: ClassVar[str]
    adjacency: ClassVar[Adjacency]
    is_bound: ClassVar[bool]

    def supports(self, event: object) -> bool:
        """Say whether every part of ``event`` has a theorem here."""
        ...

    def compose(self, event: Event, count: int = 1) -> None:
        """Add ``count`` adaptive runs of ``event``, or raise and change nothing."""
        ...

    def epsilon(self, delta: float) -> float:
        """Return epsilon of all events so far at ``delta``; ``inf`` if none can be stated."""
        ...

    def copy(self) -> Self:
        """Return an independent accountant with the same events."""
        ...


class _EventCounter(ABC):
    """What accountants share: a multiset of simple events, filled in two phases."""

    name: ClassVar[str] = "abstract"
    adjacency: ClassVar[Adjacency] = Adjacency.ZERO_OUT
    is_bound: ClassVar[bool] = True

    def __init__(self) -> None:
        """Start with no events."""
        self._counts: Counter[BinomialRelease] = Counter()
        self._non_private = False

    def supports(self, event: object) -> bool:
        """Say whether every part of ``event`` has a theorem here."""
        return self._first_unsupported(event) is None

    def compose(self, event: Event, count: int = 1) -> None:
        """Add ``count`` adaptive runs of ``event``.

        Raises:
            UnsupportedEventError: a part has no theorem here; nothing was changed.
            ValueError: ``count`` is below one.
        """
        if count < 1:
            raise ValueError(f"count must be at least 1, got {count}")
        unsupported = self._first_unsupported(event)
        if unsupported is not None:
            raise UnsupportedEventError(f"{self.name} has no theorem for {unsupported!r}")
        for leaf in leaves(event):
            if isinstance(leaf, BinomialRelease):
                self._counts[leaf] += count
            else:
                self._non_private = True

    def epsilon(self, delta: float) -> float:
        """Return epsilon of all events so far at ``delta``.

        Raises:
            ValueError: ``delta`` is not strictly between 0 and 1.
        """
        if not 0.0 < delta < 1.0:
            raise ValueError(f"delta must lie strictly between 0 and 1, got {delta!r}")
        if self._non_private:
            return math.inf
        if not self._counts:
            return 0.0
        result = self._binomial_epsilon(delta)
        return result if result >= 0.0 else math.inf  # NaN is not >= 0

    def copy(self) -> Self:
        """Return an independent accountant with the same events."""
        twin = type(self)()
        twin._counts = self._counts.copy()
        twin._non_private = self._non_private
        return twin

    @property
    def releases(self) -> int:
        """Return the number T of binomial releases composed so far."""
        return self._counts.total()

    def _first_unsupported(self, event: object) -> object | None:
        """Return the first part without a theorem, or None."""
        return next((leaf for leaf in leaves(event) if not self._supports_leaf(leaf)), None)

    def _supports_leaf(self, leaf: object) -> bool:
        """Say whether a simple event has a theorem here."""
        return isinstance(leaf, BinomialRelease | NonPrivateRelease)

    @abstractmethod
    def _binomial_epsilon(self, delta: float) -> float:
        """Return epsilon of the binomial releases; there is at least one."""


@dataclass(frozen=True, slots=True)
class FailureReserve:
    """A part of delta set aside for open failures before the first release.

    Attributes:
        delta0: failure probability of every release, in (0, 1/2).
        releases: the most releases that may ever happen; beyond it, epsilon is infinite.
    """

    delta0: float
    releases: int

    def __post_init__(self) -> None:
        """Raise ``ValueError`` naming the figure that is out of range."""
        if not 0.0 < self.delta0 < MAX_DELTA0:
            raise ValueError(f"delta0 must lie in (0, {MAX_DELTA0}), got {self.delta0!r}")
        if self.releases < 1:
            raise ValueError(f"releases must be at least 1, got {self.releases}")

    @classmethod
    def from_delta(cls, delta: float, releases: int, share: float = 1 / 32) -> FailureReserve:
        """Set aside ``share`` of ``delta``, split evenly over ``releases``.

        One part in 32 moves epsilon by a few parts in a thousand.
        """
        if releases < 1:
            raise ValueError(f"releases must be at least 1, got {releases}")
        return cls(delta * share / releases, releases)

    @property
    def total(self) -> float:
        """Return the whole reserve, rounded up."""
        return math.nextafter(self.releases * self.delta0, math.inf)


class DominationAccountant(_EventCounter):
    """Gaussian domination: the tight bound, for any mixture of binomial releases.

    With T releases and one delta0 for all of them, the whole run is dominated by an open failure
    of probability T delta0, else a Gaussian with mu^2 = sum of D2^2 / sigma_eff^2. So

        epsilon(delta) = min over delta0 of  epsilon_Gauss(mu(delta0), delta - T delta0)

    delta0 runs over powers of two, so that growing T meets the same cached values again.

    This is for releases whose parameters (coins, sensitivities, number of rounds) do not depend
    on earlier results; the inputs may. Where a controller chooses the next parameters from what
    was released, pass a ``FailureReserve``: the part of delta for failures is then fixed before
    the first release, and a ``dp.budget.Budget`` checked before every release is a valid stop.
    """

    name: ClassVar[str] = "domination"

    def __init__(self, reserve: FailureReserve | None = None) -> None:
        """Start with no events, and with a fixed reserve if parameters will be adaptive."""
        super().__init__()
        self._reserve = reserve

    def copy(self) -> Self:
        """Return an independent accountant with the same events and reserve."""
        twin = super().copy()
        twin._reserve = self._reserve
        return twin

    def _supports_leaf(self, leaf: object) -> bool:
        """Refuse coin counts beyond the tables; accept the rest."""
        if isinstance(leaf, BinomialRelease):
            return leaf.coins <= MAX_TOTAL_COINS
        return super()._supports_leaf(leaf)

    def _binomial_epsilon(self, delta: float) -> float:
        """Use the reserve if there is one; else search delta0 on its grid."""
        if self._reserve is None:
            return self._searched(delta)
        remaining = delta - self._reserve.total
        if self.releases > self._reserve.releases or not remaining > 0.0:
            return math.inf
        return gaussian_epsilon(self._mu(self._reserve.delta0), remaining)

    def _searched(self, delta: float) -> float:
        """Search the grid coarsely, then the neighbours of the best point."""
        first = math.floor(-math.log2(delta / self.releases)) + 1
        coarse = {e: self._at(e, delta) for e in range(first, first + _GRID_BITS, _GRID_STRIDE)}
        best = min(coarse, key=lambda exponent: coarse[exponent])
        return min(coarse[best], self._at(best - 1, delta), self._at(best + 1, delta))

    def _at(self, exponent: int, delta: float) -> float:
        """Return the bound with ``delta0 = 2^-exponent``; ``inf`` if that leaves no delta."""
        delta0 = math.ldexp(1.0, -exponent)
        remaining = delta - self.releases * delta0
        if not (0.0 < remaining and 0.0 < delta0 < MAX_DELTA0):
            return math.inf
        return gaussian_epsilon(self._mu(delta0), remaining)

    def _mu(self, delta0: float) -> float:
        """Return the mean shift of the Gaussian that dominates all releases together."""
        return math.sqrt(sum(n * _mu_squared(event, delta0) for event, n in self._counts.items()))


def _mu_squared(event: BinomialRelease, delta0: float) -> float:
    """Return (D2 / sigma_eff)^2 of one release; ``inf`` where nothing can be promised."""
    sigma = effective_sigma(event.coins, event.l2_sensitivity, event.linf_sensitivity, delta0)
    if sigma == 0.0:
        return math.inf
    return (event.l2_sensitivity / sigma) ** 2


class Theorem1Accountant(_EventCounter):
    """cpSGD Theorem 1 per release, then the smaller of two composition theorems.

    * basic: epsilons add, each at delta / T;
    * advanced: each at delta / (2 T), with slack delta' = delta / 2 in

          sum eps_i (e^eps_i - 1) / (e^eps_i + 1) + sqrt(2 ln(1/delta') sum eps_i^2)

      Source: Kairouz, Oh, Viswanath 2015 (arXiv 1311.0776), Theorem 3.5.

    The event carries no l1 sensitivity; min(sqrt(d) D2, D2^2) is used, the second because a
    non-zero integer is at most its square.
    """

    name: ClassVar[str] = "cpSGD Theorem 1"

    def _binomial_epsilon(self, delta: float) -> float:
        """Return the smaller of basic and advanced composition."""
        basic = sum(count * eps for eps, count in self._singles(delta / self.releases))
        return min(basic, self._advanced(delta))

    def _advanced(self, delta: float) -> float:
        """Return advanced composition; ``inf`` if any single epsilon is."""
        singles = self._singles(delta / (2.0 * self.releases))
        if any(math.isinf(eps) for eps, _ in singles):
            return math.inf
        mean = sum(count * eps * math.tanh(eps / 2.0) for eps, count in singles)
        squares = sum(count * eps * eps for eps, count in singles)
        return mean + math.sqrt(2.0 * math.log(2.0 / delta) * squares)

    def _singles(self, delta: float) -> list[tuple[float, int]]:
        """Return (epsilon at delta, count) of every distinct release."""
        return [
            (theorem1_epsilon(_theorem1_parameters(event), delta), count)
            for event, count in self._counts.items()
        ]


def _theorem1_parameters(event: BinomialRelease) -> Theorem1Parameters:
    """Translate an event into the theorem's own parameters (p = 1/2, s = 1)."""
    l2 = event.l2_sensitivity
    return Theorem1Parameters(
        coins=event.coins,
        l1=min(math.sqrt(event.dimension) * l2, l2 * l2),
        l2=l2,
        linf=float(event.linf_sensitivity),
        dimension=event.dimension,
    )


class GaussianReference(_EventCounter):
    """Epsilon of Gaussian noise with the same variance: a yardstick, **not a bound**.

    Binomial noise is not Gaussian. The figure says what an ideal of equal variance would give,
    and how little is left to gain.
    """

    name: ClassVar[str] = "Gaussian of equal variance (reference, not a bound)"
    is_bound: ClassVar[bool] = False

    def _binomial_epsilon(self, delta: float) -> float:
        """Compose Gaussians of variance N/4."""
        if any(event.coins == 0 and event.l2_sensitivity > 0.0 for event in self._counts):
            return math.inf
        mu_squared = sum(
            count * 4.0 * event.l2_sensitivity**2 / max(event.coins, 1)
            for event, count in self._counts.items()
        )
        return gaussian_epsilon(math.sqrt(mu_squared), delta)
