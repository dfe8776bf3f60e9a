"""A hash tree over a list, so that a short proof shows that entries are in it.

Leaves and inner nodes are hashed under different tags; a list of n entries splits at the largest
power of two below n, as in RFC 6962, section 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from secagg.tags import Usage, digest

HASH_BYTES = 32


def leaf_hash(entry: bytes) -> bytes:
    """The hash of one entry."""
    return digest(Usage.TREE_LEAF, entry)


class HashTree:
    """All levels of the tree over at least one entry; proofs take logarithmic time."""

    def __init__(self, entries: Sequence[bytes]) -> None:
        level = [leaf_hash(entry) for entry in entries]
        self._levels = [level]
        while len(level) > 1:
            pairs = range(0, len(level) - 1, 2)
            above = [_inner(level[i], level[i + 1]) for i in pairs]
            if len(level) % 2:
                # A last node without a sibling moves up as it is: the same tree as RFC 6962.
                above.append(level[-1])
            self._levels.append(above)
            level = above

    @property
    def root(self) -> bytes:
        """The hash of the whole list, 32 bytes."""
        return self._levels[-1][0]

    def proof(self, position: int) -> bytes:
        """The siblings on the way from an entry to the root, 32 bytes each, lowest first."""
        # As `joint_proof` of one, ten times faster: a server makes one for every client.
        path = []
        for level in self._levels[:-1]:
            sibling = position ^ 1
            if sibling < len(level):
                path.append(level[sibling])
            position >>= 1
        return b"".join(path)

    def joint_proof(self, positions: Sequence[int]) -> bytes:
        """What leads from several entries to the root, 32 bytes each, lowest level first.

        On each level the siblings from left to right, without those that follow from below.
        """
        path: list[bytes] = []
        for level in self._levels[:-1]:
            known = set(positions)
            siblings = (position ^ 1 for position in positions)
            path += [level[each] for each in siblings if each not in known and each < len(level)]
            positions = sorted({position >> 1 for position in positions})
        return b"".join(path)


def proof_is_valid(root: bytes, entry: bytes, position: int, count: int, proof: bytes) -> bool:
    """Whether `entry` is number `position` of the `count` entries under `root`."""
    return joint_proof_is_valid(root, [entry], [position], count, proof)


def joint_proof_is_valid(
    root: bytes, entries: Sequence[bytes], positions: Sequence[int], count: int, proof: bytes
) -> bool:
    """Whether all of `entries` are, at these ascending positions, among `count` under `root`."""
    in_range = bool(positions) and positions[0] >= 0 and positions[-1] < count
    ascending = all(a < b for a, b in pairwise(positions))
    if not in_range or not ascending or len(positions) != len(entries) or len(proof) % HASH_BYTES:
        return False
    siblings = (proof[i : i + HASH_BYTES] for i in range(0, len(proof), HASH_BYTES))
    nodes = dict(zip(positions, map(leaf_hash, entries), strict=True))
    while count > 1:
        above: dict[int, bytes] = {}
        for position, node in nodes.items():
            if position >> 1 in above:
                continue
            if position ^ 1 >= count:
                above[position >> 1] = node
                continue
            sibling = nodes.get(position ^ 1) or next(siblings, b"")
            if not sibling:
                return False
            pair = (sibling, node) if position & 1 else (node, sibling)
            above[position >> 1] = _inner(*pair)
        nodes, count = above, (count + 1) >> 1
    return nodes[0] == root and not next(siblings, b"")


def largest_proof_bytes(count: int) -> int:
    """No proof for a list of this length is longer."""
    return HASH_BYTES * max(count - 1, 0).bit_length()


def _inner(left: bytes, right: bytes) -> bytes:
    return digest(Usage.TREE_NODE, left, right)
