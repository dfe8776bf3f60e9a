"""The guard that stops a round before it starts, and the replay of what was released."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from dp.accounting.base import Accountant
from dp.checks import require_between_0_and_1
from dp.errors import BudgetExceededError
from dp.event_kinds import Event

AnyAccountant = TypeVar("AnyAccountant", bound=Accountant)


def replay(events: Iterable[Event], accountant: AnyAccountant) -> AnyAccountant:
    """Compose all events into ``accountant`` and return it.

    Raises:
        UnsupportedEventError: an event has no theorem in this accountant.
    """
    for event in events:
        accountant.compose(event)
    return accountant


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that may ever be released: fixed before the first round.

    Attributes:
        epsilon: > 0.
        delta: in (0, 1).
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        # Infinity is allowed: it is how an ablation says that it has no budget.
        if not self.epsilon > 0.0:
            raise ValueError(f"epsilon must be positive, got {self.epsilon!r}")
        require_between_0_and_1("delta", self.delta)

    def check(self, accountant: Accountant, next_event: Event) -> float:
        """Return epsilon after ``next_event``, or refuse it. The accountant is not changed.

        Call this before a round's first upload, with the fewest coins the round could end with.

        Raises:
            BudgetExceededError: the total would be above the budget.
            UnsupportedEventError: the accountant has no theorem for the event.
        """
        trial = accountant.copy()
        trial.compose(next_event)
        requested = trial.epsilon(self.delta)
        if not requested <= self.epsilon:
            raise BudgetExceededError(accountant.epsilon(self.delta), requested, self.epsilon)
        return requested
