"""How many bytes a party sends and is sent, worked out from public figures alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from secagg.framing import CONTEXT_TAG_BYTES


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one party in a round in which nobody is lost, by part."""

    up: Mapping[str, int]
    down: Mapping[str, int]

    @property
    def each(self) -> dict[str, int]:
        """Both directions, by part."""
        parts = dict.fromkeys((*self.up, *self.down))
        return {name: self.up.get(name, 0) + self.down.get(name, 0) for name in parts}

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic({**self.up, **other.up}, {**self.down, **other.down})

    def announced(self, size: int) -> Traffic:
        """The same with an announcement of this many bytes."""
        return Traffic(self.up, {**self.down, "announcement": size})


def message_bytes(*lengths: int, sender: int | None = None, flags: int = 0) -> int:
    """Bytes of an encoded message; see `secagg.framing`.

    Args:
        lengths: of its byte strings, but for the context's.
        sender: of a message to the server.
        flags: how many truth values it has.
    """
    strings = sum(bytes_field(length) for length in (CONTEXT_TAG_BYTES, *lengths))
    # Version, array header and number of the message are a byte each.
    return 3 + strings + flags + (0 if sender is None else int_field(sender))


def bytes_field(length: int) -> int:
    """Bytes of a MessagePack byte string: with its header."""
    return length + (2 if length < 1 << 8 else 3 if length < 1 << 16 else 5)


def int_field(value: int) -> int:
    """Bytes of a MessagePack integer >= 0."""
    return 1 if value < 1 << 7 else 2 if value < 1 << 8 else 3 if value < 1 << 16 else 5
