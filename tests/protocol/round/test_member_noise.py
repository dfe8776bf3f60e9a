"""What a member remembers of its noise: it goes in once, and comes back once or never."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import one_shot_rounds as kit
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp import NoiseSeed
from dp.sampling import DiscreteGaussianLaw, sample_law
from protocol.errors import PolicyError
from protocol.round import member_noise as module
from protocol.round.member_noise import (
    LARGEST_GAP,
    AddedNoise,
    MemberNoise,
    StoredMemberNoise,
    noise_vector,
)
from secagg import FieldVector, LocalProtocolError, PrimeField, centre
from secagg.oneshot.committee import Member
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.records import RoundRecord
from secagg.storage import StoredStateError
from tests.doubles.refused import refused

V = 20.0
MEMBERS = tuple(
    Member.sign(kit.identity("member", i), kit.SESSION, kit.sealing("member", i).public, 0, 10**6)
    for i in range(6)
)
COMMITTEE = dataclasses.replace(kit.committee(6), members=MEMBERS)
ALL = (0, 1, 2, 3, 4, 5)


def record(number: int, entered: tuple[int, ...] = ALL, returned: Any = ()) -> RoundRecord:
    return RoundRecord(number, 5, entered, returned)


def round_of(number: int, *records: RoundRecord, **changes: Any) -> OneShotContext:
    """A round that follows these records."""
    terms = {"returning": bool(records), "records": records}
    uploads = kit.uploads(**{**terms, **changes.pop("uploads", {})})
    return kit.adding(uploads, round_number=number, committee=COMMITTEE, **changes)


def seed(number: int) -> NoiseSeed:
    return NoiseSeed(kit.secret("noise", number))


@pytest.fixture(params=["memory", "disk"])
def noise(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemberNoise]:
    if request.param == "memory":
        yield MemberNoise()
        return
    with StoredMemberNoise(tmp_path / "noise") as stored:
        yield stored


def play(
    noise: MemberNoise, context: OneShotContext, *, member: int = 0, signs: bool = True
) -> AddedNoise | None:
    """One round of a member, as `RoundMember` goes about it; gives what it took back."""
    noise.begin(context)
    taken = noise.may_take_back(context, member, V)
    noise.add(context, V, seed(context.round_number))
    if signs:
        noise.sign(context, record(context.round_number))
    return taken


# -- the order of rounds --------------------------------------------------------------------------


def test_noise_of_the_last_record_comes_back(noise: MemberNoise) -> None:
    assert play(noise, round_of(0)) is None
    assert play(noise, round_of(1, record(0))) == AddedNoise(0, V, seed(0).material)
    assert play(noise, round_of(4, record(0), record(1))) == AddedNoise(1, V, seed(1).material)


@pytest.mark.parametrize("number", [0, 2, 3])
def test_rounds_follow_one_another(noise: MemberNoise, number: int) -> None:
    noise.begin(round_of(3))
    with pytest.raises(PolicyError, match=r"4 \.\. 1027") as raised:
        noise.begin(round_of(number))
    assert raised.value.parameter == "round_number"
    noise.begin(round_of(4))


@pytest.mark.parametrize("records", [(), (5,)], ids=["none", "made up"])
def test_nobody_uses_up_all_numbers(noise: MemberNoise, records: tuple[int, ...]) -> None:
    """Neither with a record that the member has not signed for."""
    told, highest = [record(each) for each in records], LARGEST_GAP - 1
    with pytest.raises(PolicyError, match="rounds of a run follow one another"):
        noise.begin(round_of(highest + 1, *told))
    noise.begin(round_of(highest, *told))
    # What was refused has used up nothing, and the gap is counted from the last that was begun.
    noise.begin(round_of(highest + LARGEST_GAP, *told))


def test_a_round_is_signed_for_while_it_is_the_last(noise: MemberNoise) -> None:
    first, second = round_of(0), round_of(1)
    noise.begin(first)
    noise.require_last(first)
    noise.begin(second)
    for late in (lambda: noise.require_last(first), lambda: noise.sign(first, record(0))):
        with refused(PolicyError, "round_number"):
            late()
    noise.sign(second, record(1))


def test_runs_are_apart(noise: MemberNoise) -> None:
    play(noise, round_of(5))
    other = tuple(
        Member.sign(kit.identity("member", i), b"s" * 16, each.sealing_key, 0, 9)
        for i, each in enumerate(MEMBERS)
    )
    committee = dataclasses.replace(COMMITTEE, members=other)
    context = kit.adding(kit.uploads(), session_id=b"s" * 16, committee=committee, round_number=0)
    noise.begin(context)
    assert noise.may_take_back(context, 0, V) is None


# -- the chain ------------------------------------------------------------------------------------


def test_no_list_without_what_was_signed(noise: MemberNoise) -> None:
    play(noise, round_of(0))
    with refused(PolicyError, "records"):
        noise.begin(round_of(1))
    for other in (record(0, (0, 1, 2, 3)), dataclasses.replace(record(0), clients=4)):
        with pytest.raises(PolicyError, match="first 1 records"):
            noise.begin(round_of(1, other))
    play(noise, round_of(1, record(0)), signs=False)
    # A round that others signed for, and this member did not, is believed.
    noise.begin(round_of(3, record(0), record(1, (1, 2, 3, 4)), record(2)))
    with pytest.raises(PolicyError, match="first 1 records"):
        noise.begin(round_of(4, record(1), record(2)))


@pytest.mark.parametrize(
    "changes", [{"uploads": {"block": bytes(32)}}, {"length": 8}, {"uploads": {"fewest": 5}}]
)
def test_a_run_keeps_its_terms_from_the_first_round_that_was_begun(
    noise: MemberNoise, changes: dict[str, Any]
) -> None:
    """Else noise could go in under terms that nobody signed for, and come back under others."""
    noise.begin(round_of(0))
    with refused(PolicyError, "records"):
        noise.begin(round_of(1, **changes))
    noise.begin(round_of(1))


def test_a_member_that_comes_late_believes_the_list(noise: MemberNoise) -> None:
    told = [record(0), record(1), record(3)]
    noise.begin(round_of(7, *told))
    assert noise.may_take_back(round_of(7, *told), 0, V) is None
    # From here on it holds on to the terms.
    with pytest.raises(PolicyError):
        noise.begin(round_of(8, *told, uploads={"block": bytes(32)}))


# -- what comes back ------------------------------------------------------------------------------


def test_only_noise_that_is_listed_comes_back(noise: MemberNoise) -> None:
    play(noise, round_of(0), signs=False)
    context = round_of(1, record(0, (1, 2, 3, 4)))
    noise.begin(context)
    assert noise.may_take_back(context, 0, V) is None
    # Of another index than this member's own it would be given: the caller knows its own.
    assert noise.may_take_back(context, 1, V) is not None


def test_noise_of_another_variance_does_not_come_back(noise: MemberNoise) -> None:
    play(noise, round_of(0))
    context = round_of(1, record(0))
    noise.begin(context)
    for other in (V / 2, 2 * V, np.nextafter(V, 0.0)):
        assert noise.may_take_back(context, 0, other) is None
    assert noise.may_take_back(context, 0, V) is not None


def test_nothing_comes_back_in_a_round_that_says_so(noise: MemberNoise) -> None:
    play(noise, round_of(0))
    context = round_of(1, record(0), uploads={"returning": False})
    noise.begin(context)
    assert noise.may_take_back(context, 0, V) is None


def test_nothing_comes_back_to_a_round_without_members_uploads(noise: MemberNoise) -> None:
    assert noise.may_take_back(kit.context(), 0, V) is None


def test_an_attempt_that_nobody_signed_for_costs_no_return(noise: MemberNoise) -> None:
    """Round 1 ended before its proposal: the next list does not have it."""
    play(noise, round_of(0))
    first = AddedNoise(0, V, seed(0).material)
    assert play(noise, round_of(1, record(0)), signs=False) == first
    assert play(noise, round_of(2, record(0))) == first
    # Now round 2 is in the list, and round 0's noise is gone for good.
    assert play(noise, round_of(3, record(0), record(2))) == AddedNoise(2, V, seed(2).material)
    assert [each.round_number for each in held(noise).added] == [2, 3]


def held(noise: MemberNoise) -> Any:
    return noise._read(kit.SESSION)


def test_noise_whose_record_is_not_the_last_is_forgotten(noise: MemberNoise) -> None:
    play(noise, round_of(0))
    # Round 1 was signed for by others; this member was away.
    noise.begin(round_of(2, record(0), record(1, (1, 2, 3, 4))))
    assert held(noise).added == ()


def test_noise_goes_in_once(noise: MemberNoise) -> None:
    context = round_of(0)
    with pytest.raises(LocalProtocolError, match="when the round has begun"):
        noise.add(context, V, seed(0))
    noise.begin(context)
    noise.add(context, V, seed(0))
    with pytest.raises(LocalProtocolError, match="once"):
        noise.add(context, V, seed(1))
    with pytest.raises(LocalProtocolError):
        noise.add(round_of(1), V, seed(1))
    assert held(noise).added == (AddedNoise(0, V, seed(0).material),)


# A schedule of a run: what the server announces in every round, and what becomes of it. Rounds that
# were proposed are in all lists that come after; no sum of any other is opened.
STEPS = st.lists(
    st.tuples(
        st.booleans(),  # this member is there
        st.booleans(),  # its upload arrives
        st.booleans(),  # somebody signs for the round
        st.booleans(),  # this member does
        st.integers(1, 3),
    ),
    max_size=12,
)


def opened_noise(steps: Any) -> dict[int, list[int]]:
    """By round whose noise it is: how often it is in all sums that may be opened, with its sign."""
    noise, told, number = MemberNoise(), [], 0
    found: dict[int, list[int]] = {}
    for present, arrives, proposed, signs, skip in steps:
        number += skip
        before = tuple(told)
        context = round_of(number, *before)
        entered, returned = (1, 2, 3, 4), ()
        if present:
            noise.begin(context)
            taken = noise.may_take_back(context, 0, V)
            noise.add(context, V, seed(number))
            if arrives and proposed:
                found.setdefault(number, []).append(1)
                entered = (0, 1, 2, 3, 4)
                if taken is not None:
                    found.setdefault(taken.round_number, []).append(-1)
                    returned = (0,)
        if proposed:
            row = record(number, entered, returned)
            if present and signs:
                noise.sign(context, row)
            told.append(row)
    return found


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_in_any_schedule_noise_goes_in_once_and_comes_back_at_most_once(steps: Any) -> None:
    assert all(signs in ([1], [1, -1]) for signs in opened_noise(steps).values())


def test_noise_comes_back_when_all_goes_well() -> None:
    assert opened_noise([(True, True, True, True, 1)] * 3) == {1: [1, -1], 2: [1, -1], 3: [1]}


# -- one memory, in one place ---------------------------------------------------------------------


def test_it_is_neither_copied_nor_pickled(noise: MemberNoise) -> None:
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="comes back only once"):
            copied(noise)


def test_of_threads_that_begin_one_round_one_succeeds(noise: MemberNoise) -> None:
    context, barrier, won = round_of(0), threading.Barrier(6), []

    def one(number: int) -> None:
        barrier.wait()
        try:
            noise.begin(context)
        except PolicyError:
            return
        won.append(number)

    threads = [threading.Thread(target=one, args=(i,)) for i in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(won) == 1


# -- the vector -----------------------------------------------------------------------------------


def test_the_vector_is_what_is_added_less_what_is_taken_back() -> None:
    field = PrimeField(16)
    added, taken = AddedNoise(1, V, seed(1).material), AddedNoise(0, V, seed(0).material)
    draws = [
        sample_law(DiscreteGaussianLaw(V), NoiseSeed(each.seed), 500) for each in (added, taken)
    ]
    alone, both = noise_vector(field, 500, added, None), noise_vector(field, 500, added, taken)
    assert np.array_equal(centre(alone), draws[0])
    assert np.array_equal(centre(both), draws[0] - draws[1])
    # What goes in comes out: the two uploads add up to the second round's own.
    assert np.array_equal(centre(alone) + centre(both), 2 * draws[0] - draws[1])


def test_noise_that_goes_too_far_wraps_as_the_sum_does() -> None:
    """No upload is refused for what was drawn."""
    field = PrimeField(8)
    added = AddedNoise(1, 1e6, seed(1).material)
    draws = sample_law(DiscreteGaussianLaw(1e6), seed(1), 300)
    found = noise_vector(field, 300, added, None)
    assert isinstance(found, FieldVector)
    assert np.abs(draws).max() > 3 * field.modulus
    assert np.array_equal(found.elements, draws % field.modulus)


# -- on disk --------------------------------------------------------------------------------------


def test_it_goes_on_after_a_restart(tmp_path: Path) -> None:
    for number in range(4):
        told = [record(each) for each in range(number)]
        with StoredMemberNoise(tmp_path) as noise:
            taken = play(noise, round_of(number, *told))
        assert taken == (AddedNoise(number - 1, V, seed(number - 1).material) if number else None)
    with StoredMemberNoise(tmp_path) as noise:
        for other in (round_of(3, *told), round_of(5, *told)):
            with pytest.raises(PolicyError):
                noise.begin(other)


def test_two_processes_do_not_have_it_at_once(tmp_path: Path) -> None:
    with StoredMemberNoise(tmp_path):
        with pytest.raises(StoredStateError, match="another process"):
            StoredMemberNoise(tmp_path)
    first = StoredMemberNoise(tmp_path)
    first.close()
    first.close()
    with pytest.raises(StoredStateError, match="closed"):
        first.begin(round_of(0))
    with StoredMemberNoise(tmp_path) as second:
        second.begin(round_of(0))


def test_a_damaged_memory_is_refused(tmp_path: Path) -> None:
    """Any byte of it: one that counts rounds could make the member sign twice."""
    following = round_of(1, record(0))
    with StoredMemberNoise(tmp_path) as noise:
        play(noise, round_of(0))
        path = tmp_path / kit.SESSION.hex()
        whole = path.read_bytes()
        changed = [
            whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
            for place in range(len(whole))
        ]
        shorter = [whole[:size] for size in range(len(whole))]
        for damaged in (*changed, *shorter, whole + b"\0", bytes(len(whole))):
            path.write_bytes(damaged)
            with pytest.raises(StoredStateError):
                noise.begin(following)
            assert path.read_bytes() == damaged
        for other in ((1, 2, 3), (0, 1, b"", [(0, V)]), (0, 1, b"", [], 5), {"begun": 1}):
            encoded = msgspec.msgpack.encode(other)
            path.write_bytes(whole[:1] + hashlib.sha256(encoded).digest() + encoded)
            with pytest.raises(StoredStateError, match="damaged"):
                noise.begin(following)
        path.write_bytes(whole)
        noise.begin(following)


def test_what_was_written_over_is_gone(tmp_path: Path) -> None:
    """Who holds the old file open reads zeros: a seed is not left behind in a deleted file."""
    with StoredMemberNoise(tmp_path) as noise:
        play(noise, round_of(0))
        path = tmp_path / kit.SESSION.hex()
        with path.open("rb") as old:
            assert seed(0).material in old.read()
            play(noise, round_of(1, record(0)))
            old.seek(0)
            assert set(old.read()) == {0}
        assert seed(0).material in path.read_bytes()
        play(noise, round_of(2, record(0), record(1)))
        assert seed(0).material not in path.read_bytes()
        assert [each.name for each in sorted(tmp_path.iterdir())] == [kit.SESSION.hex(), "lock"]
        assert path.stat().st_mode & 0o077 == 0


def test_what_was_never_put_in_place_is_gone_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / (kit.SESSION.hex() + ".new")
    with StoredMemberNoise(tmp_path) as noise:
        noise.begin(round_of(0))
        with monkeypatch.context() as patched:
            die_at(patched, "replace")
            with pytest.raises(KilledError):
                noise.add(round_of(0), V, seed(0))
    with StoredMemberNoise(tmp_path) as noise, path.open("rb") as left:
        assert seed(0).material in left.read()
        noise.add(round_of(0), V, seed(1))
        left.seek(0)
        assert set(left.read()) == {0}
        assert not path.exists()


class KilledError(Exception):
    """The host died."""


WRITES = ("write_durably", "replace", "sync_folder", "overwrite")


@pytest.mark.parametrize("at", WRITES)
@pytest.mark.parametrize("step", ["begin", "add", "sign"])
def test_a_crash_at_any_write_leaves_the_old_memory_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, at: str
) -> None:
    """Nothing leaves before the call returns, so either is right."""
    context = round_of(1, record(0))
    steps: dict[str, Callable[[MemberNoise], object]] = {
        "begin": lambda noise: noise.begin(context),
        "add": lambda noise: noise.add(context, V, seed(1)),
        "sign": lambda noise: noise.sign(context, record(1)),
    }
    with StoredMemberNoise(tmp_path) as noise:
        play(noise, round_of(0))
        for name, act in steps.items():
            before = held(noise)
            if name != step:
                act(noise)
                continue
            with monkeypatch.context() as patched:
                die_at(patched, at)
                with pytest.raises(KilledError):
                    act(noise)
            break
    with StoredMemberNoise(tmp_path) as noise:
        after = held(noise)
        is_old = after == before
        assert is_old == (at in WRITES[:2])
        if is_old:
            act(noise)
        names = list(steps)
        for name in names[names.index(step) + 1 :]:
            steps[name](noise)
        assert held(noise).records == 2
        taken = noise.may_take_back(context, 0, V)
        assert taken == AddedNoise(0, V, seed(0).material)
        assert not (tmp_path / kit.SESSION.hex()).with_suffix(".new").exists()


def die_at(patched: pytest.MonkeyPatch, at: str) -> None:
    """Die instead of one of the writes; `overwrite` is the second durable one."""
    writes = iter(range(10))
    inner = module.write_durably

    def write(descriptor: int, data: bytes) -> None:
        if next(writes) == (at == "overwrite"):
            # A part of it is on disk.
            os.write(descriptor, data[: len(data) // 2])
            os.close(descriptor)
            raise KilledError
        inner(descriptor, data)

    def die(*_: Any) -> None:
        raise KilledError

    if at == "replace":
        patched.setattr(Path, "replace", die)
    elif at == "sync_folder":
        patched.setattr(module, "sync_folder", die)
    else:
        patched.setattr(module, "write_durably", write)
