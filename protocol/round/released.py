"""What the sums of a run release, as its accounts ask for it: seen from the setup of one round.

`IndependentEvents` are those of rounds whose noise is their own; `RunEvents`, in
`returned_events`, those of a run in which a part of it comes back.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dp import Event, UnsupportedEventError
from dp.accounting import reserved_accountant
from protocol.goal import PrivacyGoal
from protocol.round.account import Account, IndependentAccount
from protocol.round.parameters import RoundParameters, release_event
from protocol.round.round_events import RoundEvents
from secagg import ParameterError
from secagg.oneshot.records import RoundRecord

if TYPE_CHECKING:
    from protocol.round.setup import RoundEncoding


class Released(ABC):
    """What the sum of one round may release, and which account counts it."""

    @property
    @abstractmethod
    def noise_multiplier(self) -> float:
        """Deviation of the noise that enters with the fewest honest parties, over sensitivity."""

    @property
    @abstractmethod
    def worst_case(self) -> Event:
        """What a client that takes part is charged for by its own count, against the server."""

    @abstractmethod
    def possible(self) -> Sequence[RoundEvents]:
        """What the sum may release, before it is known who uploads: the worst that there is."""

    @abstractmethod
    def of(self, survivors: int, record: RoundRecord | None = None) -> RoundEvents:
        """What a sum over so many clients releases."""

    @abstractmethod
    def epsilon_of_rounds(self, goal: PrivacyGoal, apart: int = 1) -> float:
        """Worst-case epsilon of `goal.rounds` rounds like this one; infinite without a theorem."""

    @abstractmethod
    def account(self, goal: PrivacyGoal | None) -> Account:
        """A new account of one client for rounds like this one."""


class IndependentEvents(Released):
    """Of rounds whose noise is their own."""

    def __init__(self, setup: RoundEncoding) -> None:
        self._setup = setup

    @property
    def noise_multiplier(self) -> float:
        """As `Released.noise_multiplier` says; clients alone add noise."""
        setup = self._setup
        return multiplier(
            setup.parameters, setup.parameters.mechanism.variance, setup.fewest_honest
        )

    @property
    def worst_case(self) -> Event:
        """As `Released.worst_case` says: of the fewest survivors."""
        return self.of(self._setup.context.minimum_survivors).server

    def possible(self) -> Sequence[RoundEvents]:
        """As `Released.possible` says.

        The fewest survivors have the least noise. The most have the most, where it cannot be taken
        off, and too much of it for tables is charged as if there were none.
        """
        context = self._setup.context
        return self.of(context.minimum_survivors), self.of(context.invited)

    def of(self, survivors: int, record: RoundRecord | None = None) -> RoundEvents:
        """As `Released.of` says."""
        if record is not None:
            raise ParameterError("record", record, "left out: clients alone upload")
        setup = self._setup
        left = setup.noise_left(survivors)
        honest = max(survivors - setup.context.tolerated_colluders, 0)
        return RoundEvents(
            server=release_event(setup.parameters, left, honest),
            outsider=release_event(setup.parameters, left, survivors),
            sybil=release_event(setup.parameters, setup.own_noise, 1),
        )

    def epsilon_of_rounds(self, goal: PrivacyGoal, apart: int = 1) -> float:
        """As `Released.epsilon_of_rounds` says."""
        accountant = reserved_accountant(goal.reserve)
        try:
            accountant.compose(self.worst_case, goal.rounds)
        except UnsupportedEventError:
            return math.inf
        return accountant.epsilon(goal.delta)

    def account(self, goal: PrivacyGoal | None) -> Account:
        """As `Released.account` says."""
        return IndependentAccount(goal)


def multiplier(parameters: RoundParameters, variance: float, contributors: int = 1) -> float:
    """Deviation of the noise of so many contributors, each with this variance, over sensitivity."""
    return math.sqrt(contributors * variance) / parameters.l2_bound
