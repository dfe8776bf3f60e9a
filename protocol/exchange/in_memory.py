"""The wire of one round inside one process: delivers bytes and loses clients on schedule.

It also serves as the example of a transport: every byte that a network would carry passes through
here as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Protocol

from protocol.exchange.pairwise import pairwise_script
from protocol.exchange.stages import (
    Clock,
    Messages,
    NoClock,
    Refusal,
    ReleaseHook,
    RoundOutcome,
    answer_of,
    conduct,
    no_hook,
)
from protocol.round.losses import Dropouts, Stage
from secagg import Mode, ServerSession


class Peer(Protocol):
    """A client as the wire sees it."""

    def open(self) -> bytes:
        """The first message: an advertisement of keys."""

    def receive(self, data: bytes) -> bytes | None:
        """Answer the server; None means that the peer waits to submit its input."""

    def submit(self) -> bytes:
        """The masked input, as a message."""


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
        before_release: optional, told the survivors before any client is.
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
        self._gone: set[int] = set()

    def run(self, executor: Executor | None = None) -> RoundOutcome:
        """All stages in order; raises what `conduct` does."""
        return conduct(
            pairwise_script(self._server, self._mode),
            [(index, b"") for index in self._peers],
            self._exchange,
            self._before_release,
            executor,
            self._clock,
        )

    def _exchange(self, stage: Stage, messages: Messages) -> Iterator[tuple[int, bytes | Refusal]]:
        for index, data in messages:
            if index in self._gone or self._dropouts.get(index, len(Stage)) <= stage:
                continue
            answer = answer_of(self._clock, index, partial(_reply, self._peers[index], data))
            if isinstance(answer, Refusal):
                self._gone.add(index)
            yield index, answer


def _reply(peer: Peer, data: bytes) -> bytes:
    """A peer's answer; its masked input, if that is what it waits to send."""
    if not data:
        return peer.open()
    answer = peer.receive(data)
    return peer.submit() if answer is None else answer
