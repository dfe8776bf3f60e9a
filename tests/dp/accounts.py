"""What a run costs by one accountant: the question that most accounting tests ask."""

from __future__ import annotations

from dp import Event, replay
from dp.accounting.base import EventCounter


def epsilon_of(kind: type[EventCounter], *events: Event, delta: float = 1e-5) -> float:
    """Return epsilon of these events at ``delta`` by an accountant of this kind."""
    return replay(events, kind()).epsilon(delta)
