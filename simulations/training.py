"""Local training of many clients in one call.

Clients of a simulation are small: training them one after another spends the time in overhead.
Here the steps of a chunk of clients run together, vectorised over clients with ``torch.func``,
on batches padded to one length. A chunk bounds the memory: ``chunk * d`` floats, whatever the
size of the cohort. Batches are drawn client by client before anything runs, so the updates do
not depend on the chunk (up to float rounding).

A client that diverges keeps its non-finite update: clipping refuses it later, and hiding it
here would hide the case from every test of that refusal.

May use torch; must not know the protocol.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad, vmap

from simulations.data import Split
from simulations.partition import Indices
from simulations.tasks import Vector


class DifferentiableTask(Protocol):
    """What local training needs of a task."""

    def loss(self, vector: Tensor, images: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted mean loss of float32[d] on one batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTraining:
    """Plain SGD on one client.

    Args:
        learning_rate: positive and finite.
        steps: how many SGD steps, at least 1.
        batch_size: examples per step, at least 1; a client with fewer uses all it has.

    Raises:
        ValueError: a value is out of range.
    """

    learning_rate: float
    steps: int
    batch_size: int

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not (math.isfinite(self.learning_rate) and self.learning_rate > 0.0):
            raise ValueError(f"learning_rate must be positive, got {self.learning_rate}")
        if self.steps < 1 or self.batch_size < 1:
            raise ValueError(
                f"steps and batch_size must be at least 1, got {self.steps}, {self.batch_size}"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """Which examples every client uses in every step, padded to one width.

    Args:
        indices: int64[clients, steps, width], positions in the training split.
        weights: float32[clients, steps, width], 1 for an example and 0 for padding.
    """

    indices: NDArray[np.int64]
    weights: NDArray[np.float32]


def draw_batches(
    members: Sequence[Indices], training: LocalTraining, rng: np.random.Generator
) -> Batches:
    """Draw the batches of all clients, one client after another.

    Each client walks through fresh permutations of its examples, ``batch_size`` at a time; a
    batch may cross from one permutation into the next.

    Raises:
        ValueError: no client, or a client without examples.
    """
    if not members or any(len(part) == 0 for part in members):
        raise ValueError("every one of at least one client needs an example to train on")
    width = min(training.batch_size, max(len(part) for part in members))
    shape = (len(members), training.steps, width)
    batches = Batches(np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32))
    for client, part in enumerate(members):
        used = min(training.batch_size, len(part))
        needed = training.steps * used
        passes = [rng.permutation(part) for _ in range(-(-needed // len(part)))]
        stream = np.concatenate(passes)[:needed]
        batches.indices[client, :, :used] = stream.reshape(training.steps, used)
        batches.weights[client, :, :used] = 1.0
    return batches


def local_updates(
    task: DifferentiableTask,
    start: Vector,
    split: Split,
    members: Sequence[Indices],
    training: LocalTraining,
    rng: np.random.Generator,
    *,
    chunk: int = 64,
) -> Iterator[NDArray[np.float32]]:
    """Train every client from the same start and yield updates, a chunk of clients at a time.

    Args:
        task: gives the loss.
        start: float32[d], the parameters that the server sent.
        split: the examples that ``members`` points into.
        members: one index array per client, in the order of the updates.
        training: the local optimiser.
        rng: draws the batches, before the first chunk runs.
        chunk: clients trained together; memory grows as ``chunk * d``.

    Yields:
        float32[c, d] with c <= chunk: trained parameters minus ``start``, one row per client.
        A diverged client's row holds whatever came out, also inf or NaN.

    Raises:
        ValueError: chunk below 1, no client, or a client without examples.
    """
    if chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    return _updates_by_chunk(
        task, start, split, draw_batches(members, training, rng), training, chunk
    )


def _updates_by_chunk(
    task: DifferentiableTask,
    start: Vector,
    split: Split,
    batches: Batches,
    training: LocalTraining,
    chunk: int,
) -> Iterator[NDArray[np.float32]]:
    """Run the clients' steps chunk by chunk."""
    images, labels = torch.tensor(split.images), torch.tensor(split.labels)
    origin = torch.tensor(start)
    step = _vectorised_gradient(task)
    for first in range(0, len(batches.indices), chunk):
        indices = torch.from_numpy(batches.indices[first : first + chunk])
        weights = torch.from_numpy(batches.weights[first : first + chunk])
        vectors = origin.expand(len(indices), -1).clone()
        for now in range(training.steps):
            chosen = indices[:, now]
            slope = step(vectors, images[chosen], labels[chosen], weights[:, now])
            vectors.sub_(slope, alpha=training.learning_rate)
        yield vectors.sub_(origin).numpy()


def _vectorised_gradient(task: DifferentiableTask) -> Callable[..., Tensor]:
    """Return the gradient of the loss over a leading client axis of every argument."""
    vectorised: Callable[..., Tensor] = vmap(grad(task.loss))
    return vectorised
