"""What `conduct` does with any script: whom it asks when, whom it loses, and when it has to pay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Any

import numpy as np
import pytest

from dp import LedgerError
from protocol.exchange.stages import (
    CLIENT,
    MEMBER,
    Inbound,
    Messages,
    Refusal,
    Script,
    Step,
    conduct,
)
from secagg import (
    FieldSum,
    FieldVector,
    LocalProtocolError,
    PrimeField,
    Reason,
    RemoteProtocolError,
    TooFewSurvivorsError,
)

FIELD = PrimeField(16)
TOTAL = FieldSum(FieldVector(FIELD, FIELD.zeros(1)), (0, 2), ())


class Said(IntEnum):
    """What a toy scheme exchanges."""

    SEND = 0
    VOTE = 1
    SIGN = 2


class Toy:
    """Clients 0 .. 2 send, two members vote and sign; the vote decides. Notes what happens."""

    def __init__(self, *, lazy: bool = False) -> None:
        self.lazy = lazy
        self.trace: list[Any] = []

    def script(self) -> Script:
        parties = {Said.SEND: CLIENT, Said.VOTE: MEMBER, Said.SIGN: MEMBER}
        return Script(
            steps=[Step(s, party, self.receive, s is Said.VOTE) for s, party in parties.items()],
            close=self.close,
            decided=lambda: ((0, 2), None),
            total=lambda _: self.noted("total", TOTAL),
            excluded=lambda: {1: "left out"},
        )

    def noted(self, what: Any, result: Any = None) -> Any:
        self.trace.append(what)
        return result

    def receive(self, index: int, data: bytes) -> None:
        if data == b"bad":
            raise RemoteProtocolError(index, Reason.BAD_SEAL)
        self.trace.append(("got", index, data))

    def close(self) -> Messages:
        messages = [(0, b"to"), (1, b"to")]
        self.trace.append("close")
        return iter(messages) if self.lazy else messages

    def carry(self, stage: Said, messages: Messages) -> Iterator[tuple[int, bytes | Refusal]]:
        self.trace.append(str(stage.name))
        for index, _ in messages:
            yield index, b"yes"

    def released(self, survivors: Sequence[int], record: object = None, /) -> None:
        self.trace.append(("paid", survivors))

    def run(self, carry: Callable[..., Inbound] | None = None, **options: Any) -> Any:
        opening = [(index, b"open") for index in range(3)]
        options = {"before_release": self.released, **options}
        return conduct(self.script(), opening, carry or self.carry, **options)


@pytest.mark.parametrize("lazy", [False, True])
def test_it_pays_once_between_the_step_that_decides_and_the_next(lazy: bool) -> None:
    toy = Toy(lazy=lazy)
    outcome = toy.run()
    assert [each for each in toy.trace if each[0] != "got"] == [
        "SEND", "close", "VOTE", "close", ("paid", (0, 2)), "SIGN", "total",
    ]  # fmt: skip
    assert outcome.total is TOTAL and outcome.refused == {1: "left out"}
    assert outcome.bytes_down == dict.fromkeys(range(3), 4)
    assert outcome.member_bytes_down == dict.fromkeys(range(2), 4)
    assert outcome.member_bytes_up == dict.fromkeys(range(2), 6)


def test_nobody_is_asked_for_anything_more_if_it_cannot_be_paid() -> None:
    toy = Toy()

    def refuse(*_: object) -> None:
        raise LedgerError("full")

    with pytest.raises(LedgerError, match="full"):
        toy.run(before_release=refuse)
    assert toy.trace[-1] == "close" and "SIGN" not in toy.trace and "total" not in toy.trace


def test_a_step_without_messages_asks_nobody() -> None:
    toy = Toy()
    toy.close = lambda: ()  # type: ignore[method-assign]
    toy.run()
    assert [each for each in toy.trace if each in ("SEND", "VOTE", "SIGN")] == ["SEND"]


def test_clients_and_members_are_lost_each_by_their_own_kind() -> None:
    toy, told = Toy(), list[tuple[str, int, str]]()

    def carry(stage: Said, messages: Messages) -> Inbound:
        yield 1, b"bad" if stage is Said.SEND else Refusal("no")
        if stage is Said.SIGN:
            yield from ((0, Refusal("early")), (0, b"yes"), (0, b"bad"))

    losses = {
        kind: lambda *lost, kind=kind: told.append((kind, *lost)) for kind in (CLIENT, MEMBER)
    }
    outcome = toy.run(carry, on_loss=losses)
    bad = str(RemoteProtocolError(1, Reason.BAD_SEAL))
    # Who refuses is told of at once: nobody knows yet that a good message follows.
    members = [(MEMBER, *lost) for lost in ((1, "no"), (1, "no"), (0, "early"))]
    assert told == [(CLIENT, 1, bad), *members]
    # What was understood in a step counts, whatever is sent before or after it.
    assert outcome.refused_members == {1: "no"}
    assert outcome.bytes_up == {0: 0, 1: 3, 2: 0} and outcome.member_bytes_up == {0: 6, 1: 0}


@pytest.mark.parametrize(("fails", "named"), [("close", "bad client"), ("total", "bad member")])
def test_too_few_are_explained_by_those_who_were_asked(fails: str, named: str) -> None:
    toy = Toy()

    def carry(stage: Said, messages: Messages) -> Inbound:
        yield 1, Refusal("bad client" if stage is Said.SEND else "bad member")

    def too_few(*_: object) -> Any:
        raise TooFewSurvivorsError("vote", 1, 2)

    script = toy.script()
    changed = {
        name: too_few if name == fails else getattr(script, name) for name in ("close", "total")
    }
    broken = Script(steps=script.steps, decided=script.decided, **changed)
    with pytest.raises(TooFewSurvivorsError) as caught:
        conduct(broken, [(1, b"")], carry)
    assert caught.value.__notes__ == [f"party 1 was lost: {named}"]


def test_any_other_error_of_a_server_ends_the_round() -> None:
    toy = Toy()

    def wrong(index: int, data: bytes) -> None:
        raise LocalProtocolError("a mistake")

    toy.receive = wrong  # type: ignore[method-assign]
    with pytest.raises(LocalProtocolError, match="a mistake"):
        toy.run()
    assert np.array_equal(toy.trace, ["SEND"])
