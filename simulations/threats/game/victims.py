"""The clients of a round under attack: real sessions, of which some work for the server.

An adversary reaches honest clients through messages only, and colluders' sessions from inside.
What honest clients put in is looked at by the games, and by nobody else.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from secagg import ClientSession, FieldVector, ProtocolError, SessionContext
from secagg.framing import encode_message
from secagg.keys import Identity
from secagg.pairwise.messages import Advertisement, AnyMessage, MaskedInput, decode_from_client
from secagg.pairwise.transitions import ClientPhase
from secagg.shamir import Rand
from simulations.threats.game.contexts import Integers, counter_rand, identity_of

Message = TypeVar("Message", bound=AnyMessage)

SessionMaker = Callable[[SessionContext, int, Identity, Rand], ClientSession]
"""Makes an honest client's session: `ClientSession` itself, or a client with a defence missing."""


def refusal(error: Exception) -> str:
    """The type of a typed error and its reason, if it has one: "RemoteProtocolError BAD_SEAL"."""
    reason = getattr(error, "reason", None)
    name = type(error).__name__
    return f"{name} {reason.name}" if isinstance(reason, enum.Enum) else name


def refused_with(refusals: Counter[str]) -> dict[str, str]:
    """The most frequent refusal, as the figure of that name; nothing if there was none."""
    return {"refused_with": refusals.most_common(1)[0][0]} if refusals else {}


def sent_as(kind: type[Message], data: bytes, u: int) -> Message:
    """The message of a client of ours, which can be of no other kind."""
    message = decode_from_client(data, u, len(data))
    assert isinstance(message, kind)  # noqa: S101 - made by an honest session
    return message


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a message to a client."""

    accepted: bool
    message: AnyMessage | None = None


class Victims:
    """All clients of one session.

    Args:
        inputs: `field.dtype`[size, length], what they put in.
        salt: fixes the clients' secrets; see `contexts.counter_rand`.
    """

    def __init__(
        self,
        context: SessionContext,
        inputs: Integers,
        colluders: Iterable[int],
        salt: bytes,
        session: SessionMaker = ClientSession,
        refused: Callable[[ProtocolError], None] = lambda _: None,
    ) -> None:
        self.context = context
        self.colluders = frozenset(colluders)
        self._inputs = inputs
        self._refused = refused
        self._sessions = {
            u: (ClientSession if u in self.colluders else session)(
                context, u, identity_of(u), counter_rand(b"%d|" % u + salt)
            )
            for u in range(context.size)
        }

    def advertise(self, u: int) -> Advertisement:
        """The first message of a client."""
        return sent_as(Advertisement, self._sessions[u].begin_bytes(), u)

    def ask(self, u: int, message: AnyMessage) -> Answer:
        """Send a client a message; every refusal is a typed error, or it comes out here."""
        try:
            data = self._sessions[u].receive_bytes(encode_message(message))
        except ProtocolError as error:
            self._refused(error)
            return Answer(False)
        return Answer(True, None if data is None else decode_from_client(data, u, len(data)))

    def upload(self, u: int) -> MaskedInput | None:
        """A client that waits for its input gets it, masks it and sends it, or leaves."""
        vector = FieldVector(self.context.field, self._inputs[u].copy())
        try:
            return sent_as(MaskedInput, self._sessions[u].submit_bytes(vector), u)
        except ProtocolError as error:
            self._refused(error)
            return None

    def phase(self, u: int) -> ClientPhase:
        """Where a client's session is."""
        return self._sessions[u].phase

    def look_into(self, u: int) -> Any:
        """What a colluder's session knows; it goes on as if nobody had looked."""
        self._need_colluder(u)
        return self.state_of(u)

    def state_of(self, u: int) -> Any:
        """What any client's session knows: for games and nobody else."""
        party, state = self._sessions[u].hand_over()
        self._sessions[u] = ClientSession.from_state(party, state)
        return state

    def identity(self, u: int) -> Identity:
        """A colluder's signing key."""
        self._need_colluder(u)
        return identity_of(u)

    def _need_colluder(self, u: int) -> None:
        if u not in self.colluders:
            raise ValueError(f"client {u} is honest: it tells nobody what it knows")
