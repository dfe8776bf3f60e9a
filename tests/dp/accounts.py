"""What a run costs by one accountant: the question that most accounting tests ask."""

from __future__ import annotations

from dp import Event, FailureReserve
from dp.accounting.base import EventCounter


def epsilon_of(
    kind: type[EventCounter],
    *events: Event,
    delta: float = 1e-5,
    rounds: int = 1,
    reserve: FailureReserve | None = None,
) -> float:
    """Epsilon of so many rounds of each of these events at ``delta`` by an accountant."""
    accountant = kind() if reserve is None else kind(reserve)  # type: ignore[call-arg]
    for event in events:
        accountant.compose(event, rounds)
    return accountant.epsilon(delta)
