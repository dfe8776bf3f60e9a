"""Storing a session between stages, for hosts that restart it for every message.

`suspend` takes the state out of a session, of either protocol, and seals it. `resume` opens it and
makes a session again. Every stored state has a token and a random key of its own, which the host
keeps beside it, and the seal's key follows from both that key and the party's identity. The key is
destroyed, durably, before the session exists again and so before any reply leaves.

A state can therefore be resumed once: answering one state twice, with two different survivor sets,
would give away both secrets of a party, or open two sums. And what was resumed opens for nobody any
more: a copy of an old state and an identity that leaks later do not open the upload that somebody
has recorded.

What this cannot stop: a host that rolls back the stored states *and* the keys together, and a disk
that keeps what was overwritten.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from secagg.errors import LocalProtocolError
from secagg.keys import Identity
from secagg.state_codec import StateCodec
from secagg.tags import Usage, derive, encode_index, tagged

STORAGE_VERSION = 2
TOKEN_BYTES = 16
STATE_KEY_BYTES = 32
_KEY_BYTES = 64


class StorableParty(Protocol):
    """What does not change during a session, as far as it is bound into the seal."""

    @property
    def context(self) -> Any:
        """The public parameters of the round."""

    @property
    def index(self) -> int:
        """Our position among the parties of our kind."""

    @property
    def identity(self) -> Identity:
        """Our signing key."""


class StorableSession(Protocol):
    """A session whose state can be taken out, stored, and put into another one."""

    STORED_AS: ClassVar[StateCodec]

    def hand_over(self) -> tuple[Any, Any]:
        """Give up party and state."""

    @classmethod
    def from_state(cls, party: Any, state: Any) -> Self:
        """A session that goes on from a state."""


SessionT = TypeVar("SessionT", bound=StorableSession)


class StateKeys(Protocol):
    """Keeps the key of every stored state, beyond a crash, until the state is resumed."""

    def keep(self, token: bytes, key: bytes) -> None:
        """Keep the key of a new state under its token. Durable when it returns."""

    def key(self, token: bytes) -> bytes | None:
        """The key of a state; None if it was destroyed, or never kept."""

    def consume(self, token: bytes) -> bool:
        """Destroy a key; False if there is none. Of those who try at once, one is told True.

        Nothing brings the key back when it returns.
        """


class TokenFolder:
    """A file for each stored state that was not resumed: named by its token, it holds its key.

    All hosts that may resume sessions of one identity must share one folder, on a file system that
    removes a file in one step. The folder is private, and belongs into no backup.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder

    def keep(self, token: bytes, key: bytes) -> None:
        """Write the key to a file of its own; see `StateKeys.keep`."""
        descriptor = os.open(self._path(token), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        write_durably(descriptor, key)
        sync_folder(self._folder)

    def key(self, token: bytes) -> bytes | None:
        """Read the key from its file; see `StateKeys.key`."""
        try:
            key = self._path(token).read_bytes()
        except FileNotFoundError:
            return None
        return key if len(key) == STATE_KEY_BYTES else None

    def consume(self, token: bytes) -> bool:
        """Remove the file of the key; see `StateKeys.consume`."""
        return self._destroy(self._path(token))

    def clear(self) -> None:
        """Destroy every key: no state that was stored with this folder opens any more.

        For a host that is in one round at a time and begins another. It needs no state, so a key is
        destroyed also if its state was lost or damaged, or never written.
        """
        for path in sorted(self._folder.iterdir()):
            self._destroy(path)

    def _destroy(self, path: Path) -> bool:
        try:
            # What is only unlinked may still be read from the disk.
            write_durably(os.open(path, os.O_WRONLY), bytes(STATE_KEY_BYTES))
            path.unlink()
        except FileNotFoundError:
            return False
        sync_folder(self._folder)
        return True

    def _path(self, token: bytes) -> Path:
        return self._folder / token.hex()


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_durably(descriptor: int, data: bytes) -> None:
    """Write at the start of a file, wait until it is on disk, and close it."""
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: Path, data: bytes) -> None:
    """Replace a file in one step; it is on disk when this returns. Nobody else may read it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    write_durably(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), data)
    fresh.replace(path)
    sync_folder(path.parent)


class StoredStateError(LocalProtocolError):
    """A stored state is damaged, belongs to another session, or was resumed before."""


def suspend(session: StorableSession, keys: StateKeys, beside: bytes = b"") -> bytes:
    """Take a session's state out and seal it; the session object is aborted."""
    party, state = session.hand_over()
    codec = session.STORED_AS
    content = codec.encode(party, state)
    token, key = secrets.token_bytes(TOKEN_BYTES), secrets.token_bytes(STATE_KEY_BYTES)
    cipher, bound = _cipher(party, codec.role, token, key, beside)
    sealed = cipher.encrypt(content, [bound])
    keys.keep(token, key)
    return bytes([STORAGE_VERSION]) + token + sealed


def resume(
    kind: type[SessionT], stored: bytes, party: StorableParty, keys: StateKeys, beside: bytes = b""
) -> SessionT:
    """Make a session of any kind of a stored state, once."""
    token, sealed = _parts(stored)
    key = keys.key(token)
    if key is None:
        raise StoredStateError(_RESUMED)
    codec = kind.STORED_AS
    cipher, bound = _cipher(party, codec.role, token, key, beside)
    try:
        content = cipher.decrypt(sealed, [bound])
    except (InvalidTag, ValueError):
        raise StoredStateError(
            "the stored session cannot be opened by this party for this round"
        ) from None
    if not keys.consume(token):
        raise StoredStateError(_RESUMED)
    try:
        return kind.from_state(*codec.decode(content, party))
    except (KeyError, TypeError, ValueError):
        # What we sealed ourselves decodes, unless states had other fields then.
        raise StoredStateError("the stored session is of another version") from None


def discard(stored: bytes, keys: StateKeys) -> None:
    """Destroy the key of a stored state that will not be resumed: nobody opens it any more."""
    keys.consume(_parts(stored)[0])


_RESUMED = "this stored session was resumed before, or its key is lost; it answers only once"


def _parts(stored: bytes) -> tuple[bytes, bytes]:
    """The token and the seal of a stored state."""
    if len(stored) <= 1 + TOKEN_BYTES or stored[0] != STORAGE_VERSION:
        raise StoredStateError("the stored session has an unknown version or is truncated")
    return stored[1 : 1 + TOKEN_BYTES], stored[1 + TOKEN_BYTES :]


def _cipher(
    party: StorableParty, role: bytes, token: bytes, key: bytes, beside: bytes
) -> tuple[AESSIV, bytes]:
    version, index = bytes([STORAGE_VERSION]), encode_index(party.index)
    parts = (version, party.context.hash, index, token, beside, *([role] if role else []))
    secret = party.identity.private_bytes() + key
    return AESSIV(derive(secret, Usage.STORE, _KEY_BYTES, *parts)), tagged(Usage.STORE, *parts)
