"""Walking the tables of a protocol: what a party does with every event in every phase."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection
from typing import Any

import pytest

from secagg import LocalProtocolError, Reason, RemoteProtocolError, SessionAbortedError
from secagg.session import Moves

Act = Callable[[], object]
Phases = Collection[enum.Enum]


def label(event: Any) -> str:
    """The name of a phase, of an event of the caller's, or of a message."""
    return event.name if isinstance(event, enum.Enum) else event.__name__  # type: ignore[no-any-return]


def check_party(act: Act, party: Any, event: Any, moves: Moves, final: Phases) -> None:
    """A client or member moves as the table says; anything else ends its session."""
    phase = party.phase
    if (phase, event) in moves:
        act()
        assert party.phase in moves[phase, event]
        return
    if phase in final:
        with pytest.raises(SessionAbortedError):
            act()
        assert party.phase is phase
        return
    _refuses(act, event, Reason.UNEXPECTED_MESSAGE)
    assert party.phase is type(phase)["ABORTED"]
    with pytest.raises(SessionAbortedError):
        act()


def check_server(
    act: Act,  # hands it the event
    server: Any,
    event: Any,
    moves: Moves,
    final: Phases,  # phases that are left by nothing
    *,
    prepare: Act,  # lets everybody answer, before a legal event of the caller's
    refusal: Reason,  # of a message that is not due
) -> None:
    """A server moves as the table says; anything else leaves it as it was."""
    phase = server.phase
    if phase in final:
        with pytest.raises(SessionAbortedError):
            act()
        assert server.phase is phase
    elif (phase, event) in moves:
        if isinstance(event, enum.Enum):
            prepare()
        act()
        assert server.phase in moves[phase, event]
    else:
        _refuses(act, event, refusal)
        assert server.phase is phase
        assert isinstance(event, enum.Enum) or server.answered == ()


def _refuses(act: Act, event: Any, reason: Reason) -> None:
    """A typed error: of the caller for its own events, of the peer for messages."""
    if isinstance(event, enum.Enum):
        with pytest.raises(LocalProtocolError):
            act()
        return
    with pytest.raises(RemoteProtocolError) as raised:
        act()
    assert raised.value.reason is reason


def diagram(moves: Moves, phases: type[enum.Enum]) -> str:
    """A Mermaid state diagram of a transition table; the protocols' pages hold the results."""
    first, last = next(iter(phases)), list(phases)[-2]
    lines = ["```mermaid", "stateDiagram-v2", f"    [*] --> {first.name}"]
    for (source, event), targets in moves.items():
        text = event.value if isinstance(event, enum.Enum) else event.__name__
        ordered = [phase for phase in phases if phase in targets]
        lines += [f"    {source.name} --> {target.name}: {text}" for target in ordered]
    return "\n".join([*lines, f"    {last.name} --> [*]", "```"])
