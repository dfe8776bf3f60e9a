"""One round as its server sees it, stage after stage, whatever carries the messages.

Two rules belong into every transport, and are kept here for all of them. A client whose message is
refused, or that refuses, is lost, and the round goes on without it. And the caller hears who
survived *before* any client hears it: from then on clients give up what opens the sum, so its
privacy must be paid for at that moment, whatever becomes of the round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp import PrivacyError
from protocol.errors import PolicyError
from protocol.round.losses import Stage, stages_of
from secagg import (
    FieldSum,
    Mode,
    ProtocolError,
    RemoteProtocolError,
    ServerSession,
    TooFewSurvivorsError,
)
from secagg.oneshot.records import RoundRecord

T = TypeVar("T")
SERVER_PARTY = -1

MOST_REASONS = 3
"""Reasons told with an error: usually they are all the same."""


PEER_ERRORS = (ProtocolError, PrivacyError, PolicyError)
"""What a peer may raise and be lost for. Anything else is a mistake in the program."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """What comes in place of a client's message if it leaves the round, and why it does."""

    reason: str


Outbound = Sequence[tuple[int, bytes]]
"""A message for each client, by its index in the cohort."""

Exchange = Callable[[Stage, Outbound], Iterable[tuple[int, bytes | Refusal]]]
"""Delivers the messages of a stage and yields what comes back, in any order, until everybody has
answered or the stage's time is up. A client that does not answer is lost. Answers are used as they
are yielded: a transport that does not collect them keeps the server's memory at one vector.

It delivers nothing before the first answer is asked for, bounds the time and the size of every
answer, and yields answers to this stage's messages only: one that comes too late is dropped."""


class ReleaseHook(Protocol):
    """Told what is about to be released; if it raises, the round ends there."""

    def __call__(self, survivors: Sequence[int], record: RoundRecord | None = None, /) -> None:
        """Hear it before any message of the next stage is delivered."""


def no_hook(survivors: Sequence[int], record: RoundRecord | None = None, /) -> None:
    """For sums that nobody accounts for."""


LossHook = Callable[[int, str], None]
"""Told of each party that is lost because its message was refused, or because it refuses, when it
is, and why. Parties that are only silent are known to the transport."""


def no_losses(index: int, reason: str) -> None:
    """For transports that tell nobody."""


class Clock(Protocol):
    """Measures who works; the caller owns time and may pass one in."""

    def charge(self, party: int, work: Callable[[], T]) -> T:
        """Do a piece of work on behalf of a party (`SERVER_PARTY` is the server)."""


class NoClock:
    """A clock that measures nothing."""

    def charge(self, party: int, work: Callable[[], T]) -> T:
        """Do the work, and note no time."""
        return work()


@dataclass(frozen=True, slots=True)
class RoundOutcome:
    """The sum of a round and how it came about.

    Attributes:
        total: the exact sum in GF(p) and the survivors it is over.
        bytes_up: bytes each party sent, by index.
        bytes_down: bytes each party was sent, by index.
        refused: parties lost because their message was refused or because they refused, and why.
            Not those that were understood in the same stage: anybody on the wire may send more.
        surplus: int64[L], noise that survivors gave up, added up, if that is done already; else it
            is drawn from the seeds in `total`.
        record: what the round adds to the records of its run, where members upload as well.
    """

    total: FieldSum
    bytes_up: dict[int, int] = field(default_factory=dict)
    bytes_down: dict[int, int] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    surplus: NDArray[np.int64] | None = field(default=None, repr=False)
    record: RoundRecord | None = None

    def bytes_per_survivor(self) -> float:
        """Mean bytes, sent and received, of a party whose input is in the sum."""
        parties = self.total.survivors
        total = sum(self.bytes_up.get(i, 0) + self.bytes_down.get(i, 0) for i in parties)
        return total / len(parties)


def conduct(
    server: ServerSession,
    mode: Mode,
    opening: Outbound,
    exchange: Exchange,
    before_release: ReleaseHook = no_hook,
    executor: Executor | None = None,
    clock: Clock | None = None,
    on_loss: LossHook = no_losses,
) -> RoundOutcome:
    """Run all stages of a round."""
    losses = Losses(on_loss, dict(opening))
    charge = partial((clock or NoClock()).charge, SERVER_PARTY)
    messages = opening

    def receive(index: int, data: bytes) -> None:
        charge(partial(server.receive_bytes, index, data))

    with explained(losses.refused):
        for stage in stages_of(mode):
            losses.begin_stage()
            for index, data in messages:
                losses.sent(index, data)
            for index, answer in exchange(stage, messages) if messages else ():
                losses.took(index, answer, receive)
            if stage is Stage.RECOVER:
                break
            messages = charge(server.close_round_bytes)
            if stage is Stage.INPUT:
                before_release(server.survivors)
        total = charge(partial(server.unmask, executor))
    return RoundOutcome(total, losses.up, losses.down, losses.refused)


class Losses:
    """Who of one kind of party is lost for a refusal, and the bytes of all of them.

    A party that was understood in a stage is not lost in it: anybody on the wire may send more.

    Attributes:
        up, down: bytes that each party sent, and was sent.
        refused: the parties that are lost, and why.
    """

    def __init__(self, on_loss: LossHook, parties: Iterable[int] = ()) -> None:
        self._on_loss = on_loss
        self.up = dict.fromkeys(parties, 0)
        self.down = dict(self.up)
        self.refused: dict[int, str] = {}
        self._understood: set[int] = set()

    def begin_stage(self) -> None:
        """From here on every party has another message to send."""
        self._understood.clear()

    def sent(self, index: int, data: bytes) -> None:
        """Count what goes down."""
        self.down[index] = self.down.get(index, 0) + len(data)

    def took(
        self, index: int, answer: bytes | Refusal, receive: Callable[[int, bytes], None]
    ) -> None:
        """Count what came up, and hand it to the server; either side may refuse."""
        reason = self._reason(index, answer, receive)
        if reason is None:
            self._understood.add(index)
            self.refused.pop(index, None)
        elif index not in self._understood:
            self.refused[index] = reason
            self._on_loss(index, reason)

    def _reason(
        self, index: int, answer: bytes | Refusal, receive: Callable[[int, bytes], None]
    ) -> str | None:
        if isinstance(answer, Refusal):
            return answer.reason
        self.up[index] = self.up.get(index, 0) + len(answer)
        try:
            receive(index, answer)
        except RemoteProtocolError as error:
            return str(error)
        return None


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
