"""Who has spent how much: every client pays for the rounds it was invited to, and for no others.

A round that a client is not invited to does not depend on that client's data, given the rounds
before it, so its privacy loss comes from its own rounds alone; the accountant composes those
adaptively. Reported is the client that has spent most. Nothing is gained from *which* rounds a
client was drawn for: the server knows that.
"""

from __future__ import annotations

from collections.abc import Sequence

from dp import Budget, DominationAccountant, Event, FailureReserve

LABEL_BYTES = 8


def label(identity_key: bytes) -> str:
    """Short public name of a client in the ledger: the head of its identity key, in hex."""
    return identity_key[:LABEL_BYTES].hex()


class _History:
    """What all clients with the same rounds behind them have spent."""

    def __init__(self, server: DominationAccountant, outsider: DominationAccountant) -> None:
        self.server = server
        self.outsider = outsider

    def then(self, against_server: Event, against_outsider: Event) -> _History:
        """The same history and one more round."""
        server, outsider = self.server.copy(), self.outsider.copy()
        server.compose(against_server)
        outsider.compose(against_outsider)
        return _History(server, outsider)


class ClientAccounts:
    """Accounts of a population, opened as clients are first invited.

    Args:
        reserve: what every account sets aside; its `releases` is the most rounds a client may
            ever take part in.
    """

    def __init__(self, reserve: FailureReserve) -> None:
        self._fresh = _History(DominationAccountant(reserve), DominationAccountant(reserve))
        self._histories: dict[str, _History] = {}

    def check(self, cohort: Sequence[str], event: Event, budget: Budget) -> None:
        """See that no client of a cohort would exceed the budget with one more event.

        Raises:
            BudgetExceededError: somebody would; nothing is recorded.
        """
        for history in self._distinct(cohort):
            budget.check(history.server, event)

    def record(self, cohort: Sequence[str], against_server: Event, against_outsider: Event) -> None:
        """Charge an event to every client that was invited, survivor or not."""
        charged = {
            id(history): history.then(against_server, against_outsider)
            for history in self._distinct(cohort)
        }
        for client in cohort:
            self._histories[client] = charged[id(self._of(client))]

    def require_theorem(self, event: Event) -> None:
        """See that an event can be accounted for at all.

        Raises:
            UnsupportedEventError: it cannot.
        """
        self._fresh.server.copy().compose(event)

    def replay(self, event: Event, cohort: Sequence[str] | None) -> None:
        """Charge an event of an earlier run; None charges everybody, known and unknown.

        The coins that only an outsider does not know are not on record, so its epsilon is
        over-counted, never under-counted.
        """
        if cohort is None:
            self._fresh = self._fresh.then(event, event)
            cohort = list(self._histories)
        self.record(cohort, event, event)

    def epsilon(self, delta: float) -> tuple[float, float]:
        """(against the server, against an outsider) of the client that has spent most."""
        histories = [*self._distinct(list(self._histories)), self._fresh]
        return (
            max(history.server.epsilon(delta) for history in histories),
            max(history.outsider.epsilon(delta) for history in histories),
        )

    def _of(self, client: str) -> _History:
        return self._histories.get(client, self._fresh)

    def _distinct(self, cohort: Sequence[str]) -> list[_History]:
        return list({id(self._of(client)): self._of(client) for client in cohort}.values())
