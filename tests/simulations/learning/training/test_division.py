"""Chunks dealt out by predicted cost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulations.learning.training import LocalTraining, chunks_of
from simulations.learning.training.division import ENCODING, divide, training_cost

costs = st.lists(st.floats(0.0, 1e6), max_size=40)


@given(costs=costs, ranks=st.integers(1, 9))
def test_every_chunk_is_dealt_once_and_nobody_has_much_more(costs: list[float], ranks: int) -> None:
    dealt = divide(costs, ranks)
    assert len(dealt) == ranks
    assert sorted(place for own in dealt for place in own) == list(range(len(costs)))
    assert all(own == sorted(own) for own in dealt)
    loads = [sum(costs[place] for place in own) for own in dealt]
    # Graham 1969: at most the best division, which is at least the mean and the dearest chunk.
    bound = max([sum(costs) / ranks, *costs]) * 4 / 3 + 1e-6
    if len(costs) > ranks:
        bound = max(bound, sum(costs) / ranks + max(costs, default=0.0) + 1e-6)
    assert max(loads) <= bound
    assert divide(costs, ranks) == dealt


def test_dear_chunks_come_first() -> None:
    assert divide([1.0, 1.0, 1.0, 3.0], 2) == [[3], [0, 1, 2]]


def test_cost_is_counted_in_examples() -> None:
    members = [np.arange(5), np.arange(12)]
    steps = LocalTraining(learning_rate=0.1, steps=3, batch_size=4)
    assert training_cost(members, steps) == 2 * ENCODING + 3 * 4 + 3 * 4
    passes = LocalTraining(learning_rate=0.1, epochs=2, batch_size=4)
    assert training_cost(members, passes) == 2 * ENCODING + 2 * 2 * 4 + 2 * 3 * 4


@pytest.mark.parametrize(
    ("clients", "chunk", "expected"),
    [(5, 2, [range(2), range(2, 4), range(4, 5)]), (2, 9, [range(2)]), (3, 3, [range(3)])],
)
def test_chunks_cover_a_cohort(clients: int, chunk: int, expected: list[range]) -> None:
    assert chunks_of(clients, 10, chunk) == expected


@pytest.mark.parametrize(
    ("clients", "dimension", "sizes"),
    [
        *((64, 10, {16}), (64, 50_890, {16}), (165, 50_890, {20, 21}), (257, 10, {32, 33})),
        # Fewer clients than 16 are not worth a chunk of their own, but where they fill memory.
        *((3, 10, {3}), (25, 10, {25}), (40, 10, {20}), (9, 10**9, {1})),
    ],
)
def test_up_to_four_ranks_get_equal_parts_of_a_cohort(
    clients: int, dimension: int, sizes: set[int]
) -> None:
    chunks = chunks_of(clients, dimension)
    assert [client for chunk in chunks for client in chunk] == list(range(clients))
    assert set(map(len, chunks)) == sizes
    assert len(chunks) % 4 == 0 or clients == len(chunks) or clients < 64
