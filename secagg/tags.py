"""Domain separation: every hash, key and signature names its use and the round's context.

Source: RFC 5869 for HKDF. The label and the usages are this protocol's own; a change to any of
them is a change of protocol version.
"""

from __future__ import annotations

import enum
import hashlib

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

WIRE_VERSION = 2
"""First byte of every message; programs of different versions refuse each other's."""
PROTOCOL_LABEL = b"veilsum/%d" % WIRE_VERSION


class Usage(enum.Enum):
    """What derived bytes are for. Values go into the derivation and are never reused."""

    CONTEXT = b"context"
    ROSTER = b"roster"
    TREE_LEAF = b"tree leaf"
    TREE_NODE = b"tree node"
    GRAPH = b"graph"
    COMMITTEE = b"committee"
    ADVERTISE = b"sign advertisement"
    SHARE = b"sign shares"
    INPUT = b"sign masked input"
    CONFIRM = b"sign survivors"
    UNMASK = b"sign unmask shares"
    RECOVER = b"sign seed shares"
    SEAL = b"seal shares"
    PAIR_MASK = b"pairwise mask"
    SELF_MASK = b"self mask"
    STORE = b"store session"
    COMMIT = b"commit seed"
    NODE = b"sign claim to a node"
    ONE_SHOT = b"one-shot context"
    SEALING_KEY = b"sign sealing key"
    PUBLIC_ELEMENT = b"public ring element"
    NOISE_SEEDS = b"derive noise seeds"
    UPLOAD_SECRETS = b"derive upload secrets"
    CIPHERTEXT = b"hash ciphertext"
    SEALS = b"hash seals"
    UPLOAD = b"sign upload"
    SURVIVORS = b"sign one-shot survivors"
    CHALLENGE = b"post-mortem challenge"
    ANSWER = b"sign answer"
    COMPLAIN = b"sign complaints"
    DRAW = b"seed of a draw"
    TICKET = b"ticket of a draw"
    RECORDS = b"records of a run"
    REGISTRY = b"signed registry"
    SESSION = b"announced session"
    ANNOUNCE = b"sign announcement"
    ROTATE = b"sign rotation"


def encode_parts(*parts: bytes) -> bytes:
    """Injective concatenation: every part is preceded by its length as 8 little-endian bytes."""
    return b"".join([piece for part in parts for piece in (len(part).to_bytes(8, "little"), part)])


_PREFIXES = {usage: encode_parts(PROTOCOL_LABEL, usage.value) for usage in Usage}


def tagged(usage: Usage, *parts: bytes) -> bytes:
    """The byte string that is hashed or signed for a usage; injective in all arguments."""
    return _PREFIXES[usage] + encode_parts(*parts)


def digest(usage: Usage, *parts: bytes) -> bytes:
    """SHA-256 of `tagged(usage, *parts)`, 32 bytes; a long part is read where it lies."""
    hasher = hashlib.sha256(_PREFIXES[usage])
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.digest()


def derive(secret: bytes, usage: Usage, length: int, *parts: bytes) -> bytes:
    """HKDF-SHA256 of a secret with `tagged(usage, *parts)` as info, `length` bytes."""
    hkdf = HKDF(algorithm=hashes.SHA256(), length=length, salt=None, info=tagged(usage, *parts))
    return hkdf.derive(secret)


def encode_index(index: int) -> bytes:
    """A party's index as 4 little-endian bytes, for use as a part."""
    return index.to_bytes(4, "little")
