"""Who trains which clients: a cohort's chunks dealt out to the ranks of a run by predicted cost.

A chunk is trained by one rank as a whole, so that its arithmetic is the same however many ranks
there are.

May use numpy only; must not know torch or the protocol.

Source: longest processing time first, Graham 1969, theorem 2: at most 4/3 of the best division.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from simulations.learning.partition import Indices
from simulations.learning.training.batches import LocalTraining

ENCODING = 16
"""Encoding an update takes about as long as training on so many examples: measured for networks of
8,000 and a million parameters. It need not be exact: whole chunks are dealt out anyway."""


def divide(costs: Sequence[float], ranks: int) -> list[list[int]]:
    """Deal chunks out, the dearest first, each to whoever has least so far: places, ascending."""
    loads = [(0.0, rank) for rank in range(ranks)]
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    for place in sorted(range(len(costs)), key=lambda place: (-costs[place], place)):
        load, rank = loads[0]
        heapq.heapreplace(loads, (load + costs[place], rank))
        dealt[rank].append(place)
    return [sorted(own) for own in dealt]


def training_cost(members: Sequence[Indices], training: LocalTraining) -> float:
    """Predict what it costs to train and encode some clients, in examples that are looked at.

    Where clients are stacked, all of them are padded to the longest; the chunks of a cohort are
    alike in this, so that it is left out.
    """
    seen = (training.steps_of(size) * training.batch_of(size) for size in map(len, members))
    return float(sum(ENCODING + examples for examples in seen))
