"""Local training of many clients, chunk by chunk, in this thread or several.

A chunk bounds the memory: ``chunk * d`` floats, whatever the size of the cohort. Batches are drawn
client by client before anything runs, so the updates do not depend on the chunk (up to float
rounding), nor on the executor.

A client that diverges keeps its non-finite update: clipping refuses it later, and hiding it
here would hide the case from every test of that refusal.

May use torch; must not know rounds or privacy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from protocol.exchange.parallel import in_order
from simulations.learning.data import Split
from simulations.learning.models.layout import Vector
from simulations.learning.models.task import Task
from simulations.learning.partition import Indices
from simulations.learning.training.batches import Batches, LocalTraining, draw_batches
from simulations.learning.training.strategies import Strategy, Work, chosen_strategy, train

MAX_CHUNK = 64
"""Most clients of a chunk unless told otherwise: more gain nothing."""

CHUNK_SCALARS = 1 << 21
"""Most scalars of a chunk of updates unless told otherwise: 8 MiB, which caches still hold. It
depends on the model alone, so that the machine has no say in the rounding."""

AHEAD = 4
"""Chunks that others may have begun or finished before the first of them is asked for."""


def local_updates(
    task: Task,
    start: Vector,
    split: Split,
    members: Sequence[Indices],
    training: LocalTraining,
    rng: np.random.Generator,
    *,
    chunk: int | None = None,
    strategy: Strategy = "auto",
    device: str = "cpu",
    executor: Executor | None = None,
    ahead: int = AHEAD,
) -> Iterator[NDArray[np.float32]]:
    """Train every client from the same start and yield updates, a chunk of clients at a time.

    Args:
        task: gives the loss.
        start: float32[d], the parameters that the server sent.
        split: the examples that ``members`` points into.
        members: one index array per client, in the order of the updates.
        training: the local optimiser.
        rng: draws the batches, before the first chunk runs.
        chunk: clients of a chunk; memory grows as ``chunk * d``. None chooses by d.
        strategy: see :mod:`simulations.learning.training.strategies`.
        device: where to train, as torch names it; updates come back to this machine's memory.
        executor: trains chunks on a CPU, in the same order; see `training_pool`.
        ahead: chunks in the executor's hands at once, at least 1.

    Yields:
        float32[c, d] with c <= chunk: trained parameters minus ``start``, one row per client.
        A diverged client's row holds whatever came out, also inf or NaN.

    Raises:
        ValueError: chunk or ahead below 1, no client, a client without examples, or no such
            strategy.
    """
    if chunk is None:
        chunk = default_chunk(task.dimension)
    if chunk < 1 or ahead < 1:
        raise ValueError(f"chunk and ahead must be at least 1, got {chunk} and {ahead}")
    way = chosen_strategy(strategy, task, torch.device(device))
    batches = draw_batches(members, training, rng)
    works = (
        _cut(split, batches, slice(first, first + chunk), training.learning_rate, way, device)
        for first in range(0, len(members), chunk)
    )
    # An accelerator is one queue, whoever fills it.
    helpers = executor if device == "cpu" else None
    tasks = (partial(train, task, start, work) for work in works)
    return (result() for result in in_order(tasks, helpers, ahead))


def default_chunk(dimension: int) -> int:
    """Return how many clients of a model with so many parameters make a chunk."""
    return max(1, min(MAX_CHUNK, CHUNK_SCALARS // dimension))


def training_pool(workers: int) -> ThreadPoolExecutor:
    """Return threads that train, each with one core: more would wait for one another.

    Threads, because torch lets go of the interpreter while it computes: on two cores they trained
    models of 8,000 to a million parameters 1.6 to 2.1 times as fast as one did. Processes were
    slower for all of them (0.9 to 1.6 times), as every update had to be copied from one to another.
    """
    return ThreadPoolExecutor(workers, "train", torch.set_num_threads, (1,))


def _cut(
    split: Split,
    batches: Batches,
    clients: slice,
    learning_rate: float,
    strategy: Strategy,
    device: str,
) -> Work:
    """Take the examples of some clients out of the split."""
    indices, weights = batches.indices[clients], batches.weights[clients]
    # The last steps of the others may be later than the last of these.
    last = int(weights.any(axis=2).sum(axis=1).max())
    indices, weights = indices[:, :last], weights[:, :last]
    used, places = np.unique(indices, return_inverse=True)
    return Work(
        inputs=split.inputs[used],
        labels=split.labels[used],
        batches=Batches(places.reshape(indices.shape), np.ascontiguousarray(weights)),
        learning_rate=learning_rate,
        strategy=strategy,
        device=device,
    )
