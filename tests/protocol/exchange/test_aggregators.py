"""The real protocol against the ideal functionality, and bad input on the way."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from round_kit import IDENTITIES, OPEN_POLICY, make_setup, noise, updates

from dp import NoiseSeed
from dp.mechanisms import DistributedMechanism
from protocol.exchange import aggregators
from protocol.exchange.aggregators import Aggregator, IdealAggregator, RealAggregator
from protocol.round.losses import Stage
from protocol.round.pipeline import Pipeline
from secagg import FieldVector, Mode, TooFewSurvivorsError

stages = st.sampled_from(list(Stage))
schedules = st.dictionaries(st.integers(0, 5), stages, max_size=5)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("size", [None, 60])
def test_real_and_ideal_agree_bit_for_bit(
    mode: Mode, size: int | None, mechanism: DistributedMechanism
) -> None:
    setup = make_setup(mode=mode, size=size, mechanism=mechanism)
    dropouts = {1: Stage.SHARE, 4: Stage.UNMASK}
    ideal = IdealAggregator(noise=noise).run(setup, updates, dropouts)
    real = RealAggregator(IDENTITIES, OPEN_POLICY, noise=noise).run(setup, updates, dropouts)
    assert real.total.survivors == ideal.total.survivors == (0, 2, 3, 4, 5)
    assert np.array_equal(real.total.vector.elements, ideal.total.vector.elements)
    assert real.refused == ideal.refused == {}


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    "dropouts",
    [
        {},
        {0: Stage.ADVERTISE},
        {1: Stage.SHARE, 4: Stage.UNMASK},
        {5: Stage.UNMASK, 3: Stage.RECOVER},
        {2: Stage.INPUT, 3: Stage.INPUT},
    ],
)
def test_they_agree_with_removable_noise(
    mode: Mode, dropouts: dict[int, Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removed by their owners or rebuilt from shares: the same noise stays, bit for bit."""
    setup = make_setup(mode=mode, removable=True)
    assert setup.context.seeds > 0
    drawn = []
    encode = Pipeline.encode

    def watched(
        pipeline: Pipeline, update: np.ndarray, seed: NoiseSeed, removable: list[NoiseSeed]
    ) -> FieldVector:
        drawn.append((update, removable))
        return encode(pipeline, update, seed, removable)

    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "encode", watched)
        real = RealAggregator(IDENTITIES, OPEN_POLICY, noise=noise).run(setup, updates, dropouts)

    def again(index: int, count: int) -> list[NoiseSeed]:
        (seeds,) = [seeds for update, seeds in drawn if np.array_equal(update, updates(index))]
        assert len(seeds) == count
        return seeds

    ideal = IdealAggregator(again, noise).run(setup, updates, dropouts)
    assert np.array_equal(real.total.vector.elements, ideal.total.vector.elements)
    assert real.total.removed == ideal.total.removed
    pipeline = Pipeline(setup)
    assert np.array_equal(pipeline.decode(real.total).update, pipeline.decode(ideal.total).update)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(dropouts=schedules, active=st.booleans())
def test_any_dropouts_give_the_ideal_sum_or_the_ideal_abort(
    dropouts: dict[int, Stage], active: bool
) -> None:
    setup = make_setup(mode=Mode.ACTIVE if active else Mode.SEMI_HONEST)
    real = RealAggregator(IDENTITIES, OPEN_POLICY, noise=noise)
    try:
        ideal = IdealAggregator(noise=noise).run(setup, updates, dropouts)
    except TooFewSurvivorsError:
        with pytest.raises(TooFewSurvivorsError):
            real.run(setup, updates, dropouts)
        return
    outcome = real.run(setup, updates, dropouts)
    assert outcome.total.survivors == ideal.total.survivors
    assert np.array_equal(outcome.total.vector.elements, ideal.total.vector.elements)


def test_too_few_survivors_names_stage_and_numbers() -> None:
    lost = dict.fromkeys(range(3), Stage.SHARE)
    with pytest.raises(TooFewSurvivorsError, match=r"share.*3 clients answered, 4 are needed"):
        IdealAggregator().run(make_setup(), updates, lost)


def test_bytes_are_counted_in_both_directions() -> None:
    setup = make_setup()
    outcome = RealAggregator(IDENTITIES, OPEN_POLICY).run(setup, updates, {0: Stage.ADVERTISE})
    packed = setup.context.field.packed_bytes(setup.context.length)
    assert outcome.bytes_up[0] == 0
    assert outcome.bytes_down[0] == len(setup.announce())
    assert all(outcome.bytes_up[i] > packed for i in range(1, 6))
    assert outcome.bytes_per_survivor() > packed


@pytest.mark.parametrize("long", [False, True])
def test_threads_encode_long_uploads_only(monkeypatch: pytest.MonkeyPatch, long: bool) -> None:
    setup, used = make_setup(), []
    limit = setup.context.length + (0 if long else 1)
    monkeypatch.setattr(aggregators, "WORTH_THREADS", limit)
    alone = IdealAggregator(noise=noise).run(setup, updates, {}).total
    with ThreadPoolExecutor(2, initializer=lambda: used.append("a thread")) as pool:
        spread = IdealAggregator(noise=noise, executor=pool).run(setup, updates, {}).total
    assert bool(used) == long
    assert np.array_equal(alone.vector.elements, spread.vector.elements)


@pytest.fixture(params=["ideal", "real"])
def make_aggregator(request: pytest.FixtureRequest) -> Callable[..., Aggregator]:
    real = partial(RealAggregator, IDENTITIES, OPEN_POLICY)
    return IdealAggregator if request.param == "ideal" else real


@pytest.fixture
def aggregator(make_aggregator: Callable[..., Aggregator]) -> Aggregator:
    return make_aggregator()


@pytest.mark.parametrize("bad", [np.full(200, np.nan), np.full(200, np.inf), np.zeros(199)])
def test_a_bad_update_loses_its_client_and_no_other(
    make_aggregator: Callable[..., Aggregator], bad: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(index: int) -> np.ndarray:
        return bad if index == 2 else updates(index)

    with monkeypatch.context() as blocks_of_two:
        blocks_of_two.setattr(aggregators, "BLOCK_SCALARS", 400)
        outcome = make_aggregator(noise=noise).run(make_setup(), poisoned, {})
    without = IdealAggregator(noise=noise).run(make_setup(), updates, {2: Stage.INPUT})
    assert outcome.total.survivors == (0, 1, 3, 4, 5)
    assert np.array_equal(outcome.total.vector.elements, without.total.vector.elements)
    assert list(outcome.refused) == [2]
    assert "NaN or infinite" in outcome.refused[2] or "update" in outcome.refused[2]


def test_a_source_may_use_one_array_for_all_updates() -> None:
    """Several are encoded together, so none may be read after the next one was asked for."""
    array = np.empty(200, np.float64)

    def reused(index: int) -> np.ndarray:
        array[:] = updates(index) / 100
        return array

    one = IdealAggregator(noise=noise).run(make_setup(), reused, {})
    each = IdealAggregator(noise=noise).run(make_setup(), lambda i: reused(i).copy(), {})
    assert np.array_equal(one.total.vector.elements, each.total.vector.elements)


def test_too_many_bad_updates_end_the_round_and_say_why(aggregator: Aggregator) -> None:
    calls = []
    with pytest.raises(TooFewSurvivorsError) as caught:
        aggregator.run(
            make_setup(), lambda _: np.full(200, np.nan), {}, before_release=calls.append
        )
    assert calls == []
    assert "party 0 was lost: 200 of 200 coordinates are NaN" in caught.value.__notes__[0]
    assert caught.value.__notes__[-1] == "... and 3 more were lost"


def test_a_mistake_in_the_program_is_not_hidden(aggregator: Aggregator) -> None:
    with pytest.raises(KeyError):
        aggregator.run(make_setup(), lambda index: {}[index], {})


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("stage", list(Stage))
def test_the_hook_is_called_once_iff_the_survivors_are_decided(
    aggregator: Aggregator, mode: Mode, stage: Stage
) -> None:
    """Five parties vanish at a stage: too late for the hook to be spared, or in time."""
    calls = []
    setup = make_setup(mode=mode)
    lost = dict.fromkeys(range(5), stage)
    ends_well = stage is Stage.RECOVER
    try:
        outcome = aggregator.run(setup, updates, lost, before_release=calls.append)
    except TooFewSurvivorsError:
        assert not ends_well
    else:
        assert ends_well and len(outcome.total.survivors) == 6
    assert [len(survivors) for survivors in calls] == ([6] if stage > Stage.INPUT else [])


def test_every_round_draws_fresh_noise(
    aggregator: Aggregator, mechanism: DistributedMechanism
) -> None:
    setups = [make_setup(round_number=number, mechanism=mechanism) for number in range(2)]
    sums = [aggregator.run(setup, updates, {}).total.vector.elements for setup in setups]
    # Noise of variance 151: most of 200 coordinates differ.
    assert np.count_nonzero(sums[0] != sums[1]) > 100


def test_an_identity_answers_a_round_once_in_its_life() -> None:
    real = RealAggregator(IDENTITIES, OPEN_POLICY)
    real.run(make_setup(), updates, {})
    with pytest.raises(TooFewSurvivorsError) as caught:
        real.run(make_setup(), updates, {})
    assert "round_number = 3" in caught.value.__notes__[0]
    real.run(make_setup(round_number=4), updates, {})
