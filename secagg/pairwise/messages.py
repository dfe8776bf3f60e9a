"""The messages of a pairwise round; `secagg.framing` has what all messages share."""

from __future__ import annotations

import msgspec

from secagg.errors import Reason, RemoteProtocolError
from secagg.framing import CONTEXT_TAG_BYTES, FRAME_BYTES, ClientMessage, Message, decode_message
from secagg.keys import KEY_BYTES, NONCE_BYTES, SIGNATURE_BYTES
from secagg.merkle import largest_proof_bytes
from secagg.pairwise.committee import full_quorum
from secagg.pairwise.context import Mode, SessionContext
from secagg.sealing import SEAL_OVERHEAD_BYTES
from secagg.shamir import SHARE_BYTES

COMMITMENT_BYTES = 32

ADVERTISEMENT_ENTRY_BYTES = 2 * KEY_BYTES + NONCE_BYTES + SIGNATURE_BYTES


class Advertisement(ClientMessage, frozen=True, tag=1):
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


class Roster(Message, frozen=True, tag=2):
    """Round 0, down: who takes part, and the advertisements that the recipient needs.

    The root of the hash tree over all advertisements, the proof that the recipient's is in it, and
    those of its neighbours, in order.
    """

    members: bytes
    root: bytes
    proof: bytes
    entries: bytes


class ShareBundle(ClientMessage, frozen=True, tag=3):
    """Round 1, up: sealed shares for every other holder, in order.

    With them commitments to the self-mask seed and to each removable seed, signed.
    """

    commitments: bytes
    sealed: bytes
    signature: bytes


class DeliveredShares(Message, frozen=True, tag=4):
    """Round 1, down: who shared, and the sealed shares meant for the recipient, in order."""

    participants: bytes
    sealed: bytes


class MaskedInput(ClientMessage, frozen=True, tag=5):
    """Round 2, up: the masked vector, packed to `bits` bits per element, signed."""

    vector: bytes
    signature: bytes


class SurvivorSet(Message, frozen=True, tag=6):
    """Round 2, down: whose masked vectors are in the sum (U3)."""

    survivors: bytes


class Confirmation(ClientMessage, frozen=True, tag=7):
    """Round 3, up: a signature over the survivor set."""

    signature: bytes


class ConfirmationSet(Message, frozen=True, tag=8):
    """Round 3, down: signatures of the committee's members over the survivor set, in order."""

    confirmers: bytes
    signatures: bytes


class UnmaskShares(ClientMessage, frozen=True, tag=9):
    """Round 4, up: one share for each participant that the sender holds shares of, in order.

    Whether it is a share of the self-mask seed or of the masking key follows from the survivor
    set, so a client cannot be made to express both for one party. With it come the sender's own
    removable seeds that so many survivors give up. Signed together with the survivor set.
    """

    shares: bytes
    seeds: bytes
    signature: bytes


class SeedRequest(Message, frozen=True, tag=10):
    """Round 4, down: survivors that went away before they gave up their removable seeds."""

    missing: bytes


class SeedShares(ClientMessage, frozen=True, tag=11):
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

_from_client: msgspec.msgpack.Decoder[FromClient] = msgspec.msgpack.Decoder(FromClient)
_from_server: msgspec.msgpack.Decoder[FromServer] = msgspec.msgpack.Decoder(FromServer)


def decode_from_client(data: bytes, party: int, limit: int) -> FromClient:
    """Decode bytes that the transport attributes to client `party`."""
    message = decode_message(_from_client, data, party, limit)
    if message.sender != party:
        raise RemoteProtocolError(party, Reason.UNKNOWN_SENDER, f"says it is {message.sender}")
    return message


def decode_from_server(data: bytes, party: int, limit: int) -> FromServer:
    """Decode bytes from the server; `party` is the number used in errors."""
    return decode_message(_from_server, data, party, limit)


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
    return max((peers + 2) * item, signatures, vector) + bitmap + fixed + FRAME_BYTES


def shared_secrets(context: SessionContext) -> int:
    """Secrets that each client shares: self-mask seed, masking key, removable seeds."""
    return 2 + context.seeds


def sealed_share_bytes(context: SessionContext) -> int:
    """Bytes of one sealed share of all of a client's secrets."""
    return shared_secrets(context) * SHARE_BYTES + SEAL_OVERHEAD_BYTES
