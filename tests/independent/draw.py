"""Committees that are drawn by lot, from docs/wire.md and docs/one-shot-security.md alone."""

from __future__ import annotations

from dataclasses import dataclass

from tests.independent.blocks import cut, digest, require, sized, u64


@dataclass(frozen=True)
class Draw:
    """From which registry members are drawn, and how likely each identity is to be a candidate."""

    root: bytes
    size: int
    odds: int
    beacon: bytes

    def encode(self) -> bytes:
        """What the committee's encoding has of it."""
        return sized(self.root, u64(self.size), u64(self.odds), self.beacon)

    def check(
        self,
        session_id: bytes,
        round_number: int,
        identities: list[bytes],
        positions: bytes,
        proof: bytes,
    ) -> None:
        """Refuse members that are not candidates, or not in the registry."""
        source = (self.beacon,) if self.beacon else (session_id, u64(round_number))
        seed = digest("seed of a draw", self.root, u64(self.size), *source)
        tickets = [digest("ticket of a draw", seed, identity)[:8] for identity in identities]
        require(all(int.from_bytes(t, "little") < self.odds for t in tickets), "not a candidate")
        places = [int.from_bytes(place, "little") for place in cut(positions, 4)]
        require(places == sorted(set(places)) and len(places) == len(identities), "positions")
        require(max(places, default=self.size) < self.size, "positions")
        leaves = (digest("tree leaf", identity) for identity in identities)
        found = root_above_all(dict(zip(places, leaves, strict=True)), self.size, cut(proof, 32))
        require(found == self.root, "not in the registry")


def root_above_all(level: dict[int, bytes], size: int, proof: list[bytes]) -> bytes:
    """The root above some of so many leaves, with the siblings that do not follow from them."""
    while size > 1:
        above = {}
        for place in sorted(level):
            if place ^ 1 not in level and place ^ 1 < size:
                require(bool(proof), "a short proof")
                level[place ^ 1] = proof.pop(0)
            pair = [level[side] for side in (place & ~1, place | 1) if side in level]
            above[place // 2] = digest("tree node", *pair) if len(pair) == 2 else pair[0]
        level, size = above, (size + 1) // 2
    require(not proof, "a long proof")
    return level[0]
