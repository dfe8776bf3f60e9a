"""Who has spent how much: every client pays for the rounds it was invited to, and for no others.

A round that a client is not invited to does not depend on that client's data, given the rounds
before it, so its privacy loss comes from its own rounds alone; the accountant composes those
adaptively. Reported is the client that has spent most. Nothing is gained from *which* rounds a
client was drawn for: the server knows that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from dp.correlated import CorrelatedRelease
from protocol.round.round_events import RoundEvents
from protocol.round.run_account import RunAccountant

LABEL_BYTES = 8

_Account: TypeAlias = DominationAccountant | MomentsAccountant | RunAccountant


def label(identity_key: bytes) -> str:
    """Short public name of a client in the ledger: the head of its identity key, in hex."""
    return identity_key[:LABEL_BYTES].hex()


@dataclass(frozen=True, slots=True, eq=False)
class _History:
    """What all clients with the same rounds behind them have spent, against each adversary."""

    server: _Account
    outsider: _Account
    sybil: _Account
    without_members: _Account
    rounds: int = 0
    adding_members: bool = False

    def then(self, events: RoundEvents) -> _History:
        """The same history and one more round."""
        without = events.without_members or events.server
        return _History(
            server=_after(self.server, events.server),
            outsider=_after(self.outsider, events.outsider),
            sybil=_after(self.sybil, events.sybil),
            without_members=_after(self.without_members, without),
            rounds=self.rounds + 1,
            adding_members=events.without_members is not None,
        )

    def passing(self, absent: Event) -> _History:
        """The same history after a round without the client, whose noise comes back in others."""
        return replace(
            self, server=_after(self.server, absent), outsider=_after(self.outsider, absent)
        )


def _after(account: _Account, event: Event) -> _Account:
    """An account with one more event: of its kind, if it is the first one."""
    after = _fitting(account, event).copy()
    after.compose(event)
    return after


def _fitting(account: _Account, event: Event) -> _Account:
    """The account; of runs whose noise comes back, if it is empty and the event is of one."""
    first = not account.releases and not isinstance(account, RunAccountant)
    return RunAccountant() if first and isinstance(event, CorrelatedRelease) else account


class ClientAccounts:
    """Accounts of a population, opened as clients are first invited."""

    def __init__(self, reserve: FailureReserve) -> None:
        self._fresh = _History(
            server=reserved_accountant(reserve),
            outsider=reserved_accountant(reserve),
            sybil=reserved_accountant(reserve),
            without_members=reserved_accountant(reserve),
        )
        self._histories: dict[str, _History] = {}
        self._most_releases = reserve.releases

    def check(self, cohort: Sequence[str], event: Event, budget: Budget) -> None:
        """See that no client of a cohort would exceed the budget with one more event."""
        for history in self._distinct(cohort):
            if history.rounds >= self._most_releases:
                spent = history.server.epsilon(budget.delta)
                raise RoundsUsedUpError(spent, budget.epsilon, self._most_releases)
            budget.check(_fitting(history.server, event), event)

    def record(self, cohort: Sequence[str], events: RoundEvents) -> None:
        """Charge a round to every client that was invited, survivor or not.

        Where noise comes back, all others are told of it too: their charges grow with it.
        """
        charged = {id(history): history.then(events) for history in self._distinct(cohort)}
        after = {client: charged[id(self._of(client))] for client in cohort}
        if (absent := events.absent) is not None:
            self._all_take(lambda history: history.passing(absent))
        self._histories.update(after)

    def require_theorem(self, event: Event) -> None:
        """See that an event can be accounted for at all."""
        _after(self._fresh.outsider, event)

    def replay(self, events: RoundEvents, cohort: Sequence[str] | None) -> None:
        """Charge a round of an earlier run; None charges everybody, known and unknown."""
        if cohort is None:
            self._all_take(lambda history: history.then(events))
        else:
            self.record(cohort, events)

    def epsilons(self, delta: float, colluders: int, goal: float | None = None) -> FourEpsilons:
        """Of the client that has spent most against each adversary."""
        histories = [*self._distinct(list(self._histories)), self._fresh]

        def most(account: Callable[[_History], _Account]) -> float:
            return max(account(history).epsilon(delta) for history in histories)

        return FourEpsilons(
            server=most(lambda history: history.server),
            outsider=most(lambda history: history.outsider),
            sybil=most(lambda history: history.sybil),
            without_members=most(lambda history: history.without_members)
            if any(history.adding_members for history in histories)
            else None,
            secagg_alone=math.inf,
            delta=delta,
            colluders=colluders,
            amplified=False,
            goal=goal,
            gaussian=_widest([history.server for history in histories], delta),
        )

    def _all_take(self, step: Callable[[_History], _History]) -> None:
        """Take the history of every client, known or unknown, one step on."""
        known = [*self._distinct(list(self._histories)), self._fresh]
        after = {id(history): step(history) for history in known}
        self._histories = {client: after[id(of)] for client, of in self._histories.items()}
        self._fresh = after[id(self._fresh)]

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
