"""Who announces: a statement about a session, signed once, and a signature for each round.

A session's id is the first half of its statement's hash, so announcer, registry, run and app are in
every context hash, sealing key and mark of the session, and nobody can make up a round in it. The
announcer signs the context hash, which all clients and members share whatever each of them is told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from protocol.authority.registry import MAX_REGISTRY_BYTES, Time, read_signed
from protocol.errors import PolicyError
from protocol.round.rings import UnixClock
from secagg import SERVER, Identity, ParameterError, Reason, RemoteProtocolError
from secagg.keys import os_random, signature_is_valid
from secagg.shamir import Rand
from secagg.tags import Usage, digest
from secagg.terms import DIGEST_BYTES, SESSION_ID_BYTES

VERSION = 1
SALT_BYTES = 16
MAX_ENVELOPE_BYTES = 2 * MAX_REGISTRY_BYTES + 1024


class Statement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an announcer says of a session.

    Attributes:
        version: of this form, 1.
        salt: 16 random bytes.
        announcer: its key, 32 bytes.
        registry: digest of the registry that holds for the session, 32 bytes.
        run: the framework's name of the run.
        app: SHA-256 of the app's file, 32 bytes.
    """

    version: int
    salt: bytes
    announcer: bytes
    registry: bytes
    run: str
    app: bytes


class Announcer:
    """Signs the rounds of one session, at the server.

    Args:
        key: signing key of the announcer.
        read: gives the registry's file as it is now; what it gives first holds for the session. It
            is read once for each cohort.
        run: the framework's name of the run.
        app: SHA-256 of the app's file, 32 bytes.
        clock: tells unix seconds.
        rand: source of the session's salt.

    Raises:
        ConfigurationError: what `read` gives is no signed registry.
        ParameterError: `app` is no digest.
    """

    def __init__(
        self,
        key: Identity,
        read: Callable[[], bytes],
        run: str,
        app: bytes,
        clock: UnixClock,
        rand: Rand = os_random,
    ) -> None:
        if len(app) != DIGEST_BYTES:
            raise ParameterError("app", f"{len(app)} bytes", f"{DIGEST_BYTES} bytes, a SHA-256")
        self._key, self._read, self._clock = key, read, clock
        self._file = self._newest = read()
        self._registry = read_signed(self._file, None)
        said = Statement(VERSION, rand(SALT_BYTES), key.public, self._registry.digest(), run, app)
        self._statement = msgspec.msgpack.encode(said)
        self._about_session = key.sign(Usage.SESSION, self._statement)

    @property
    def session_id(self) -> bytes:
        """Of every round of the session, 16 bytes."""
        return session_of(self._statement)

    def envelope(self, about: bytes) -> bytes:
        """What makes a request a genuine one.

        Args:
            about: a round's context hash, or what a member is asked a sealing key with.
        """
        newest, issued = self._newest if self._newest != self._file else b"", int(self._clock())
        signature = self._key.sign(Usage.ANNOUNCE, *_announced(about, newest, issued))
        parts = self._statement, self._about_session, signature, self._file, newest, issued
        return msgspec.msgpack.encode(parts)

    @property
    def registered(self) -> frozenset[bytes]:
        """Keys of all clients of the session's registry, from whom committees are drawn."""
        return self._registry.registered("client")

    def clients(self) -> frozenset[bytes]:
        """Keys of clients that may be in a cohort: active when the session began, and still."""
        now, self._newest = self._clock(), self._read()
        newest = read_signed(self._newest, None)
        return self._registry.active("client", now) & newest.active("client", now)


def session_of(statement: bytes) -> bytes:
    """The session of a statement's bytes."""
    return digest(Usage.SESSION, statement)[:SESSION_ID_BYTES]


def _announced(about: bytes, newest: bytes, issued: int) -> tuple[bytes, ...]:
    return about, newest, issued.to_bytes(8, "little")


@dataclass(frozen=True, slots=True)
class Envelope:
    """What came with a request, its statement verified under the key that it names.

    Attributes:
        statement: about the session.
        session_id: that follows from it, 16 bytes.
        signature: on the round, or on the request for a sealing key.
        registry: the file that holds for the session.
        newest: a later one, which the cohort was chosen by; or nothing.
        issued: unix seconds at which the announcer signed this.
    """

    statement: Statement
    session_id: bytes
    signature: bytes
    registry: bytes
    newest: bytes
    issued: int

    @classmethod
    def read(cls, data: bytes) -> Envelope:
        """Decode an envelope from the server.

        Raises:
            PolicyError: there is none.
            RemoteProtocolError: it is malformed, or the statement's signature is wrong.
        """
        if not data:
            raise PolicyError("announcement", "unsigned", "ones signed by an announcer")
        if len(data) > MAX_ENVELOPE_BYTES:
            raise RemoteProtocolError(SERVER, Reason.OVERSIZED, "what an announcer signed")
        try:
            said, about_session, signature, registry, newest, issued = msgspec.msgpack.decode(
                data, type=tuple[bytes, bytes, bytes, bytes, bytes, Time]
            )
            statement = msgspec.msgpack.decode(said, type=Statement)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise RemoteProtocolError(SERVER, Reason.MALFORMED, str(error)) from None
        if statement.version != VERSION:
            raise RemoteProtocolError(SERVER, Reason.MALFORMED, "a statement's version")
        if not signature_is_valid(statement.announcer, about_session, Usage.SESSION, said):
            raise RemoteProtocolError(SERVER, Reason.BAD_SIGNATURE, "on a session")
        return cls(statement, session_of(said), signature, registry, newest, issued)

    def require(self, session_id: bytes, about: bytes) -> None:
        """See that the announcer has signed this, and that it is of the session.

        Raises:
            PolicyError: it is of another session.
            RemoteProtocolError: the announcer has signed something else.
        """
        if session_id != self.session_id:
            valid = f"{self.session_id.hex()}, of the signed session"
            raise PolicyError("session_id", session_id.hex(), valid)
        parts = _announced(about, self.newest, self.issued)
        if not signature_is_valid(self.statement.announcer, self.signature, Usage.ANNOUNCE, *parts):
            raise RemoteProtocolError(SERVER, Reason.BAD_SIGNATURE, "on a round")
