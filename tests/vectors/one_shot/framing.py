"""One-shot messages on their own: what decodes to what, and what is no message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from .. import framing, wire
from ..framing import HASH, LIMIT, SIGNATURE
from ..schema import Error, MessageCase, MessageVector
from ..script import SERVER, of_member, remote
from .rounds import PLAIN

TAG = PLAIN.hash[:8]
Sender = Literal["client", "member", "server"]


def accepted(description: str, number: int, *values: bytes | int) -> MessageCase:
    """A message and its fields."""
    sent_by: Sender = {32: "client", 34: "member", 36: "member", 38: "member"}.get(number, "server")
    return {**framing.accepted(description, number, *values, tag=TAG), "sent_by": sent_by}


def every_message() -> Iterator[MessageCase]:
    """Each number once, then the borders of MessagePack's shortest forms."""
    yield accepted("Every number once.", 32, 0, HASH, bytes(11), HASH, bytes(100), False, SIGNATURE)
    yield accepted("The other flag.", 32, 1, HASH, b"", b"", b"", True, SIGNATURE)
    yield accepted("Every number once.", 33, HASH * 3, b"\7", bytes(483), bytes(100))
    yield accepted("Every number once.", 34, 1, b"\2", SIGNATURE)
    yield accepted("Every number once.", 35, b"\5")
    yield accepted("Every number once.", 36, 2, SIGNATURE)
    yield accepted("Every number once.", 37, b"\3", SIGNATURE * 2)
    yield accepted("Every number once.", 38, 0, bytes(44), b"", bytes(48), SIGNATURE)
    for sender in (127, 128, 255, 256, 65535, 65536, (1 << 20) - 1):
        yield accepted("A sender at a border of the integer forms.", 36, sender, SIGNATURE)
    for size in (0, 1, 255, 256):
        yield accepted("A list at a border of the byte string forms.", 35, bytes(size))


def refused(
    description: str, data: bytes, reason: str, sent_by: Sender = "member", limit: int = LIMIT
) -> MessageCase:
    """Bytes that the decoder for that sender refuses."""
    party = SERVER if sent_by == "server" else 0
    error: Error = of_member(0, reason) if sent_by == "member" else remote(party, reason)
    return {
        "description": description,
        "sent_by": sent_by,
        "party": party,
        "data": data.hex(),
        "limit": limit,
        "error": error,
    }


def not_messages() -> Iterator[MessageCase]:
    """One thing wrong with each."""
    data = PLAIN.confirmation(0)
    context, signature = wire.pack(TAG), wire.pack(SIGNATURE)
    array, number, sender = wire.VERSION + b"\x94", b"\x24", b"\x00"
    for size in range(len(data)):
        yield refused(f"{size} of {len(data)} bytes.", data[:size], "MALFORMED")
    yield refused("A trailing byte.", data + b"\0", "MALFORMED")
    yield refused("Version 1.", b"\1" + data[1:], "MALFORMED")
    # Message 7 is the pairwise protocol's confirmation, of the same fields.
    for kind in (7, 31, 39):
        body = array + wire.pack(kind) + context + sender + signature
        yield refused(f"Message number {kind}.", body, "MALFORMED")
    surplus = wire.VERSION + b"\x95" + number + context + sender + signature + wire.pack(b"")
    yield refused("A surplus field.", surplus, "MALFORMED")
    yield refused(
        "The last field is missing.",
        wire.VERSION + b"\x93" + number + context + sender,
        "MALFORMED",
    )
    for size in (0, 63, 65):
        body = array + number + context + sender + wire.pack(bytes(size))
        yield refused(f"A signature of {size} bytes.", body, "MALFORMED")
    for size in (31, 33):
        values = (0, bytes(size), b"", b"", b"", False, SIGNATURE)
        upload = wire.message(32, TAG, *values)
        yield refused(f"An ephemeral key of {size} bytes.", upload, "MALFORMED", "client")
    for flag in (0, 1, 2, b"\1"):
        upload = wire.message(32, TAG, 0, HASH, b"", b"", b"", flag, SIGNATURE)
        yield refused(f"A flag that is {flag!r}.", upload, "MALFORMED", "client")
    upload = wire.message(32, TAG, 0, HASH, b"", b"", b"", SIGNATURE)
    yield refused("An upload without a flag.", upload, "MALFORMED", "client")
    yield refused("A member sends an upload.", PLAIN.upload(0), "MALFORMED")
    yield refused("A client sends a vote.", data, "MALFORMED", "client")
    yield refused("A server sends a vote.", data, "MALFORMED", "server")
    yield refused("A member sends a proposal.", PLAIN.proposal(), "MALFORMED")
    yield refused("One byte beyond the limit.", data, "OVERSIZED", limit=len(data) - 1)
    yield refused("Another sender.", PLAIN.confirmation(1), "UNKNOWN_SENDER")


def vectors() -> Iterator[tuple[str, MessageVector]]:
    """All files, by name."""
    for name, description, cases in (
        ("one-shot-every-message", "One-shot messages and their fields.", every_message()),
        ("one-shot-not-messages", "Refused by the one-shot decoders.", not_messages()),
    ):
        made = list(cases)
        success = not any("error" in case for case in made)
        yield name, {"description": description, "cases": made, "success": success}
