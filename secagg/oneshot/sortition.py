"""Committees that are drawn by lot from a registry: who may be on one, and how that is shown.

Every identity has a ticket, and those whose ticket is low enough are candidates. The seed of the
tickets holds the registry's root, so that nobody can look for an identity with a low ticket by
itself: another registry draws everybody anew. It holds a beacon or, if there is none, session and
round. With a beacon these stay out, since the server chooses them and knows the beacon by then.
docs/one-shot-security.md, "Drawn committees", has the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from secagg.checks import require_int
from secagg.errors import ParameterError
from secagg.merkle import HASH_BYTES, joint_proof_is_valid
from secagg.oneshot.identities import IdentityList
from secagg.tags import Usage, digest, encode_parts

TICKET_BYTES = 8
CERTAIN = 1 << (8 * TICKET_BYTES)
"""Odds are counted in this; they stay below it."""
BEACON_BYTES = 32
MAX_REGISTRY = 1 << 32
"""Positions in a registry travel in 4 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """How a committee was drawn.

    Args:
        registry_root: 32 bytes, `Registry.root` of all who could be drawn.
        odds: of each to be a candidate, 1 .. 2^64 - 1, in units of 2^-64.
        beacon: 32 bytes that nobody knew when the registry was fixed; empty if there are none.
    """

    registry_root: bytes
    registry_size: int
    odds: int
    beacon: bytes = b""

    def __post_init__(self) -> None:
        if type(self.registry_root) is not bytes or len(self.registry_root) != HASH_BYTES:
            raise ParameterError("registry_root", "of another kind", f"{HASH_BYTES} bytes")
        require_int("registry_size", self.registry_size, 1, MAX_REGISTRY)
        require_int("odds", self.odds, 1, CERTAIN - 1)
        if type(self.beacon) is not bytes or len(self.beacon) not in (0, BEACON_BYTES):
            raise ParameterError("beacon", "of another kind", f"{BEACON_BYTES} bytes, or empty")

    def encode(self) -> bytes:
        """Canonical, injective encoding of everything."""
        return encode_parts(
            self.registry_root,
            self.registry_size.to_bytes(8, "little"),
            self.odds.to_bytes(8, "little"),
            self.beacon,
        )

    def seed(self, session_id: bytes, round_number: int) -> bytes:
        """What the tickets of a round are hashed with, 32 bytes."""
        fixed = self.registry_root, self.registry_size.to_bytes(8, "little")
        if self.beacon:
            return digest(Usage.DRAW, *fixed, self.beacon)
        return digest(Usage.DRAW, *fixed, session_id, round_number.to_bytes(8, "little"))


def ticket(seed: bytes, identity: bytes) -> int:
    """An identity's ticket; below the odds it is a candidate."""
    return int.from_bytes(digest(Usage.TICKET, seed, identity)[:TICKET_BYTES], "little")


@dataclass(frozen=True, slots=True)
class Places:
    """Where members are in a registry, and the proof of it."""

    positions: tuple[int, ...]
    proof: bytes

    def __post_init__(self) -> None:
        positions = self.positions
        ascending = all(a < b for a, b in pairwise(positions))
        if not positions or not ascending or not 0 <= positions[0] <= positions[-1] < MAX_REGISTRY:
            valid = f"ascending numbers in 0 .. {MAX_REGISTRY - 1}"
            raise ParameterError("positions", f"{len(positions)} others", valid)
        if len(self.proof) % HASH_BYTES:
            raise ParameterError("proof", f"{len(self.proof)} bytes", "hashes of 32 bytes")

    def hold(self, draw: Draw, identities: Sequence[bytes]) -> bool:
        """Whether these identities are there in the registry of a draw."""
        root, size = draw.registry_root, draw.registry_size
        return joint_proof_is_valid(root, identities, self.positions, size, self.proof)


class Registry(IdentityList):
    """All who can be drawn, fixed before any draw."""

    _NAME = "registry"

    def __init__(self, keys: Sequence[bytes]) -> None:
        super().__init__(keys)
        self._positions = {key: position for position, key in enumerate(self.keys)}

    def in_order(self, identities: Iterable[bytes]) -> list[bytes]:
        """Registered identities in the registry's order."""
        return sorted(identities, key=self._positions.__getitem__)

    def places(self, identities: Sequence[bytes]) -> Places:
        """Where members are, in the registry's order, and the proof of it."""
        if any(identity not in self._positions for identity in identities):
            raise ParameterError("identities", "a stranger", "registered ones")
        positions = tuple(self._positions[identity] for identity in identities)
        return Places(positions, self._tree.joint_proof(positions))
