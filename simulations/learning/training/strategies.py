"""Two ways to train a chunk of clients: stacked, or one after another.

*Stacked* runs every step for all clients at once (``torch.func.vmap`` over clients). It saves the
overhead of many small calls. It loses once a model no longer fits the caches together with its
neighbours, and for convolutions, which become grouped ones with a weight per client, and for
recurrences, where torch has no stacked kernel. The *loop* keeps one client's parameters in the
caches and uses torch's best kernels: convolutions with channels last, the fused LSTM.

Measured on two CPU cores (batches of 8 to 32): stacked is 4 times faster for 4,810 parameters of a
perceptron and 1.8 times for 51,370; it is even near 100,000, and half as fast for 670,000. It is 4
times faster for a convolutional network of 810 parameters, even at 5,000, and 1.5 to 4 times slower
for larger ones, whether vmap groups the convolutions or patches are unfolded into matrix products.
The LSTM is at least 4 times slower stacked.

May use torch; must not know data sets or the protocol.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import grad, vmap

from simulations.learning.models.layout import Vector
from simulations.learning.models.task import Family, Task
from simulations.learning.training.batches import Batches

Strategy = Literal["auto", "vmap", "loop"]
"""How the clients of a chunk are trained; `auto` chooses by model and device alone."""

STACKED_UP_TO = {
    Family.DENSE: 100_000,
    Family.CONVOLUTIONAL: 4_000,
    Family.RECURRENT: 0,
    Family.OTHER: 0,
}
"""Most parameters for which stacking is the faster way on a CPU, as measured above; 0 for what
torch may not be able to stack."""


def chosen_strategy(strategy: Strategy, task: Task, device: torch.device) -> Strategy:
    """Return `vmap` or `loop`.

    An accelerator is fed by stacking, except that a recurrence would be unrolled step by step, and
    that a model of unknown operations may not be stackable.

    Raises:
        ValueError: no such strategy.
    """
    if strategy in ("vmap", "loop"):
        return strategy
    if strategy != "auto":
        raise ValueError(f"strategy must be auto, vmap or loop, got {strategy!r}")
    if device.type != "cpu":
        return "loop" if task.family in (Family.RECURRENT, Family.OTHER) else "vmap"
    return "vmap" if task.dimension <= STACKED_UP_TO[task.family] else "loop"


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """One chunk of clients, self-contained so that it can be sent to another process."""

    # the examples of these clients alone, float32[m, ...] or int64[m, length]
    inputs: NDArray[np.float32] | NDArray[np.int64]
    labels: NDArray[np.int64]  # int64[m]
    batches: Batches  # of these clients; indices point into `inputs`
    learning_rate: float  # of the local steps
    strategy: Strategy  # `vmap` or `loop`
    device: str  # where to run, as torch names it


def train(task: Task, start: Vector, work: Work) -> NDArray[np.float32]:
    """Train the clients of a chunk.

    Args:
        start: float32[d].

    Float32[c, d]: trained parameters minus `start`, one row per client. Where there is only one
    step, that is the step itself, with nothing lost to cancellation. A diverged client's row holds
    whatever came out.
    """
    device = torch.device(work.device)
    chunk = _Chunk(
        inputs=torch.tensor(work.inputs, device=device),
        labels=torch.tensor(work.labels, device=device),
        indices=torch.from_numpy(work.batches.indices).to(device),
        weights=torch.from_numpy(work.batches.weights).to(device),
        learning_rate=work.learning_rate,
    )
    origin = torch.tensor(start, device=device)
    with _repeatable(device):
        run = _stacked if work.strategy == "vmap" else _one_by_one
        updates: NDArray[np.float32] = run(task, origin, chunk).cpu().numpy()
    return updates


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    """A chunk's tensors on its device; see `Work`."""

    inputs: Tensor
    labels: Tensor
    indices: Tensor
    weights: Tensor
    learning_rate: float


def _stacked(task: Task, origin: Tensor, chunk: _Chunk) -> Tensor:
    """Run each step for all clients at once."""
    gradients = vmap(grad(partial(task.loss_of, stackable=True)))
    clients, steps, _ = chunk.indices.shape
    vectors = origin.expand(clients, -1).clone()
    # Named views of the vectors: gradients by name need not be put together to a vector.
    parameters = vmap(task.layout.unflatten)(vectors)
    for step in range(steps):
        chosen = chunk.indices[:, step]
        slopes = gradients(
            parameters, chunk.inputs[chosen], chunk.labels[chosen], chunk.weights[:, step]
        )
        if steps == 1:
            vectors.zero_()
        for name, values in parameters.items():
            values.sub_(slopes[name], alpha=chunk.learning_rate)
    return vectors if steps == 1 else vectors.sub_(origin)


def _one_by_one(task: Task, origin: Tensor, chunk: _Chunk) -> Tensor:
    """Run all steps of a client, then those of the next."""
    clients = len(chunk.indices)
    # A client's examples and steps come first, so counting them finds them all.
    sizes = (chunk.weights > 0).sum(dim=2).tolist()
    updates = origin.new_empty(clients, task.dimension)
    leaves = _leaves(task, origin)
    for client, padded in enumerate(sizes):
        batch_sizes = [size for size in padded if size]
        _restart(task, leaves, origin)
        _run_client(task, leaves, chunk, client, batch_sizes)
        _store(task, leaves, updates[client])
        if len(batch_sizes) > 1:
            updates[client].sub_(origin)
    return updates


def _leaves(task: Task, origin: Tensor) -> dict[str, Tensor]:
    """Allocate parameters that gradients flow into; convolutions with channels last."""
    return {
        name: torch.empty(
            shape,
            device=origin.device,
            memory_format=torch.channels_last if len(shape) == 4 else torch.contiguous_format,
        ).requires_grad_()
        for name, shape in task.layout.shapes
    }


def _restart(task: Task, leaves: dict[str, Tensor], origin: Tensor) -> None:
    """Set the parameters to the start."""
    with torch.no_grad():
        for name, value in task.layout.unflatten(origin).items():
            leaves[name].copy_(value)


def _store(task: Task, leaves: dict[str, Tensor], row: Tensor) -> None:
    """Write the parameters into float32[d]."""
    with torch.no_grad():
        for name, value in task.layout.unflatten(row).items():
            value.copy_(leaves[name])


def _run_client(
    task: Task, leaves: dict[str, Tensor], chunk: _Chunk, client: int, batch_sizes: list[int]
) -> None:
    """Move one client's parameters; a step that stays the only one replaces them."""
    for step, size in enumerate(batch_sizes):
        chosen = chunk.indices[client, step, :size]
        loss = task.loss_of(
            leaves, chunk.inputs[chosen], chunk.labels[chosen], chunk.weights[client, step, :size]
        )
        slopes = torch.autograd.grad(loss, list(leaves.values()))
        with torch.no_grad():
            for leaf, slope in zip(leaves.values(), slopes, strict=True):
                if len(batch_sizes) == 1:
                    leaf.zero_()
                leaf.sub_(slope, alpha=chunk.learning_rate)


@contextlib.contextmanager
def _repeatable(device: torch.device) -> Iterator[None]:
    """Ask an accelerator for kernels that repeat bit for bit; on a CPU all of ours do."""
    if device.type == "cpu":
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)
