"""Storing a member's session between its messages, as `secagg.storage` does a pairwise client's.

Between two messages a member holds shares. They are sealed under the member's identity and a key of
their own, which is destroyed, durably, before the session exists again. So a stored state answers
once: a member that answered on two sets of uploads would open two sums.
"""

from __future__ import annotations

import secrets

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from secagg.keys import AgreementKey, Identity
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.header import Header
from secagg.oneshot.layout import decode_rows, encode_rows
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.states import Checked, Confirmed, MemberParty
from secagg.oneshot.transitions import MemberPhase
from secagg.storage import STATE_KEY_BYTES, TOKEN_BYTES, StateKeys, StoredStateError
from secagg.tags import Usage, derive, encode_index, tagged

STORAGE_VERSION = 1
_KEY_BYTES = 64
_LABEL = b"one-shot member"

_Plain = tuple[str, list[tuple[int, bytes]], bytes, list[int], bytes]
"""Phase, headers by sender, digest signed, survivors signed for, shares row by row."""


def suspend_member(session: OneShotMember, keys: StateKeys, beside: bytes = b"") -> bytes:
    """Take a member's state out and seal it; the session object is aborted.

    Args:
        session: ours, after its first answer and before its last.
        keys: where the host keeps the keys of stored states.
        beside: public, and not in what is returned; the seal covers it.

    Raises:
        SessionAbortedError: the session is over, so there is nothing to store.
        StoredStateError: it has not begun: there is nothing to go on from yet.
    """
    party, state = session.hand_over()
    if isinstance(state, Checked):
        headers = [(header.sender, header.encode()) for header in state.headers]
        plain: _Plain = (state.phase.name, headers, b"", [], encode_rows(state.shares))
    elif isinstance(state, Confirmed):
        survivors, shares = list(state.survivors), encode_rows(state.shares)
        plain = (state.phase.name, [], state.signed, survivors, shares)
    else:
        raise StoredStateError(f"a member that is {state.phase.value!r} has nothing to store")
    token, key = secrets.token_bytes(TOKEN_BYTES), secrets.token_bytes(STATE_KEY_BYTES)
    cipher, bound = _cipher(party.context, party.index, party.identity, token, key, beside)
    sealed = cipher.encrypt(msgspec.msgpack.encode(plain), [bound])
    keys.keep(token, key)
    return bytes([STORAGE_VERSION]) + token + sealed


def resume_member(
    stored: bytes,
    context: OneShotContext,
    index: int,
    identity: Identity,
    sealing: AgreementKey,
    own: tuple[int, bytes | None] | None,
    registry: frozenset[bytes] | None,
    keys: StateKeys,
    beside: bytes = b"",
) -> OneShotMember:
    """Make a session of a stored state, once.

    Args:
        stored: what `suspend_member` returned.
        context, index, identity, sealing, own, registry: as of the suspended session.
        keys: those that `suspend_member` was given; the state's key is destroyed.
        beside: what `suspend_member` was given.

    Raises:
        StoredStateError: the state does not open, or was resumed before.
    """
    if len(stored) <= 1 + TOKEN_BYTES or stored[0] != STORAGE_VERSION:
        raise StoredStateError("the stored member has an unknown version or is truncated")
    token, sealed = stored[1 : 1 + TOKEN_BYTES], stored[1 + TOKEN_BYTES :]
    key = keys.key(token)
    if key is None:
        raise StoredStateError(_RESUMED)
    cipher, bound = _cipher(context, index, identity, token, key, beside)
    try:
        content = cipher.decrypt(sealed, [bound])
    except (InvalidTag, ValueError):
        raise StoredStateError(
            "the stored member cannot be opened by this identity for this round"
        ) from None
    if not keys.consume(token):
        raise StoredStateError(_RESUMED)
    party = MemberParty(context, index, identity, sealing, own, registry)
    return OneShotMember.from_state(party, _state(content, context))


_RESUMED = "this stored member was resumed before, or its key is lost; it answers only once"


def _state(content: bytes, context: OneShotContext) -> Checked | Confirmed:
    name, headers, signed, survivors, encoded = msgspec.msgpack.decode(content, type=_Plain)
    columns = context.layout.polynomials
    if name == MemberPhase.CHECKED.name:
        kept = tuple(Header.decode(sender, header) for sender, header in headers)
        return Checked(kept, decode_rows(encoded, len(kept), columns))
    return Confirmed(signed, tuple(survivors), decode_rows(encoded, len(survivors), columns))


def _cipher(
    context: OneShotContext,
    index: int,
    identity: Identity,
    token: bytes,
    key: bytes,
    beside: bytes,
) -> tuple[AESSIV, bytes]:
    parts = (_LABEL, bytes([STORAGE_VERSION]), context.hash, encode_index(index), token, beside)
    secret = identity.private_bytes() + key
    return AESSIV(derive(secret, Usage.STORE, _KEY_BYTES, *parts)), tagged(Usage.STORE, *parts)
