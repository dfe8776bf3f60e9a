"""What all accountants share: events in, epsilon out.

Three habits. ``compose`` checks the whole event before it changes anything. An event without a
theorem is refused by name. A computation that fails yields ``inf``.

Every epsilon is about zero-out adjacency, but for those of local reports, which are about any two
inputs of one client and have an accountant of their own (dp/accounting/local.py). Accountants
against the server claim no amplification by sampling and refuse sampled events; see
dp/accounting/outsider.py for the other adversary.

A release whose privacy loss is surely at most e adds e to the epsilon of all others at the same
delta: every likelihood ratio of the whole run is that of the others times at most exp(e), also if
questions and other releases took turns and each depended on what came before.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections import Counter
from typing import ClassVar, Final, Protocol, Self, TypeAlias

from dp.accounting.discrete_gaussian import DiscreteGaussianSum
from dp.accounting.laws import (
    MAX_VARIANCE,
    MIN_VARIANCE,
    NoiseLaw,
    SkellamNoise,
    law_of_coins,
)
from dp.checks import require_at_least, require_between_0_and_1
from dp.errors import UnsupportedEventError
from dp.event_kinds import Event, IntegerRelease, NoisyRelease, PureRelease, SampledRelease
from dp.events import (
    Adjacency,
    BinomialRelease,
    DiscreteGaussianRelease,
    GaussianRelease,
    LevelRelease,
    LocalRelease,
    NonPrivateRelease,
    SkellamRelease,
    leaves,
)

Release: TypeAlias = NoisyRelease | LevelRelease | LocalRelease | SampledRelease
"""Simple events with noise."""

MAX_RELEASES = 1 << 32
"""Most releases of one accountant: what a float counts exactly, with room."""


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


class EventCounter(ABC):
    """A multiset of simple events, filled in two phases."""

    name: ClassVar[str] = "abstract"
    adjacency: ClassVar[Adjacency] = Adjacency.ZERO_OUT
    is_bound: ClassVar[bool] = True

    def __init__(self) -> None:
        """Start with no events."""
        self._counts: Counter[Release] = Counter()
        self._pure: Counter[PureRelease] = Counter()
        self._non_private = False

    def supports(self, event: object) -> bool:
        """Say whether every part of ``event`` has a theorem here."""
        return self._first_unsupported(event) is None

    def compose(self, event: Event, count: int = 1) -> None:
        """Add ``count`` adaptive runs of ``event``."""
        require_at_least("count", count, 1)
        unsupported = self._first_unsupported(event)
        if unsupported is not None:
            raise UnsupportedEventError(refusal(self.name, unsupported))
        if self.releases + count * sum(1 for _ in leaves(event)) > MAX_RELEASES:
            raise ValueError(f"count must leave at most {MAX_RELEASES} releases, got {count}")
        for leaf in leaves(event):
            if isinstance(leaf, PureRelease):
                self._pure[leaf] += count
            elif isinstance(leaf, Release):
                self._counts[leaf] += count
            else:
                self._non_private = True

    def epsilon(self, delta: float) -> float:
        """Return epsilon of all events so far at ``delta``."""
        require_between_0_and_1("delta", delta)
        if self._non_private:
            return math.inf
        try:
            result = self._epsilon_of_releases(delta) if self._counts else 0.0
            result += math.fsum(n * event.epsilon for event, n in self._pure.items())
        except ArithmeticError:  # overflow, division by zero
            return math.inf
        return result if result >= 0.0 else math.inf  # NaN is not >= 0

    def copy(self) -> Self:
        """Return an independent accountant with the same events."""
        twin = type(self)()
        twin._counts = self._counts.copy()
        twin._pure = self._pure.copy()
        twin._non_private = self._non_private
        return twin

    @property
    def releases(self) -> int:
        """Return the number T of noisy releases composed so far, those of pure epsilon aside."""
        return self._counts.total()

    @property
    def non_private(self) -> bool:
        """Say whether something was released without noise."""
        return self._non_private

    def _first_unsupported(self, event: object) -> object | None:
        """Return the first part without a theorem, or None."""
        return next((leaf for leaf in leaves(event) if not self._supports_leaf(leaf)), None)

    def _supports_leaf(self, leaf: object) -> bool:
        """Say whether a simple event has a theorem here."""
        if isinstance(leaf, IntegerRelease):
            return is_tabulated(leaf)
        return isinstance(leaf, GaussianRelease | PureRelease | NonPrivateRelease)

    @abstractmethod
    def _epsilon_of_releases(self, delta: float) -> float:
        """Return epsilon of the noisy releases; there is at least one."""


def refusal(name: str, event: object) -> str:
    """Return the words in which an accountant refuses an event."""
    text = f"{name} has no theorem for {type(event).__name__}"
    if isinstance(event, SampledRelease):
        return f"{text}: sampling does not protect against a server, which knows the cohort"
    if isinstance(event, LocalRelease):
        return f"{text}: local reports promise something else and are accounted for by themselves"
    if isinstance(event, IntegerRelease) and not is_tabulated(event):
        return f"{text}: its tables end at a variance of {MAX_VARIANCE:g}, and this is {event!r}"
    return text


_SMALLEST: Final = sys.float_info.min


def nominal_mu_squared(event: Release) -> float:
    """Return D2^2 over the variance of the noise: no bound, but for Gaussian noise."""
    if not isinstance(event, NoisyRelease):
        return math.inf
    if event.l2_sensitivity == 0.0:
        return 0.0
    # Squares below the smallest normal double would be rounded down by any factor.
    if event.noise_variance < _SMALLEST:
        return math.inf
    return (event.l2_sensitivity / math.sqrt(event.noise_variance)) ** 2


def is_tabulated(event: IntegerRelease) -> bool:
    """Say whether the noise is within the tables; more is refused, unless coins can be left out."""
    return isinstance(event, BinomialRelease) or event.noise_variance <= MAX_VARIANCE


def law_of(event: IntegerRelease) -> NoiseLaw | None:
    """Return the law of one coordinate's noise; None if there is (practically) none."""
    match event:
        case BinomialRelease():
            return law_of_coins(event.coins)
        case DiscreteGaussianRelease():
            if event.contributors == 0 or event.local_variance < MIN_VARIANCE:
                return None
            return DiscreteGaussianSum(event.local_variance, event.contributors)
        case SkellamRelease():
            return SkellamNoise(event.variance) if event.variance >= MIN_VARIANCE else None
        case _:
            raise UnsupportedEventError(f"no table is known for the noise of {event!r}")
