"""The public parameters of a one-shot round: what is refused, and that all of it is in the hash."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from itertools import product
from typing import Any

import one_shot_rounds as kit
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from secagg import CapacityError, ParameterError, PrimeField
from secagg.merkle import HASH_BYTES
from secagg.oneshot.committee import (
    MAX_MEMBERS,
    Committee,
    CommitteeKind,
    Member,
    check_sizes,
    lowest_quorum,
    most_wrong_answers,
)
from secagg.oneshot.context import Cohort, OneShotContext, fewest_survivors
from secagg.oneshot.packing import scale_for
from secagg.oneshot.parameters import ALLOWED_RINGS
from secagg.terms import MAX_COHORT, MAX_LENGTH

BASE = kit.context()

# -- the context ----------------------------------------------------------------------------------


def context_of(**changes: Any) -> OneShotContext:
    terms = {each.name: getattr(BASE, each.name) for each in dataclasses.fields(BASE) if each.init}
    return OneShotContext(**{**terms, **changes})


def committee_of(**changes: Any) -> Committee:
    return dataclasses.replace(kit.committee(6), **changes)


def changed_member(**changes: Any) -> tuple[Member, ...]:
    members = kit.committee(3).members
    return (members[0], dataclasses.replace(members[1], **changes), members[2])


def with_member(**changes: Any) -> Committee:
    return dataclasses.replace(kit.committee(3), members=changed_member(**changes))


def sized(size: int, colluders: int, minimum: int) -> dict[str, Any]:
    return {"size": size, "tolerated_colluders": colluders, "minimum_survivors": minimum}


CONTEXTS: list[tuple[str, dict[str, Any]]] = [
    ("session_id", {"session_id": bytes(15)}),
    ("session_id", {"session_id": bytearray(16)}),
    ("application_digest", {"application_digest": bytes(31)}),
    ("application_digest", {"application_digest": "0" * 32}),
    ("round_number", {"round_number": -1}),
    ("round_number", {"round_number": 1 << 63}),
    ("round_number", {"round_number": 3.0}),
    ("size", {"size": 5.0}),
    ("size", {"size": True}),
    ("cohort", {"size": 1, "minimum_survivors": 1, "tolerated_colluders": 0}),
    ("cohort", {"size": MAX_COHORT + 1}),
    ("cohort_root", {"cohort_root": bytes(HASH_BYTES - 1)}),
    ("cohort_root", {"cohort_root": bytearray(HASH_BYTES)}),
    ("cohort_root", {"cohort_root": None}),
    ("length", {"length": 0}),
    ("length", {"length": MAX_LENGTH + 1}),
    ("bits", {"bits": 7}),
    ("bits", {"bits": None}),
    ("tolerated_colluders", {"tolerated_colluders": -1}),
    ("tolerated_colluders", {"tolerated_colluders": 5, "minimum_survivors": 5}),
    ("removal", {"removal": [1, 1]}),
    ("removal", {"removal": (1.0, 1)}),
    ("removal", {"removal": (-1, 1)}),
    ("removal", {"removal": (1 << 63, 1)}),
    ("removal", {"removal": (1,)}),
    ("lifetime_seconds", {"lifetime_seconds": -1}),
    ("opened_at", {"lifetime_seconds": 10}),
    ("opened_at", {"opened_at": 10}),
    ("committee", {"committee": object()}),
    ("committee", {"committee": dataclasses.asdict(kit.committee(3))}),
    ("allow_weak", {"allow_weak": 1}),
    ("degree", {"degree": 1024.0}),
    ("ring", {"degree": 512}),
    ("ring", {"degree": 16384}),
    ("degree", {"degree": 0}),
    ("limbs", {"limbs": None}),
    ("limbs", {"limbs": 0}),
    ("limbs", {"limbs": -1}),
    ("rounding_bits", {"rounding_bits": "3"}),
    ("rounding_bits", {"rounding_bits": -1}),
    ("rounding_bits", {"rounding_bits": 32}),
    ("entries", {"entries": 1.0}),
    ("entries", {"entries": 0}),
    ("entries", {"entries": 4}),
    # Too small a minimum, or a cohort that cannot have two honest uploads.
    *(
        ("minimum_survivors", sized(*sizes))
        for sizes in (
            (5, 1, 3), (4, 0, 2), (6, 0, 3), (3, 1, 2), (5, 1, 6), (3, 2, 3), (2, 1, 2), (5, 4, 5)
        )
    ),
]  # fmt: skip
COMMITTEES: list[tuple[str, dict[str, Any]]] = [
    # What breaks the theorem.
    ("kind", {"kind": "named"}),
    ("members", {"members": list(kit.committee(6).members)}),
    ("members", {"members": ()}),
    ("corrupt", {"corrupt": -1}),
    ("corrupt", {"corrupt": 6}),
    ("corrupt", {"corrupt": 1.0}),
    ("randomness", {"corrupt": 2, "randomness": 1}),
    ("randomness", {"corrupt": 0, "randomness": 0}),
    ("randomness", {"randomness": 6}),
    ("randomness", {"randomness": True}),
    ("per_polynomial", {"per_polynomial": 0}),
    ("per_polynomial", {"per_polynomial": 6}),
    ("per_polynomial", {"per_polynomial": None}),
    ("quorum", {"quorum": 3}),
    ("quorum", {"quorum": 7}),
    ("quorum", {"quorum": 4.0}),
]
MEMBERS: list[tuple[str, dict[str, Any]]] = [
    ("members[1]", {"identity": bytes(31)}),
    ("members[1]", {"signature": bytes(63)}),
    ("members[1]", {"sealing_key": bytes(31)}),
    ("members[1]", {"sealing_key": bytes(32)}),
    ("members[1]", {"sealing_key": b"\xff" * 32}),
    ("members[1]", {"sealing_key": b"\x05" + bytes(30) + b"\x80"}),
    ("members[1]", {"first_round": 5, "last_round": 4}),
    ("members[1]", {"first_round": -1}),
    ("members[1]", {"last_round": 1 << 63}),
    ("members", {"identity": kit.identity("member", 0).public}),
    ("members", {"sealing_key": kit.sealing("member", 2).public}),
]
COHORTS: list[list[Any]] = [
    [],
    [bytes(32)],
    [bytes(32), b"1" * 31],
    [bytes(32), bytearray(b"1" * 32)],
    [bytes(32), b"1" * 32, bytes(32)],
]


@pytest.mark.parametrize(
    ("make", "argument", "changes"),
    [
        *((context_of, *row) for row in CONTEXTS),
        *((committee_of, *row) for row in COMMITTEES),
        *((with_member, *row) for row in MEMBERS),
        *((Cohort, "cohort", {"keys": keys}) for keys in COHORTS),
    ],
)
def test_infeasible_parameters_are_named(
    make: Callable[..., Any], argument: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(ParameterError) as raised:
        make(**changes)
    assert raised.value.argument == argument


@pytest.mark.parametrize(
    ("degree", "limbs", "weak"),
    [
        (1024, 2, False),
        (1024, 2, True),
        (2048, 3, False),
        (2048, 3, True),
        (4096, 4, False),
        (4096, 5, True),
        (8192, 8, False),
    ],
)
def test_rings_beyond_the_security_table_are_refused(degree: int, limbs: int, weak: bool) -> None:
    """The opt-in opens the weak ring and no other."""
    with pytest.raises(ParameterError, match=r"^(ring|limbs) = "):
        kit.context(degree=degree, limbs=limbs, allow_weak=weak)


def test_the_weak_ring_must_be_asked_for_by_name() -> None:
    assert kit.context(degree=4096, limbs=4, allow_weak=True).ring.limbs == 4
    assert [row.name for row in ALLOWED_RINGS if row.weak] == ["4096x4"]
    with pytest.raises(ParameterError, match="4096x4"):
        kit.context(degree=4096, limbs=4)


@pytest.mark.parametrize("rounding_bits", [0, 3, 6])
@pytest.mark.parametrize("bits", range(8, 24))
def test_a_coordinate_that_does_not_fit_is_refused(bits: int, rounding_bits: int) -> None:
    """Delta B < q must hold: here of five clients, and 27 bits of modulus."""
    p, q = PrimeField(bits).modulus, BASE.ring.modulus
    if scale_for(5, rounding_bits) * p < q:
        assert kit.context(bits=bits, rounding_bits=rounding_bits).packing.per >= 1
    else:
        with pytest.raises(CapacityError):
            kit.context(bits=bits, rounding_bits=rounding_bits)


@given(st.integers(2, 60), st.integers(0, 40), st.integers(0, 70))
def test_only_sets_of_which_one_opens_an_honest_upload_are_feasible(
    size: int, colluders: int, minimum: int
) -> None:
    """2 n_min > n + n_C and n_min - n_C >= 2: exactly these are taken."""
    assume(colluders < size)
    safe = 2 * minimum > size + colluders and minimum - colluders >= 2 and minimum <= size
    assert safe == (fewest_survivors(size, colluders) <= minimum <= size)


CHANGES: dict[str, Any] = {
    "session_id": None,
    "round_number": 4,
    "size": None,
    "minimum_survivors": 5,
    "tolerated_colluders": 0,
    "removal": (1, 1),
    "bits": 13,
    "length": 8,
    "application_digest": b"x" * 32,
    "opened_at": None,
    "lifetime_seconds": 60,
    "cohort_root": b"r" * 32,
    "committee": kit.committee(7),
    "degree": 2048,
    "limbs": 2,
    "rounding_bits": 1,
    "entries": 2,
    "allow_weak": True,
    # Its own fields are in test_records.
    "member_uploads": kit.uploads(fewest=3),
}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_every_parameter_is_in_the_hash(name: str) -> None:
    base: dict[str, Any] = {"minimum_survivors": 4}
    changes: dict[str, Any] = {name: CHANGES[name]}
    if name == "limbs":
        base["degree"] = 8192
    elif name == "session_id":
        # The sealing keys are signed for one session.
        keys = kit.committee(6).members
        members = tuple(
            Member.sign(kit.identity("member", i), b"s" * 16, each.sealing_key, 0, 9)
            for i, each in enumerate(keys)
        )
        committee = dataclasses.replace(kit.committee(6), members=members)
        changes = {"session_id": b"s" * 16, "committee": committee}
    elif name == "size":
        changes = {"size": 6}
    elif name == "member_uploads":
        # Of nine uploads three are members'.
        base = {"size": 9, "minimum_survivors": 6, "committee": kit.committee(3)}
    elif name in ("opened_at", "lifetime_seconds"):
        base |= {"opened_at": 1000, "lifetime_seconds": 50}
        changes = {name: getattr(kit.context(**base), name) + 1}
    first, second = kit.context(**base), kit.context(**{**base, **changes})
    assert first.hash != second.hash
    assert first.public_key != second.public_key


def test_every_field_has_a_change_above() -> None:
    fields = {each.name for each in dataclasses.fields(OneShotContext) if each.init}
    assert fields == CHANGES.keys()


@pytest.mark.parametrize("name", ["corrupt", "randomness", "per_polynomial", "quorum", "members"])
def test_every_number_of_the_committee_is_in_the_hash(name: str) -> None:
    base = kit.committee(8, corrupt=1, randomness=3, per_polynomial=2, quorum=6)
    change: Any = getattr(base, name)
    change = change[::-1] if name == "members" else change + 1
    other = dataclasses.replace(base, **{name: change})
    assert kit.context(committee=base).hash != kit.context(committee=other).hash


def test_a_context_survives_pickling_with_its_hash() -> None:
    context = kit.context(removal=(3, 1), rounding_bits=3)
    again = pickle.loads(pickle.dumps(context))  # noqa: S301
    assert again == context
    assert again.hash == context.hash
    assert (again.packing, again.layout) == (context.packing, context.layout)


# -- the cohort -----------------------------------------------------------------------------------


@given(st.integers(2, 20))
def test_everybody_is_shown_its_own_place_and_no_other(size: int) -> None:
    cohort = kit.cohort(size)
    context = kit.context(size, tolerated_colluders=0)
    assert (len(cohort), cohort.root) == (size, context.cohort_root)
    for place in range(size):
        proof = cohort.proof(place)
        own = cohort.keys[place]
        assert context.is_invited(place, own, proof)
        for other in range(-1, size + 1):
            assert context.is_invited(other, own, proof) == (other == place)
        assert not context.is_invited(place, cohort.keys[place - 1], proof)
        assert not context.is_invited(place, own, proof + bytes(32))
        assert not context.is_invited(place, own, proof[:-1])


# -- the committee --------------------------------------------------------------------------------


def test_sizes_are_taken_if_and_only_if_the_theorem_covers_them() -> None:
    """T >= c and T >= 1, 2 quorum > s + c, and what T + l answers and a quorum can be at all."""
    for numbers in product(range(6), *[range(-1, 7)] * 4):
        size, corrupt, randomness, per_polynomial, quorum = numbers
        covered = (
            0 <= corrupt < size
            and max(corrupt, 1) <= randomness
            and 2 * quorum > size + corrupt
            and quorum <= size
            and per_polynomial >= 1
            and randomness + per_polynomial <= size
        )
        try:
            check_sizes(*numbers)
        except ParameterError:
            assert not covered, numbers
        else:
            assert covered, numbers


def test_a_committee_beyond_the_bound_is_refused() -> None:
    check_sizes(MAX_MEMBERS, 1, 1, 1, lowest_quorum(MAX_MEMBERS, 1))
    with pytest.raises(ParameterError, match="members"):
        check_sizes(MAX_MEMBERS + 1, 1, 1, 1, lowest_quorum(MAX_MEMBERS + 1, 1))


@given(st.integers(0, 60), st.integers(1, 60))
def test_as_many_wrong_answers_are_corrected_as_the_code_allows(
    answers: int, threshold: int
) -> None:
    most = most_wrong_answers(answers, threshold)
    assert most >= 0
    if answers >= threshold:
        assert 2 * most <= answers - threshold < 2 * (most + 1)
    else:
        assert most == 0


def context_with(members: tuple[Member, ...], **changes: Any) -> OneShotContext:
    committee = dataclasses.replace(kit.committee(3), members=members)
    return kit.context(committee=committee, **changes)


def signed_for(session: bytes, *rounds: int) -> tuple[Member, ...]:
    """The kit's members, the second one's key signed for this session and these rounds."""
    keys = kit.identity("member", 1), kit.sealing("member", 1).public
    first, _, last = kit.committee(3).members
    return first, Member.sign(keys[0], session, keys[1], *rounds), last


@pytest.mark.parametrize("round_number", [0, 1, 5, 6])
def test_sealing_keys_of_another_epoch_are_refused(round_number: int) -> None:
    """A key for rounds 1 .. 5 serves these and no others."""
    members = signed_for(kit.SESSION, 1, 5)
    if 1 <= round_number <= 5:
        assert context_with(members, round_number=round_number)
        return
    with pytest.raises(ParameterError, match=r"^sealing_key = .*1 \.\. 5"):
        context_with(members, round_number=round_number)


@pytest.mark.parametrize(
    "members",
    [
        signed_for(bytes(16), 0, 9),
        changed_member(signature=bytes(64)),
        changed_member(first_round=1),
        changed_member(last_round=10),
        changed_member(sealing_key=kit.sealing("another", 1).public),
        changed_member(identity=kit.identity("another", 1).public),
    ],
    ids=["session", "signature", "first", "last", "key", "identity"],
)
def test_sealing_keys_must_be_signed_for_session_and_range(members: tuple[Member, ...]) -> None:
    with pytest.raises(ParameterError, match=r"^sealing_key = .*signed by its identity"):
        context_with(members)


# -- a committee of everyone ----------------------------------------------------------------------


def everyone(size: int, **changes: Any) -> OneShotContext:
    named = {"kind": CommitteeKind.EVERYONE, **changes.pop("committee", {})}
    return kit.context(size, committee=kit.committee(size, "client", **named), **changes)


def test_everyone_means_the_cohort_in_its_order() -> None:
    assert everyone(4)
    committee = kit.committee(4, "client", kind=CommitteeKind.EVERYONE)
    turned = dataclasses.replace(committee, members=committee.members[::-1])
    strangers = kit.committee(4, "member", kind=CommitteeKind.EVERYONE)
    fewer = kit.committee(3, "client", kind=CommitteeKind.EVERYONE)
    for other in (turned, strangers, fewer):
        with pytest.raises(ParameterError, match=r"^committee = "):
            kit.context(4, committee=other)


def test_everyone_counts_all_corrupt_clients_as_members() -> None:
    """Otherwise clients that work for the server would be more members than T allows for."""
    assert everyone(7, tolerated_colluders=2, committee={"corrupt": 2})
    with pytest.raises(ParameterError, match=r"^corrupt = "):
        everyone(7, tolerated_colluders=2, committee={"corrupt": 1})
