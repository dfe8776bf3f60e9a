"""Where parties of a campaign keep the keys of what they store."""

from __future__ import annotations


class MemoryKeys:
    """Keys of stored states, in memory, each used once."""

    def __init__(self) -> None:
        self._kept: dict[bytes, bytes] = {}

    def keep(self, token: bytes, key: bytes) -> None:
        """Remember a key."""
        self._kept[token] = key

    def key(self, token: bytes) -> bytes | None:
        """The key of a state that was not resumed."""
        return self._kept.get(token)

    def consume(self, token: bytes) -> bool:
        """Destroy a key; whether it was there."""
        return self._kept.pop(token, None) is not None


class KeptKeys(MemoryKeys):
    """Keys that are never destroyed: a stored state can be resumed again and again."""

    def consume(self, token: bytes) -> bool:
        """Keep the key."""
        return True
