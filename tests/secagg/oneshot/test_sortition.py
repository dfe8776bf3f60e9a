"""Draws: who is a candidate, how that is shown, and how many of them may be corrupt."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from functools import lru_cache
from typing import Any

import one_shot_rounds as kit
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from secagg.errors import ParameterError
from secagg.keys import KEY_BYTES, Identity
from secagg.merkle import HASH_BYTES, HashTree, joint_proof_is_valid
from secagg.oneshot.committee import Committee, CommitteeKind, Member
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.draw_bound import (
    BITS_WITH_BEACON,
    BITS_WITHOUT_BEACON,
    corrupt_bound,
)
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.sortition import CERTAIN, MAX_REGISTRY, Draw, Places, Registry, ticket

HALF = CERTAIN // 2
ROOT = bytes(range(32))


def draw_of(**changes: Any) -> Draw:
    terms = {"registry_root": ROOT, "registry_size": 9, "odds": HALF, "beacon": b""}
    return Draw(**{**terms, **changes})


# -- seeds and tickets --------------------------------------------------------------------------


def tagged(usage: bytes, *parts: bytes) -> bytes:
    """SHA-256 of a tagged string, by hand."""
    every = (b"veilsum/2", usage, *parts)
    return hashlib.sha256(
        b"".join(len(part).to_bytes(8, "little") + part for part in every)
    ).digest()


@given(st.binary(min_size=32, max_size=32), st.integers(0, 1 << 62), st.booleans())
def test_tickets_by_hand(identity: bytes, number: int, has_beacon: bool) -> None:
    beacon = bytes(32) if has_beacon else b""
    parts = (beacon,) if has_beacon else (kit.SESSION, number.to_bytes(8, "little"))
    seed = tagged(b"seed of a draw", ROOT, (9).to_bytes(8, "little"), *parts)
    assert draw_of(beacon=beacon).seed(kit.SESSION, number) == seed
    wanted = int.from_bytes(tagged(b"ticket of a draw", seed, identity)[:8], "little")
    assert ticket(seed, identity) == wanted < CERTAIN


def test_everything_that_the_server_cannot_choose_draws_anew() -> None:
    seeds = {
        draw_of(**changes).seed(session, number)
        for changes in ({}, {"registry_root": bytes(32)}, {"registry_size": 10})
        for session in (kit.SESSION, bytes(16))
        for number in (0, 1)
    }
    assert len(seeds) == 12


def test_with_a_beacon_session_and_round_change_nothing() -> None:
    """The server chooses them, and knows the beacon when it does."""
    draw = draw_of(beacon=b"\1" * 32)
    assert draw.seed(kit.SESSION, 0) == draw.seed(bytes(16), 1)
    assert draw.seed(kit.SESSION, 0) != draw_of(beacon=b"\2" * 32).seed(kit.SESSION, 0)


def test_the_odds_are_not_in_the_seed() -> None:
    """A client's own odds are the only ones, so there is nothing to try."""
    assert draw_of(odds=1).seed(kit.SESSION, 0) == draw_of().seed(kit.SESSION, 0)


@pytest.mark.parametrize(
    ("changes", "argument"),
    [
        ({"registry_root": bytes(31)}, "registry_root"),
        ({"registry_root": bytearray(32)}, "registry_root"),
        ({"registry_size": 0}, "registry_size"),
        ({"registry_size": True}, "registry_size"),
        ({"registry_size": MAX_REGISTRY + 1}, "registry_size"),
        ({"odds": 0}, "odds"),
        ({"odds": CERTAIN}, "odds"),
        ({"odds": 0.5}, "odds"),
        ({"beacon": bytes(31)}, "beacon"),
        ({"beacon": None}, "beacon"),
    ],
)
def test_infeasible_draws(changes: dict[str, Any], argument: str) -> None:
    with pytest.raises(ParameterError) as raised:
        draw_of(**changes)
    assert raised.value.argument == argument


def test_encodings_are_injective() -> None:
    draws = [
        draw_of(**changes)
        for changes in (
            {},
            {"registry_root": bytes(32)},
            {"registry_size": 10},
            {"odds": HALF + 1},
            {"beacon": bytes(32)},
        )
    ]
    assert len({draw.encode() for draw in draws}) == len(draws)


# -- places in a registry -----------------------------------------------------------------------


@lru_cache(maxsize=64)
def registry_of(count: int) -> Registry:
    return Registry([hashlib.sha256(b"%d" % i).digest() for i in range(count)])


@st.composite
def seated(drawn: st.DrawFn) -> tuple[Registry, tuple[int, ...]]:
    registry = registry_of(drawn(st.integers(1, 40)))
    some = drawn(st.sets(st.integers(0, len(registry) - 1), min_size=1))
    return registry, tuple(sorted(some))


def plain_joint_proof(keys: tuple[bytes, ...], positions: tuple[int, ...]) -> list[bytes]:
    """By recursion: the hash of every subtree without a member, on the level that it is joined."""
    proofs: list[tuple[int, int, bytes]] = []

    def visit(first: int, count: int, level: int) -> None:
        inside = any(first <= each < first + count for each in positions)
        if not inside:
            proofs.append((level, first, HashTree(keys[first : first + count]).root))
        elif count > 1:
            level = (count - 1).bit_length() - 1
            visit(first, 1 << level, level)
            visit(first + (1 << level), count - (1 << level), level)

    visit(0, len(keys), 0)
    return [found for _, _, found in sorted(proofs)]


@given(seated())
def test_joint_proofs_are_the_missing_subtrees(case: tuple[Registry, tuple[int, ...]]) -> None:
    registry, positions = case
    identities = [registry.keys[each] for each in positions]
    places = registry.places(identities)
    assert places.positions == positions
    cut = [places.proof[i : i + HASH_BYTES] for i in range(0, len(places.proof), HASH_BYTES)]
    assert cut == plain_joint_proof(registry.keys, positions)
    draw = draw_of(registry_root=registry.root, registry_size=len(registry))
    assert places.hold(draw, identities)


@given(seated(), st.data())
def test_nothing_else_is_a_proof(
    case: tuple[Registry, tuple[int, ...]], data: st.DataObject
) -> None:
    registry, positions = case
    keys = [registry.keys[each] for each in positions]
    root, size, proof = registry.root, len(registry), registry.places(keys).proof
    assert joint_proof_is_valid(root, keys, positions, size, proof)
    assert not joint_proof_is_valid(root, keys, positions, size, proof + bytes(HASH_BYTES))
    assert not joint_proof_is_valid(root, keys, positions, size, proof + b"\0")
    assert not joint_proof_is_valid(bytes(HASH_BYTES), keys, positions, size, proof)
    assert not joint_proof_is_valid(root, keys[1:], positions, size, proof)
    assert not joint_proof_is_valid(root, [], [], size, proof)
    assert not joint_proof_is_valid(root, keys, positions, positions[-1], proof)
    moved = (*positions[:-1], size)
    assert not joint_proof_is_valid(root, keys, moved, size, proof)
    assert not joint_proof_is_valid(root, keys, [positions[0] - size, *positions[1:]], size, proof)
    place = data.draw(st.integers(0, len(keys) - 1))
    changed = [*keys[:place], bytes(KEY_BYTES), *keys[place + 1 :]]
    assert not joint_proof_is_valid(root, changed, positions, size, proof)
    if proof:
        at = data.draw(st.integers(0, len(proof) - 1))
        flipped = proof[:at] + bytes([proof[at] ^ 1]) + proof[at + 1 :]
        assert not joint_proof_is_valid(root, keys, positions, size, flipped)
        assert not joint_proof_is_valid(root, keys, positions, size, proof[:-HASH_BYTES])
    if len(keys) > 1:
        twice = [keys[0], *keys[:-1]], (positions[0], *positions[:-1])
        assert not joint_proof_is_valid(root, *twice, size, proof)
        assert not joint_proof_is_valid(root, keys[::-1], positions[::-1], size, proof)


@given(seated(), st.integers(1, 45))
def test_a_member_is_where_it_is(case: tuple[Registry, tuple[int, ...]], shift: int) -> None:
    registry, positions = case
    keys = [registry.keys[each] for each in positions]
    proof = registry.places(keys).proof
    moved = tuple(each + shift for each in positions)
    assert not joint_proof_is_valid(registry.root, keys, moved, len(registry), proof)


@pytest.mark.parametrize(
    ("positions", "proof", "argument"),
    [
        ((), b"", "positions"),
        ((1, 1), b"", "positions"),
        ((2, 1), b"", "positions"),
        ((-1, 1), b"", "positions"),
        ((MAX_REGISTRY,), b"", "positions"),
        ((1,), bytes(31), "proof"),
    ],
)
def test_infeasible_places(positions: tuple[int, ...], proof: bytes, argument: str) -> None:
    with pytest.raises(ParameterError) as raised:
        Places(positions, proof)
    assert raised.value.argument == argument


def test_a_registry_gives_no_places_to_strangers_or_in_another_order() -> None:
    registry = registry_of(5)
    with pytest.raises(ParameterError, match="stranger"):
        registry.places([registry.keys[0], bytes(KEY_BYTES)])
    with pytest.raises(ParameterError, match="positions"):
        registry.places([registry.keys[1], registry.keys[0]])
    assert registry.in_order(reversed(registry.keys[1:4])) == list(registry.keys[1:4])


@pytest.mark.parametrize("keys", [[], [bytes(31)], [bytes(32)] * 2])
def test_infeasible_registries(keys: list[bytes]) -> None:
    with pytest.raises(ParameterError, match="registry"):
        Registry(keys)


# -- committees and contexts --------------------------------------------------------------------

MEMBERS = 6


def entries(count: int) -> list[Member]:
    """Entries of so many identities, in the registry's order."""
    return [
        Member.sign(kit.identity("member", i), kit.SESSION, kit.sealing("member", i).public, 0, 9)
        for i in range(count)
    ]


def drawn_context(number: int = 3, odds: int = HALF, **changes: Any) -> OneShotContext:
    """A round whose members are the first six candidates of twenty."""
    some = entries(20)
    registry = Registry([entry.identity for entry in some])
    draw = Draw(registry_root=registry.root, registry_size=20, odds=odds)
    seed = draw.seed(kit.SESSION, number)
    members = tuple(each for each in some if ticket(seed, each.identity) < odds)[:MEMBERS]
    named: dict[str, Any] = {"kind": CommitteeKind.DRAWN, "members": members, "draw": draw}
    committee = kit.committee(MEMBERS, **{**named, **changes})
    return kit.context(committee=committee, round_number=number)


class DrawnRound(kit.Round):
    """A round whose members are some of twenty identities."""

    def number(self, index: int) -> int:
        """Which of the twenty a member is."""
        found = self.context.committee.members[index].identity
        return [entry.identity for entry in entries(20)].index(found)

    def member(self, index: int) -> OneShotMember:
        """A new session of a member."""
        key = kit.sealing("member", self.number(index))
        return OneShotMember(self.context, index, self.member_identity(index), key)

    def member_identity(self, index: int) -> Identity:
        """A member's signing key."""
        return kit.identity("member", self.number(index))


def test_a_drawn_committee_opens_a_sum() -> None:
    round_ = DrawnRound(drawn_context())
    opened = round_.finish()
    assert opened.vector.elements.tolist() == round_.expected(range(5))


@pytest.mark.parametrize("number", [2, 4])
def test_members_of_another_round_are_refused(number: int) -> None:
    committee = drawn_context().committee
    with pytest.raises(ParameterError, match=f"candidate of round {number}'s draw"):
        kit.context(committee=committee, round_number=number)


def test_members_of_another_session_are_refused() -> None:
    committee = drawn_context().committee
    with pytest.raises(ParameterError, match="candidate"):
        committee.check_draw(bytes(16), 3)
    committee.check_draw(kit.SESSION, 3)


def test_whoever_was_not_drawn_is_refused() -> None:
    context = drawn_context()
    drawn = {each.identity for each in context.committee.members}
    assert context.committee.draw is not None
    seed = context.committee.draw.seed(kit.SESSION, 3)
    other = next(e for e in entries(20) if ticket(seed, e.identity) >= HALF)
    assert other.identity not in drawn
    members = (*context.committee.members[:-1], other)
    with pytest.raises(ParameterError, match="member 5"):
        drawn_context(members=members)


def test_a_ticket_at_the_odds_is_not_below_them() -> None:
    context = drawn_context()
    draw, members = context.committee.draw, context.committee.members
    assert draw is not None
    highest = max(ticket(draw.seed(kit.SESSION, 3), each.identity) for each in members)
    root, size = draw.registry_root, draw.registry_size
    at = Draw(registry_root=root, registry_size=size, odds=highest)
    above = Draw(registry_root=root, registry_size=size, odds=highest + 1)
    assert drawn_context(members=members, draw=above)
    with pytest.raises(ParameterError, match="candidate"):
        drawn_context(members=members, draw=at)


@pytest.mark.parametrize(
    ("kind", "draw"),
    [
        (CommitteeKind.DRAWN, None),
        (CommitteeKind.DRAWN, b"draw"),
        (CommitteeKind.NAMED, draw_of()),
        (CommitteeKind.EVERYONE, draw_of()),
    ],
)
def test_a_draw_belongs_to_a_drawn_committee(kind: CommitteeKind, draw: Any) -> None:
    with pytest.raises(ParameterError, match=r"^draw = "):
        kit.committee(MEMBERS, kind=kind, draw=draw)


def test_the_draw_is_in_the_context() -> None:
    draw = drawn_context().committee.draw
    assert draw is not None
    root, size = draw.registry_root, draw.registry_size
    higher = Draw(registry_root=root, registry_size=size, odds=draw.odds + 1)
    assert drawn_context().hash != drawn_context(draw=higher).hash


@given(st.integers(0, 1 << 30))
def test_drawn_and_named_committees_have_different_encodings(odds: int) -> None:
    draw = draw_of(odds=odds + 1)
    drawn = kit.committee(MEMBERS, kind=CommitteeKind.DRAWN, draw=draw)
    assert isinstance(drawn, Committee)
    assert drawn.encode() != kit.committee(MEMBERS).encode()


# -- the bound on corrupt members ---------------------------------------------------------------


def exact_bound(corrupt: int, odds: int, bits: int, share: Fraction = Fraction(1)) -> int:
    """By whole numbers, powers of 2^64 and all; of a share of the chance that is allowed."""
    missed, most = CERTAIN - odds, share * Fraction(1, 1 << bits)
    below, term, c = Fraction(0), Fraction(missed, CERTAIN) ** corrupt, 0
    while True:
        below += term
        if 1 - below <= most:
            return c
        term *= Fraction((corrupt - c) * odds, (c + 1) * missed)
        c += 1


def is_exact(corrupt: int, odds: int, bits: int) -> bool:
    """Whether the bound is right; rounded up where the tail is all but the chance allowed."""
    least = exact_bound(corrupt, odds, bits)
    most = exact_bound(corrupt, odds, bits, 1 - Fraction(1, 1 << 64))
    return least <= corrupt_bound(corrupt, odds, bits) <= most


@pytest.mark.parametrize("corrupt", [0, 1, 2, 3, 7, 12, 40])
@pytest.mark.parametrize(
    "odds", [1, 1 << 40, CERTAIN // 10, HALF, CERTAIN - (1 << 50), CERTAIN - 1]
)
@pytest.mark.parametrize("bits", [1, 8, 40, 64, 128])
def test_bounds_are_exact(corrupt: int, odds: int, bits: int) -> None:
    assert is_exact(corrupt, odds, bits)


@given(st.integers(0, 30), st.integers(1, CERTAIN - 1), st.integers(1, 160))
def test_any_bound_is_exact(corrupt: int, odds: int, bits: int) -> None:
    assert is_exact(corrupt, odds, bits)


def test_a_tie_is_rounded_up() -> None:
    """Two tickets of 2^-64 each are drawn with 2^-128, not less: one more, to be sure."""
    assert exact_bound(2, 1, 128) == 1
    assert corrupt_bound(2, 1, 128) == 2


TABLE = {
    (20, 200): (14, 20),
    (100, 400): (31, 47),
    (100, 800): (41, 59),
    (500, 800): (105, 139),
    (500, 1600): (162, 202),
}
"""That of docs/one-shot-security.md: corrupt ones of ten thousand, and candidates on average."""


@pytest.mark.parametrize(("corrupt", "candidates"), TABLE)
def test_the_table_of_the_argument(corrupt: int, candidates: int) -> None:
    odds = candidates * CERTAIN // 10_000
    both = (BITS_WITH_BEACON, BITS_WITHOUT_BEACON)
    bounds = tuple(corrupt_bound(corrupt, odds, bits) for bits in both)
    assert bounds == TABLE[corrupt, candidates]
    for c, bits in zip(bounds, both, strict=True):
        tail = binom(corrupt, candidates / 10_000).sf
        # By another library, to a millionth of the tail.
        assert tail(c) <= 2.0**-bits * (1 + 1e-6)
        assert tail(c - 1) > 2.0**-bits * (1 - 1e-6)


def test_bounds_grow_with_everything() -> None:
    assert corrupt_bound(100, HALF, 64) < corrupt_bound(101, HALF, 64)
    assert corrupt_bound(100, HALF // 2, 64) < corrupt_bound(100, HALF, 64)
    assert corrupt_bound(100, HALF // 2, 64) < corrupt_bound(100, HALF // 2, 128)


def test_a_tail_that_cannot_be_ruled_out_is_all() -> None:
    """With few candidates, and no beacon, the bound is all of the corrupt identities."""
    assert corrupt_bound(12, HALF, 128) == 12
    assert corrupt_bound(0, HALF, 128) == 0


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ((-1, HALF, 64), "corrupt"),
        ((1.0, HALF, 64), "corrupt"),
        ((1, 0, 64), "odds"),
        ((1, CERTAIN, 64), "odds"),
        ((1, HALF, 0), "security_bits"),
        ((1, HALF, 2000), "security_bits"),
        ((10_000, HALF, 64), "corrupt"),
    ],
)
def test_infeasible_bounds(arguments: tuple[Any, ...], argument: str) -> None:
    with pytest.raises(ParameterError) as raised:
        corrupt_bound(*arguments)
    assert raised.value.argument == argument
