"""A run's events in the terms of dp-accounting, where what they then say is true.

Adjacency: zero-out is what dp-accounting calls ``NeighboringRelation.REPLACE_SPECIAL``. For
replace-one convert ``dp.replace_one(event)`` and keep that relation: integer noise is converted at
sigma_eff, which depends on the sensitivities, so that another relation there says nothing here.

* Gaussian noise is a ``GaussianDpEvent``; discrete Laplace noise is a ``DiscreteLaplaceDpEvent``.
* Integer noise is no Gaussian. Except with probability ``delta0`` it is at least as good as one of
  sigma_eff, so a ``GaussianDpEvent`` stands for it and ``delta0`` is added to ``failure``.
* A release of pure epsilon is at most as telling as discrete Laplace noise of parameter epsilon
  at sensitivity 1, whose loss is epsilon one way or the other, as that of randomised response is.
* A Poisson-sampled release is a ``PoissonSampledDpEvent``, about an outsider as the event is.
* Anything else is refused. A fixed-size cohort is among it: its event there is for replace-one.

Proofs: docs/accounting.md, "Gaussian domination" and "The outsider".
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from dp.accounting.accountant import mu_squared
from dp.accounting.base import is_tabulated
from dp.accounting.domination import MAX_DELTA0
from dp.accounting.outsider import COMPOSING, SMALLEST_PLD_DELTA
from dp.checks import require_between_0_and_1, require_in
from dp.errors import UnsupportedEventError
from dp.event_kinds import Event, IntegerRelease, PureRelease
from dp.events import (
    Composition,
    GaussianRelease,
    LaplaceRelease,
    LocalRelease,
    NonPrivateRelease,
    PoissonSampled,
    leaves,
)
from dp.report import Counted, with_counts

_ROUNDED: Final = 1.0 - 1e-15
"""What a noise multiplier is lowered by: a square, its root and two quotients were rounded."""


@dataclass(frozen=True, slots=True)
class ConvertedRun:
    """A run as dp-accounting has it.

    If ``event`` is (epsilon, delta)-private under ``REPLACE_SPECIAL``, the run is (epsilon,
    delta + failure)-private.

    Attributes:
        event: a ``dp_accounting.DpEvent``, for any of that library's accountants.
        failure: probability, over all releases, that ``event`` says nothing.
        releases: how many there are.
    """

    event: Any
    failure: float
    releases: int

    def epsilon(self, delta: float) -> float:
        """Return epsilon of the run at ``delta`` by dp-accounting's privacy loss distributions.

        Returns:
            ``inf`` if less than 1e-11 of ``delta`` is left, which the library cannot resolve.
        """
        from dp_accounting import NeighboringRelation
        from dp_accounting.pld import PLDAccountant

        require_between_0_and_1("delta", delta)
        left = delta - self.failure - COMPOSING * self.releases
        if not left >= SMALLEST_PLD_DELTA:
            return math.inf
        accountant = PLDAccountant(NeighboringRelation.REPLACE_SPECIAL)
        return float(accountant.compose(self.event).get_epsilon(left))


def to_dp_event(events: Iterable[Event | Counted], delta0: float) -> ConvertedRun:
    """Return a run as an event of dp-accounting.

    Args:
        events: what was released, in order; a pair (event, count) stands for repetitions. Of a
            ledger: those of the rounds that *one* client was in.
        delta0: what every release with integer noise may fail with, in (0, 1/2), fixed before the
            first release if parameters depend on results. A 32nd of delta over the releases is a
            good choice.

    Raises:
        UnsupportedEventError: no event of dp-accounting is true of an event here.
    """
    from dp_accounting import dp_event

    require_in("delta0", delta0, 0.0, MAX_DELTA0, "()")
    counted = with_counts(events)
    parts = [_counted(_converted(event, delta0), count) for event, count in counted]
    failing = sum(count * _failing(event) for event, count in counted)
    failure = math.nextafter(failing * delta0, math.inf) if failing else 0.0
    releases = sum(count * sum(1 for _ in leaves(event)) for event, count in counted)
    return ConvertedRun(dp_event.ComposedDpEvent(parts), failure, releases)


def _counted(event: Any, count: int) -> Any:
    """Return repetitions of an event."""
    from dp_accounting import dp_event

    return event if count == 1 else dp_event.SelfComposedDpEvent(event, count)


def _failing(event: Event) -> int:
    """Return how many releases of an event may fail openly: those with integer noise."""
    inner = (leaf.released for leaf in leaves(event) if isinstance(leaf, Event))
    return sum(isinstance(each, IntegerRelease) and not each.is_silent for each in inner)


def _converted(event: Event, delta0: float) -> Any:
    """Return the event of dp-accounting that is true of an event, but for its failures."""
    from dp_accounting import dp_event

    match event:
        case Composition():
            return dp_event.ComposedDpEvent([_converted(part, delta0) for part in event.parts])
        case PoissonSampled():
            inner = _converted(event.event, delta0)
            noisy = isinstance(inner, dp_event.GaussianDpEvent)
            return dp_event.PoissonSampledDpEvent(event.rate, inner) if noisy else inner
        case LaplaceRelease():
            return dp_event.DiscreteLaplaceDpEvent(
                math.nextafter(1.0 / event.scale, math.inf), event.sensitivity
            )
        case PureRelease() | LocalRelease():
            return dp_event.DiscreteLaplaceDpEvent(event.epsilon, 1)
        case NonPrivateRelease():
            return dp_event.NonPrivateDpEvent()
        case GaussianRelease():
            return _gaussian(mu_squared(event, delta0))
        case IntegerRelease() if is_tabulated(event):
            return _gaussian(mu_squared(event, delta0))
    raise UnsupportedEventError(f"no event of dp-accounting is true of {event!r}")


def _gaussian(squared: float) -> Any:
    """Return Gaussian noise of a squared mu, which may be 0 or infinite."""
    from dp_accounting import dp_event

    if squared == 0.0:
        return dp_event.NoOpDpEvent()
    if math.isinf(squared):
        return dp_event.NonPrivateDpEvent()
    return dp_event.GaussianDpEvent(_ROUNDED / math.sqrt(squared))
