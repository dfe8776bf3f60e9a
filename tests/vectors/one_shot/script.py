"""From one-shot rounds to files: the operations of a vector and the messages that they name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import wire
from ..handmade import Event
from ..schema import Error
from .played import OneShotRound
from .schema import OneShotOperation, OneShotRefusalVector, OneShotRoundVector

SERVER = -1


class Script:
    """A file under construction: honest steps of a round, and what is put between them."""

    def __init__(self, round_: OneShotRound, description: str) -> None:
        self.round = round_
        self.description = description
        self.messages: dict[str, bytes] = {}
        self.operations: list[OneShotOperation] = []

    def play(self, events: Iterable[Event]) -> None:
        """Append honest steps."""
        for event in events:
            step: Any = {"op": event.op}
            if event.client is not None:
                step["party"] = event.client
            if event.data is not None:
                step["data"] = self._known(event.data)
            if event.op == "server_open":
                step["expect"] = self.round.result()
            elif event.op == "server_close":
                step["expect"] = [[to, self._known(name)] for to, name in event.expect]
            elif isinstance(event.expect, str):
                step["expect"] = self._known(event.expect)
            elif event.expect is not None:
                step["expect"] = event.expect
            self.operations.append(step)

    def step(self, op: str, party: int | None = None, **fields: Any) -> None:
        """Append any step; `data` may be bytes, which get the name of the step's place."""
        if isinstance(data := fields.get("data"), bytes):
            fields["data"] = name = f"changed {len(self.operations)}"
            self.messages[name] = data
        if "instead_of" in fields:
            self._known(fields["instead_of"])
        step: Any = {"op": op, **({} if party is None else {"party": party}), **fields}
        self.operations.append(step)

    def vector(self) -> OneShotRoundVector:
        """The finished file."""
        round_ = self.round
        return {
            "description": self.description,
            "context": round_.context,
            "identities": [key.hex() for key in round_.identities],
            "member_identities": [key.hex() for key in round_.member_identities],
            "sealing_keys": [key.hex() for key in round_.sealing_keys],
            "own": [self._own(j) for j in range(round_.members)],
            **({"returning": sorted(round_.returning)} if round_.returning else {}),
            "rand_seeds": [seed.hex() for seed in round_.rand_seeds],
            "rounded": [each.hex() for each in round_.rounded],
            "inputs": round_.inputs,
            "messages": {name: data.hex() for name, data in self.messages.items()},
            "operations": self.operations,
            "success": "error" not in self.operations[-1],
        }

    def _own(self, j: int) -> list[Any] | None:
        round_ = self.round
        if round_.kind != "everyone" and not round_.adding:
            return None
        u = j + round_.first_member
        if u in round_.lost:
            return [u, None]
        parts = round_.header_parts(u, round_.upload_fields(u))
        return [u, wire.digest("sign upload", *parts).hex()]

    def _known(self, name: str) -> str:
        if name not in self.messages:
            self.messages[name] = self.round.named(name)
        return name


def refusal(
    description: str,
    base: str,
    round_: OneShotRound,
    who: tuple[str, int],
    steps: int,
    **last: Any,
) -> OneShotRefusalVector:
    """A file that goes on from the first steps of an honest round; `last` is the refused step."""
    script = Script(round_, description)
    script.step(**last)
    honest = last.get("instead_of")
    role, party = who
    return {
        "description": description,
        "base": base,
        "role": "server" if role == "server" else "member",
        "party": party,
        "steps": steps,
        "messages": {name: data.hex() for name, data in script.messages.items() if name != honest},
        "operations": script.operations,
        "success": False,
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
