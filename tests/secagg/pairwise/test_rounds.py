"""Whole rounds with random dropouts: the exact sum over U3, or a typed abort; never another sum."""

from __future__ import annotations

from typing import Any

import numpy as np
import pairwise_rounds as kit
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from secagg import Mode, Reason, RemoteProtocolError, TooFewSurvivorsError, lowest_threshold
from secagg.field import unpack
from secagg.framing import encode_set
from secagg.pairwise.messages import (
    ConfirmationSet,
    MaskedInput,
    SurvivorSet,
    UnmaskShares,
    context_tag,
    decode_from_client,
)
from secagg.pairwise.reference import Stage
from secagg.pairwise.transitions import ServerPhase


def compare_with_reference(cohort: object) -> str:
    """Run both; outcomes, masked vectors, unmask shares and sums must be equal."""
    try:
        reference = cohort.reference()
    except TooFewSurvivorsError as expected:
        with pytest.raises(TooFewSurvivorsError) as raised:
            cohort.run()
        if cohort.context.degree == 0:
            assert str(raised.value) == str(expected)
        # Owners have different holders: whose shares fall short depends on who is asked first.
        assert (raised.value.stage, raised.value.needed) == (expected.stage, expected.needed)
        assert cohort.server.phase is ServerPhase.ABORTED
        return "too few"
    total = cohort.run()
    assert not cohort.failed
    assert not cohort.refused
    assert total.survivors == reference.survivors
    assert tuple(total.vector.elements.tolist()) == reference.total
    assert total.vector.elements.tolist() == cohort.expected(total.survivors)
    assert total.removed == reference.seeds
    assert total.culprits == ()
    context = cohort.context
    masked, released = {}, {}
    for (stage, direction, u), data in cohort.wire.items():
        if direction is kit.Direction.DOWN:
            continue
        message = decode_from_client(data, u, len(data))
        if stage is Stage.MASK:
            assert isinstance(message, MaskedInput)
            vector = unpack(message.vector, context.length, context.field)
            masked[u] = tuple(vector.elements.tolist())
        if stage is Stage.UNMASK:
            assert isinstance(message, UnmaskShares)
            released[u] = message.shares
    assert masked == reference.masked
    assert released == reference.unmask_shares
    return "sum"


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("bits", [8, 13, 16, 17, 31, 32, 33, 62])
def test_round_without_dropouts_equals_reference(mode: Mode, bits: int) -> None:
    cohort = kit.Cohort(kit.context(4, mode, bits=bits, length=11))
    assert compare_with_reference(cohort) == "sum"


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("stage", list(Stage))
def test_one_client_may_drop_at_any_stage(mode: Mode, stage: Stage) -> None:
    cohort = kit.Cohort(kit.context(5, mode), drops={2: stage})
    assert compare_with_reference(cohort) == "sum"
    assert (2 in cohort.server.survivors) == (stage > Stage.MASK)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[int, Mode, dict[str, int], dict[int, Stage], bytes]:
    """Cohort size, mode, parameters, drop schedule, seed."""
    n = draw(st.integers(3, 8))
    mode = draw(st.sampled_from(Mode))
    threshold = draw(st.integers(lowest_threshold(n, 0, mode), n))
    changes = {
        "threshold": threshold,
        "minimum_survivors": draw(st.integers(threshold, n)),
        "bits": draw(st.sampled_from([8, 9, 16, 24, 31, 32, 41])),
        "length": draw(st.integers(1, 9)),
    }
    drops = draw(st.dictionaries(st.integers(0, n - 1), st.sampled_from(Stage), max_size=n))
    return n, mode, changes, drops, draw(st.binary(min_size=4, max_size=4))


@pytest.mark.parametrize("examples", [20, pytest.param(60, marks=pytest.mark.slow)])
def test_any_dropouts_give_the_exact_sum_or_a_typed_abort(examples: int) -> None:
    @settings(max_examples=examples)
    @given(case=rounds())
    def check(case: tuple[int, Mode, dict[str, int], dict[int, Stage], bytes]) -> None:
        n, mode, changes, drops, seed = case
        cohort = kit.Cohort(kit.context(n, mode, **changes), drops=drops, seed=seed)
        compare_with_reference(cohort)

    check()


@st.composite
def sparse_rounds(draw: st.DrawFn) -> tuple[int, Mode, dict[str, Any], dict[int, Stage], bytes]:
    """As `rounds`, on a graph of any feasible degree, with or without removable seeds."""
    n = draw(st.integers(6, 14))
    mode = draw(st.sampled_from(Mode))
    degree = draw(st.integers(1, (n - 2) // 2)) * 2
    colluders = draw(st.integers(0, 2))
    lowest = lowest_threshold(n, colluders, mode, degree)
    assume(lowest <= degree)
    threshold = draw(st.integers(lowest, degree))
    fewest = max(threshold + max(colluders, 1), n - degree + 1 + colluders)
    assume(fewest <= n)
    changes: dict[str, Any] = {
        "degree": degree,
        "threshold": threshold,
        "minimum_survivors": draw(st.integers(fewest, n)),
        "tolerated_colluders": colluders,
        "length": draw(st.integers(1, 4)),
    }
    if draw(st.booleans()):
        lost = n - changes["minimum_survivors"]
        masks = st.lists(st.integers(0, 7), min_size=lost + 1, max_size=n + 1)
        changes["removal"] = tuple(draw(masks))
    # Mostly few enough for a sum, sometimes too many.
    most = draw(st.sampled_from([0, 2, 4, n]))
    drops = draw(st.dictionaries(st.integers(0, n - 1), st.sampled_from(Stage), max_size=most))
    return n, mode, changes, drops, draw(st.binary(min_size=4, max_size=4))


@settings(max_examples=60, deadline=None)
@given(case=sparse_rounds())
def test_sparse_rounds_equal_the_reference(
    case: tuple[int, Mode, dict[str, Any], dict[int, Stage], bytes],
) -> None:
    n, mode, changes, drops, seed = case
    cohort = kit.Cohort(kit.context(n, mode, **changes), drops=drops, seed=seed)
    event(compare_with_reference(cohort))


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("removal", [(), (0b11, 0b10, 0b01)])
@pytest.mark.parametrize("stage", list(Stage))
def test_two_clients_may_drop_from_a_sparse_graph_at_any_stage(
    mode: Mode, removal: tuple[int, ...], stage: Stage
) -> None:
    context = kit.context(12, mode, degree=8, threshold=5, minimum_survivors=10, removal=removal)
    cohort = kit.Cohort(context, drops={2: stage, 9: stage})
    assert compare_with_reference(cohort) == "sum"
    assert (2 in cohort.server.survivors) == (stage > Stage.MASK)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_a_sparse_round_whose_roster_is_so_small_that_the_graph_is_complete(
    mode: Mode, lost: int
) -> None:
    context = kit.context(
        10, mode, degree=8, threshold=5, minimum_survivors=7, removal=(0b1, 0b10, 0b100, 0b111)
    )
    drops = dict.fromkeys(range(lost), Stage.ADVERTISE)
    cohort = kit.Cohort(context, drops=drops)
    assert compare_with_reference(cohort) == "sum"


def neighbourhood(context: Any, seed: bytes, u: int) -> tuple[int, ...]:
    """Client u's neighbours in a round in which everybody advertises."""
    cohort = kit.Cohort(context, seed=seed)
    cohort.run(until=Stage.SHARE)
    return cohort.server._checked_roster().graph.neighbours(u)


@pytest.mark.parametrize("removal", [(), (0b1,) * 9])
@pytest.mark.parametrize("silent", [3, 4])
def test_a_client_that_lost_too_many_neighbours_ends_the_round(
    silent: int, removal: tuple[int, ...]
) -> None:
    """Without enough holders of one self-mask seed there is no sum.

    With k = 8 and t = 5: whoever does not confirm does not release either, so with four of its
    eight holders silent the self-mask seed of a client cannot be rebuilt.
    """
    context = kit.context(16, degree=8, threshold=5, minimum_survivors=12, removal=removal)
    near = neighbourhood(context, b"quiet", 0)
    cohort = kit.Cohort(context, dict.fromkeys(near[:silent], Stage.CONFIRM), seed=b"quiet")
    reference: object
    try:
        reference = cohort.reference().total
    except TooFewSurvivorsError as error:
        reference = type(error)
    if silent == 3:
        total = cohort.run()
        assert (Stage.CONFIRM, kit.Direction.DOWN, 0) in cohort.wire
        assert tuple(total.vector.elements.tolist()) == reference
        assert total.vector.elements.tolist() == cohort.expected(range(16))
        assert set(total.removed) == (set(range(16)) if removal else set())
        return
    with pytest.raises(TooFewSurvivorsError) as raised:
        cohort.run()
    assert reference is TooFewSurvivorsError
    assert (raised.value.stage, raised.value.needed) == ("unmask", 5)
    assert cohort.server.phase is ServerPhase.ABORTED


def test_two_parts_of_a_ring_cannot_be_shown_different_survivors() -> None:
    """Each half of the ring is told that some of the other half are lost.

    Every client inside a half sees all of its neighbours sign its set, but no quorum of all clients
    does: nobody releases anything. With the neighbours' signatures alone a sum over fewer clients
    would open.
    """
    context = kit.context(24, degree=6, threshold=4, minimum_survivors=21)
    cohort = kit.Cohort(context)
    cohort.run(until=Stage.CONFIRM)
    ring = cohort.server._checked_roster().graph._ring
    halves = (ring[:12], ring[12:])
    signatures: dict[int, bytes] = {}
    views = []
    for half, other in (halves, halves[::-1]):
        view = encode_set(sorted(set(range(24)) - set(other[3:9:2])), 24)
        views.append(view)
        for u in half:
            answer = cohort.clients[u].receive(SurvivorSet(context_tag(context), view))
            signatures[u] = answer.signature
    assert views[0] != views[1]
    inner = 0
    for half in halves:
        signed = b"".join(signatures[u] for u in sorted(half))
        convince = ConfirmationSet(context_tag(context), encode_set(half, 24), signed)
        for u in half:
            inner += set(cohort.server._checked_roster().graph.neighbours(u)) <= set(half)
            with pytest.raises(RemoteProtocolError) as raised:
                cohort.clients[u].receive(convince)
            assert raised.value.reason in (Reason.MISSING_SIGNATURES, Reason.SET_NOT_NESTED)
    # Most clients are convinced by all of their neighbours, and yet refuse.
    assert inner >= 12


@pytest.mark.parametrize("size", [8, 9, 20, 21])
@pytest.mark.parametrize("colluders", [0, 1])
def test_two_quorums_share_an_honest_client(size: int, colluders: int) -> None:
    context = kit.context(
        size, degree=6, threshold=5, minimum_survivors=size - 1, tolerated_colluders=colluders
    )
    for members in range(7, size + 1):
        committee = context.committee(members)
        assert committee.size == members  # too few to draw a smaller one
        assert 2 * committee.quorum - members > colluders


@pytest.mark.parametrize("mode", list(Mode))
def test_long_vectors_cross_keystream_chunks(mode: Mode) -> None:
    context = kit.context(4, mode, bits=24, length=150_001)
    cohort = kit.Cohort(context, drops={1: Stage.MASK})
    total = cohort.run()
    kept = cohort.inputs[[0, 2, 3]].astype(np.uint64)
    assert np.array_equal(total.vector.elements, kept.sum(axis=0) % context.field.modulus)


@pytest.mark.parametrize("mode", list(Mode))
def test_forty_clients_with_dropouts_at_every_stage(mode: Mode) -> None:
    context = kit.context(40, mode, threshold=25)
    drops = {u: Stage(u % 5) for u in range(0, 40, 3)}
    cohort = kit.Cohort(context, drops=drops)
    total = cohort.run()
    assert total.survivors == tuple(u for u in range(40) if drops.get(u, 5) > Stage.MASK)
    assert total.vector.elements.tolist() == cohort.expected(total.survivors)


def test_inputs_of_zero_look_uniform_to_the_server() -> None:
    """The same inputs under other randomness give unrelated uploads."""
    uploads = []
    for seed in (b"one run", b"another"):
        cohort = kit.Cohort(kit.context(3, length=64), seed=seed)
        cohort.inputs[:] = 0
        cohort.run()
        uploads += [cohort.wire[Stage.MASK, kit.Direction.UP, u][-128:] for u in range(3)]
    assert len(set(uploads)) == 6
    # Six times 128 random bytes hold some byte 18 times with a chance below 1e-18.
    assert all(max(map(upload.count, range(256))) < 18 for upload in uploads)
