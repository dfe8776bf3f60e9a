"""Encodings of the one-shot protocol by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import wire
from ..wire import digest, index


def words(elements: Sequence[int]) -> bytes:
    """Elements of GF(2^31 - 1) on the wire."""
    return b"".join(element.to_bytes(4, "little") for element in elements)


def context_encoding(context: Mapping[str, Any]) -> bytes:
    """The encoded context, by hand: docs/test-vectors.md."""
    names = (
        "round_number", "size", "minimum_survivors", "tolerated_colluders", "degree", "limbs",
        "rounding_bits", "entries", "bits", "length", "opened_at", "lifetime_seconds",
    )  # fmt: skip
    numbers = {**context, "size": len(context["cohort"])}
    committee = context["committee"]
    sizes = [committee[name] for name in ("corrupt", "randomness", "per_polynomial", "quorum")]
    entries = [
        bytes.fromhex(each["identity"] + each["sealing_key"])
        + each["first_round"].to_bytes(8, "little")
        + each["last_round"].to_bytes(8, "little")
        + bytes.fromhex(each["signature"])
        for each in committee["members"]
    ]
    return wire.parts(
        bytes.fromhex(context["session_id"]),
        b"".join(numbers[name].to_bytes(8, "little") for name in names),
        b"".join(mask.to_bytes(8, "little") for mask in context["removal"]),
        bytes.fromhex(context["cohort_root"]),
        wire.parts(
            committee["kind"].encode(),
            b"".join(number.to_bytes(8, "little") for number in sizes),
            *([draw_encoding(committee["draw"])] if "draw" in committee else []),
            *entries,
        ),
        bytes([context["allow_weak"]]),
        bytes.fromhex(context["application_digest"]),
        *(uploads_encoding(context) if "member_uploads" in context else ()),
    )


def record_encoding(record: Mapping[str, Any], members: int) -> bytes:
    """One record of a run."""
    return (
        record["round_number"].to_bytes(8, "little")
        + record["clients"].to_bytes(4, "little")
        + wire.bitmap(record["entered"], members)
        + wire.bitmap(record["returned"], members)
    )


def heads(context: Mapping[str, Any]) -> list[bytes]:
    """The chain of hashes over the records of a run, that of none first."""
    uploads, committee = context["member_uploads"], context["committee"]
    numbers = (
        len(context["cohort"]),
        context["minimum_survivors"],
        context["tolerated_colluders"],
        context["length"],
        committee["corrupt"],
        uploads["fewest"],
    )
    label, members = "records of a run", committee["members"]
    found = [
        digest(
            label,
            bytes.fromhex(context["session_id"]),
            bytes.fromhex(uploads["block"]),
            b"".join(number.to_bytes(8, "little") for number in numbers),
            b"".join(bytes.fromhex(each["identity"]) for each in members),
        )
    ]
    for record in uploads["records"]:
        found.append(digest(label, found[-1], record_encoding(record, len(members))))
    return found


def uploads_encoding(context: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """The two parts that members' uploads add to the encoded context."""
    uploads = context["member_uploads"]
    fewest = uploads["fewest_returning"].to_bytes(8, "little")
    return bytes([uploads["returning"]]) + fewest, heads(context)[-1]


def draw_encoding(draw: Mapping[str, Any]) -> bytes:
    """The encoded draw of a committee."""
    return wire.parts(
        bytes.fromhex(draw["registry_root"]),
        draw["registry_size"].to_bytes(8, "little"),
        draw["odds"].to_bytes(8, "little"),
        bytes.fromhex(draw["beacon"]),
    )


def draw_seed(draw: Mapping[str, Any], session_id: bytes, round_number: int) -> bytes:
    """What the tickets of a round are hashed with."""
    root, size = bytes.fromhex(draw["registry_root"]), draw["registry_size"].to_bytes(8, "little")
    if draw["beacon"]:
        return digest("seed of a draw", root, size, bytes.fromhex(draw["beacon"]))
    return digest("seed of a draw", root, size, session_id, round_number.to_bytes(8, "little"))


def ticket(seed: bytes, identity: bytes) -> int:
    """An identity's ticket."""
    return int.from_bytes(digest("ticket of a draw", seed, identity)[:8], "little")


def joint_proof(keys: Sequence[bytes], positions: Sequence[int]) -> bytes:
    """The roots of the largest subtrees without a member: those beside lower ones first."""
    found: list[tuple[int, int, bytes]] = []

    def visit(first: int, count: int, level: int) -> None:
        if not any(first <= each < first + count for each in positions):
            found.append((level, first, wire.tree_root(keys[first : first + count])))
        elif count > 1:
            level = (count - 1).bit_length() - 1
            visit(first, 1 << level, level)
            visit(first + (1 << level), count - (1 << level), level)

    visit(0, len(keys), 0)
    return b"".join(root for _, _, root in sorted(found))


def header_parts(context_hash: bytes, sender: int, fields: Mapping[str, Any]) -> tuple[bytes, ...]:
    """What an upload's signature covers, and its name is made of."""
    return (
        context_hash,
        index(sender),
        fields["ephemeral_key"],
        digest("hash ciphertext", fields["ciphertext"]),
        digest("hash seals", fields["commitments"], fields["seals"]),
        bytes([fields["returns"]]),
    )


def header_of(upload: bytes) -> bytes:
    """The header of any upload, as a member gets it."""
    _, fields = wire.fields_of(upload)
    parts = header_parts(b"", fields["sender"], fields)
    return b"".join(parts[2:]) + bytes(fields["signature"])
