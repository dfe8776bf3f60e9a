"""Local training of many clients, chunk by chunk, in this thread or several.

A chunk bounds the memory: ``chunk * d`` floats, whatever the size of the cohort. Every client's
batches come from a stream of its own, so the updates do not depend on the chunk (up to float
rounding), nor on the executor, nor on who else is trained here.

A client that diverges keeps its non-finite update: clipping refuses it later, and hiding it
here would hide the case from every test of that refusal.

May use torch; must not know rounds or privacy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import pairwise, starmap

import numpy as np
import torch
from numpy.typing import NDArray

from protocol.exchange.parallel import in_order
from simulations.learning.data import Split
from simulations.learning.models.layout import Vector
from simulations.learning.models.task import Task
from simulations.learning.partition import Indices
from simulations.learning.training.batches import (
    ClientStreams,
    LocalTraining,
    draw_batches,
    require_examples,
)
from simulations.learning.training.stacked import Chunk
from simulations.learning.training.strategies import Strategy, chosen_strategy, train

MAX_CHUNK = 64
"""Most clients of a chunk unless told otherwise: more gain nothing."""

CHUNK_SCALARS = 1 << 21
"""Most scalars of a chunk of updates unless told otherwise: 8 MiB, which caches still hold. It
depends on the model alone, so that the machine has no say in the rounding."""

SHARERS = 4
"""The number of chunks of a cohort is a multiple of this, so that up to so many ranks or threads
have equal parts."""

LEAST_CHUNK = 16
"""Clients that are not divided for that: 16 in place of 64 cost a linear model of 7,850 parameters
17 % of its training on one core, and larger models nothing, but still fewer cost up to 84 %."""

AHEAD = 4
"""Chunks that others may have begun or finished before the first of them is asked for."""


def local_updates(
    task: Task,  # gives the loss
    start: Vector,  # float32[d], the parameters that the server sent
    split: Split,  # the examples that ``members`` points into
    members: Sequence[Indices],  # one index array per client, in the order of the updates
    training: LocalTraining,  # the local optimiser
    rng: np.random.Generator,  # fixes the batches
    *,
    chunk: int | None = None,
    strategy: Strategy = "auto",  # see :mod:`simulations.learning.training.strategies`
    device: str = "cpu",
    executor: Executor | None = None,
    ahead: int = AHEAD,  # chunks in the executor's hands at once, at least 1
    only: Sequence[range] | None = None,
) -> Iterator[NDArray[np.float32]]:
    """Train clients from the same start and yield updates, a chunk of clients at a time.

    Args:
        chunk: clients of a chunk; memory grows as ``chunk * d``. None chooses by d.
        device: where to train, as torch names it; updates come back to this machine's memory.
        executor: trains chunks on a CPU, in the same order; see `training_pool`.
        only: those of the `chunks_of` these clients that are wanted; all if left out.

    Yields:
        float32[c, d] with c <= chunk: trained parameters minus ``start``, one row per client.
        A diverged client's row holds whatever came out, also inf or NaN.

    Raises:
        ValueError: chunk or ahead below 1, no client, a client without examples, or no such
            strategy.
    """
    require_examples(members)
    if ahead < 1:
        raise ValueError(f"ahead must be at least 1, got {ahead}")
    if only is None:
        only = chunks_of(len(members), task.dimension, chunk)
    way = chosen_strategy(strategy, task, torch.device(device))
    streams = ClientStreams(rng)
    works = (
        Chunk(
            split,
            draw_batches(members[each.start : each.stop], training, streams, each.start),
            training.learning_rate,
            device,
        )
        for each in only
    )
    # An accelerator is one queue, whoever fills it.
    helpers = executor if device == "cpu" else None
    tasks = (partial(train, task, start, work, way) for work in works)
    return (result() for result in in_order(tasks, helpers, ahead))


def default_chunk(dimension: int) -> int:
    """Return the most clients of a model with so many parameters that make a chunk."""
    return max(1, min(MAX_CHUNK, CHUNK_SCALARS // dimension))


def chunks_of(clients: int, dimension: int, chunk: int | None = None) -> list[range]:
    """Return the chunks in which so many clients are trained, as ranges of their indices.

    Args:
        clients: how many.
        dimension: d of the model.
        chunk: clients of a chunk, the last one but; None chooses by d, in chunks of equal size.

    Raises:
        ValueError: chunk below 1, or no client.
    """
    if clients < 1 or (chunk is not None and chunk < 1):
        raise ValueError(f"chunk and clients must be at least 1, got {chunk} and {clients}")
    if chunk is not None:
        return [range(first, min(first + chunk, clients)) for first in range(0, clients, chunk)]
    most = default_chunk(dimension)
    shared = SHARERS * -(-clients // (SHARERS * most))
    fewest = clients if most < LEAST_CHUNK else max(-(-clients // most), clients // LEAST_CHUNK)
    count = min(shared, fewest)
    cuts = [clients * place // count for place in range(count + 1)]
    return list(starmap(range, pairwise(cuts)))


def training_pool(workers: int) -> ThreadPoolExecutor:
    """Return threads that train, each with one core: more would wait for one another.

    Threads, because torch lets go of the interpreter while it computes: on two cores they trained
    models of 8,000 to a million parameters 1.6 to 2.1 times as fast as one did. Processes were
    slower for all of them (0.9 to 1.6 times), as every update had to be copied from one to another.
    """
    return ThreadPoolExecutor(workers, "train", torch.set_num_threads, (1,))
