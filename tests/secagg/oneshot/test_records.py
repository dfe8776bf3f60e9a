"""Records of a run, the terms of members' uploads, and that both are in what everybody signs."""

from __future__ import annotations

import dataclasses
from typing import Any

import one_shot_rounds as kit
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg import ParameterError
from secagg.oneshot import records as records_module
from secagg.oneshot.committee import CommitteeKind, Member
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.records import (
    MAX_RECORDS,
    MemberUploads,
    RoundRecord,
    decode_records,
    encode_records,
    fewest_members,
    next_head,
)
from secagg.oneshot.sortition import Draw

EVERYBODY = (0, 1, 2, 3, 4, 5)
FIRST = RoundRecord(0, 5, EVERYBODY, ())
SECOND = RoundRecord(2, 4, (0, 1, 2, 3), (1, 2))
RETURNING = {"returning": True, "fewest_returning": 2, "records": (FIRST, SECOND)}


def a_record(members: int) -> st.SearchStrategy[RoundRecord]:
    sets = st.sets(st.integers(0, members - 1)).map(sorted).map(tuple)
    return st.builds(RoundRecord, st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), sets, sets)


# -- bytes ----------------------------------------------------------------------------------------


@given(st.integers(1, 40).flatmap(lambda s: st.tuples(st.just(s), st.lists(a_record(s)))))
def test_records_come_back_from_their_bytes(drawn: tuple[int, list[RoundRecord]]) -> None:
    members, told = drawn
    encoded = encode_records(told, members)
    assert decode_records(encoded, members) == tuple(told)
    assert len(encoded) == len(told) * (12 + 2 * ((members + 7) // 8))


@given(st.integers(1, 40), st.binary(max_size=80))
def test_bytes_are_records_or_refused(members: int, data: bytes) -> None:
    """No two strings of bytes are the same records: a chain over them is one over the bytes."""
    for decode, encode in (
        (decode_records, encode_records),
        (RoundRecord.decode, lambda record, size: record.encode(size)),
    ):
        try:
            found = decode(data, members)
        except ValueError:
            continue
        assert encode(found, members) == data


@pytest.mark.parametrize("change", [-1, 1, 14])
def test_a_record_has_one_length(change: int) -> None:
    encoded = FIRST.encode(6)
    with pytest.raises(ValueError, match="bytes for 6 members"):
        RoundRecord.decode(encoded.ljust(14 + change, b"\0")[: 14 + change], 6)
    if change != 14:
        with pytest.raises(ValueError, match="no list of records"):
            decode_records(encoded.ljust(14 + change, b"\0")[: 14 + change], 6)


def test_more_records_than_a_run_may_have_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = encode_records([FIRST] * 3, 6)
    monkeypatch.setattr(records_module, "MAX_RECORDS", 2)
    with pytest.raises(ValueError, match="no list of records"):
        decode_records(encoded, 6)
    monkeypatch.setattr(records_module, "MAX_RECORDS", 3)
    assert len(decode_records(encoded, 6)) == 3
    assert MAX_RECORDS >= 10_000


@pytest.mark.parametrize("place", [12, 13])
def test_padding_of_a_set_of_members_is_refused(place: int) -> None:
    encoded = bytearray(FIRST.encode(6))
    encoded[place] |= 0x40
    with pytest.raises(ValueError, match="names party"):
        RoundRecord.decode(bytes(encoded), 6)


# -- the chain ------------------------------------------------------------------------------------


def test_heads_are_a_chain_over_the_records() -> None:
    context = kit.adding(kit.uploads(**RETURNING))
    first = kit.adding().heads
    assert len(first) == 1
    assert context.heads == (
        first[0],
        next_head(first[0], FIRST, 6),
        next_head(next_head(first[0], FIRST, 6), SECOND, 6),
    )
    assert kit.adding(kit.uploads(records=(FIRST,))).head_after(SECOND) == context.heads[-1]
    assert len(set(context.heads)) == 3
    assert kit.context().heads == ()


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(SECOND, round_number=1),
        dataclasses.replace(SECOND, clients=5),
        dataclasses.replace(SECOND, entered=(0, 1, 2, 4)),
        dataclasses.replace(SECOND, returned=(1, 3)),
    ],
)
def test_every_part_of_a_record_is_in_its_head(other: RoundRecord) -> None:
    base = kit.adding(kit.uploads(**RETURNING))
    changed = kit.adding(kit.uploads(**{**RETURNING, "records": (FIRST, other)}))
    assert base.heads[:2] == changed.heads[:2]
    assert base.heads[2] != changed.heads[2]
    assert base.hash != changed.hash
    earlier = dataclasses.replace(FIRST, clients=4)
    changed = kit.adding(kit.uploads(**{**RETURNING, "records": (earlier, SECOND)}))
    assert base.heads[2] != changed.heads[2]


OTHER_RUNS: dict[str, dict[str, Any]] = {
    "size": {"size": 6, "minimum_survivors": 5},
    "minimum_survivors": {"minimum_survivors": 5},
    "tolerated_colluders": {"tolerated_colluders": 2, "minimum_survivors": 4},
    "length": {"length": 8},
    "fewest": {"terms": kit.uploads(fewest=5)},
    "block": {"terms": kit.uploads(block=bytes(32))},
    "corrupt": {"committee": kit.committee(6, corrupt=0, randomness=1)},
    "members": {"committee": dataclasses.replace(
        kit.committee(6), members=kit.committee(6).members[::-1]
    )},
}  # fmt: skip
SAME_RUN: dict[str, dict[str, Any]] = {
    "round_number": {"round_number": 4},
    "application_digest": {"application_digest": b"m" * 32},
    "cohort_root": {},
    "rounding_bits": {"rounding_bits": 1},
    "returning": {"terms": kit.uploads(returning=True)},
}


@pytest.mark.parametrize("name", sorted(OTHER_RUNS))
def test_rounds_on_other_terms_belong_to_another_run(name: str) -> None:
    """The first head covers what may not change over a run, so no list goes on from another."""
    base = {"minimum_survivors": 4}
    first, second = kit.adding(**base), kit.adding(**{**base, **OTHER_RUNS[name]})
    assert first.heads[0] != second.heads[0]


def test_another_session_is_another_run() -> None:
    members = tuple(
        Member.sign(kit.identity("member", i), b"s" * 16, each.sealing_key, 0, 9)
        for i, each in enumerate(kit.committee(6).members)
    )
    other = dataclasses.replace(kit.committee(6), members=members)
    assert kit.adding(session_id=b"s" * 16, committee=other).heads != kit.adding().heads


@pytest.mark.parametrize("name", sorted(SAME_RUN))
def test_rounds_of_one_run_may_differ_in_the_rest(name: str) -> None:
    first = kit.adding()
    if name == "cohort_root":
        second = dataclasses.replace(first, cohort_root=b"r" * 32)
    else:
        second = kit.adding(**SAME_RUN[name])
    assert first.heads == second.heads
    assert first.hash != second.hash


def test_keys_of_members_may_change_within_a_run() -> None:
    """A new epoch has new sealing keys; the run goes on."""
    fresh = tuple(
        Member.sign(kit.identity("member", i), kit.SESSION, kit.sealing("other", i).public, 0, 9)
        for i in range(6)
    )
    other = dataclasses.replace(kit.committee(6), members=fresh)
    assert kit.adding(committee=other).heads == kit.adding().heads
    assert kit.adding(committee=other).hash != kit.adding().hash


UPLOADS: dict[str, dict[str, Any]] = {
    "fewest": {"fewest": 5, "records": (FIRST, dataclasses.replace(SECOND, entered=EVERYBODY))},
    "returning": {"returning": False, "fewest_returning": 0},
    "fewest_returning": {"fewest_returning": 1},
    "block": {"block": bytes(32)},
    "records": {"records": (FIRST, dataclasses.replace(SECOND, clients=5))},
}


def test_every_term_of_members_uploads_has_a_change_above() -> None:
    assert {each.name for each in dataclasses.fields(MemberUploads)} == UPLOADS.keys()


@pytest.mark.parametrize("name", sorted(UPLOADS))
def test_every_term_of_members_uploads_is_in_the_hash(name: str) -> None:
    hashes = {
        kit.adding(kit.uploads(**{**RETURNING, **changes})).hash
        for changes in ({}, UPLOADS[name], {"fewest_returning": 0})
    }
    assert len(hashes) == 3
    assert len({kit.adding(kit.uploads(**RETURNING)).public_key, kit.adding().public_key}) == 2


# -- what is refused ------------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(0, 59))
def test_so_many_members_are_an_honest_majority_of_all(size: int, corrupt: int) -> None:
    """2 a_min > s + c and a_min > 2c: exactly these are taken."""
    taken = [
        fewest
        for fewest in range(size + 2)
        if 2 * fewest > size + corrupt and fewest > 2 * corrupt and fewest <= size
    ]
    assert taken == list(range(fewest_members(size, corrupt), size + 1))


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("fewest", {"fewest": 3}),
    ("fewest", {"fewest": 7}),
    ("fewest", {"fewest": 4.0}),
    ("fewest", {"fewest": True}),
    ("fewest_returning", {"fewest_returning": 1}),
    ("fewest_returning", {"fewest_returning": -1}),
    ("fewest_returning", {"fewest_returning": 0.0}),
    ("fewest_returning", {**RETURNING, "fewest_returning": 5}),
    ("fewest_returning", {**RETURNING, "returning": False}),
    ("fewest_returning", {"returning": True, "fewest_returning": 1}),
    ("returning", {"returning": 1}),
    ("block", {"block": bytes(31)}),
    ("block", {"block": bytearray(32)}),
    ("records", {"records": [FIRST]}),
    ("records", {"records": (FIRST, FIRST)}),
    ("records", {"records": (SECOND, FIRST)}),
    ("records", {"records": (dataclasses.replace(FIRST, round_number=3),)}),
    ("records", {"records": (dataclasses.replace(FIRST, round_number=-1),)}),
    ("records", {"records": (dataclasses.replace(FIRST, round_number=1.0),)}),
    ("records", {"records": (dataclasses.replace(FIRST, clients=3),)}),
    ("records", {"records": (dataclasses.replace(FIRST, clients=6),)}),
    ("records", {"records": (dataclasses.replace(FIRST, clients=5.0),)}),
    ("records", {"records": (dataclasses.replace(FIRST, entered=(0, 1, 2)),)}),
    ("records", {"records": (dataclasses.replace(FIRST, entered=(0, 1, 2, 6)),)}),
    ("records", {"records": (dataclasses.replace(FIRST, entered=(-1, 0, 1, 2)),)}),
    ("records", {"records": (dataclasses.replace(FIRST, entered=(0, 1, 2, 2)),)}),
    ("records", {"records": (dataclasses.replace(FIRST, entered=(1, 0, 2, 3)),)}),
    ("records", {"records": (dataclasses.replace(FIRST, returned=(0,)),)}),
    ("records", {"records": (FIRST, dataclasses.replace(SECOND, returned=(5,)))}),
    ("records", {"records": (FIRST, dataclasses.replace(SECOND, returned=(1, 1)))}),
    ("records", {"records": (FIRST, "a record")}),
    (
        "records",
        # Member 5 was away in the second, so it takes nothing back in the third.
        {"records": (FIRST, dataclasses.replace(SECOND, round_number=1),
                     RoundRecord(2, 5, EVERYBODY, (5,)))},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("argument", "changes"), REFUSED)
def test_terms_that_do_not_fit_are_named(argument: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ParameterError) as raised:
        kit.adding(kit.uploads(**changes))
    assert raised.value.argument == argument


def test_the_same_terms_without_the_mistakes_are_taken() -> None:
    assert kit.adding(kit.uploads(**RETURNING)).member_uploads is not None
    assert kit.adding(kit.uploads(returning=True)).member_uploads is not None
    third = RoundRecord(2, 5, EVERYBODY, (1, 2))
    second = dataclasses.replace(SECOND, round_number=1)
    assert len(kit.adding(kit.uploads(records=(FIRST, second, third))).heads) == 4


def test_more_records_than_a_run_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_module, "MAX_RECORDS", 1)
    with pytest.raises(ParameterError, match="at most 1"):
        kit.adding(kit.uploads(records=(FIRST, SECOND)))


DRAW = Draw(registry_root=bytes(32), registry_size=6, odds=(1 << 64) - 1, beacon=b"")


def test_a_drawn_committee_is_taken_where_clients_alone_upload() -> None:
    drawn = kit.committee(6, kind=CommitteeKind.DRAWN, draw=DRAW)
    assert kit.context(committee=drawn).committee.kind is CommitteeKind.DRAWN


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("member_uploads", {"member_uploads": dataclasses.asdict(kit.uploads())}),
        ("removal", {"removal": (1,) * 3}),
        ("committee", {"committee": kit.committee(6, kind=CommitteeKind.DRAWN, draw=DRAW)}),
        ("minimum_survivors", {"minimum_survivors": 3}),
        ("minimum_survivors", {"minimum_survivors": 6}),
    ],
)
def test_rounds_that_cannot_have_members_uploads_are_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    base = kit.adding()
    terms = {each.name: getattr(base, each.name) for each in dataclasses.fields(base) if each.init}
    with pytest.raises(ParameterError) as raised:
        OneShotContext(**{**terms, **changes})
    assert raised.value.argument == argument


def test_numbers_of_clients_are_those_without_the_members() -> None:
    context = kit.adding()
    assert (context.size, context.invited, context.most_corrupt) == (11, 5, 2)
    plain = kit.context()
    assert (plain.size, plain.invited, plain.most_corrupt) == (5, 5, 1)
