"""The wire: what is delivered when, who is lost, and that the rest goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from round_kit import IDENTITIES, MODEL, make_client, make_setup, noise, updates

from dp import NonFiniteUpdateError
from protocol.errors import PolicyError
from protocol.exchange.aggregators import _Peer
from protocol.exchange.in_memory import MemoryRound, Peer
from protocol.exchange.stages import RoundOutcome
from protocol.round.losses import Stage, stages_of
from secagg import LocalProtocolError, Mode, Reason, RemoteProtocolError, ServerSession

ASKED = [stage for stage in Stage if stage is not Stage.RECOVER]


class Tampered:
    """A peer that notes what it is asked for, and one of whose messages is changed."""

    def __init__(self, peer: Peer, stage: Stage, change: Callable[[bytes], bytes]) -> None:
        self.peer, self.stage, self.change, self.sent = peer, stage, change, 0
        self.trace: list[str] = []

    def _pass(self, asked: str, data: bytes | None) -> bytes | None:
        self.trace.append(asked)
        if data is None:
            return None
        self.sent += 1
        return self.change(data) if self.sent - 1 == self.stage else data

    def open(self) -> bytes | None:
        return self._pass("open", self.peer.open())

    def receive(self, data: bytes) -> bytes | None:
        return self._pass("receive", self.peer.receive(data))

    def submit(self) -> bytes | None:
        return self._pass("submit", self.peer.submit())


def run(stage: Stage, change: Callable[[bytes], Any]) -> tuple[RoundOutcome, list[str]]:
    """A round that loses peer 0, and in which one message of peer 4 is changed.

    Gives what peer 4 was asked for, too.
    """
    setup = make_setup()
    peers: dict[int, Any] = {
        index: _Peer(
            make_client(index),
            setup.announce(),
            MODEL,
            lambda index=index: (updates(index), noise(index)),
        )
        for index in range(len(IDENTITIES))
    }
    peers[4] = Tampered(peers[4], stage, change)
    server, lost = ServerSession(setup.context), {0: Stage.INPUT}
    outcome = MemoryRound(server, setup.context.mode, peers, lost).run()
    return outcome, peers[4].trace


@pytest.mark.parametrize(
    "error",
    [
        RemoteProtocolError(3, Reason.BAD_SEAL),
        LocalProtocolError("the caller got lost"),
        NonFiniteUpdateError("nothing but NaN"),
        PolicyError("coins", 0, "some"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("stage", ASKED)
def test_a_peer_that_raises_a_typed_error_is_lost_alone(stage: Stage, error: Exception) -> None:
    def fail(_: bytes) -> NoReturn:
        raise error

    outcome, trace = run(stage, fail)
    assert outcome.refused == {4: str(error)}
    assert (4 in outcome.total.survivors) == (stage > Stage.INPUT)
    # It is never asked again; before it submits it hears of keys and of shares.
    asked = ["open", "receive", "receive", "submit", "receive", "receive"]
    assert trace == asked[: stage + 1 + (stage >= Stage.INPUT)]


@pytest.mark.parametrize("stage", ASKED)
def test_a_refused_message_loses_its_sender_alone(stage: Stage) -> None:
    outcome, _ = run(stage, lambda data: data[:-1])
    assert list(outcome.refused) == [4] and outcome.refused[4].startswith("client 4: ")
    assert outcome.total.survivors == ((1, 2, 3, 4, 5) if stage > Stage.INPUT else (1, 2, 3, 5))


@pytest.mark.parametrize("error", [KeyError("x"), TypeError("x"), ZeroDivisionError()])
def test_a_mistake_in_a_peer_is_not_hidden(error: Exception) -> None:
    def fail(_: bytes) -> NoReturn:
        raise error

    with pytest.raises(type(error)):
        run(Stage.INPUT, fail)


def test_stages_leave_out_what_a_mode_lacks() -> None:
    assert stages_of(Mode.ACTIVE) == tuple(Stage)
    assert set(Stage) - set(stages_of(Mode.SEMI_HONEST)) == {Stage.CONFIRM}
