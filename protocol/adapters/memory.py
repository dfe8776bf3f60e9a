"""The wire of one round inside one process: delivers bytes, counts them, loses clients on schedule.

It also serves as the example of how a transport drives the sans-I/O parts: every byte that a
network would carry passes through here as bytes. Two rules of it belong into any transport. A peer
whose message is refused, or that refuses, is lost, and the round goes on without it. And the caller
hears who survived *before* any client hears it: from then on clients give up what opens the sum, so
its privacy must be paid for at that moment, whatever becomes of the round.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Protocol, TypeVar

from dp import PrivacyError
from protocol.errors import PolicyError
from secagg import (
    FieldSum,
    Mode,
    ProtocolError,
    RemoteProtocolError,
    ServerSession,
    TooFewSurvivorsError,
)

T = TypeVar("T")
SERVER_PARTY = -1


class Stage(enum.IntEnum):
    """The message that a lost client never sends; it sent all before."""

    ADVERTISE = 0
    SHARE = 1
    INPUT = 2
    CONFIRM = 3
    UNMASK = 4
    RECOVER = 5

    def __str__(self) -> str:
        return self.name.lower()


Dropouts = Mapping[int, Stage]
"""For each lost party, the first message that it does not send."""

ReleaseHook = Callable[[int], None]
"""Told the number of survivors once it is decided and before any message of the next stage is
delivered. If it raises, the round ends there, and nobody has given anything up."""

PEER_ERRORS = (ProtocolError, PrivacyError, PolicyError)
"""What a peer may raise and be lost for. Anything else is a mistake in the program."""


MOST_REASONS = 3
"""Reasons told with an error: usually they are all the same."""


def no_hook(survivors: int) -> None:
    """For sums that nobody accounts for."""


def stages_of(mode: Mode) -> tuple[Stage, ...]:
    """The stages of a round, in order."""
    return tuple(stage for stage in Stage if mode is Mode.ACTIVE or stage is not Stage.CONFIRM)


class Peer(Protocol):
    """A client as the wire sees it."""

    def open(self) -> bytes:
        """The first message."""

    def receive(self, data: bytes) -> bytes | None:
        """Answer the server; None means that the peer waits to submit its input."""

    def submit(self) -> bytes:
        """The masked input."""


class Clock(Protocol):
    """Measures who works; the caller owns time and may pass one in."""

    def charge(self, party: int, work: Callable[[], T]) -> T:
        """Do a piece of work on behalf of a party (`SERVER_PARTY` is the server)."""


class NoClock:
    """Measures nothing."""

    def charge(self, party: int, work: Callable[[], T]) -> T:
        """Just do the work."""
        return work()


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """The sum of a round and how it came about.

    Attributes:
        total: the exact sum in GF(p) and the survivors it is over.
        bytes_up: bytes each party sent, by index.
        bytes_down: bytes each party was sent, by index.
        refused: parties lost because their message was refused or because they refused, and why.
    """

    total: FieldSum
    bytes_up: dict[int, int] = field(default_factory=dict)
    bytes_down: dict[int, int] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)

    def bytes_per_survivor(self) -> float:
        """Mean bytes, sent and received, of a party whose input is in the sum."""
        parties = self.total.survivors
        total = sum(self.bytes_up.get(i, 0) + self.bytes_down.get(i, 0) for i in parties)
        return total / len(parties)


class MemoryRound:
    """One server session and its peers, connected by bytes.

    A peer that raises one of `PEER_ERRORS`, or whose message the server refuses, is lost, and
    named in `RoundOutcome.refused`.

    Args:
        server: fresh.
        mode: whether there is a consistency round.
        peers: by index in the cohort.
        dropouts: who gets lost, and when.
        clock: optional, for measurement.
        before_release: optional, told the number of survivors before any client is.
    """

    def __init__(
        self,
        server: ServerSession,
        mode: Mode,
        peers: Mapping[int, Peer],
        dropouts: Dropouts,
        clock: Clock | None = None,
        before_release: ReleaseHook = no_hook,
    ) -> None:
        self._server = server
        self._mode = mode
        self._peers = peers
        self._dropouts = dropouts
        self._clock: Clock = clock or NoClock()
        self._before_release = before_release
        self._up = dict.fromkeys(peers, 0)
        self._down = dict.fromkeys(peers, 0)
        self._refused: dict[int, str] = {}

    def run(self, executor: Executor | None = None) -> RoundOutcome:
        """All stages in order.

        Raises:
            TooFewSurvivorsError: with the reasons of refused parties in its notes.
            RemoteProtocolError: the sum cannot be opened.
        """
        with explained(self._refused):
            return self._run(executor)

    def _run(self, executor: Executor | None) -> RoundOutcome:
        for index, peer in self._peers.items():
            if self._sends(index, Stage.ADVERTISE):
                self._turn(index, peer.open)
        for closed, stage in pairwise(stages_of(self._mode)):
            outbound = self._charge_server(self._server.close_round_bytes)
            if closed is Stage.INPUT:
                self._before_release(len(self._server.survivors))
            for index, data in outbound:
                self._down[index] += len(data)
                if self._sends(index, stage):
                    self._turn(index, partial(_reply, self._peers[index], data))
        total = self._charge_server(partial(self._server.unmask, executor))
        return RoundOutcome(total, self._up, self._down, self._refused)

    def _turn(self, index: int, work: Callable[[], bytes]) -> None:
        """One party's work and the delivery of its message; either may be the end of it."""
        try:
            data = self._clock.charge(index, work)
        except PEER_ERRORS as error:
            self._refused[index] = str(error)
            return
        self._up[index] += len(data)
        try:
            self._charge_server(partial(self._server.receive_bytes, index, data))
        except RemoteProtocolError as error:
            self._refused[index] = str(error)

    def _charge_server(self, work: Callable[[], T]) -> T:
        return self._clock.charge(SERVER_PARTY, work)

    def _sends(self, index: int, stage: Stage) -> bool:
        return index not in self._refused and self._dropouts.get(index, len(Stage)) > stage


def _reply(peer: Peer, data: bytes) -> bytes:
    """A peer's answer; its masked input, if that is what it waits to send."""
    answer = peer.receive(data)
    return peer.submit() if answer is None else answer


@contextmanager
def explained(refused: Mapping[int, str]) -> Iterator[None]:
    """Add to an error about too few survivors why parties were refused."""
    try:
        yield
    except TooFewSurvivorsError as error:
        for index, reason in list(refused.items())[:MOST_REASONS]:
            error.add_note(f"party {index} was lost: {reason}")
        if len(refused) > MOST_REASONS:
            error.add_note(f"... and {len(refused) - MOST_REASONS} more were lost")
        raise


def left_after(size: int, dropouts: Dropouts, stage: Stage) -> tuple[int, ...]:
    """Parties that still send the message of a stage."""
    return tuple(i for i in range(size) if dropouts.get(i, len(Stage)) > stage)
