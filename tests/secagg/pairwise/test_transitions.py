"""Every (phase, event) pair of both tables, walked in full; the document's diagrams."""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pairwise_rounds as kit
import pytest
from moves import check_party, check_server, diagram, label

from secagg import (
    LocalProtocolError,
    Mode,
    Reason,
)
from secagg.pairwise import (
    client,
    server,
)
from secagg.pairwise.messages import (
    AnyMessage,
    FromClient,
    Roster,
    decode_from_client,
    decode_from_server,
)
from secagg.pairwise.reference import Stage
from secagg.pairwise.transitions import (
    CLIENT_MOVES,
    SERVER_MOVES,
    ClientPhase,
    Local,
    ServerPhase,
)
from secagg.session import Moves

Event = Local | type
ROOT = Path(__file__).parents[3]
MESSAGES: list[type] = list(AnyMessage.__args__)
CLIENT_EVENTS: list[Event] = [Local.BEGIN, Local.INPUT, *MESSAGES]
SERVER_EVENTS: list[Event] = [Local.DEADLINE, Local.UNMASK, *MESSAGES]
FINAL = (ClientPhase.FINISHED, ClientPhase.ABORTED, ServerPhase.FINISHED, ServerPhase.ABORTED)

# The stage before which a party is in a phase, in the mode where the phase exists.
CLIENT_AT = {
    ClientPhase.FRESH: Stage.ADVERTISE,
    ClientPhase.ADVERTISED: Stage.SHARE,
    ClientPhase.SHARED: Stage.MASK,
    ClientPhase.MASKED: Stage.CONFIRM,
    ClientPhase.CONFIRMED: Stage.UNMASK,
    ClientPhase.RELEASED: Stage.RECOVER,
}
SERVER_AT = {
    ServerPhase.ADVERTISING: Stage.ADVERTISE,
    ServerPhase.SHARING: Stage.SHARE,
    ServerPhase.MASKING: Stage.MASK,
    ServerPhase.CONFIRMING: Stage.CONFIRM,
    ServerPhase.UNMASKING: Stage.UNMASK,
    ServerPhase.RECOVERING: Stage.RECOVER,
}


def new_cohort() -> Any:
    """Three clients with removable seeds; the last goes away before it gives them up."""
    return kit.Cohort(kit.context(3, removal=(0b11, 0b01)), drops={2: Stage.UNMASK})


@cache
def honest_messages(u: int) -> dict[type, AnyMessage]:
    """One honest message of every kind, from and to client u."""
    cohort = new_cohort()
    cohort.run()
    found = {}
    for (_, direction, v), data in cohort.wire.items():
        if v == u and direction is kit.Direction.UP:
            message: AnyMessage = decode_from_client(data, u, len(data))
        elif v == u:
            message = decode_from_server(data, -1, len(data))
        else:
            continue
        found[type(message)] = message
    assert set(found) == set(MESSAGES)
    return found


def cohort_at(phase: ClientPhase | ServerPhase) -> Any:
    """A fresh cohort whose client 0, or whose server, is in a phase."""
    cohort = new_cohort()
    party = cohort.clients[0] if isinstance(phase, ClientPhase) else cohort.server
    if phase in (ClientPhase.FINISHED, ServerPhase.FINISHED):
        cohort.run()
    elif phase is ClientPhase.ABORTED:
        party.abort()
    elif phase is ServerPhase.ABORTED:
        with pytest.raises(LocalProtocolError):
            party.close_round()
    elif phase is ClientPhase.READY:
        cohort.run(until=Stage.MASK)
        party.receive_bytes(cohort.pending[0])
    else:
        cohort.run(until={**CLIENT_AT, **SERVER_AT}[phase])
    assert party.phase is phase
    return cohort


def client_action(cohort: Any, event: Event) -> Callable[[], object]:
    party = cohort.clients[0]
    if event is Local.BEGIN:
        return party.begin
    if event is Local.INPUT:
        return lambda: party.submit(cohort.vector(0))
    message = honest_messages(0)[event]  # type: ignore[index]
    return lambda: party.receive(message)


@pytest.mark.parametrize("event", CLIENT_EVENTS, ids=label)
@pytest.mark.parametrize("phase", list(ClientPhase), ids=label)
def test_client_matrix(phase: ClientPhase, event: Event) -> None:
    cohort = cohort_at(phase)
    party = cohort.clients[0]
    act = client_action(cohort, event)
    check_party(act, party, event, CLIENT_MOVES, FINAL)


@pytest.mark.parametrize("event", SERVER_EVENTS, ids=label)
@pytest.mark.parametrize("phase", list(ServerPhase), ids=label)
def test_server_matrix(phase: ServerPhase, event: Event) -> None:
    cohort = cohort_at(phase)
    party = cohort.server
    messages = honest_messages(0)
    act: Callable[[], object]
    if isinstance(event, Local):
        act = party.close_round if event is Local.DEADLINE else party.unmask
    else:
        act = lambda: party.receive(messages[event])  # noqa: E731

    def prepare() -> None:
        current = Stage(SERVER_AT[phase])
        for u, data in cohort.answers(current, cohort.pending).items():
            cohort.send_up(current, u, data)

    from_client = isinstance(event, type) and issubclass(event, FromClient)
    refusal = Reason.UNEXPECTED_MESSAGE if from_client else Reason.UNKNOWN_SENDER
    check_server(act, party, event, SERVER_MOVES, FINAL, prepare=prepare, refusal=refusal)


def test_handler_tables_are_the_transition_tables() -> None:
    assert set(client.HANDLERS) == set(CLIENT_MOVES)
    served = set(server.ServerSession.RECEIVERS) | {
        (phase, Local.DEADLINE) for phase in server.ServerSession.CLOSERS
    }
    assert served | {(ServerPhase.RECOVERING, Local.UNMASK)} == set(SERVER_MOVES)


@pytest.mark.parametrize("mode", list(Mode))
def test_both_modes_reach_the_end(mode: Mode) -> None:
    cohort = kit.Cohort(kit.context(3, mode))
    cohort.run()
    assert {member.phase for member in cohort.clients} == {ClientPhase.FINISHED}
    assert not any(stage is Stage.RECOVER for stage, _, _ in cohort.wire)


@pytest.mark.parametrize("mode", list(Mode))
def test_clients_wait_for_a_seed_request_only_where_one_may_come(mode: Mode) -> None:
    """Nobody is missing: no request is sent, and shares of seeds stay where they are."""
    cohort = kit.Cohort(kit.context(3, mode, removal=(0b1, 0b0)))
    cohort.run()
    assert {member.phase for member in cohort.clients} == {ClientPhase.RELEASED}
    lossy = kit.Cohort(kit.context(3, mode, removal=(0b1, 0b0)), drops={2: Stage.MASK})
    lossy.run()
    assert {member.phase for member in lossy.clients[:2]} == {ClientPhase.FINISHED}


@pytest.mark.parametrize(
    ("moves", "phases"), [(CLIENT_MOVES, ClientPhase), (SERVER_MOVES, ServerPhase)]
)
def test_diagrams_of_the_document_are_generated(moves: Moves, phases: type[enum.Enum]) -> None:
    text = (ROOT / "docs" / "protocol.md").read_text("utf-8")
    wanted = diagram(moves, phases)
    assert wanted in text, f"docs/protocol.md must hold this diagram:\n{wanted}"


def test_a_handler_that_leaves_the_table_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def skip_ahead(*_: object) -> client.Step:
        return client.Step(client.Finished(), None)

    monkeypatch.setitem(client.HANDLERS, (ClientPhase.ADVERTISED, Roster), skip_ahead)
    cohort = cohort_at(ClientPhase.ADVERTISED)
    with pytest.raises(LocalProtocolError, match="illegal move"):
        cohort.clients[0].receive_bytes(cohort.pending[0])
    cohort.assert_over(0)
    with pytest.raises(LocalProtocolError, match="illegal move"):
        cohort.server._move(Local.DEADLINE, ServerPhase.FINISHED)
