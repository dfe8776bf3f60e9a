"""What one client has spent of its goal, by its own count, and for the worst case."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from dp import (
    Budget,
    BudgetExceededError,
    DominationAccountant,
    Entry,
    Event,
    UnsupportedEventError,
)
from dp.accounting import reserved_accountant
from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal

if TYPE_CHECKING:
    from protocol.round.setup import RoundEncoding

Pay = Callable[[Event, Mapping[str, Any]], None]
"""What has to happen before a round is charged: writing its event down, and what is remembered
beside it."""


class Account(ABC):
    """A client's count of one kind of noise. Two kinds are not counted together."""

    NOISE: ClassVar[str]
    """Its kind of noise, in a refusal's words."""

    @property
    @abstractmethod
    def rounds(self) -> int:
        """Rounds that were charged against a goal, those that were spent elsewhere among them."""

    @property
    def has_spent(self) -> bool:
        """Whether a round has been charged against a goal."""
        return self.rounds > 0

    @property
    @abstractmethod
    def epsilon(self) -> float:
        """Spent so far at the goal's delta; 0 without a goal."""

    @abstractmethod
    def check(self, setup: RoundEncoding, apart: int = 1) -> float:
        """Epsilon with one more round, if it fits the goal; 0 where nothing is counted."""

    @abstractmethod
    def charge(self, setup: RoundEncoding, epsilon: float, pay: Pay) -> None:
        """Charge a round."""

    @abstractmethod
    def restore(self, entry: Entry) -> None:
        """Take in a charge of an earlier process, the latest one last."""


class IndependentAccount(Account):
    """Of rounds whose noise is their own.

    Args:
        goal: the most that the client will ever spend; None counts nothing.
        earlier: rounds of the goal that were spent elsewhere.
    """

    NOISE = "noise that stays"

    def __init__(self, goal: PrivacyGoal | None, earlier: int = 0) -> None:
        self._goal = goal
        self._earlier = earlier
        self._spent = reserved_accountant(goal.reserve) if goal else DominationAccountant()

    @property
    def rounds(self) -> int:
        """As `Account.rounds` says."""
        return self._spent.releases + self._earlier

    @property
    def epsilon(self) -> float:
        """As `Account.epsilon` says, without what was spent elsewhere."""
        return self._spent.epsilon(self._goal.delta) if self._goal else 0.0

    def check(self, setup: RoundEncoding, apart: int = 1) -> float:
        """As `Account.check` says."""
        goal = self._goal
        if goal is None:
            return 0.0
        # Any `goal.rounds` rounds that each fit so often fit together, in whatever mixture.
        if self.rounds >= goal.rounds:
            raise PolicyError(
                "epsilon",
                f"unbounded: all rounds of this client's goal are used up ({goal.rounds})",
                f"at most {goal.epsilon:.6g} in all",
            )
        try:
            return Budget(goal.epsilon, goal.delta).check(self._spent, setup.released.worst_case)
        except BudgetExceededError as error:
            raise PolicyError(
                "epsilon", f"{error.requested:.6g} in all", f"at most {error.budget:.6g} in all"
            ) from None
        except UnsupportedEventError as error:
            raise PolicyError("mechanism", str(error), "rounds that it can account for") from None

    def charge(self, setup: RoundEncoding, epsilon: float, pay: Pay) -> None:
        """As `Account.charge` says. Paid first: what was not paid for is not counted."""
        pay(setup.released.worst_case, {})
        if self._goal:
            self._spent.compose(setup.released.worst_case)

    def restore(self, entry: Entry) -> None:
        """As `Account.restore` says."""
        if self._goal:
            self._spent.compose(entry.event)
