"""The same release under another adjacency.

Events bound what one client's contribution can change when it is replaced by the *zero* vector.
Replacing it by *another* contribution within the same bounds changes the sum by v = u - w with
|u|_2, |w|_2 <= D2 and |u_i|, |w_i| <= Dinf, each surely and after rounding. So |v|_2 <= 2 D2 and
|v_i| <= 2 Dinf, and every theorem about integer vectors within bounds applies with both doubled.

Source: docs/accounting.md, "Replace-one".
"""

from __future__ import annotations

from dataclasses import replace

from dp.errors import UnsupportedEventError
from dp.events import (
    AboveThresholdRelease,
    BinomialRelease,
    Composition,
    DiscreteGaussianRelease,
    Event,
    GaussianRelease,
    LaplaceRelease,
    LocalRelease,
    NonPrivateRelease,
    SkellamRelease,
)


def replace_one(event: Event) -> Event:
    """Return an event whose zero-out epsilon is the replace-one epsilon of ``event``.

    A local report is private for any two inputs as it is, so it stays the same.

    Raises:
        UnsupportedEventError: no theorem here says what a replacement changes: a sampled cohort, or
            sensitivities that hold with a probability only.
    """
    match event:
        case BinomialRelease() | DiscreteGaussianRelease() | SkellamRelease():
            return replace(
                event,
                l2_sensitivity=2.0 * event.l2_sensitivity,
                linf_sensitivity=2 * event.linf_sensitivity,
            )
        case GaussianRelease():
            return replace(event, l2_sensitivity=2.0 * event.l2_sensitivity)
        case LaplaceRelease() | AboveThresholdRelease():
            return replace(event, sensitivity=2 * event.sensitivity)
        case LocalRelease() | NonPrivateRelease():
            return event
        case Composition():
            return Composition(tuple(replace_one(part) for part in event.parts))
        case _:
            raise UnsupportedEventError(f"no theorem covers {event!r} under replace-one adjacency")
