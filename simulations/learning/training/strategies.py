"""Two ways to train a chunk of clients: stacked, or one after another.

*Stacked* runs every step for all clients at once (`stacked`): dense layers by gradients written out
for them, other models by ``torch.func.vmap`` over clients. It saves the overhead of many small
calls. By `vmap` it loses for convolutions, which become grouped ones with a weight per client, and
for recurrences, where torch has no stacked kernel. The *loop* keeps one client's parameters in the
caches and uses torch's best kernels: convolutions with channels last, the fused LSTM.

Measured on CPU cores (batches of 8 to 32): stacked is 4 times faster for perceptrons of up to
50,890 parameters, 2.4 times for 200,000 and 1.5 times for a million. It is 4 times faster for a
convolutional network of 810 parameters, even at 5,000, and 1.5 to 4 times slower for larger ones,
whether vmap groups the convolutions or patches are unfolded into matrix products. The LSTM is at
least 4 times slower stacked.

May use torch; must not know data sets or the protocol.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simulations.learning.models.layout import Vector
from simulations.learning.models.task import Family, Task
from simulations.learning.training.stacked import Chunk, stacked_updates

Strategy = Literal["auto", "vmap", "loop"]
"""How the clients of a chunk are trained; `auto` chooses by model and device alone."""

STACKED_UP_TO: dict[Family, float] = {
    Family.DENSE: math.inf,
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


def train(
    task: Task,
    start: Vector,  # float32[d]
    chunk: Chunk,
    strategy: Strategy,  # `vmap` or `loop`
) -> NDArray[np.float32]:
    """Train the clients of a chunk.

    Float32[c, d]: trained parameters minus `start`, one row per client. Where there is only one
    step, that is the step itself, with nothing lost to cancellation. A diverged client's row holds
    whatever came out.
    """
    device = torch.device(chunk.device)
    origin = torch.tensor(start, device=device)
    with _repeatable(device):
        run = stacked_updates if strategy == "vmap" else _one_by_one
        updates: NDArray[np.float32] = run(task, origin, chunk).cpu().numpy()
    return updates


def _one_by_one(task: Task, origin: Tensor, chunk: Chunk) -> Tensor:
    """Run all steps of a client, then those of the next."""
    sizes = chunk.batches.sizes().tolist()
    updates = origin.new_empty(len(sizes), task.dimension)
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
    task: Task, leaves: dict[str, Tensor], chunk: Chunk, client: int, batch_sizes: list[int]
) -> None:
    """Move one client's parameters; a step that stays the only one replaces them."""
    for step, size in enumerate(batch_sizes):
        inputs, labels = chunk.examples(chunk.batches.indices[client, step, :size])
        loss = task.loss_of(leaves, inputs, labels, torch.ones(size, device=inputs.device))
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
