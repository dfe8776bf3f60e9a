"""The hash tree: every proof against the recursive definition, and nothing but those proofs."""

from __future__ import annotations

import hashlib

import pytest

from secagg.merkle import HASH_BYTES, HashTree, largest_proof_bytes, leaf_hash, proof_is_valid
from secagg.tags import Usage, digest

COUNTS = range(1, 71)
BORDERS = {*range(1, 18), 31, 32, 33, 64, 65}
NEAR_BORDERS = [
    count if count in BORDERS else pytest.param(count, marks=pytest.mark.slow) for count in COUNTS
]
"""Near powers of two, where trees change their shape; all of them in long runs."""


def entries_of(count: int) -> list[bytes]:
    return [b"entry %d" % i for i in range(count)]


def split_at(count: int) -> int:
    """The largest power of two below count."""
    half = 1
    while 2 * half < count:
        half *= 2
    return half


def plain_root(entries: list[bytes]) -> bytes:
    """The root (MTH) by RFC 6962, section 2.1."""
    if len(entries) == 1:
        return digest(Usage.TREE_LEAF, entries[0])
    half = split_at(len(entries))
    return digest(Usage.TREE_NODE, plain_root(entries[:half]), plain_root(entries[half:]))


def plain_proof(entries: list[bytes], position: int) -> list[bytes]:
    """The proof (PATH) by RFC 6962, section 2.1.1."""
    if len(entries) == 1:
        return []
    half = split_at(len(entries))
    if position < half:
        return [*plain_proof(entries[:half], position), plain_root(entries[half:])]
    return [*plain_proof(entries[half:], position - half), plain_root(entries[:half])]


@pytest.mark.parametrize("count", COUNTS)
def test_tree_is_that_of_the_definition(count: int) -> None:
    entries = entries_of(count)
    tree = HashTree(entries)
    assert tree.root == plain_root(entries)
    for position in range(count):
        proof = tree.proof(position)
        assert proof == tree.joint_proof([position]) == b"".join(plain_proof(entries, position))
        assert proof_is_valid(tree.root, entries[position], position, count, proof)
    assert max(len(tree.proof(i)) for i in range(count)) == largest_proof_bytes(count)


@pytest.mark.parametrize("count", NEAR_BORDERS)
def test_another_position_or_entry_is_refused(count: int) -> None:
    entries = entries_of(count)
    tree = HashTree(entries)
    for position in range(count):
        proof = tree.proof(position)
        for other in range(-1, count + 2):
            valid = proof_is_valid(tree.root, entries[position], other, count, proof)
            assert valid == (other == position)
            if 0 <= other < count != 1:
                valid = proof_is_valid(tree.root, entries[other], position, count, proof)
                assert valid == (other == position)
        assert not proof_is_valid(tree.root, b"", position, count, proof)
        assert not proof_is_valid(bytes(HASH_BYTES), entries[position], position, count, proof)


@pytest.mark.parametrize("count", NEAR_BORDERS)
def test_changed_proofs_are_refused(count: int) -> None:
    entries = entries_of(count)
    tree = HashTree(entries)
    for position in range(count):
        proof = tree.proof(position)
        siblings = [proof[i : i + HASH_BYTES] for i in range(0, len(proof), HASH_BYTES)]
        changed = [
            proof + b"\0",
            proof + bytes(HASH_BYTES),
            proof + leaf_hash(entries[position]),
            leaf_hash(entries[position]) + proof,
            proof + tree.root,
        ]
        if proof:
            changed += [b"", proof[:-1], proof[1:], proof[:-HASH_BYTES], proof[HASH_BYTES:]]
            changed += [
                proof[:i] + bytes([proof[i] ^ 1]) + proof[i + 1 :]
                for i in (0, 33, len(proof) - 1)
                if i < len(proof)
            ]
        if len(siblings) > 1:
            changed.append(b"".join(siblings[::-1]))
        for bad in changed:
            assert not proof_is_valid(tree.root, entries[position], position, count, bad)


def shape(position: int, count: int) -> tuple[str, ...]:
    """On which side the siblings of a proof stand, lowest first."""
    if count == 1:
        return ()
    half = split_at(count)
    if position < half:
        return (*shape(position, half), "right")
    return (*shape(position - half, count - half), "left")


@pytest.mark.parametrize("count", NEAR_BORDERS)
def test_another_count_is_refused_unless_the_path_is_the_same(count: int) -> None:
    """The root does not fix the count: that is why it is hashed beside the set of members."""
    entries = entries_of(count)
    tree = HashTree(entries)
    for position in range(count):
        proof = tree.proof(position)
        for other in range(-1, 140):
            valid = proof_is_valid(tree.root, entries[position], position, other, proof)
            same = other > position and shape(position, other) == shape(position, count)
            assert valid == same


def test_leaves_are_not_inner_nodes() -> None:
    """An entry that looks like two hashes is no shorter tree with the same root."""
    tree = HashTree(entries_of(4))
    left, right = (HashTree(half).root for half in (entries_of(4)[:2], entries_of(4)[2:]))
    assert HashTree([left, right]).root != tree.root
    assert HashTree([left + right]).root != tree.root
    assert not proof_is_valid(tree.root, left + right, 0, 1, b"")


def test_vector() -> None:
    """By hand, with the documented encoding of tags."""

    def hashed(*parts: bytes) -> bytes:
        tagged = (b"veilsum/2", *parts)
        return hashlib.sha256(b"".join(len(p).to_bytes(8, "little") + p for p in tagged)).digest()

    a, b, c = (hashed(b"tree leaf", entry) for entry in (b"a", b"b", b"c"))
    root = hashed(b"tree node", hashed(b"tree node", a, b), c)
    assert HashTree([b"a", b"b", b"c"]).root == root
    assert HashTree([b"a", b"b", b"c"]).proof(2) == hashed(b"tree node", a, b)
    assert HashTree([b"a", b"b", b"c"]).proof(1) == a + c


@pytest.mark.parametrize(
    ("count", "levels"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1024, 10), (1025, 11)]
)
def test_largest_proof(count: int, levels: int) -> None:
    assert largest_proof_bytes(count) == HASH_BYTES * levels
