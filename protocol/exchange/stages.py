"""One round as its server sees it, stage after stage, whatever carries the messages.

Two rules belong into every transport, and are kept here for all of them. A client whose message is
refused, or that refuses, is lost, and the round goes on without it. And the caller hears who
survived *before* any client hears it: from then on clients give up what opens the sum, so its
privacy must be paid for at that moment, whatever becomes of the round.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp import PrivacyError
from protocol.errors import PolicyError
from protocol.exchange.ranks import ALONE, Ranks
from protocol.round.losses import Stage
from secagg import FieldSum, ProtocolError, RemoteProtocolError, TooFewSurvivorsError
from secagg.oneshot.records import RoundRecord

T = TypeVar("T")
SERVER_PARTY = -1
CLIENT, MEMBER = "client", "member"
"""The kinds of party that a server asks; a member is named by its index in the committee."""

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

Messages = Iterable[tuple[int, bytes]]
"""For parties of one kind, by their index among those; a sequence, or made one at a time."""

Inbound = Iterable[tuple[int, bytes | Refusal]]
"""What comes back, in any order."""

Carry = Callable[[Any, Messages], Inbound]
"""An `Exchange` of any scheme: takes the stage of a `Step`, and messages to its kind of party."""

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
        bytes_up: bytes each client sent, by index.
        bytes_down: bytes each client was sent, by index.
        refused: clients lost because their message was refused or because they refused, and why.
            Not those that were understood in the same stage: anybody on the wire may send more.
        surplus: int64[L], noise that survivors gave up, added up, if that is done already; else it
            is drawn from the seeds in `total`.
        record: what the round adds to the records of its run, where members upload as well.
        member_bytes_up: bytes that each member sent as such, by its index in the committee.
        member_bytes_down: bytes that each was sent.
        refused_members: as `refused`, of members.
    """

    total: FieldSum
    bytes_up: dict[int, int] = field(default_factory=dict)
    bytes_down: dict[int, int] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    surplus: NDArray[np.int64] | None = field(default=None, repr=False)
    record: RoundRecord | None = None

    member_bytes_up: dict[int, int] = field(default_factory=dict)
    member_bytes_down: dict[int, int] = field(default_factory=dict)
    refused_members: dict[int, str] = field(default_factory=dict)

    def bytes_per_survivor(self) -> float:
        """Mean bytes, sent and received, of a party whose input is in the sum."""
        parties = self.total.survivors
        total = sum(self.bytes_up.get(i, 0) + self.bytes_down.get(i, 0) for i in parties)
        return total / len(parties)

    def count_members_as_clients(self) -> None:
        """Add members' bytes to clients', where everybody is a member, at the same place."""
        for clients, members in (
            (self.bytes_up, self.member_bytes_up),
            (self.bytes_down, self.member_bytes_down),
        ):
            for index, size in members.items():
                clients[index] = clients.get(index, 0) + size


@dataclass(frozen=True, slots=True)
class Step:
    """One exchange of a round.

    Attributes:
        stage: what is asked for; told to whoever carries the messages.
        party: the kind of party that is asked, `CLIENT` or `MEMBER`.
        receive: takes in an answer of a party; `RemoteProtocolError` refuses it.
        decides: whether the survivors are final when it is closed.
    """

    stage: enum.IntEnum
    party: str
    receive: Callable[[int, bytes], None]
    decides: bool = False


@dataclass(frozen=True, slots=True)
class Script:
    """A server in one round, as `conduct` drives it, whatever its scheme.

    Attributes:
        steps: what is exchanged, in order; clients first.
        close: the time of a step is up: gives the messages of the next one.
        decided: the survivors, and what the round adds to the records of its run, if anything.
        total: the sum, after the last step.
        excluded: clients left out although their messages were understood, and why.
    """

    steps: Sequence[Step]
    close: Callable[[], Messages]
    decided: Callable[[], tuple[Sequence[int], RoundRecord | None]]
    total: Callable[[Executor | None], FieldSum]
    excluded: Callable[[], Mapping[int, str]] = dict


def conduct(
    script: Script,
    opening: Messages,
    carry: Carry,
    before_release: ReleaseHook = no_hook,
    executor: Executor | None = None,
    clock: Clock | None = None,
    on_loss: Mapping[str, LossHook] = MappingProxyType({}),
    ranks: Ranks = ALONE,
) -> RoundOutcome:
    """Run all steps of a round.

    Args:
        opening: the messages of the first step.
        on_loss: told of losses, by the kind of party.
        ranks: among which the parties are divided; the script has all of them in the same state.
    """
    charge = partial((clock or NoClock()).charge, SERVER_PARTY)
    last_of = {step.party: step for step in script.steps}
    by_party = {party: Losses(on_loss.get(party, no_losses)) for party in (CLIENT, MEMBER)}
    messages = opening
    with explained(by_party[CLIENT].refused):
        for step in script.steps:
            losses = by_party[step.party]
            losses.begin_stage()
            receive = partial(_charged, charge, step.receive)
            for index, answer in carry(step.stage, losses.counted(messages)) if messages else ():
                losses.took(index, answer, receive)
            if step is last_of[step.party]:
                losses.share(ranks)
            if step is script.steps[-1]:
                break
            messages = charge(script.close)
            if not isinstance(messages, Sequence):
                messages = _made(messages, charge)
            if step.decides:
                survivors, record = script.decided()
                if record is None:
                    before_release(survivors)
                else:
                    before_release(survivors, record)
                # Nobody is told before every rank has paid.
                ranks.gather(None)
    with explained(losses.refused):
        total = charge(partial(script.total, executor))
    clients, members = by_party[CLIENT], by_party[MEMBER]
    return RoundOutcome(
        total,
        clients.up,
        clients.down,
        {**clients.refused, **script.excluded()},
        record=script.decided()[1],
        member_bytes_up=members.up,
        member_bytes_down=members.down,
        refused_members=members.refused,
    )


def _charged(
    charge: Callable[..., None], receive: Callable[[int, bytes], None], index: int, data: bytes
) -> None:
    charge(partial(receive, index, data))


def _made(
    messages: Iterable[tuple[int, bytes]], charge: Callable[..., Any]
) -> Iterator[tuple[int, bytes]]:
    """Messages that the server makes when they are due."""
    waiting = iter(messages)
    while (message := charge(partial(next, waiting, None))) is not None:
        yield message


class Losses:
    """Who of one kind of party is lost for a refusal, and the bytes of all of them.

    A party that was understood in a stage is not lost in it: anybody on the wire may send more.

    Attributes:
        up, down: bytes that each party sent, and was sent.
        refused: the parties that are lost, and why.
    """

    def __init__(self, on_loss: LossHook) -> None:
        self._on_loss = on_loss
        self.up: dict[int, int] = {}
        self.down: dict[int, int] = {}
        self.refused: dict[int, str] = {}
        self._understood: set[int] = set()

    def begin_stage(self) -> None:
        """From here on every party has another message to send."""
        self._understood.clear()

    def counted(self, messages: Messages) -> Messages:
        """Messages that go down: those that are there are counted now, others when they are due."""
        if not isinstance(messages, Sequence):
            return map(self._sent, messages)
        for message in messages:
            self._sent(message)
            self.up.setdefault(message[0], 0)
        return messages

    def _sent(self, message: tuple[int, bytes]) -> tuple[int, bytes]:
        index, data = message
        self.down[index] = self.down.get(index, 0) + len(data)
        return message

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

    def share(self, ranks: Ranks) -> None:
        """Note what all ranks have noted, each of other parties, or the same."""
        if ranks.size > 1:
            own: list[dict[int, Any]] = [self.up, self.down, self.refused]
            # Copies: ranks may be threads, and each changes its own.
            gathered = ranks.gather([dict(each) for each in own])
            for mine, of_all in zip(own, zip(*gathered, strict=True), strict=True):
                together = sorted(chain.from_iterable(each.items() for each in of_all))
                mine.clear()
                mine.update(together)

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


def answer_of(clock: Clock, party: int, work: Callable[[], bytes]) -> bytes | Refusal:
    """What a party in this process answers, or why it leaves the round."""
    try:
        return clock.charge(party, work)
    except PEER_ERRORS as error:
        return Refusal(str(error))


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
