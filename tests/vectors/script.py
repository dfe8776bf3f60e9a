"""From rounds to files: the operations of a vector and the messages that they name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .handmade import Event
from .schema import Error

SERVER = -1


class Script:
    """A file under construction: honest steps of a round, and what is put between them."""

    def __init__(self, round_: Any, description: str) -> None:
        self.round = round_
        self.description = description
        self.messages: dict[str, bytes] = {}
        self.operations: list[Any] = []

    def play(self, events: Iterable[Event], *, compare: bool = True) -> None:
        """Append honest steps; without `compare` the server's deadlines give anything."""
        for event in events:
            step: Any = {"op": event.op}
            if event.client is not None:
                step[self.round.PARTY_KEY] = event.client
            if event.data is not None:
                step["data"] = self._known(event.data)
            if event.op == self.round.LAST:
                step["expect"] = self.round.result()
            elif event.op == "server_close":
                if compare:
                    step["expect"] = [[to, self._known(name)] for to, name in event.expect]
            elif isinstance(event.expect, str):
                step["expect"] = self._known(event.expect)
            elif event.expect is not ...:
                step["expect"] = event.expect
            self.operations.append(step)

    def step(self, op: str, party: int | None = None, **fields: Any) -> None:
        """Append any step; `data` may be bytes, which get the name of the step's place."""
        if isinstance(data := fields.get("data"), bytes):
            fields["data"] = name = f"changed {len(self.operations)}"
            self.messages[name] = data
        who = {} if party is None else {self.round.PARTY_KEY: party}
        self.operations.append({"op": op, **who, **fields})

    def vector(self) -> Any:
        """The finished file: a `RoundVector` or a `OneShotRoundVector`."""
        return {
            "description": self.description,
            **self.round.known(),
            "messages": {name: data.hex() for name, data in self.messages.items()},
            "operations": self.operations,
            "success": "error" not in self.operations[-1],
        }

    def _known(self, name: str) -> str:
        if name not in self.messages:
            self.messages[name] = self.round.named(name)
        return name


def remote(party: int, reason: str) -> Error:
    """The error of a peer that misbehaves."""
    return {"type": "RemoteProtocolError", "party": party, "reason": reason}


def too_few(stage: str, survivors: int, needed: int) -> Error:
    """A stage that ended short."""
    return {
        "type": "TooFewSurvivorsError",
        "stage": stage,
        "survivors": survivors,
        "needed": needed,
    }


def wrong_shares(owner: int, answered: int, threshold: int) -> Error:
    """Shares that rebuild no secret that their owner committed to."""
    return {
        "type": "WrongSharesError",
        "owner": owner,
        "answered": answered,
        "threshold": threshold,
    }


def of_member(party: int, reason: str) -> Error:
    """The error of a member that misbehaves."""
    return {"type": "RemoteProtocolError", "party": party, "reason": reason, "role": "member"}


def opening_failed(
    answered: int, needed: int, dealers: Iterable[int] = (), members: Iterable[int] = ()
) -> Error:
    """Answers that do not open the sum, and whom to look at."""
    return {
        "type": "OpeningFailedError",
        "answered": answered,
        "needed": needed,
        "dealers": list(dealers),
        "members": list(members),
    }
