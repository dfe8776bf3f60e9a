"""Whole rounds with random dropouts: the exact sum over U3, or a typed abort; never another sum."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg import Mode, TooFewSurvivorsError, lowest_threshold
from secagg.field import unpack
from secagg.messages import MaskedInput, UnmaskShares, decode_from_client
from secagg.reference import Stage


def compare_with_reference(kit: SimpleNamespace, cohort: object) -> str:
    """Run both; outcomes, masked vectors, unmask shares and sums must be equal."""
    try:
        reference = cohort.reference()
    except TooFewSurvivorsError as expected:
        with pytest.raises(TooFewSurvivorsError) as raised:
            cohort.run()
        assert str(raised.value) == str(expected)
        return "too few"
    total = cohort.run()
    assert not cohort.failed
    assert not cohort.refused
    assert total.survivors == reference.survivors
    assert tuple(total.vector.elements.tolist()) == reference.total
    assert total.vector.elements.tolist() == cohort.expected(total.survivors)
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
def test_round_without_dropouts_equals_reference(
    secagg_kit: SimpleNamespace, mode: Mode, bits: int
) -> None:
    cohort = secagg_kit.Cohort(secagg_kit.context(4, mode, bits=bits, length=11))
    assert compare_with_reference(secagg_kit, cohort) == "sum"


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("stage", list(Stage))
def test_one_client_may_drop_at_any_stage(
    secagg_kit: SimpleNamespace, mode: Mode, stage: Stage
) -> None:
    cohort = secagg_kit.Cohort(secagg_kit.context(5, mode), drops={2: stage})
    assert compare_with_reference(secagg_kit, cohort) == "sum"
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


@settings(max_examples=60, deadline=None)
@given(case=rounds())
def test_any_dropouts_give_the_exact_sum_or_a_typed_abort(
    secagg_kit: SimpleNamespace,
    case: tuple[int, Mode, dict[str, int], dict[int, Stage], bytes],
) -> None:
    n, mode, changes, drops, seed = case
    cohort = secagg_kit.Cohort(secagg_kit.context(n, mode, **changes), drops=drops, seed=seed)
    compare_with_reference(secagg_kit, cohort)


@pytest.mark.parametrize("mode", list(Mode))
def test_long_vectors_cross_keystream_chunks(secagg_kit: SimpleNamespace, mode: Mode) -> None:
    context = secagg_kit.context(4, mode, bits=24, length=150_001)
    cohort = secagg_kit.Cohort(context, drops={1: Stage.MASK})
    total = cohort.run()
    kept = cohort.inputs[[0, 2, 3]].astype(np.uint64)
    assert np.array_equal(total.vector.elements, kept.sum(axis=0) % context.field.modulus)


@pytest.mark.parametrize("mode", list(Mode))
def test_forty_clients_with_dropouts_at_every_stage(
    secagg_kit: SimpleNamespace, mode: Mode
) -> None:
    context = secagg_kit.context(40, mode, threshold=25)
    drops = {u: Stage(u % 5) for u in range(0, 40, 3)}
    cohort = secagg_kit.Cohort(context, drops=drops)
    total = cohort.run()
    assert total.survivors == tuple(u for u in range(40) if drops.get(u, 5) > Stage.MASK)
    assert total.vector.elements.tolist() == cohort.expected(total.survivors)


def test_inputs_of_zero_look_uniform_to_the_server(secagg_kit: SimpleNamespace) -> None:
    """The same inputs under other randomness give unrelated uploads."""
    uploads = []
    for seed in (b"one run", b"another"):
        cohort = secagg_kit.Cohort(secagg_kit.context(3, length=64), seed=seed)
        cohort.inputs[:] = 0
        cohort.run()
        uploads += [cohort.wire[Stage.MASK, secagg_kit.Direction.UP, u][-128:] for u in range(3)]
    assert len(set(uploads)) == 6
    # Six times 128 random bytes hold some byte 18 times with a chance below 1e-18.
    assert all(max(map(upload.count, range(256))) < 18 for upload in uploads)
