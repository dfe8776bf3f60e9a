"""The wire: what is delivered when, who is lost, and that the rest goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import pytest
from round_kit import (
    IDENTITIES,
    MODEL,
    make_client,
    make_setup,
    noise,
    updates,
)

from dp import LedgerError, NonFiniteUpdateError
from protocol.errors import PolicyError
from protocol.exchange.aggregators import IdealAggregator, _Peer
from protocol.exchange.in_memory import MemoryRound, Peer
from protocol.round.losses import Stage, stages_of
from protocol.round.setup import RoundSetup
from secagg import (
    LocalProtocolError,
    Mode,
    Reason,
    RemoteProtocolError,
    ServerSession,
    TooFewSurvivorsError,
)


def make_peers(setup: RoundSetup) -> dict[int, Peer]:
    """Peers of a round, with an update and repeatable noise each."""
    return {
        index: _Peer(
            make_client(index),
            setup.announce(),
            MODEL,
            lambda index=index: (updates(index), noise(index)),
        )
        for index in range(len(IDENTITIES))
    }


class Tamperer:
    """A peer on whose wire something happens to one of its messages."""

    def __init__(self, peer: Peer, stage: Stage, change: Callable[..., Any]) -> None:
        self.peer, self.stage, self.change, self.sent = peer, stage, change, 0

    def _pass(self, data: bytes) -> bytes:
        self.sent += 1
        return self.change(data) if self.sent - 1 == self.stage else data

    def open(self) -> bytes:
        return self._pass(self.peer.open())

    def receive(self, data: bytes) -> bytes | None:
        answer = self.peer.receive(data)
        return None if answer is None else self._pass(answer)

    def submit(self) -> bytes:
        return self._pass(self.peer.submit())


class Traced:
    """A peer that writes down what it is asked to do."""

    def __init__(self, peer: Peer, trace: list[Any]) -> None:
        self.peer, self.trace = peer, trace

    def open(self) -> bytes:
        self.trace.append("open")
        return self.peer.open()

    def receive(self, data: bytes) -> bytes | None:
        self.trace.append("receive")
        return self.peer.receive(data)

    def submit(self) -> bytes:
        self.trace.append("submit")
        return self.peer.submit()


@pytest.mark.parametrize("stage", [stage for stage in Stage if stage is not Stage.RECOVER])
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda d: d[:-1], id="truncated"),
        pytest.param(lambda d: d + b"\0", id="extended"),
        pytest.param(lambda d: b"", id="empty"),
        pytest.param(lambda d: bytes([d[0] + 1]) + d[1:], id="other version"),
        pytest.param(lambda d: d * 2, id="doubled"),
    ],
)
def test_a_damaged_message_loses_its_sender_and_the_sum_is_exact(
    stage: Stage, change: Callable[..., Any]
) -> None:
    setup = make_setup()
    peers = make_peers(setup)
    peers[2] = Tamperer(peers[2], stage, change)
    outcome = MemoryRound(ServerSession(setup.context), setup.context.mode, peers, {}).run()
    ideal = IdealAggregator(noise=noise).run(setup, updates, {2: stage})
    assert outcome.total.survivors == ideal.total.survivors
    assert (2 in outcome.total.survivors) == (stage > Stage.INPUT)
    assert np.array_equal(outcome.total.vector.elements, ideal.total.vector.elements)
    assert list(outcome.refused) == [2]
    assert outcome.refused[2].startswith("client 2: ")


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
@pytest.mark.parametrize("stage", [stage for stage in Stage if stage is not Stage.RECOVER])
def test_a_peer_that_raises_a_typed_error_is_lost_alone(stage: Stage, error: Exception) -> None:
    def fail(_: bytes) -> NoReturn:
        raise error

    setup = make_setup()
    peers = make_peers(setup)
    peers[4] = Tamperer(peers[4], stage, fail)
    outcome = MemoryRound(ServerSession(setup.context), setup.context.mode, peers, {}).run()
    assert outcome.refused == {4: str(error)}
    assert (4 in outcome.total.survivors) == (stage > Stage.INPUT)


def test_a_lost_peer_is_never_asked_again() -> None:
    trace = []
    setup = make_setup()
    peers = make_peers(setup)
    peers[1] = Traced(Tamperer(peers[1], Stage.CONFIRM, lambda d: d[:-1]), trace)
    MemoryRound(ServerSession(setup.context), setup.context.mode, peers, {}).run()
    assert trace == ["open", "receive", "receive", "submit", "receive"]


@pytest.mark.parametrize("error", [KeyError("x"), TypeError("x"), ZeroDivisionError()])
def test_a_mistake_in_a_peer_is_not_hidden(error: Exception) -> None:
    def fail(_: bytes) -> NoReturn:
        raise error

    setup = make_setup()
    peers = make_peers(setup)
    peers[4] = Tamperer(peers[4], Stage.INPUT, fail)
    with pytest.raises(type(error)):
        MemoryRound(ServerSession(setup.context), setup.context.mode, peers, {}).run()


def test_reasons_go_with_the_error_that_ends_the_round() -> None:
    setup = make_setup()
    peers = make_peers(setup)
    for index in (0, 3, 5):
        peers[index] = Tamperer(peers[index], Stage.SHARE, lambda d: d[:-1])
    with pytest.raises(TooFewSurvivorsError) as caught:
        MemoryRound(ServerSession(setup.context), setup.context.mode, peers, {}).run()
    assert [note.split(":")[0] for note in caught.value.__notes__] == [
        "party 0 was lost",
        "party 3 was lost",
        "party 5 was lost",
    ]


@pytest.mark.parametrize("mode", list(Mode))
def test_the_hook_comes_before_any_survivor_hears(mode: Mode) -> None:
    setup = make_setup(mode=mode)
    trace = []
    peers = {i: Traced(peer, trace) for i, peer in make_peers(setup).items()}
    hook = lambda survivors: trace.append(survivors)  # noqa: E731
    server = ServerSession(setup.context)
    MemoryRound(server, mode, peers, {0: Stage.INPUT}, before_release=hook).run()
    # Everybody opens, hears of keys and of shares; five submit; then the hook; then the rest.
    before = ["open"] * 6 + ["receive"] * 6 + ["receive", "submit"] * 5
    after = ["receive"] * 5 * (2 if mode is Mode.ACTIVE else 1)
    assert trace == [*before, (1, 2, 3, 4, 5), *after]


@pytest.mark.parametrize("mode", list(Mode))
def test_a_hook_that_raises_ends_the_round_before_anything_is_given_up(mode: Mode) -> None:
    def refuse(_: Sequence[int]) -> NoReturn:
        raise LedgerError("disk full")

    setup = make_setup(mode=mode)
    trace = []
    peers = {i: Traced(peer, trace) for i, peer in make_peers(setup).items()}
    server = ServerSession(setup.context)
    with pytest.raises(LedgerError, match="disk full"):
        MemoryRound(server, mode, peers, {}, before_release=refuse).run()
    assert trace[-1] == "submit"


def test_stages_leave_out_what_a_mode_lacks() -> None:
    assert stages_of(Mode.ACTIVE) == tuple(Stage)
    assert set(Stage) - set(stages_of(Mode.SEMI_HONEST)) == {Stage.CONFIRM}
