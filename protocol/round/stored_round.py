"""The bytes of a round that is stored between two messages: public parts beside a sealed session.

What is public here is not sealed, and the seal covers all of it: the announcement and the model
digest by the context's hash, the time by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from protocol.round.setup import RoundSetup
from secagg import ParameterError, RemoteProtocolError
from secagg.storage import StoredStateError

VERSION = 2
Plain = tuple[int, bytes, bytes, float | None, bytes]
"""Version, announcement, model digest, latest time seen, sealed session."""


@dataclass(frozen=True, slots=True)
class StoredRound:
    """A stored round, read.

    Attributes:
        setup: of the round.
        seen: latest unix time, in seconds, that the client's clock has shown in this round; None
            if it has not kept the time, for want of a clock or of an end.
        sealed: the session.
    """

    setup: RoundSetup
    seen: float | None
    sealed: bytes

    def encode(self) -> bytes:
        """The bytes to be stored."""
        digest = self.setup.parameters.model_digest
        plain = (VERSION, self.setup.announce(), digest, self.seen, self.sealed)
        return msgspec.msgpack.encode(plain)

    @classmethod
    def decode(cls, stored: bytes) -> StoredRound:
        """The round in stored bytes, whose seal is still to be looked at."""
        _, announcement, digest, seen, sealed = _plain(stored)
        try:
            return cls(RoundSetup.from_announcement(announcement, digest), seen, sealed)
        except (RemoteProtocolError, ParameterError) as error:
            raise StoredStateError(f"a stored round is damaged: {error}") from None


def sealed_part(stored: bytes) -> bytes:
    """The sealed session of a stored round, whatever else is in it."""
    return _plain(stored)[-1]


def _plain(stored: bytes) -> Plain:
    try:
        plain: Plain = msgspec.msgpack.decode(stored, type=Plain)
    except msgspec.MsgspecError as error:
        raise StoredStateError(f"a stored round is damaged: {error}") from None
    if plain[0] != VERSION:
        raise StoredStateError("the stored round has an unknown version")
    return plain
