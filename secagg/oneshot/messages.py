"""The messages of a one-shot round. A client that is no member sends one of them, and gets none.

Numbers of kinds go on from those of the pairwise protocol, so bytes of one are never a message of
the other.
"""

from __future__ import annotations

import msgspec

from secagg.errors import Reason, RemoteProtocolError
from secagg.framing import (
    CONTEXT_TAG_BYTES,
    FRAME_BYTES,
    ClientMessage,
    Message,
    decode_message,
)
from secagg.keys import KEY_BYTES, SIGNATURE_BYTES
from secagg.merkle import HASH_BYTES
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.layout import CHALLENGES
from secagg.oneshot.wire import wire_bytes
from secagg.sealing import SEAL_OVERHEAD_BYTES

MEMBER = "member"
"""The role, in errors, of a party whose number is its index in the committee."""
HEADER_BYTES = KEY_BYTES + 2 * HASH_BYTES + 1 + SIGNATURE_BYTES
"""One upload's header as a member gets it: ephemeral key, two hashes, a flag, signature."""


class Upload(ClientMessage, frozen=True, tag=32):
    """All that a client says: its ciphertext, and a sealed share for each member, in their order.

    With them commitments to its removable seeds. The signature covers the ephemeral key and hashes
    of the rest. `returns` says that a member takes back what it added in the round before; clients
    never do.
    """

    ephemeral_key: bytes
    ciphertext: bytes
    commitments: bytes
    seals: bytes
    returns: bool
    signature: bytes


class Delivery(Message, frozen=True, tag=33):
    """To a member: the cohort, who uploaded, their headers in order, and its seals, in order."""

    cohort: bytes
    uploaded: bytes
    headers: bytes
    seals: bytes


class Complaints(ClientMessage, frozen=True, tag=34):
    """From a member: whose headers or seals are bad; possibly nobody's. `sender` is the member."""

    bad: bytes
    signature: bytes


class Proposal(Message, frozen=True, tag=35):
    """To a member: the clients whose uploads are to be opened."""

    survivors: bytes


class Confirmation(ClientMessage, frozen=True, tag=36):
    """From a member: its signature over the uploads to be opened."""

    signature: bytes


class Quorum(Message, frozen=True, tag=37):
    """To a member: members' signatures over the set that it signed itself, in order."""

    signers: bytes
    signatures: bytes


class Answer(ClientMessage, frozen=True, tag=38):
    """From a member, once: what it gives up of its shares, signed.

    `sums` are those of the keys' shares over all uploads opened; `seeds` its shares of surplus
    seeds, upload by upload; `checks` its masked combinations, upload by upload.
    """

    sums: bytes
    seeds: bytes
    checks: bytes
    signature: bytes


AnyMessage = Upload | Delivery | Complaints | Proposal | Confirmation | Quorum | Answer
FromMember = Complaints | Confirmation | Answer
ToMember = Delivery | Proposal | Quorum

_upload: msgspec.msgpack.Decoder[Upload] = msgspec.msgpack.Decoder(Upload)
_from_member: msgspec.msgpack.Decoder[FromMember] = msgspec.msgpack.Decoder(FromMember)
_to_member: msgspec.msgpack.Decoder[ToMember] = msgspec.msgpack.Decoder(ToMember)


def decode_upload(data: bytes, client: int, limit: int) -> Upload:
    """Decode bytes that the transport attributes to a client."""
    message = decode_message(_upload, data, client, limit)
    check_sender(message, client)
    return message


def decode_from_member(data: bytes, member: int, limit: int) -> FromMember:
    """Decode bytes that the transport attributes to a member, by its index in the committee."""
    message = decode_message(_from_member, data, member, limit, MEMBER)
    check_sender(message, member, MEMBER)
    return message


def decode_to_member(data: bytes, party: int, limit: int) -> ToMember:
    """Decode bytes from the server; `party` is the number used in errors."""
    return decode_message(_to_member, data, party, limit)


def context_tag(context: OneShotContext) -> bytes:
    """The prefix of the context hash that every message carries."""
    return context.hash[:CONTEXT_TAG_BYTES]


def seal_bytes(context: OneShotContext) -> int:
    """Bytes of one sealed share."""
    return context.layout.share_bytes + SEAL_OVERHEAD_BYTES


def upload_bytes(context: OneShotContext) -> dict[str, int]:
    """Bytes of an upload by part: ciphertext, seals, and the rest at most."""
    return {
        "ciphertext": wire_bytes(context.packing, context.length),
        "seals": context.committee.size * seal_bytes(context),
        "commitments": context.seeds * HASH_BYTES,
        "header": KEY_BYTES + SIGNATURE_BYTES + FRAME_BYTES,
    }


def largest_upload_bytes(context: OneShotContext) -> int:
    """Bytes that no honest upload exceeds."""
    return sum(upload_bytes(context).values())


def largest_delivery_bytes(context: OneShotContext) -> int:
    """Bytes that no honest message to a member exceeds."""
    each = KEY_BYTES + HEADER_BYTES + seal_bytes(context)
    signatures = context.committee.size * (SIGNATURE_BYTES + 1)
    return context.size * (each + 1) + signatures + 2 * FRAME_BYTES


def largest_answer_bytes(context: OneShotContext) -> int:
    """Bytes that no honest message of a member exceeds."""
    layout = context.layout
    each = 4 * (layout.seeds * layout.seed_polynomials + CHALLENGES)
    sums = 4 * layout.key_polynomials
    return sums + context.size * (each + 1) + SIGNATURE_BYTES + FRAME_BYTES


def check_sender(message: ClientMessage, party: int, role: str = "client") -> None:
    """See that a message is of the party that the transport attributes it to."""
    if message.sender != party:
        detail = f"says it is {message.sender}"
        raise RemoteProtocolError(party, Reason.UNKNOWN_SENDER, detail, role)
