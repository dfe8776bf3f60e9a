"""Whole one-shot rounds: equal to the plain reference bit for bit, or a typed end; nothing else."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import one_shot_rounds as kit
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from one_shot_reference import (
    by_reference,
    check_answer,
    check_upload,
    quick_element,
    quick_product,
)

from secagg import SessionAbortedError, TooFewSurvivorsError
from secagg.oneshot import reference
from secagg.oneshot.committee import CommitteeKind, lowest_quorum, most_wrong_answers
from secagg.oneshot.context import fewest_survivors
from secagg.oneshot.key_entries import entries_for
from secagg.oneshot.messages import decode_from_member
from secagg.oneshot.opening import OpenedSum
from secagg.oneshot.packing import scale_for
from secagg.oneshot.transitions import ClientPhase, MemberPhase, ServerPhase

STAGES = ("check", "confirm", "open")


@dataclass(frozen=True)
class Losses:
    """Who is lost where."""

    clients: frozenset[int] = frozenset()
    members: tuple[frozenset[int], frozenset[int], frozenset[int]] = (frozenset(),) * 3
    liars: frozenset[int] = frozenset()


def lying(round_: kit.Round, member: int, data: bytes) -> bytes:
    """An answer with another first word of the sums, signed by the member that lies."""
    answer: Any = decode_from_member(data, member, len(data))
    word = (int.from_bytes(answer.sums[:4], "little") + 1 + member) % (2**31 - 1)
    sums = word.to_bytes(4, "little") + answer.sums[4:]
    return round_.answer(member, answer, sums=sums)


def run(round_: kit.Round, losses: Losses) -> tuple[OpenedSum, dict[int, bytes], dict[int, bytes]]:
    """A round with losses: its sum, and the bytes of uploads and of answers."""
    uploads = {i: round_.upload(i) for i in round_.clients}
    for i, data in uploads.items():
        if i not in losses.clients:
            round_.server.receive_upload(i, data)
    round_.seat()
    answers: dict[int, bytes] = {}
    gone: frozenset[int] = frozenset()
    for stage, away in zip(STAGES, losses.members, strict=True):
        gone |= away

        def passed(
            member: int, data: bytes, stage: str = stage, gone: Collection[int] = gone
        ) -> bytes | None:
            if member in gone:
                return None
            if stage == "open":
                answers[member] = data
                return lying(round_, member, data) if member in losses.liars else data
            return data

        round_.pass_on(passed)
    return round_.server.open(), uploads, answers


def compare_with_reference(round_: kit.Round, losses: Losses = Losses()) -> None:
    """Ciphertexts, seals, answers, sum and seeds are the reference's."""
    gone = frozenset().union(*losses.members)
    context = round_.context
    plain = by_reference(round_, losses.clients, gone)
    opened, uploads, answers = run(round_, losses)
    for client in plain.ciphertexts:
        check_upload(context, plain, client, uploads[client])
    for member in plain.answers:
        check_answer(context, plain, member, answers[member])
    assert answers.keys() == plain.answers.keys()
    modulus = context.field.modulus
    assert opened.vector.elements.tolist() == [x % modulus for x in plain.total]
    assert opened.vector.elements.tolist() == round_.expected(opened.survivors)
    assert opened.survivors == plain.survivors
    assert opened.removed == plain.seeds
    assert opened.wrong_members == tuple(sorted(losses.liars))
    assert (opened.culprits, opened.noisy) == ((), ())
    assert round_.server.phase is ServerPhase.FINISHED
    assert {round_.members[j].phase for j in answers} == {MemberPhase.FINISHED}
    assert {each.phase for each in round_.clients.values()} == {ClientPhase.UPLOADED}


# -- the reference and its quick steps ------------------------------------------------------------


def test_the_quick_product_is_the_one_on_paper() -> None:
    rng = np.random.default_rng(7)
    for n, q in ((4, 17), (64, 2**81 - 1), (128, 2**27 - 39)):
        a = [int(x) * int(y) % q for x, y in rng.integers(0, 2**62, (n, 2))]
        b = rng.integers(-84, 85, n).tolist()
        assert quick_product(a, b, q) == reference._negacyclic(a, b, q)


def test_the_quick_public_element_is_the_reference_s() -> None:
    context = kit.context()
    primes = reference._primes(1024, 1)
    assert quick_element(context, primes, 1) == reference._public_element(context, primes, 1)


def test_a_round_equals_the_reference_without_quick_steps() -> None:
    round_ = kit.Round(kit.context(3, 3, removal=(0b1, 0), tolerated_colluders=0))
    vectors = [[int(x) for x in round_.vector(i).elements] for i in range(3)]
    half = round_.context.field.modulus // 2
    plain = reference.run_one_shot(
        round_.context,
        [b"rounded %d" % i for i in range(3)],
        [[x - round_.context.field.modulus if x > half else x for x in each] for each in vectors],
        {1},
        (),
        [kit.Stream("client", i) for i in range(3)],
    )
    assert plain == by_reference(round_, {1})
    opened = round_.finish({1})
    assert opened.survivors == plain.survivors == (0, 2)
    assert opened.vector.elements.tolist() == [
        x % round_.context.field.modulus for x in plain.total
    ]


# -- chosen rounds --------------------------------------------------------------------------------


def test_a_round_without_losses() -> None:
    compare_with_reference(kit.Round(kit.context()))


@pytest.mark.parametrize("rounding_bits", [0, 3, 6])
def test_rounding(rounding_bits: int) -> None:
    compare_with_reference(kit.Round(kit.context(rounding_bits=rounding_bits, length=50)))


@pytest.mark.parametrize("entries", [1, 2, 3])
def test_several_key_entries_in_one_secret(entries: int) -> None:
    compare_with_reference(kit.Round(kit.context(entries=entries)))


def test_two_primes_and_several_blocks() -> None:
    context = kit.context(
        3, 5, degree=2048, limbs=2, bits=24, length=2 * 2048 + 77, entries=2, tolerated_colluders=0
    )
    assert context.packing.blocks(context.length) == 3
    compare_with_reference(kit.Round(context), Losses(frozenset({0})))


def test_a_coefficient_carries_several_coordinates() -> None:
    context = kit.context(degree=2048, limbs=2, bits=12, length=101, rounding_bits=3)
    assert context.packing.per > 1
    compare_with_reference(kit.Round(context))


@pytest.mark.parametrize("rounding_bits", [0, 3])
def test_the_middle_and_the_weak_ring(rounding_bits: int) -> None:
    for limbs, weak in ((3, False), (4, True)):
        context = kit.context(
            3, 3, degree=4096, limbs=limbs, bits=20, length=9, allow_weak=weak,
            rounding_bits=rounding_bits, entries=3, tolerated_colluders=0,
        )  # fmt: skip
        round_ = kit.Round(context)
        opened = round_.finish({1})
        assert opened.vector.elements.tolist() == round_.expected((0, 2))


@pytest.mark.parametrize("lost", [frozenset(), frozenset({0}), frozenset({1, 4})])
def test_surplus_seeds_are_given_up(lost: frozenset[int]) -> None:
    context = kit.context(6, 5, removal=(0b110, 0b10, 0b1))
    compare_with_reference(kit.Round(context), Losses(lost))


@pytest.mark.parametrize("per_polynomial", [1, 2, 9, 10])
def test_secrets_of_one_polynomial(per_polynomial: int) -> None:
    committee = kit.committee(per_polynomial + 3, per_polynomial=per_polynomial)
    context = kit.context(4, committee=committee, removal=(0b11, 0b1))
    compare_with_reference(kit.Round(context))


def test_everyone_is_a_member() -> None:
    committee = kit.committee(5, "client", kind=CommitteeKind.EVERYONE)
    context = kit.context(5, committee=committee, removal=(0b11, 0b1))
    everybody = kit.Round(context)
    compare_with_reference(everybody, Losses(frozenset({2}), (frozenset({2}),) * 3))


# -- losses at every step -------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(3), ids=STAGES)
def test_a_member_may_be_lost_at_any_stage(at: int) -> None:
    members = tuple(frozenset({4}) if stage == at else frozenset() for stage in range(3))
    compare_with_reference(kit.Round(kit.context()), Losses(members=members))  # type: ignore[arg-type]


@pytest.mark.parametrize("at", range(3), ids=STAGES)
def test_too_many_members_lost_release_nothing(at: int) -> None:
    """Seven members, threshold 4, quorum 5: three lost ones are one too many to sign."""
    committee = kit.committee(7, per_polynomial=3)
    assert (committee.threshold, committee.quorum) == (4, 5)
    round_ = kit.Round(kit.context(committee=committee))
    lost = range(3) if at < 2 else range(4)
    round_.collect()
    for _ in range(at):
        round_.pass_on()
    round_.pass_on(lambda member, data: None if member in lost else data)
    with pytest.raises(TooFewSurvivorsError) as raised:
        round_.server.open() if at == 2 else list(round_.server.close_round())
    needed = 5 if at < 2 else 4
    assert (raised.value.stage, raised.value.survivors, raised.value.needed) == (
        STAGES[at],
        7 - len(lost),
        needed,
    )
    assert round_.server.phase is ServerPhase.ABORTED
    with pytest.raises(SessionAbortedError):
        round_.server.open()


def test_the_threshold_counts_where_it_is_above_the_quorum() -> None:
    committee = kit.committee(7, per_polynomial=6)
    assert (committee.threshold, committee.quorum) == (7, 5)
    for at in range(2):
        round_ = kit.Round(kit.context(committee=committee))
        round_.collect()
        for _ in range(at):
            round_.pass_on()
        round_.pass_on(lambda member, data: data if member else None)
        with pytest.raises(TooFewSurvivorsError) as raised:
            list(round_.server.close_round())
        assert (raised.value.survivors, raised.value.needed) == (6, 7)


def test_too_few_uploads_release_nothing() -> None:
    """Five clients, one colluder: four must be left."""
    round_ = kit.Round(kit.context())
    round_.collect({0, 1})
    with pytest.raises(TooFewSurvivorsError) as raised:
        round_.server.close_round()
    assert (raised.value.stage, raised.value.survivors, raised.value.needed) == ("upload", 3, 4)
    assert round_.server.phase is ServerPhase.ABORTED
    with pytest.raises(SessionAbortedError):
        round_.server.receive_upload(0, round_.clients[0].resend_bytes())


def test_too_few_uploads_without_complaints_release_nothing() -> None:
    round_ = kit.Round(kit.context())
    round_.collect({0})
    damaged = {1: {2}, 3: {2}}
    round_.check(damaged)
    with pytest.raises(TooFewSurvivorsError) as raised:
        round_.server.close_round()
    assert (raised.value.stage, raised.value.survivors, raised.value.needed) == ("check", 3, 4)
    assert (round_.server.phase, round_.server.survivors) == (ServerPhase.ABORTED, (1, 3, 4))


def test_a_client_with_complaints_is_left_out_and_named() -> None:
    """Its ciphertext comes off the sum again; so does nobody else's."""
    round_ = kit.Round(kit.context(length=40, rounding_bits=3))
    round_.collect()
    round_.check({1: {2}, 3: {2}})
    round_.pass_on()
    round_.pass_on()
    opened = round_.server.open()
    assert round_.server.excluded == (2,)
    assert opened.survivors == (0, 1, 3, 4)
    assert opened.vector.elements.tolist() == round_.expected(opened.survivors)


def test_a_member_that_complains_about_everybody_is_left_out() -> None:
    round_ = kit.Round(kit.context())
    round_.collect()
    round_.check({1: {0, 1, 2, 3, 4}})
    round_.pass_on()
    assert sorted(round_.sent) == [0, 2, 3, 4, 5]
    round_.pass_on()
    assert round_.server.open().survivors == (0, 1, 2, 3, 4)
    assert round_.server.excluded == ()


# -- any round ------------------------------------------------------------------------------------


@st.composite
def rounds(draw: st.DrawFn) -> tuple[kit.Round, Losses]:
    """A feasible small round, inputs whose sum does not wrap, and losses that it stands."""
    n = draw(st.integers(3, 6))
    colluders = draw(st.integers(0, (n - 3) // 2))
    fewest = draw(st.integers(fewest_survivors(n, colluders), n))
    size = draw(st.integers(2, 8))
    corrupt = draw(st.integers(0, (size - 1) // 3))
    randomness = draw(st.integers(max(corrupt, 1), max(corrupt, size // 2, 1)))
    per_polynomial = draw(st.integers(1, size - randomness))
    quorum = draw(st.integers(lowest_quorum(size, corrupt), size))
    degree, limbs = draw(st.sampled_from([(1024, 1), (1024, 1), (2048, 2)]))
    rounding_bits = draw(st.sampled_from([0, 3, 6]))
    room = 27 * limbs - 1 - scale_for(n, rounding_bits).bit_length()
    bits = draw(st.integers(8, room))
    terms = {
        "minimum_survivors": fewest,
        "tolerated_colluders": colluders,
        "committee": kit.committee(
            size,
            corrupt=corrupt,
            randomness=randomness,
            per_polynomial=per_polynomial,
            quorum=quorum,
        ),
        "degree": degree,
        "limbs": limbs,
        "rounding_bits": rounding_bits,
        "entries": draw(st.integers(1, min(entries_for(n), 3))),
        "bits": bits,
        "removal": draw(
            st.one_of(
                st.just(()),
                st.lists(st.integers(0, 7), min_size=n - fewest + 1, max_size=n - fewest + 1),
            ).map(tuple)
        ),
        "round_number": draw(st.integers(0, 9)),
    }
    per = kit.context(n, **terms).packing.per
    blocks = draw(st.sampled_from([0, 0, 0, 1, 2]))
    length = blocks * degree * per + draw(st.integers(1, 3 * per))
    context = kit.context(n, **terms, length=length)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    most = context.field.largest_centred // n
    inputs = rng.integers(-most, most + 1, (n, length)).tolist()

    lost = draw(st.sets(st.integers(0, n - 1), max_size=n - fewest))
    stay = max(quorum, per_polynomial + randomness)
    order = draw(st.permutations(range(size)))
    gone = order[: draw(st.integers(0, size - stay))]
    at = [draw(st.integers(0, 2)) for _ in gone]
    members = tuple(
        frozenset(j for j, when in zip(gone, at, strict=True) if when == stage)
        for stage in range(3)
    )
    left = [j for j in order if j not in gone]
    radius = most_wrong_answers(len(left), per_polynomial + randomness)
    liars = left[: draw(st.integers(0, radius))]
    losses = Losses(frozenset(lost), members, frozenset(liars))  # type: ignore[arg-type]
    return kit.Round(context, inputs=inputs), losses


@pytest.mark.parametrize("examples", [5, pytest.param(30, marks=pytest.mark.slow)])
def test_any_round_equals_the_reference(examples: int) -> None:
    @settings(max_examples=examples)
    @given(case=rounds())
    def check(case: tuple[kit.Round, Losses]) -> None:
        round_, losses = case
        context = round_.context
        event(f"degree {context.degree}, {context.limbs} primes, rounding {context.rounding_bits}")
        event(f"blocks {context.packing.blocks(context.length)}, entries {context.entries}")
        event(f"lost {bool(losses.clients)}, away {any(losses.members)}, lies {bool(losses.liars)}")
        compare_with_reference(round_, losses)

    check()


@settings(max_examples=10)
@given(
    st.data(),
    st.sampled_from([0, 3]),
    st.integers(1, 3),
)
def test_a_sum_that_wraps_equals_the_reference(
    data: st.DataObject, rounding_bits: int, per: int
) -> None:
    """Digits that are too large move their neighbour, in both in the same way."""
    bits = {1: 14, 2: 16, 3: 12}[per]
    degree, limbs = (1024, 1) if per == 1 else (2048, 2)
    context = kit.context(
        3, 3, degree=degree, limbs=limbs, bits=bits, length=2 * per, tolerated_colluders=0,
        rounding_bits=rounding_bits,
    )  # fmt: skip
    half = context.field.largest_centred
    # The highest digit of a coefficient stays small: beyond it the integer itself would wrap.
    high = context.packing.per - 1
    inputs = [
        [
            data.draw(st.integers(-(half // 3), half // 3) if i % (high + 1) == high else
                      st.integers(-half, half))
            for i in range(context.length)
        ]
        for _ in range(3)
    ]  # fmt: skip
    round_ = kit.Round(context, inputs=inputs)
    plain = by_reference(round_)
    opened = round_.finish()
    assert opened.vector.elements.tolist() == [x % context.field.modulus for x in plain.total]
    event(f"wraps {opened.vector.elements.tolist() != round_.expected((0, 1, 2))}")
