"""The wire of one round inside one process: delivers bytes, counts them, loses clients on schedule.

It also serves as the example of how a transport drives the sans-I/O parts: every byte that a
network would carry passes through here as bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from secagg import FieldSum, Mode, ServerSession

T = TypeVar("T")
SERVER_PARTY = -1


class Stage(enum.IntEnum):
    """The message that a lost client never sends; it sent all before."""

    ADVERTISE = 0
    SHARE = 1
    INPUT = 2
    CONFIRM = 3
    UNMASK = 4

    def __str__(self) -> str:
        return self.name.lower()


Dropouts = Mapping[int, Stage]
"""For each lost party, the first message that it does not send."""


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
        bytes_down: bytes each party received, by index.
    """

    total: FieldSum
    bytes_up: dict[int, int] = field(default_factory=dict)
    bytes_down: dict[int, int] = field(default_factory=dict)

    def bytes_per_survivor(self) -> float:
        """Mean bytes, sent and received, of a party whose input is in the sum."""
        parties = self.total.survivors
        total = sum(self.bytes_up.get(i, 0) + self.bytes_down.get(i, 0) for i in parties)
        return total / len(parties)


class MemoryRound:
    """One server session and its peers, connected by bytes.

    Args:
        server: fresh.
        mode: whether there is a consistency round.
        peers: by index in the cohort.
        dropouts: who gets lost, and when.
        clock: optional, for measurement.
    """

    def __init__(
        self,
        server: ServerSession,
        mode: Mode,
        peers: Mapping[int, Peer],
        dropouts: Dropouts,
        clock: Clock | None = None,
    ) -> None:
        self._server = server
        self._mode = mode
        self._peers = peers
        self._dropouts = dropouts
        self._clock: Clock = clock or NoClock()
        self._up = dict.fromkeys(peers, 0)
        self._down = dict.fromkeys(peers, 0)

    def run(self, executor: Executor | None = None) -> RoundOutcome:
        """All stages in order.

        Raises:
            ProtocolError: whatever either side raises.
        """
        for index, peer in self._peers.items():
            if self._sends(index, Stage.ADVERTISE):
                self._upload(index, peer.open)
        for stage in list(Stage)[1:]:
            if stage is Stage.CONFIRM and self._mode is Mode.SEMI_HONEST:
                continue
            for index, data in self._charge_server(self._server.close_round_bytes):
                self._down[index] += len(data)
                if self._sends(index, stage):
                    self._answer(index, data)
        total = self._charge_server(partial(self._server.unmask, executor))
        return RoundOutcome(total, self._up, self._down)

    def _answer(self, index: int, data: bytes) -> None:
        peer = self._peers[index]
        answer = self._clock.charge(index, partial(peer.receive, data))
        if answer is None:
            self._upload(index, peer.submit)
        else:
            self._deliver(index, answer)

    def _upload(self, index: int, work: Callable[[], bytes]) -> None:
        self._deliver(index, self._clock.charge(index, work))

    def _deliver(self, index: int, data: bytes) -> None:
        self._up[index] += len(data)
        self._charge_server(partial(self._server.receive_bytes, index, data))

    def _charge_server(self, work: Callable[[], T]) -> T:
        return self._clock.charge(SERVER_PARTY, work)

    def _sends(self, index: int, stage: Stage) -> bool:
        return self._dropouts.get(index, len(Stage)) > stage


def left_after(size: int, dropouts: Dropouts, stage: Stage) -> tuple[int, ...]:
    """Parties that still send the message of a stage."""
    return tuple(i for i in range(size) if dropouts.get(i, len(Stage)) > stage)
