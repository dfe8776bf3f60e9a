"""Play a vector file: what the runners of both protocols share.

Nothing here knows how the files were made; another implementation needs a player like this one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from secagg import (
    ProtocolError,
    RemoteProtocolError,
    SessionAbortedError,
    TooFewSurvivorsError,
    WrongSharesError,
)
from secagg.errors import OpeningFailedError
from secagg.framing import encode_message
from secagg.shamir import Rand

from .schema import Error, MessageCase

SERVER = -1
Case = Mapping[str, Any]


class MismatchError(AssertionError):
    """The implementation and a vector differ."""


def same(found: object, expected: object, what: str) -> None:
    """Raise an error if two values differ."""
    if found != expected:
        raise MismatchError(f"{what}: {found!r}, expected {expected!r}")


def deterministic(seed: bytes) -> Rand:
    """The clients' randomness, as docs/test-vectors.md defines it."""
    block = 0

    def rand(count: int) -> bytes:
        nonlocal block
        out = bytearray()
        while len(out) < count:
            out += hashlib.sha256(seed + block.to_bytes(8, "big")).digest()
            block += 1
        return bytes(out[:count])

    return rand


def error_of(error: ProtocolError) -> Error:
    """An exception as in the files."""
    described: Error = {"type": type(error).__name__}  # type: ignore[typeddict-item]
    if isinstance(error, RemoteProtocolError):
        described |= {"party": error.party, "reason": error.reason.name}
        if error.role != "client":
            described |= {"role": error.role}
    if isinstance(error, TooFewSurvivorsError):
        described |= {"stage": error.stage, "survivors": error.survivors, "needed": error.needed}
    if isinstance(error, WrongSharesError):
        described |= {
            "owner": error.owner,
            "answered": error.answered,
            "threshold": error.threshold,
        }
    if isinstance(error, OpeningFailedError):
        described |= {
            "answered": error.answered,
            "needed": error.needed,
            "dealers": list(error.dealers),
            "members": list(error.members),
        }
    return described


class Player:
    """The parties of a round, taking the steps that a file lists.

    A subclass makes the parties, says whose step an operation is, and has a method for each kind.
    """

    context: Any
    server: Any

    def __init__(self, vector: Mapping[str, Any]) -> None:
        self.messages = {name: bytes.fromhex(data) for name, data in vector["messages"].items()}

    def parties(self, role: str) -> Any:
        """All clients, or all members."""
        raise NotImplementedError

    def party(self, operation: Mapping[str, Any]) -> int:
        """The number of whoever takes a step, or of the sender of what the server receives."""
        raise NotImplementedError

    def server_state(self) -> object:
        """What a refused message must not change."""
        raise NotImplementedError

    def step(self, operation: Mapping[str, Any]) -> None:
        """Take one step and compare its outcome."""
        where = f"{operation['op']} {self.party(operation)}"
        take: Callable[[Mapping[str, Any]], object] = getattr(self, operation["op"])
        if (error := operation.get("error")) is None:
            outcome = take(operation)
            if "expect" in operation:
                same(outcome, self.known(operation["op"], operation["expect"]), where)
            return
        before = self.server_state()
        try:
            take(operation)
        except ProtocolError as raised:
            same(error_of(raised), error, where)
        else:
            raise MismatchError(f"{where}: accepted, expected {error}")
        self.check_after_error(operation, before)

    def check_after_error(self, operation: Mapping[str, Any], before: object) -> None:
        """Parties abort, the server is as it was, and a deadline that failed ends the session."""
        role = role_of(operation)
        if role != "server":
            phase = self.parties(role)[self.party(operation)].phase
            same(phase.name in ("ABORTED", "FINISHED"), True, f"the {role}'s end")
            self.check_over(operation)
        elif operation["op"].startswith("server_receive"):
            same(self.server_state(), before, "the server's state after a refused message")
        else:
            same(self.server.phase.name, "ABORTED", "the server's phase")

    def check_over(self, operation: Mapping[str, Any]) -> None:
        """Whoever refused takes nothing afterwards, not even the honest message."""
        again = {**operation, "data": operation.get("instead_of", operation["data"])}
        try:
            getattr(self, operation["op"])(again)
        except SessionAbortedError:
            return
        raise MismatchError(f"{operation['op']}: taken after a refusal")

    def known(self, op: str, expected: Any) -> Any:
        """What is expected, with bytes in the place of the names of messages."""
        if isinstance(expected, str):
            return self.messages[expected]
        if op == "server_close":
            return [(to, self.messages[name]) for to, name in expected]
        return expected

    def server_close(self, operation: Mapping[str, Any]) -> list[tuple[int, bytes]]:
        """The stage's deadline has passed."""
        return sorted(self.server.close_round_bytes())


PlayerT = TypeVar("PlayerT", bound=Player)


def role_of(operation: Mapping[str, Any]) -> str:
    """Who takes a step: client, member or server."""
    return str(operation["op"]).split("_")[0]


def run_round(kind: Callable[[Any], PlayerT], vector: Mapping[str, Any]) -> PlayerT:
    """All operations of a round."""
    play = kind(vector)
    for operation in vector["operations"]:
        play.step(operation)
    if vector["success"]:
        same(play.server.phase.name, "FINISHED", "the server's phase")
    return play


def run_refusal(
    kind: Callable[[Any], PlayerT],
    vector: Mapping[str, Any],
    base: Mapping[str, Any],
    victim: tuple[str, int],
) -> None:
    """The refused step after the base's first ones; then the honest one in its place.

    A server goes on to the end of the round, with the sum that it would have had. If the step is
    not refused but taken, that is all.
    """
    play = _prelude(kind, vector, base, victim)
    for operation in vector["operations"]:
        play.step(operation)
    last = vector["operations"][-1]
    if "error" not in last:
        return
    following = base["operations"][vector["steps"] :]
    if (honest := last.get("instead_of")) is not None:
        same(following[0].get("data"), honest, "the base's next message")
    if victim[0] == "server":
        for operation in following:
            if role_of(operation) == "server":
                play.step(operation)
    elif honest is not None:
        # Who refused has aborted, so another one takes the honest message.
        _prelude(kind, vector, base, victim).step(following[0])


def _prelude(
    kind: Callable[[Any], PlayerT],
    vector: Mapping[str, Any],
    base: Mapping[str, Any],
    victim: tuple[str, int],
) -> PlayerT:
    play = kind(base)
    same(play.messages.keys() & vector["messages"].keys(), set(), "names that the base has")
    play.messages |= {name: bytes.fromhex(data) for name, data in vector["messages"].items()}
    for operation in base["operations"][: vector["steps"]]:
        role = role_of(operation)
        party = SERVER if role == "server" else play.party(operation)
        if (role, party) == victim:
            play.step(operation)
    return play


Decoders = Mapping[str, Callable[[bytes, int, int], Any]]
"""By who sent a message, what decodes it: data, party, limit."""


def run_message(decoders: Decoders, case: MessageCase) -> None:
    """One decoder; and the encoder, where the bytes are a message."""
    data = bytes.fromhex(case["data"])
    try:
        message = decoders[case["sent_by"]](data, case["party"], case["limit"])
    except ProtocolError as raised:
        same(error_of(raised), case.get("error"), case["description"])
        return
    same(None, case.get("error"), case["description"])
    fields = msgspec.structs.asdict(message)
    encoded = {k: v if isinstance(v, int) else v.hex() for k, v in fields.items()}
    same(encoded, case["fields"], case["description"])
    same(type(message).__name__, case["name"], case["description"])
    same(encode_message(message), data, case["description"])


def hexed(case: Case, *names: str) -> tuple[bytes, ...]:
    """Fields of a case as bytes."""
    return tuple(bytes.fromhex(case[name]) for name in names)


def drawing(case: Case) -> Rand:
    """A source that gives the draws of a case, each of the length that is asked for."""
    draws = [bytes.fromhex(drawn) for drawn in case["draws"]]

    def rand(count: int) -> bytes:
        if not count:
            return b""
        drawn = draws.pop(0)
        same(count, len(drawn), "bytes of a draw")
        return drawn

    return rand
