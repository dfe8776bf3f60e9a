"""A cohort divided among ranks: the sum of one process, bit for bit, whoever is lost."""

from __future__ import annotations

import numpy as np
import pytest
from rank_doubles import on_ranks
from round_kit import make_setup, noise, updates

from dp import NoiseSeed
from protocol.exchange.aggregators import IdealAggregator
from protocol.exchange.ranks import ALONE, Ranks, add_in_field
from protocol.exchange.stages import RoundOutcome
from protocol.round.losses import Stage
from protocol.round.pipeline import Pipeline
from secagg import PrimeField, TooFewSurvivorsError

REFUSED = 4


def removable(index: int, count: int) -> list[NoiseSeed]:
    return [NoiseSeed(bytes([index, which]) * 16) for which in range(count)]


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("refusing", [False, True])
@pytest.mark.parametrize("lost", [{}, {1: Stage.INPUT}, {2: Stage.UNMASK}])
def test_the_sum_and_what_it_says_are_those_of_one_process(
    size: int, removed: bool, refusing: bool, lost: dict[int, Stage]
) -> None:
    setup = make_setup(removable=removed)

    def given(index: int) -> np.ndarray:
        update = updates(index).copy()
        if refusing and index == REFUSED:
            update[0] = np.nan
        return update

    def work(ranks: Ranks) -> tuple[RoundOutcome, list[int], list[tuple[int, ...]]]:
        ranks.take(range(ranks.rank, setup.context.size, ranks.size))
        asked: list[int] = []
        paid: list[tuple[int, ...]] = []

        def watched(index: int) -> np.ndarray:
            asked.append(index)
            return given(index)

        aggregator = IdealAggregator(removable, noise, ranks=ranks)
        return aggregator.run(setup, watched, lost, before_release=paid.append), asked, paid

    ((whole, everybody, paid_alone),) = on_ranks(1, work)
    told = on_ranks(size, work)
    assert sorted(index for _, asked, _ in told for index in asked) == everybody
    mean = Pipeline(setup).decode(whole.total, whole.surplus)
    assert bool(whole.refused) is refusing
    for outcome, _, paid in told:
        assert paid == paid_alone
        assert np.array_equal(outcome.total.vector.elements, whole.total.vector.elements)
        assert outcome.total.survivors == whole.total.survivors
        assert outcome.refused == whole.refused and outcome.bytes_up == whole.bytes_up
        decoded = Pipeline(setup).decode(outcome.total, outcome.surplus)
        assert np.array_equal(decoded.update, mean.update)
        assert (outcome.surplus is None) is not bool(whole.total.removed)


def test_a_sum_without_the_surplus_of_others_is_another() -> None:
    """The control: a rank that took off its own clients' noise alone would be seen."""
    setup = make_setup(removable=True)
    outcome = IdealAggregator(removable, noise).run(setup, updates, {})
    assert outcome.total.removed
    pipeline = Pipeline(setup)
    half = [outcome.total.removed[index] for index in outcome.total.survivors[::2]]
    partly = pipeline.surplus(half, setup.context.size - len(outcome.total.survivors))
    whole = pipeline.decode(outcome.total).update
    assert not np.array_equal(pipeline.decode(outcome.total, partly).update, whole)


def test_all_ranks_fail_where_one_process_would() -> None:
    setup = make_setup()

    def work(ranks: Ranks) -> str:
        ranks.take(range(ranks.rank, setup.context.size, ranks.size))
        lost = dict.fromkeys(range(1, setup.context.size), Stage.INPUT)
        with pytest.raises(TooFewSurvivorsError) as caught:
            IdealAggregator(removable, noise, ranks=ranks).run(setup, updates, lost)
        return str(caught.value)

    assert len(set(on_ranks(3, work))) == 1


@pytest.mark.parametrize("bits", [8, 31, 32, 60, 61, 62])
@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_field_elements_are_added_without_overflow(bits: int, size: int) -> None:
    """The largest elements of the largest fields, of more ranks than a word has room for."""
    field = PrimeField(bits)
    rows = np.random.default_rng(bits).integers(0, field.modulus, (size, 40))
    rows[:, :4] = field.modulus - 1
    parts = rows.astype(field.dtype)

    def work(ranks: Ranks) -> tuple[np.ndarray, np.ndarray]:
        other = np.array([ranks.rank - 5, 1])
        total, (others,) = add_in_field(ranks, field, parts[ranks.rank], other)
        return total, others

    expected = [sum(int(value) for value in column) % field.modulus for column in parts.T]
    for total, others in on_ranks(size, work):
        assert total.dtype == field.dtype and total.tolist() == expected
        assert others.tolist() == [sum(range(size)) - 5 * size, size]


def test_one_process_owns_everybody() -> None:
    ALONE.take([])
    assert ALONE.owns(7) and ALONE.gather("x") == ["x"] and ALONE.broadcast(3) == 3
    assert ALONE.swap([b"a"]) == [b"a"]
