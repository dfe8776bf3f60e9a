"""Who has spent how much: every client pays for the rounds it was invited to, and for no others.

A round that a client is not invited to does not depend on that client's data, given the rounds
before it, so its privacy loss comes from its own rounds alone; the accountant composes those
adaptively. Reported is the client that has spent most. Nothing is gained from *which* rounds a
client was drawn for: the server knows that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dp import (
    Budget,
    DominationAccountant,
    Event,
    FailingGaussian,
    FailureReserve,
    FourEpsilons,
    MomentsAccountant,
    RoundsUsedUpError,
)
from dp.accounting import reserved_accountant
from protocol.round.round_events import RoundEvents

LABEL_BYTES = 8

_Account: TypeAlias = DominationAccountant | MomentsAccountant


def label(identity_key: bytes) -> str:
    """Short public name of a client in the ledger: the head of its identity key, in hex."""
    return identity_key[:LABEL_BYTES].hex()


@dataclass(frozen=True, slots=True, eq=False)
class _History:
    """What all clients with the same rounds behind them have spent, against each adversary."""

    server: _Account
    outsider: _Account
    sybil: _Account

    def then(self, events: RoundEvents) -> _History:
        """The same history and one more round."""
        after = _History(self.server.copy(), self.outsider.copy(), self.sybil.copy())
        after.server.compose(events.server)
        after.outsider.compose(events.outsider)
        after.sybil.compose(events.sybil)
        return after


class ClientAccounts:
    """Accounts of a population, opened as clients are first invited.

    Args:
        reserve: what every account sets aside; its `releases` is the most rounds a client may
            ever take part in.
    """

    def __init__(self, reserve: FailureReserve) -> None:
        self._fresh = _History(*(reserved_accountant(reserve) for _ in range(3)))
        self._histories: dict[str, _History] = {}
        self._most_releases = reserve.releases

    def check(self, cohort: Sequence[str], event: Event, budget: Budget) -> None:
        """See that no client of a cohort would exceed the budget with one more event.

        Raises:
            RoundsUsedUpError: somebody has taken part as often as was planned.
            BudgetExceededError: somebody would; nothing is recorded.
        """
        for history in self._distinct(cohort):
            if history.server.releases >= self._most_releases:
                spent = history.server.epsilon(budget.delta)
                raise RoundsUsedUpError(spent, budget.epsilon, self._most_releases)
            budget.check(history.server, event)

    def record(self, cohort: Sequence[str], events: RoundEvents) -> None:
        """Charge a round to every client that was invited, survivor or not."""
        charged = {id(history): history.then(events) for history in self._distinct(cohort)}
        for client in cohort:
            self._histories[client] = charged[id(self._of(client))]

    def require_theorem(self, event: Event) -> None:
        """See that an event can be accounted for at all.

        Raises:
            UnsupportedEventError: it cannot.
        """
        self._fresh.server.copy().compose(event)

    def replay(self, events: RoundEvents, cohort: Sequence[str] | None) -> None:
        """Charge a round of an earlier run; None charges everybody, known and unknown."""
        if cohort is None:
            self._fresh = self._fresh.then(events)
            cohort = list(self._histories)
        self.record(cohort, events)

    def epsilons(self, delta: float, colluders: int, goal: float | None = None) -> FourEpsilons:
        """Of the client that has spent most against each adversary.

        Args:
            colluders: how many the rounds were charged with.
            goal: epsilon that rounds were checked against, if they were.
        """
        histories = [*self._distinct(list(self._histories)), self._fresh]

        def most(account: Callable[[_History], _Account]) -> float:
            return max(account(history).epsilon(delta) for history in histories)

        return FourEpsilons(
            server=most(lambda history: history.server),
            outsider=most(lambda history: history.outsider),
            sybil=most(lambda history: history.sybil),
            secagg_alone=math.inf,
            delta=delta,
            colluders=colluders,
            amplified=False,
            goal=goal,
            gaussian=_widest([history.server for history in histories], delta),
        )

    def _of(self, client: str) -> _History:
        return self._histories.get(client, self._fresh)

    def _distinct(self, cohort: Sequence[str]) -> list[_History]:
        return list({id(self._of(client)): self._of(client) for client in cohort}.values())


def _widest(accounts: Sequence[_Account], delta: float) -> FailingGaussian | None:
    """What dominates the account that spent most; None if any has no such pair.

    All have one reserve, so the pair with the largest mu dominates the others.
    """
    pairs = [
        account.gaussian(delta) if isinstance(account, DominationAccountant) else None
        for account in accounts
    ]
    known = [pair for pair in pairs if pair is not None]
    return max(known, key=lambda pair: pair.mu) if len(known) == len(pairs) else None
