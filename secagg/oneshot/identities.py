"""Lists of identities that parties agree on by the root of a hash tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from secagg.errors import ParameterError
from secagg.keys import KEY_BYTES
from secagg.merkle import HashTree


class IdentityList:
    """Registered Ed25519 public keys in a fixed order, all distinct.

    Args:
        keys: 32 bytes each.
    """

    _NAME: ClassVar[str] = "identities"
    _FEWEST: ClassVar[int] = 1

    def __init__(self, keys: Sequence[bytes]) -> None:
        if len(keys) < self._FEWEST:
            raise ParameterError(self._NAME, f"{len(keys)} clients", f"at least {self._FEWEST}")
        if any(type(key) is not bytes or len(key) != KEY_BYTES for key in keys):
            raise ParameterError(self._NAME, "a key of another kind", "32-byte Ed25519 keys")
        if len(set(keys)) != len(keys):
            raise ParameterError(self._NAME, "a repeated identity key", "distinct identity keys")
        self.keys = tuple(keys)
        self._tree = HashTree(self.keys)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.keys)

    @property
    def root(self) -> bytes:
        """The hash that stands for the list, 32 bytes."""
        return self._tree.root
