"""The messages of one round: frozen, self-validating, and their versioned codec.

On the wire a message is one version byte and a MessagePack array whose first element is the
message's number. Parties are named by their index in the cohort; sets of parties are bitmaps,
lists of fixed-size items are concatenated in ascending order of party, so a repeated or reordered
party cannot be expressed. The `context` field is a prefix of the context hash: it sorts out
messages of other rounds early; signatures and sealing keys do the real binding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec
import numpy as np

from secagg.committee import full_quorum
from secagg.context import Mode, SessionContext
from secagg.errors import Reason, RemoteProtocolError
from secagg.keys import KEY_BYTES, NONCE_BYTES, SIGNATURE_BYTES
from secagg.merkle import HASH_BYTES, largest_proof_bytes
from secagg.sealing import SEAL_OVERHEAD_BYTES
from secagg.shamir import SHARE_BYTES

WIRE_VERSION = 1
CONTEXT_TAG_BYTES = 8
COMMITMENT_BYTES = 32

ADVERTISEMENT_ENTRY_BYTES = 2 * KEY_BYTES + NONCE_BYTES + SIGNATURE_BYTES

_LENGTHS = {
    "context": CONTEXT_TAG_BYTES,
    "sealing_key": KEY_BYTES,
    "masking_key": KEY_BYTES,
    "nonce": NONCE_BYTES,
    "signature": SIGNATURE_BYTES,
    "root": HASH_BYTES,
}
"""Fields of a fixed length, whatever message they are in."""

_FRAME_BYTES = 64
"""More than the version byte and all MessagePack headers of any message take."""


class Message(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Base of all messages: `context` is the first 8 bytes of the context hash."""

    context: bytes

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if name in _LENGTHS and (found := len(getattr(self, name))) != _LENGTHS[name]:
                raise ValueError(f"{name} must be {_LENGTHS[name]} bytes, not {found}")

    def __repr__(self) -> str:
        """Names and sizes only: some messages carry shares and seeds."""
        sizes = ", ".join(
            f"{name}={len(value)} bytes" if isinstance(value, bytes) else f"{name}={value}"
            for name, value in msgspec.structs.asdict(self).items()
        )
        return f"{type(self).__name__}({sizes})"


class ClientMessage(Message, frozen=True, array_like=True):
    """Base of messages to the server: `sender` is the index in the cohort."""

    sender: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sender < 0:
            raise ValueError(f"sender must be at least 0, not {self.sender}")


class Advertisement(ClientMessage, frozen=True, array_like=True, tag=1):
    """Round 0, up: two public keys and a nonce, signed."""

    sealing_key: bytes
    masking_key: bytes
    nonce: bytes
    signature: bytes

    def entry(self) -> bytes:
        """The fixed-size roster entry."""
        return self.sealing_key + self.masking_key + self.nonce + self.signature

    @classmethod
    def from_entry(cls, context: bytes, sender: int, entry: bytes) -> Advertisement:
        """The advertisement that `entry` gave these bytes for."""
        keys, rest = entry[: 2 * KEY_BYTES], entry[2 * KEY_BYTES :]
        return cls(
            context=context,
            sender=sender,
            sealing_key=keys[:KEY_BYTES],
            masking_key=keys[KEY_BYTES:],
            nonce=rest[:NONCE_BYTES],
            signature=rest[NONCE_BYTES:],
        )


class Roster(Message, frozen=True, array_like=True, tag=2):
    """Round 0, down: who takes part, and the advertisements that the recipient needs.

    The root of the hash tree over all advertisements, the proof that the recipient's is in it, and
    those of its neighbours, in order.
    """

    members: bytes
    root: bytes
    proof: bytes
    entries: bytes


class ShareBundle(ClientMessage, frozen=True, array_like=True, tag=3):
    """Round 1, up: sealed shares for every other holder, in order.

    With them commitments to the self-mask seed and to each removable seed, signed.
    """

    commitments: bytes
    sealed: bytes
    signature: bytes


class DeliveredShares(Message, frozen=True, array_like=True, tag=4):
    """Round 1, down: who shared, and the sealed shares meant for the recipient, in order."""

    participants: bytes
    sealed: bytes


class MaskedInput(ClientMessage, frozen=True, array_like=True, tag=5):
    """Round 2, up: the masked vector, packed to `bits` bits per element, signed."""

    vector: bytes
    signature: bytes


class SurvivorSet(Message, frozen=True, array_like=True, tag=6):
    """Round 2, down: whose masked vectors are in the sum (U3)."""

    survivors: bytes


class Confirmation(ClientMessage, frozen=True, array_like=True, tag=7):
    """Round 3, up: a signature over the survivor set."""

    signature: bytes


class ConfirmationSet(Message, frozen=True, array_like=True, tag=8):
    """Round 3, down: signatures of the committee's members over the survivor set, in order."""

    confirmers: bytes
    signatures: bytes


class UnmaskShares(ClientMessage, frozen=True, array_like=True, tag=9):
    """Round 4, up: one share for each participant that the sender holds shares of, in order.

    Whether it is a share of the self-mask seed or of the masking key follows from the survivor
    set, so a client cannot be made to express both for one party. With it come the sender's own
    removable seeds that so many survivors give up. Signed together with the survivor set.
    """

    shares: bytes
    seeds: bytes
    signature: bytes


class SeedRequest(Message, frozen=True, array_like=True, tag=10):
    """Round 4, down: survivors that went away before they gave up their removable seeds."""

    missing: bytes


class SeedShares(ClientMessage, frozen=True, array_like=True, tag=11):
    """Round 5, up: shares of the seeds that the missing parties were to give up; signed.

    One entry for each missing party that the sender holds shares of, in order.
    """

    shares: bytes
    signature: bytes


AnyMessage = (
    Advertisement
    | Roster
    | ShareBundle
    | DeliveredShares
    | MaskedInput
    | SurvivorSet
    | Confirmation
    | ConfirmationSet
    | UnmaskShares
    | SeedRequest
    | SeedShares
)
FromClient = Advertisement | ShareBundle | MaskedInput | Confirmation | UnmaskShares | SeedShares
FromServer = Roster | DeliveredShares | SurvivorSet | ConfirmationSet | SeedRequest

M = TypeVar("M")

_encoder = msgspec.msgpack.Encoder()
_from_client: msgspec.msgpack.Decoder[FromClient] = msgspec.msgpack.Decoder(FromClient)
_from_server: msgspec.msgpack.Decoder[FromServer] = msgspec.msgpack.Decoder(FromServer)


def encode_message(message: AnyMessage) -> bytes:
    """Version byte and MessagePack body."""
    return bytes([WIRE_VERSION]) + _encoder.encode(message)


def decode_from_client(data: bytes, party: int, limit: int) -> FromClient:
    """Decode bytes that the transport attributes to client `party`.

    Raises:
        RemoteProtocolError: too long, not a message, or it names another sender.
    """
    message = _decode(_from_client, data, party, limit)
    if message.sender != party:
        raise RemoteProtocolError(party, Reason.UNKNOWN_SENDER, f"says it is {message.sender}")
    return message


def decode_from_server(data: bytes, party: int, limit: int) -> FromServer:
    """Decode bytes from the server; `party` is the number used in errors.

    Raises:
        RemoteProtocolError: too long, or not a message.
    """
    return _decode(_from_server, data, party, limit)


def context_tag(context: SessionContext) -> bytes:
    """The prefix of the context hash that every message carries."""
    return context.hash[:CONTEXT_TAG_BYTES]


def largest_message_bytes(context: SessionContext) -> int:
    """Bytes that no honest message of this round exceeds.

    The largest of a roster, a bundle of shares, a set of signatures, and a packed vector.
    """
    n, seeds = context.size, context.seeds
    peers = context.degree or n
    item = max(ADVERTISEMENT_ENTRY_BYTES, sealed_share_bytes(context))
    vector = context.field.packed_bytes(context.length)
    bitmap = (n + 7) // 8
    # A small roster makes a sparse graph complete, with one holder more than neighbours.
    fixed = largest_proof_bytes(n) + (1 + seeds) * COMMITMENT_BYTES + SIGNATURE_BYTES
    active = context.mode is Mode.ACTIVE
    signatures = full_quorum(n, context.tolerated_colluders) * SIGNATURE_BYTES if active else 0
    return max((peers + 2) * item, signatures, vector) + bitmap + fixed + _FRAME_BYTES


def shared_secrets(context: SessionContext) -> int:
    """Secrets that each client shares: self-mask seed, masking key, removable seeds."""
    return 2 + context.seeds


def sealed_share_bytes(context: SessionContext) -> int:
    """Bytes of one sealed share of all of a client's secrets."""
    return shared_secrets(context) * SHARE_BYTES + SEAL_OVERHEAD_BYTES


def encode_set(indices: Iterable[int], size: int) -> bytes:
    """Bitmap of a set of indices below `size`: bit i of byte i // 8, least significant first."""
    flags = np.zeros(size, np.bool_)
    flags[np.fromiter(indices, np.int64)] = True
    return np.packbits(flags, bitorder="little").tobytes()


def decode_set(bitmap: bytes, size: int) -> tuple[int, ...]:
    """Inverse of `encode_set`, ascending; ValueError on another length or set padding bits."""
    if len(bitmap) != (size + 7) // 8:
        raise ValueError(f"bitmap of {len(bitmap)} bytes for {size} parties")
    flags = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little")
    members: list[int] = np.flatnonzero(flags).tolist()
    if members and members[-1] >= size:
        raise ValueError(f"bitmap names party {members[-1]} of {size}")
    return tuple(members)


def split_items(data: bytes, size: int, count: int) -> list[bytes]:
    """Cut a concatenation of `count` items of `size` bytes; ValueError on another length."""
    if len(data) != size * count:
        raise ValueError(f"{len(data)} bytes, {count} items of {size} bytes expected")
    return [data[i * size : (i + 1) * size] for i in range(count)]


def _decode(decoder: msgspec.msgpack.Decoder[M], data: bytes, party: int, limit: int) -> M:
    if len(data) > limit:
        raise RemoteProtocolError(party, Reason.OVERSIZED, f"{len(data)} bytes, at most {limit}")
    if not data or data[0] != WIRE_VERSION:
        raise RemoteProtocolError(party, Reason.MALFORMED, "unknown version")
    try:
        return decoder.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(party, Reason.MALFORMED, str(error)) from None
