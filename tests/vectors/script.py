"""From rounds to files: the operations of a vector and the messages that they name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .handmade import Event, Round
from .schema import Error, Operation, RefusalVector, RoundVector

SERVER = -1


class Script:
    """A file under construction: honest steps of a round, and what is put between them."""

    def __init__(self, round_: Round, description: str) -> None:
        self.round = round_
        self.description = description
        self.messages: dict[str, bytes] = {}
        self.operations: list[Operation] = []

    def play(self, events: Iterable[Event], *, compare: bool = True) -> None:
        """Append honest steps; without `compare` the server's deadlines give anything."""
        for event in events:
            step: Any = {"op": event.op}
            if event.client is not None:
                step["client"] = event.client
            if event.data is not None:
                step["data"] = self._known(event.data)
            if event.op == "server_close" and compare:
                step["expect"] = [[to, self._known(name)] for to, name in event.expect]
            elif event.op == "server_unmask":
                step["expect"] = self.round.result()
            elif event.op.startswith("client"):
                step["expect"] = event.expect and self._known(event.expect)
            self.operations.append(step)

    def step(self, op: str, client: int | None = None, **fields: Any) -> None:
        """Append any step; `data` may be bytes, which get the name of the step's place."""
        if isinstance(data := fields.get("data"), bytes):
            fields["data"] = name = f"changed {len(self.operations)}"
            self.messages[name] = data
        if "instead_of" in fields:
            self._known(fields["instead_of"])
        step: Any = {"op": op, **({} if client is None else {"client": client}), **fields}
        self.operations.append(step)

    def vector(self) -> RoundVector:
        """The finished file."""
        return {
            "description": self.description,
            "context": self.round.context,
            "identities": [key.hex() for key in self.round.identities],
            "rand_seeds": [seed.hex() for seed in self.round.rand_seeds],
            "inputs": self.round.inputs,
            "messages": {name: data.hex() for name, data in self.messages.items()},
            "operations": self.operations,
            "success": "error" not in self.operations[-1],
        }

    def _known(self, name: str) -> str:
        if name not in self.messages:
            self.messages[name] = self.round.named(name)
        return name


def refusal(
    description: str, base: str, round_: Round, party: int, steps: int, **last: Any
) -> RefusalVector:
    """A file that goes on from the first steps of an honest round; `last` is the refused step."""
    script = Script(round_, description)
    script.step(**last)
    honest = last.get("instead_of")
    return {
        "description": description,
        "base": base,
        "party": party,
        "steps": steps,
        "messages": {name: data.hex() for name, data in script.messages.items() if name != honest},
        "operations": script.operations,
        "success": False,
    }


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
