"""Every (phase, event) pair of the three tables of the one-shot protocol, walked in full."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import one_shot_rounds as kit
import pytest

from secagg import (
    LocalProtocolError,
    Reason,
    RemoteProtocolError,
    SessionAbortedError,
)
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


def label(event: Any) -> str:
    return event.name if isinstance(event, enum.Enum) else event.__name__


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
    act = acts[event]
    if (phase, event) in CLIENT_MOVES:
        act()
        assert {party.phase} == CLIENT_MOVES[phase, event]
        return
    if phase in FINAL:
        with pytest.raises(SessionAbortedError):
            act()
    else:
        with pytest.raises(LocalProtocolError):
            act()
    assert party.phase is ClientPhase.ABORTED
    with pytest.raises(SessionAbortedError):
        act()


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
    if (phase, event) in MEMBER_MOVES:
        act()
        assert {party.phase} == MEMBER_MOVES[phase, event]
        return
    if phase in FINAL:
        with pytest.raises(SessionAbortedError):
            act()
        assert party.phase is phase
        return
    if isinstance(event, Local):
        with pytest.raises(LocalProtocolError):
            act()
    else:
        with pytest.raises(RemoteProtocolError) as raised:
            act()
        assert raised.value.reason is Reason.UNEXPECTED_MESSAGE
    assert party.phase is MemberPhase.ABORTED
    with pytest.raises(SessionAbortedError):
        act()


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
    if phase in FINAL:
        with pytest.raises(SessionAbortedError):
            act()
        assert party.phase is phase
    elif (phase, event) in SERVER_MOVES:
        if isinstance(event, Local):
            answer_all(round_, phase)
        act()
        assert {party.phase} == SERVER_MOVES[phase, event]
        assert isinstance(event, Local) or party.answered == (0,)
    elif isinstance(event, Local):
        with pytest.raises(LocalProtocolError):
            act()
        assert party.phase is phase
    else:
        with pytest.raises(RemoteProtocolError) as raised:
            act()
        to_member = event in ToMember.__args__  # type: ignore[attr-defined]
        expected = Reason.UNKNOWN_SENDER if to_member else Reason.UNEXPECTED_MESSAGE
        assert raised.value.reason is expected
        assert party.phase is phase
        assert party.answered == ()


def diagram(moves: Moves, phases: type[enum.Enum]) -> str:
    """A Mermaid state diagram of a transition table; docs/one-shot.md holds the results."""
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {next(iter(phases)).name}"]
    for (source, event), targets in moves.items():
        text = event.value if isinstance(event, Local) else event.__name__
        lines += [
            f"    {source.name} --> {each.name}: {text}" for each in phases if each in targets
        ]
    return "\n".join(lines)


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


RAISED = {
    "MALFORMED",
    "OVERSIZED",
    "UNEXPECTED_MESSAGE",
    "UNKNOWN_SENDER",
    "DUPLICATE_MESSAGE",
    "WRONG_CONTEXT",
    "BAD_SIGNATURE",
    "BAD_KEY",
    "SET_TOO_SMALL",
    "SET_NOT_NESTED",
    "BAD_SHARE",
    "NOT_IN_TREE",
    "BAD_LENGTH",
    "NOT_IN_FIELD",
    "MISSING_SIGNATURES",
}
"""Reasons that the one-shot protocol has; a bad seal is a complaint, not an error."""


def test_every_reason_is_raised_by_a_test() -> None:
    source = Path(server.__file__).parent
    used = {
        name
        for path in [
            *source.glob("*.py"),
            source.parent / "framing.py",
            source.parent / "session.py",
        ]
        for name in re.findall(r"Reason\.([A-Z_]+)", path.read_text("utf-8"))
    }
    assert used == RAISED
    files = [path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py")]
    named = {name for text in files for name in re.findall(r"Reason\.([A-Z_]+)", text)}
    assert named >= RAISED
