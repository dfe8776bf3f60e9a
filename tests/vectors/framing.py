"""Messages on their own: what decodes to what, and what is no message."""

from __future__ import annotations

from collections.abc import Iterator

from . import wire
from .bases import ACTIVE
from .schema import Error, MessageCase, MessageVector
from .script import SERVER, remote

LIMIT = 100_000
TAG = ACTIVE.context_hash[:8]

SIGNATURE, HASH = bytes(64), bytes(32)


def accepted(description: str, number: int, *values: bytes | int, tag: bytes = TAG) -> MessageCase:
    """A message and its fields."""
    name, names = wire.FIELDS[number]
    fields = dict(zip(("context", *names), (tag, *values), strict=True))
    sender = fields.get("sender")
    return {
        "description": description,
        "sent_by": "client" if isinstance(sender, int) else "server",
        "party": sender if isinstance(sender, int) else SERVER,
        "data": wire.message(number, tag, *values).hex(),
        "limit": LIMIT,
        "name": name,
        "fields": {k: v if isinstance(v, int) else v.hex() for k, v in fields.items()},
    }


def every_message() -> Iterator[MessageCase]:
    """Each number once, then the borders of MessagePack's shortest forms."""
    entry = ACTIVE.entries[0]
    parts = entry[:32], entry[32:64], entry[64:80], entry[80:]
    yield accepted("Every number once.", 1, 0, *parts)
    yield accepted("Every number once.", 2, b"\x07", HASH, HASH * 2, entry * 2)
    yield accepted("Every number once.", 3, 1, HASH, bytes(176), SIGNATURE)
    yield accepted("Every number once.", 4, b"\x07", bytes(176))
    yield accepted("Every number once.", 5, 2, bytes(range(10)), SIGNATURE)
    yield accepted("Every number once.", 6, b"\x05")
    yield accepted("Every number once.", 7, 0, SIGNATURE)
    yield accepted("Every number once.", 8, b"\x03", SIGNATURE * 2)
    yield accepted("Every number once.", 9, 1, bytes(108), b"", SIGNATURE)
    yield accepted("Every number once.", 10, b"\x04")
    yield accepted("Every number once.", 11, 1, bytes(72), SIGNATURE)
    for sender in (127, 128, 255, 256, 65535, 65536, (1 << 20) - 1):
        yield accepted("A sender at a border of the integer forms.", 7, sender, SIGNATURE)
    for size in (0, 1, 255, 256, 1000):
        yield accepted("A list at a border of the byte string forms.", 4, b"\x07", bytes(size))


def refused(
    description: str, data: bytes, error: Error, *, sent_by: str = "client", limit: int = LIMIT
) -> MessageCase:
    """Bytes that the decoder for that sender refuses."""
    return {
        "description": description,
        "sent_by": "client" if sent_by == "client" else "server",
        "party": 0 if sent_by == "client" else SERVER,
        "data": data.hex(),
        "limit": limit,
        "error": error,
    }


def truncated() -> Iterator[MessageCase]:
    """Two messages cut behind every byte."""
    for data, sent_by, party in (
        (ACTIVE.confirmation(0), "client", 0),
        (ACTIVE.survivor_set(), "server", SERVER),
    ):
        for size in range(len(data)):
            text = f"{size} of {len(data)} bytes."
            yield refused(text, data[:size], remote(party, "MALFORMED"), sent_by=sent_by)


def not_messages() -> Iterator[MessageCase]:
    """One thing wrong with each."""
    own, malformed = remote(0, "MALFORMED"), remote(SERVER, "MALFORMED")
    data = ACTIVE.confirmation(0)
    context, signature = wire.pack(TAG), wire.pack(SIGNATURE)
    array, number, sender = wire.VERSION + b"\x94", b"\x07", b"\x00"
    yield refused("A trailing byte.", data + b"\0", own)
    yield refused("A second message behind the first.", data + data, own)
    yield refused("Version 0.", b"\0" + data[1:], own)
    yield refused("Version 1.", b"\1" + data[1:], own)
    yield refused("No version.", data[1:], own)
    for label, missing in (("0", 0), ("12", 12), ("-1", -1), ("255", 255)):
        packed = b"\xff" if missing < 0 else wire.pack(missing)
        yield refused(
            f"Message number {label}.", array + packed + context + sender + signature, own
        )
    five = wire.VERSION + b"\x95" + number + context + sender + signature
    yield refused("A surplus field: nil.", five + b"\xc0", own)
    yield refused("A surplus field: bytes.", five + wire.pack(b""), own)
    yield refused(
        "The last field is missing.", wire.VERSION + b"\x93" + number + context + sender, own
    )
    yield refused("An empty array.", wire.VERSION + b"\x90", own)
    keys = wire.VERSION + b"\x84" + number + context + sender + signature
    yield refused("A map instead of an array.", keys, own)
    yield refused("An integer instead of an array.", wire.VERSION + b"\x07", own)
    text = b"\xa8" + bytes(8)
    for label, field in (
        ("nil", b"\xc0"),
        ("a text string", b"\xa10"),
        ("true", b"\xc3"),
        ("the floating-point number 0", b"\xcb" + bytes(8)),
        ("bytes", wire.pack(b"\0")),
        ("an array", b"\x91\0"),
        ("-1", b"\xff"),
    ):
        yield refused(f"The sender is {label}.", array + number + context + field + signature, own)
    for label, field in (
        ("nil", b"\xc0"),
        ("a text string", text),
        ("an integer", b"\x08"),
        ("an array of integers", b"\x98" + bytes(8)),
        ("an extension type", b"\xd7\x01" + bytes(8)),
        ("7 bytes", wire.pack(TAG[:7])),
        ("9 bytes", wire.pack(TAG + b"\0")),
    ):
        yield refused(f"The context is {label}.", array + number + field + sender + signature, own)
    for size in (0, 63, 65):
        field = wire.pack(bytes(size))
        yield refused(
            f"A signature of {size} bytes.", array + number + context + sender + field, own
        )
    yield refused("The number is text.", array + b"\xa17" + context + sender + signature, own)
    for label, sizes in (
        ("A sealing key", (31, 32, 16, 64)),
        ("A masking key", (32, 33, 16, 64)),
        ("A nonce", (32, 32, 15, 64)),
    ):
        fields = [bytes(size) for size in sizes]
        yield refused(f"{label} of a wrong length.", wire.message(1, TAG, 0, *fields), own)
    for size in (31, 33):
        roster = wire.message(2, TAG, b"\x07", bytes(size), b"", b"")
        yield refused(f"A root of {size} bytes.", roster, malformed, sent_by="server")
    yield refused("A client sends a survivor set.", ACTIVE.survivor_set(), own)
    yield refused("A server sends a confirmation.", data, malformed, sent_by="server")
    yield refused(
        "The survivors are an array.",
        wire.VERSION + b"\x93\x06" + context + b"\x93\0\1\2",
        malformed,
        sent_by="server",
    )
    yield refused(
        "Arrays in arrays, a thousand deep.",
        wire.VERSION + b"\x91" * 1000,
        malformed,
        sent_by="server",
    )
    yield refused(
        "A byte string that claims four gigabytes.",
        wire.VERSION + b"\x93\x06" + context + b"\xc6\xff\xff\xff\xff\x07",
        malformed,
        sent_by="server",
    )
    yield refused("One byte beyond the limit.", data, remote(0, "OVERSIZED"), limit=len(data) - 1)
    yield refused(
        "Beyond the limit, and no message.", bytes(500), remote(0, "OVERSIZED"), limit=499
    )
    yield refused("Another sender.", ACTIVE.confirmation(1), remote(0, "UNKNOWN_SENDER"))


def vectors() -> Iterator[tuple[str, MessageVector]]:
    """All files, by name."""
    for name, description, cases in (
        ("every-message", "Messages and their fields.", every_message()),
        ("truncated", "Every beginning of two messages is refused.", truncated()),
        ("not-messages", "Refused by the decoders, one thing wrong with each.", not_messages()),
    ):
        made = list(cases)
        success = not any("error" in case for case in made)
        yield name, {"description": description, "cases": made, "success": success}
