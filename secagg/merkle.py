"""A hash tree over a list, so that a short proof shows that an entry is in it.

Leaves and inner nodes are hashed under different tags; a list of n entries splits at the largest
power of two below n, as in RFC 6962, section 2.1.
"""

from __future__ import annotations

from collections.abc import Sequence

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
        path = []
        for level in self._levels[:-1]:
            sibling = position ^ 1
            if sibling < len(level):
                path.append(level[sibling])
            position >>= 1
        return b"".join(path)


def proof_is_valid(root: bytes, entry: bytes, position: int, count: int, proof: bytes) -> bool:
    """Whether `entry` is number `position` of the `count` entries under `root`."""
    if not 0 <= position < count or len(proof) % HASH_BYTES:
        return False
    siblings = [proof[i : i + HASH_BYTES] for i in range(0, len(proof), HASH_BYTES)]
    node = leaf_hash(entry)
    while count > 1:
        if position ^ 1 < count:
            if not siblings:
                return False
            sibling = siblings.pop(0)
            node = _inner(sibling, node) if position & 1 else _inner(node, sibling)
        position >>= 1
        count = (count + 1) >> 1
    return not siblings and node == root


def largest_proof_bytes(count: int) -> int:
    """No proof for a list of this length is longer."""
    return HASH_BYTES * max(count - 1, 0).bit_length()


def _inner(left: bytes, right: bytes) -> bytes:
    return digest(Usage.TREE_NODE, left, right)
