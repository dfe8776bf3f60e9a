"""A state machine whose every state is used once, by one thread of one process.

A party that answers two questions from one state may give away what it must not: both shares of a
secret, or its shares of two different sums. So the state is taken out before a handler sees it, and
an error leaves the session aborted. That holds whoever calls: a lock makes threads wait for one
another, and a forked or copied session, which has the same state, answers nothing.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import Any, ClassVar, Generic, NoReturn, Protocol, TypeVar

from secagg.errors import (
    SERVER,
    LocalProtocolError,
    Reason,
    RemoteProtocolError,
    SessionAbortedError,
)
from secagg.state_codec import StateCodec


class HasPhase(Protocol):
    """A state: one frozen value for each phase."""

    @property
    def phase(self) -> Any:
        """The phase that this is the state of."""


class SteppingParty(Protocol):
    """What does not change during a session, as far as it matters here."""

    @property
    def context(self) -> Any:
        """The public parameters of the round."""


PartyT = TypeVar("PartyT", bound=SteppingParty)
StateT = TypeVar("StateT", bound=HasPhase)
MessageT = TypeVar("MessageT")

Handlers = Mapping[tuple[Any, Any], Callable[[Any, Any, Any], Any]]
Moves = Mapping[tuple[enum.Enum, Any], frozenset[enum.Enum]]


class SingleUseSession(Generic[PartyT, StateT, MessageT]):
    """Holds a party's state, and steps it by pure handlers `(party, state, event) -> Step`."""

    HANDLERS: ClassVar[Handlers]
    MOVES: ClassVar[Moves]
    FINAL: ClassVar[tuple[type, ...]]
    """States that end the session and stay."""
    ABORTED: ClassVar[Callable[[], Any]]
    """Makes the state of a session that an error has ended."""
    STORED_AS: ClassVar[StateCodec]
    """How its states are stored, by `secagg.storage`."""

    def __init__(self, party: PartyT, state: StateT) -> None:
        self._party = party
        self._state = state
        self._ended = False
        self._lock = RLock()
        self._process = os.getpid()

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied: two sessions would answer from one state."""
        raise TypeError("a session is neither copied nor pickled: `secagg.storage` stores it, once")

    @property
    def phase(self) -> Any:
        """The phase that the session is in."""
        return self._state.phase

    def abort(self) -> None:
        """End the session for good; what it held is forgotten.

        A step that is under way, in another thread or in the one that a signal handler or a
        callback calls from, gives no answer.
        """
        # Without the lock, which a step holds to its end; it looks at this one when it writes.
        self._ended = True
        self._state = type(self).ABORTED()

    def hand_over(self) -> tuple[PartyT, StateT]:
        """Give up the state, to be stored; see `secagg.storage`. The session is aborted."""
        with self._alone():
            return self._party, self._take()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """With no other thread at this session."""
        # Before the lock: in a forked process, a thread that is not there may hold it.
        if self._process != os.getpid():
            raise SessionAbortedError(
                "this session belongs to another process, which goes on with it"
            )
        with self._lock:
            yield

    def _take(self) -> StateT:
        """Take the state out, leaving an aborted one behind; final states stay."""
        if isinstance(self._state, self.FINAL):
            raise SessionAbortedError(f"this session is over: {self._state.phase.value}")
        state, self._state = self._state, type(self).ABORTED()
        return state

    def _put(self, state: StateT) -> None:
        """Write a state back, unless the session was aborted since the last one was taken."""
        self._state = state
        # Looked at afterwards: this thread may be interrupted, and aborted, between any two lines.
        if self._ended:
            self._state = type(self).ABORTED()
            raise SessionAbortedError("this session was aborted while it answered")

    def _decoded(self, decode: Callable[[], MessageT]) -> MessageT:
        """A message out of bytes; bytes that are none abort the session."""
        state = self._take()
        message = decode()
        self._put(state)
        return message

    def _step(self, event: Any, payload: Any) -> MessageT | None:
        with self._alone():
            state = self._take()
            handler = self.HANDLERS.get((state.phase, event))
            if handler is None:
                raise _illegal(state.phase, event)
            if isinstance(event, type) and not self._party.context.hash.startswith(payload.context):
                raise RemoteProtocolError(SERVER, Reason.WRONG_CONTEXT)
            step = handler(self._party, state, payload)
            if step.state.phase not in self.MOVES[(state.phase, event)]:
                raise LocalProtocolError(f"illegal move {state.phase} to {step.state.phase}")
            self._put(step.state)
            outbound: MessageT | None = step.outbound
            return outbound


@contextmanager
def or_abort(session: SingleUseSession[Any, Any, Any]) -> Iterator[None]:
    """Whatever goes wrong inside, interrupts too, ends the session for good."""
    try:
        yield
    except BaseException:
        session.abort()
        raise


def _illegal(phase: Any, event: Any) -> Exception:
    if not isinstance(event, type):
        return LocalProtocolError(f"{event.value!r} is not legal when {phase.value!r}")
    return RemoteProtocolError(
        SERVER, Reason.UNEXPECTED_MESSAGE, f"{event.__name__} when {phase.value!r}"
    )
