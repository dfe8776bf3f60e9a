"""Every (phase, event) pair of the three tables of the one-shot protocol, walked in full."""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import one_shot_rounds as kit
import pytest
from moves import check_party, check_server, diagram, label

from secagg import LocalProtocolError, Reason
from secagg.oneshot import client, member, server
from secagg.oneshot.messages import (
    AnyMessage,
    FromMember,
    Proposal,
    ToMember,
    Upload,
    decode_from_member,
    decode_to_member,
    decode_upload,
)
from secagg.oneshot.states import Finished, Step
from secagg.oneshot.transitions import (
    CLIENT_MOVES,
    MEMBER_MOVES,
    SERVER_MOVES,
    ClientPhase,
    Local,
    MemberPhase,
    ServerPhase,
)
from secagg.session import Moves

MESSAGES: list[type] = list(AnyMessage.__args__)  # type: ignore[attr-defined]
CLIENT_EVENTS = [Local.SEEDS, Local.INPUT, Local.RESEND]
SERVER_EVENTS: list[Any] = [Local.DEADLINE, Local.OPEN, *MESSAGES]
FINAL = (
    ClientPhase.ABORTED,
    MemberPhase.ABORTED,
    MemberPhase.FINISHED,
    ServerPhase.ABORTED,
    ServerPhase.FINISHED,
)
SERVER_AT = (
    ServerPhase.COLLECTING,
    ServerPhase.CHECKING,
    ServerPhase.CONFIRMING,
    ServerPhase.OPENING,
)
MEMBER_AT = (MemberPhase.WAITING, MemberPhase.CHECKED, MemberPhase.CONFIRMED, MemberPhase.FINISHED)


@cache
def honest_messages(index: int = 0) -> dict[type, AnyMessage]:
    """One honest message of every kind, from client and member, and to the member."""
    round_ = kit.Round(kit.context())
    data = round_.upload(index)
    found: dict[type, AnyMessage] = {Upload: decode_upload(data, index, len(data))}
    round_ = kit.Round(kit.context())
    round_.collect()
    for _ in range(3):

        def noted(member: int, answer: bytes) -> bytes:
            if member == index:
                message = decode_from_member(answer, member, len(answer))
                found[type(message)] = message
            return answer

        round_.pass_on(noted)
        sent = round_.sent[index]
        message = decode_to_member(sent, -1, len(sent))
        found[type(message)] = message
    assert set(found) == set(MESSAGES)
    return found


def client_at(phase: ClientPhase) -> Any:
    round_ = kit.Round(kit.context())
    party = round_.clients[0]
    if phase is ClientPhase.ABORTED:
        party.abort()
    elif phase is not ClientPhase.FRESH:
        party.seeds(b"rounded 0")
        if phase is ClientPhase.UPLOADED:
            party.submit(round_.vector(0))
    assert party.phase is phase
    return party, round_


@pytest.mark.parametrize("event", CLIENT_EVENTS, ids=label)
@pytest.mark.parametrize("phase", list(ClientPhase), ids=label)
def test_client_matrix(phase: ClientPhase, event: Local) -> None:
    party, round_ = client_at(phase)
    acts: dict[Local, Callable[[], object]] = {
        Local.SEEDS: lambda: party.seeds(b"rounded 0"),
        Local.INPUT: lambda: party.submit(round_.vector(0)),
        Local.RESEND: party.resend_bytes,
    }
    check_party(acts[event], party, event, CLIENT_MOVES, FINAL)


def member_at(phase: MemberPhase) -> tuple[Any, kit.Round]:
    round_ = kit.Round(kit.context())
    party = round_.members[0]
    if phase is MemberPhase.ABORTED:
        party.abort()
    else:
        round_.collect()
        for _ in range(MEMBER_AT.index(phase)):
            round_.pass_on()
    assert party.phase is phase
    return party, round_


@pytest.mark.parametrize("event", [*MESSAGES, Local.DEADLINE], ids=label)
@pytest.mark.parametrize("phase", list(MemberPhase), ids=label)
def test_member_matrix(phase: MemberPhase, event: Any) -> None:
    party, _ = member_at(phase)

    def act() -> object:
        if isinstance(event, Local):
            return party._step(event, None)
        return party.receive(messages[event])

    messages = honest_messages()
    check_party(act, party, event, MEMBER_MOVES, FINAL)


def server_at(phase: ServerPhase) -> kit.Round:
    """A round whose server is in a phase, and has heard nobody in it."""
    round_ = kit.Round(kit.context())
    if phase is ServerPhase.ABORTED:
        with pytest.raises(LocalProtocolError):
            round_.server.close_round()
    elif phase is ServerPhase.FINISHED:
        round_.finish()
    elif phase is not ServerPhase.COLLECTING:
        round_.collect()
        for _ in range(SERVER_AT.index(phase) - 1):
            round_.pass_on()
        round_.sent = dict(round_.server.close_round_bytes())
    assert round_.server.phase is phase
    return round_


def answer_all(round_: kit.Round, phase: ServerPhase) -> None:
    if phase is ServerPhase.COLLECTING:
        round_.collect()
        return
    for index, data in round_.sent.items():
        answer = round_.members[index].receive_bytes(data)
        round_.server.receive_from_member(index, answer)


@pytest.mark.parametrize("event", SERVER_EVENTS, ids=label)
@pytest.mark.parametrize("phase", list(ServerPhase), ids=label)
def test_server_matrix(phase: ServerPhase, event: Any) -> None:
    round_ = server_at(phase)
    party, messages = round_.server, honest_messages()
    act: Callable[[], object]
    if isinstance(event, Local):
        act = party.close_round if event is Local.DEADLINE else party.open
    else:
        act = lambda: party.receive(messages[event])  # noqa: E731
    to_member = event in ToMember.__args__  # type: ignore[attr-defined]
    check_server(
        act,
        party,
        event,
        SERVER_MOVES,
        FINAL,
        prepare=lambda: answer_all(round_, phase),
        refusal=Reason.UNKNOWN_SENDER if to_member else Reason.UNEXPECTED_MESSAGE,
    )
    if (phase, event) in SERVER_MOVES and not isinstance(event, Local):
        assert party.answered == (0,)


@pytest.mark.parametrize(
    ("moves", "phases"),
    [(CLIENT_MOVES, ClientPhase), (MEMBER_MOVES, MemberPhase), (SERVER_MOVES, ServerPhase)],
)
def test_diagrams_of_the_document_are_generated(moves: Moves, phases: type[enum.Enum]) -> None:
    text = (Path(__file__).parents[3] / "docs" / "one-shot.md").read_text("utf-8")
    wanted = diagram(moves, phases)
    assert wanted in text, f"docs/one-shot.md must hold this diagram:\n{wanted}"


def test_handler_tables_are_the_transition_tables() -> None:
    assert set(client.HANDLERS) == set(CLIENT_MOVES)
    assert set(member.HANDLERS) == set(MEMBER_MOVES)
    served = set(server.OneShotServer.RECEIVERS) | {
        (phase, Local.DEADLINE) for phase in server.OneShotServer.CLOSERS
    }
    assert served | {(ServerPhase.OPENING, Local.OPEN)} == set(SERVER_MOVES)


def test_every_message_has_one_receiver() -> None:
    received = [event for _, event in [*MEMBER_MOVES, *SERVER_MOVES] if isinstance(event, type)]
    assert sorted(received, key=label) == sorted(MESSAGES, key=label)
    assert {event for _, event in MEMBER_MOVES} == set(ToMember.__args__)  # type: ignore[attr-defined]
    upward = {event for _, event in SERVER_MOVES if isinstance(event, type)}
    assert upward == {Upload, *FromMember.__args__}  # type: ignore[attr-defined]


def test_every_phase_is_reached_and_final_ones_are_left_by_nothing() -> None:
    for moves, phases in (
        (CLIENT_MOVES, ClientPhase),
        (MEMBER_MOVES, MemberPhase),
        (SERVER_MOVES, ServerPhase),
    ):
        reached = {target for targets in moves.values() for target in targets}
        aborted = phases["ABORTED"]
        assert reached | {next(iter(phases)), aborted} == set(phases)
        assert not {source for source, _ in moves} & set(FINAL)


def test_a_handler_that_leaves_the_table_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    proposal = honest_messages()[Proposal]
    party, _ = member_at(MemberPhase.CHECKED)
    monkeypatch.setitem(
        member.HANDLERS, (MemberPhase.CHECKED, Proposal), lambda *_: Step(Finished(), None)
    )
    with pytest.raises(LocalProtocolError, match="illegal move"):
        party.receive(proposal)
    assert party.phase is MemberPhase.ABORTED
    round_ = server_at(ServerPhase.CHECKING)
    with pytest.raises(LocalProtocolError, match="illegal move"):
        round_.server._move(Local.DEADLINE, ServerPhase.FINISHED)
