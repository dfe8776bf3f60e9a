"""Frozen, self-validating messages, and their versioned codec.

On the wire a message is one version byte and a MessagePack array whose first element is the
message's number. Parties are named by their index in the cohort; sets of parties are bitmaps,
lists of fixed-size items are concatenated in ascending order of party, so a repeated or reordered
party cannot be expressed. The `context` field is a prefix of the context hash: it sorts out
messages of other rounds early; signatures and sealing keys do the real binding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
import numpy as np

from secagg.errors import Reason, RemoteProtocolError
from secagg.keys import KEY_BYTES, NONCE_BYTES, SIGNATURE_BYTES
from secagg.merkle import HASH_BYTES
from secagg.tags import WIRE_VERSION

CONTEXT_TAG_BYTES = 8

_LENGTHS = {
    "context": CONTEXT_TAG_BYTES,
    "sealing_key": KEY_BYTES,
    "masking_key": KEY_BYTES,
    "nonce": NONCE_BYTES,
    "signature": SIGNATURE_BYTES,
    "root": HASH_BYTES,
    "ephemeral_key": KEY_BYTES,
    "digest": HASH_BYTES,
}
"""Fields of a fixed length, whatever message they are in."""

FRAME_BYTES = 64
"""More than the version byte and all MessagePack headers of any message take."""


class Redacted(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A struct that may hold shares or seeds: of bytes it prints the sizes only.

    rich, which may draw tracebacks with their locals, prints structs by `__rich_repr__`.
    """

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [
            (name, f"{len(value)} bytes" if isinstance(value, bytes) else value)
            for name, value in msgspec.structs.asdict(self).items()
        ]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"


class Message(Redacted, frozen=True):
    """Base of all messages: `context` is the first 8 bytes of the context hash."""

    context: bytes

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if name in _LENGTHS and (found := len(getattr(self, name))) != _LENGTHS[name]:
                raise ValueError(f"{name} must be {_LENGTHS[name]} bytes, not {found}")


class ClientMessage(Message, frozen=True):
    """Base of messages to the server: `sender` is the index in the cohort."""

    sender: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sender < 0:
            raise ValueError(f"sender must be at least 0, not {self.sender}")


M = TypeVar("M")

_encoder = msgspec.msgpack.Encoder()


def encode_message(message: Message) -> bytes:
    """Version byte and MessagePack body."""
    return bytes([WIRE_VERSION]) + _encoder.encode(message)


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


def decode_message(
    decoder: msgspec.msgpack.Decoder[M], data: bytes, party: int, limit: int, role: str = "client"
) -> M:
    """Inverse of `encode_message` for the kinds of messages that a decoder knows."""
    if len(data) > limit:
        detail = f"{len(data)} bytes, at most {limit}"
        raise RemoteProtocolError(party, Reason.OVERSIZED, detail, role)
    if not data or data[0] != WIRE_VERSION:
        raise RemoteProtocolError(party, Reason.MALFORMED, "unknown version", role)
    try:
        return decoder.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(party, Reason.MALFORMED, str(error), role) from None
