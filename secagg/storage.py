"""Storing a client session between stages, for hosts that restart it for every message.

`suspend` takes the state out of a session and seals it under a key that only the client's identity
can derive; `resume` opens it and makes a session again. Every stored state has a token of its own
that is marked consumed, durably, before the session exists again and so before any reply leaves.
A state can therefore be resumed once: answering one state twice, with two different survivor sets,
would give away both secrets of a party.

What this cannot stop: a host that rolls back the stored states *and* the consumed tokens together.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from secagg import client_states as states
from secagg.client import ClientSession
from secagg.context import SessionContext
from secagg.errors import LocalProtocolError
from secagg.graph import build_graph
from secagg.keys import AgreementKey, Identity, SecretSeed, os_random
from secagg.messages import Advertisement, context_tag
from secagg.roster import Committee, RoundRoster
from secagg.shamir import Rand
from secagg.tags import Usage, derive, encode_index, tagged

STORAGE_VERSION = 1
TOKEN_BYTES = 16
_KEY_BYTES = 64

_STATES: Mapping[str, type[Any]] = {
    each.phase.name: each
    for each in (
        states.Fresh,
        states.Advertised,
        states.Shared,
        states.Ready,
        states.Masked,
        states.Confirmed,
        states.Released,
    )
}


class ConsumedTokens(Protocol):
    """Remembers, beyond a crash, which stored states were resumed."""

    def consume(self, token: bytes) -> bool:
        """Mark a token; False if it was marked before. Durable when it returns."""


class TokenFolder:
    """One empty file for each consumed token: creation is atomic, and synced to disk.

    All hosts that may resume sessions of one identity must share one folder.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def consume(self, token: bytes) -> bool:
        """See `ConsumedTokens.consume`."""
        path = self._folder / token.hex()
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        directory = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        return True


class StoredStateError(LocalProtocolError):
    """A stored state is damaged, belongs to another session, or was resumed before."""


def suspend(session: ClientSession) -> bytes:
    """Take a session's state out and seal it; the session object is aborted.

    Raises:
        SessionAbortedError: the session is over, so there is nothing to store.
    """
    party, state = session.hand_over()
    content = msgspec.msgpack.encode((state.phase.name, _to_plain(state)))
    token = secrets.token_bytes(TOKEN_BYTES)
    cipher, bound = _cipher(party.context, party.index, party.identity, token)
    return bytes([STORAGE_VERSION]) + token + cipher.encrypt(content, [bound])


def resume(
    stored: bytes,
    context: SessionContext,
    index: int,
    identity: Identity,
    consumed: ConsumedTokens,
    rand: Rand = os_random,
) -> ClientSession:
    """Make a session of a stored state, once.

    Args:
        stored: what `suspend` returned.
        context: the same as before.
        index: the same as before.
        identity: the same as before.
        consumed: the host's memory of resumed states.
        rand: source of secrets; leave it alone except in test vectors.

    Raises:
        StoredStateError: the state does not open, or was resumed before.
    """
    if len(stored) <= 1 + TOKEN_BYTES or stored[0] != STORAGE_VERSION:
        raise StoredStateError("a stored session has an unknown version or is cut off")
    token, sealed = stored[1 : 1 + TOKEN_BYTES], stored[1 + TOKEN_BYTES :]
    cipher, bound = _cipher(context, index, identity, token)
    try:
        content = cipher.decrypt(sealed, [bound])
    except (InvalidTag, ValueError):
        raise StoredStateError("a stored session does not open for this client and round") from None
    if not consumed.consume(token):
        raise StoredStateError("this stored session was resumed before; it answers only once")
    name, plain = msgspec.msgpack.decode(content, strict=True)
    state = _from_plain(_STATES[name], plain, context)
    return ClientSession.from_state(states.Party(context, index, identity, rand), state)


def _cipher(
    context: SessionContext, index: int, identity: Identity, token: bytes
) -> tuple[AESSIV, bytes]:
    parts = (bytes([STORAGE_VERSION]), context.hash, encode_index(index), token)
    key = derive(identity.private_bytes(), Usage.STORE, _KEY_BYTES, *parts)
    return AESSIV(key), tagged(Usage.STORE, *parts)


def _to_plain(state: Any) -> dict[str, Any]:
    return {name: _CODECS[name][0](getattr(state, name)) for name in _fields(type(state))}


def _from_plain(kind: type[Any], plain: dict[str, Any], context: SessionContext) -> Any:
    return kind(**{name: _CODECS[name][1](plain[name], context) for name in _fields(kind)})


def _fields(kind: type[Any]) -> tuple[str, ...]:
    return tuple(kind.__dataclass_fields__)


def _roster_to_plain(roster: RoundRoster) -> list[Any]:
    entries = {index: each.entry() for index, each in roster.advertisements.items()}
    return [roster.members, entries, roster.hash]


def _roster_from_plain(plain: list[Any], context: SessionContext) -> RoundRoster:
    members, entries, round_hash = tuple(plain[0]), plain[1], plain[2]
    return RoundRoster(
        members=members,
        advertisements={
            index: Advertisement.from_entry(context_tag(context), index, entry)
            for index, entry in entries.items()
        },
        graph=build_graph(members, context.degree, round_hash),
        committee=Committee.draw(context, members, round_hash),
        threshold=context.threshold,
        hash=round_hash,
    )


_Codec = tuple[Callable[[Any], Any], Callable[[Any, SessionContext], Any]]

# One encoder and decoder for each field of any state, by the field's name.
_CODECS: Mapping[str, _Codec] = {
    "sealing": (AgreementKey.expose, lambda raw, _: AgreementKey(raw)),
    "masking": (AgreementKey.expose, lambda raw, _: AgreementKey(raw)),
    "seed": (SecretSeed.expose, lambda raw, _: SecretSeed(raw)),
    "removable": (
        lambda seeds: [seed.expose() for seed in seeds],
        lambda raw, _: tuple(SecretSeed(each) for each in raw),
    ),
    "advertisement": (
        lambda each: [each.sender, each.entry()],
        lambda raw, context: Advertisement.from_entry(context_tag(context), *raw),
    ),
    "roster": (_roster_to_plain, _roster_from_plain),
    "own_share": (bytes, lambda raw, _: raw),
    "participants": (list, lambda raw, _: tuple(raw)),
    "survivors": (list, lambda raw, _: tuple(raw)),
    "held": (dict, lambda raw, _: raw),
    "masked": (_to_plain, lambda raw, context: _from_plain(states.Masked, raw, context)),
}
