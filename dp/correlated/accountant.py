"""The accountant of runs whose noise comes back: rounds in order, one bound for the whole run.

Source: docs/correlated-noise.md.
"""

from __future__ import annotations

import math
from typing import ClassVar, Final, Self

from dp.accounting.base import EventCounter, refusal
from dp.correlated.charge import Charge, RoundNoise
from dp.correlated.event import CorrelatedRelease
from dp.correlated.theorem import Promises, correlated_epsilon
from dp.errors import UnsupportedEventError
from dp.event_kinds import Event
from dp.events import NonPrivateRelease, leaves

_ROUNDINGS: Final = 1e-12


class CorrelatedAccountant(EventCounter):
    """Epsilon of a run of `CorrelatedRelease` events, for one client.

    What it states is the most that the run can come to if the client takes no more part: all that
    may still come back is counted. So a `Budget` that is checked before every round is the filter
    of the theorem, and epsilon does not grow in rounds without the client.
    """

    name: ClassVar[str] = "correlated noise"

    def __init__(self) -> None:
        """Start with no events."""
        super().__init__()
        self._charge = Charge()
        self._last: CorrelatedRelease | None = None

    def compose(self, event: Event, count: int = 1) -> None:
        """Add one round, the next.

        Raises:
            UnsupportedEventError: a part is of another kind; it is not the next round of the run;
                or it was promised other noise. Nothing was changed.
        """
        if count != 1:
            raise ValueError(f"count must be 1 for rounds of one run, got {count}")
        unsupported = self._first_unsupported(event)
        if unsupported is not None:
            raise UnsupportedEventError(refusal(self.name, unsupported))
        charge, last, bare = self._charge, self._last, self._non_private
        for leaf in leaves(event):
            if isinstance(leaf, CorrelatedRelease):
                charge, last = _following(charge, last, leaf), leaf
            else:
                bare = True
        self._charge, self._last, self._non_private = charge, last, bare

    def copy(self) -> Self:
        """Return an independent accountant with the same events."""
        twin = super().copy()
        twin._charge, twin._last = self._charge, self._last
        return twin

    @property
    def releases(self) -> int:
        """Return the number of rounds so far."""
        return self._charge.rounds

    @property
    def mu_squared(self) -> float:
        """Return the most that the charge can come to without the client."""
        last = self._last
        if last is None:
            return 0.0
        left = last.rounds - last.index
        return self._charge.reserve(
            left, last.least_fresh, last.returnable_later, now=last.returnable
        )

    def epsilon(self, delta: float) -> float:
        """Return epsilon of the run at ``delta``, with all that may still come back."""
        bare = super().epsilon(delta)
        if self._last is None or math.isinf(bare):
            return bare
        mu_squared = self.mu_squared
        # A client that contributed nothing has lost nothing: both runs are one.
        return correlated_epsilon(mu_squared, promises_of(self._last), delta) if mu_squared else 0.0

    def _supports_leaf(self, leaf: object) -> bool:
        """Accept rounds of such runs, and releases without noise."""
        return isinstance(leaf, CorrelatedRelease | NonPrivateRelease)

    def _epsilon_of_releases(self, delta: float) -> float:
        """Nothing is counted without an order."""
        return 0.0


def promises_of(event: CorrelatedRelease) -> Promises:
    """What the event says of the noise of its whole run."""
    return Promises(
        rounds=event.rounds,
        dimension=event.dimension,
        smallest_part=event.smallest_part,
        most_parts=event.most_parts,
        kept=event.least_kept,
        fresh=event.least_fresh,
    )


def _following(charge: Charge, last: CorrelatedRelease | None, event: CorrelatedRelease) -> Charge:
    """The charge after the next round, if it is the next."""
    if event.index != charge.rounds + 1:
        raise UnsupportedEventError(
            f"round {event.index} of a run with correlated noise cannot follow round "
            f"{charge.rounds}: its rounds are counted one after the other"
        )
    if last is not None and event.promises != last.promises:
        raise UnsupportedEventError(
            f"round {event.index} of a run with correlated noise was promised other noise than "
            "the rounds before"
        )
    # Sums of three floats may be off by a rounding.
    if last is not None and not (
        event.returned_variance <= last.returnable + _ROUNDINGS * last.fresh_variance
    ):
        raise UnsupportedEventError(
            f"returned_variance of round {event.index} of a run with correlated noise must be at "
            f"most {last.returnable!r}, what round {last.index} added less what stays of it, "
            f"got {event.returned_variance!r}"
        )
    try:
        noise = RoundNoise(event.fresh_variance, event.returned_variance)
        return charge.after(noise, event.l2_sensitivity)
    except ValueError as error:
        raise UnsupportedEventError(str(error)) from None
