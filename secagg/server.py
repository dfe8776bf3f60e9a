"""What the servers of both protocols have in common: stages, and nobody's bytes trusted.

A bad message is refused with a `RemoteProtocolError` that names its sender, and changes nothing:
otherwise anyone who can reach the server could end every round. The session itself aborts, for
good, when a step between two stages fails.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from secagg.errors import (
    LocalProtocolError,
    Reason,
    RemoteProtocolError,
    SessionAbortedError,
    TooFewSurvivorsError,
)
from secagg.field import FieldVector
from secagg.keys import signature_is_valid
from secagg.session import Moves
from secagg.tags import Usage

T = TypeVar("T")
MessageT = TypeVar("MessageT")
PhaseT = TypeVar("PhaseT", bound=enum.Enum)


@dataclass(frozen=True, slots=True)
class FieldSum:
    """The result of a round.

    Attributes:
        vector: the exact sum in GF(p) over the inputs of the survivors.
        survivors: U3, ascending.
        culprits: clients that answered with a wrong share, ascending; the sum is right all the
            same. Not even all corrupt clients together can have framed them, but a lying dealer
            can have sealed wrong shares to them: a lead, not a proof.
        removed: removable seeds that survivors gave up, by survivor, in the order of
            `removed_seeds` of the round's context; checked against their commitments.
        noisy: survivors that are not in `removed` although others are: their seeds are not what
            they committed to, and the noise stays. Only a one-shot round goes on without them.
    """

    vector: FieldVector
    survivors: tuple[int, ...]
    culprits: tuple[int, ...] = ()
    removed: dict[int, tuple[bytes, ...]] = field(default_factory=dict, repr=False)
    noisy: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Parties:
    """Parties of one kind, whom a server tells apart by their index."""

    role: str
    identities: Sequence[bytes]

    def check(self, sender: int) -> None:
        """See that an index is that of one of them."""
        if not 0 <= sender < len(self.identities):
            raise RemoteProtocolError(sender, Reason.UNKNOWN_SENDER, "not in the round", self.role)

    def first(
        self, sender: int, seen: Collection[int], allowed: Collection[int] | None = None
    ) -> int:
        """The sender, if it may answer and has not yet."""
        if allowed is not None and sender not in allowed:
            raise RemoteProtocolError(
                sender, Reason.UNKNOWN_SENDER, "not in the previous stage", self.role
            )
        if sender in seen:
            raise RemoteProtocolError(sender, Reason.DUPLICATE_MESSAGE, role=self.role)
        return sender

    def check_signature(
        self, sender: int, signature: bytes, usage: Usage, parts: tuple[bytes, ...]
    ) -> None:
        """See that the sender signed these parts for this usage."""
        if not signature_is_valid(self.identities[sender], signature, usage, *parts):
            raise RemoteProtocolError(sender, Reason.BAD_SIGNATURE, usage.value.decode(), self.role)


class StagedServer(ABC, Generic[PhaseT, MessageT]):
    """A server in one round: it collects one kind of message at a time, by tables."""

    RECEIVERS: ClassVar[Mapping[tuple[Any, type], Callable[[Any, Any], None]]]
    """What is done with a message of a type, while something is collected."""
    CLOSERS: ClassVar[Mapping[Any, Callable[[Any], Iterable[tuple[int, Any]]]]]
    """What a deadline leads to; the last stage has none."""
    MOVES: ClassVar[Moves]
    FINISHED: ClassVar[enum.Enum]
    ABORTED: ClassVar[enum.Enum]
    RELEASE: ClassVar[str]
    """The method that ends the last stage."""

    def __init__(self, phase: PhaseT, tag: bytes) -> None:
        self._phase = phase
        self._tag = tag

    @property
    def phase(self) -> PhaseT:
        """What the session is collecting."""
        return self._phase

    @property
    def answered(self) -> tuple[int, ...]:
        """The parties that have answered in the present stage, ascending."""
        return tuple(sorted(self._answers_by_phase().get(self._phase, ())))

    def receive(self, message: MessageT) -> None:
        """Process a party's message."""
        self._check_open()
        received: Any = message
        sender, parties = getattr(received, "sender", -1), self._parties(message)
        parties.check(sender)
        if received.context != self._tag:
            raise RemoteProtocolError(sender, Reason.WRONG_CONTEXT, role=parties.role)
        handler = self.RECEIVERS.get((self._phase, type(message)))
        if handler is None:
            detail = f"{type(message).__name__} while collecting {self._phase.value}"
            raise RemoteProtocolError(sender, Reason.UNEXPECTED_MESSAGE, detail, parties.role)
        handler(self, message)

    @abstractmethod
    def _parties(self, message: MessageT) -> Parties:
        """Those who may send such a message."""

    @abstractmethod
    def _answers_by_phase(self) -> Mapping[PhaseT, Collection[int]]:
        """The senders of what has been collected, by what is collected."""

    def _forget(self) -> None:
        """Give up what a session that aborts need not keep."""

    def _close(self) -> Any:
        """The messages of the next stage, with the indices of the parties that they go to."""
        self._check_open()
        closer = self.CLOSERS.get(self._phase)
        if closer is None:
            raise LocalProtocolError(f"the last stage ends with {self.RELEASE}()")
        return self._guarded(lambda: closer(self))

    def _check_open(self) -> None:
        if self._phase in (self.ABORTED, self.FINISHED):
            raise SessionAbortedError(f"this session is over: {self._phase.value}")

    def _move(self, event: enum.Enum | type, phase: PhaseT) -> None:
        if phase not in self.MOVES[(self._phase, event)]:
            raise LocalProtocolError(f"illegal move from {self._phase} to {phase}")
        self._phase = phase

    def _guarded(self, action: Callable[[], T]) -> T:
        try:
            return action()
        except BaseException:  # an interrupt, too, may leave half of the masks on the sum
            self._phase = self.ABORTED  # type: ignore[assignment]
            self._forget()
            raise


def require(stage: str, count: int, needed: int) -> None:
    """See that enough are left to go on."""
    if count < needed:
        raise TooFewSurvivorsError(stage, count, needed)
