"""One cohort's local training as every simulator gets it: the same model, examples and steps.

May use torch; must not know the simulators that are compared.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from simulations.bench.simulate.order import Order, SimulatedModel
from simulations.learning.data import DataKind, Split
from simulations.learning.models import DataShape, ModelOptions, Task, Vector, build_task
from simulations.learning.partition import Indices
from simulations.learning.training import (
    Batches,
    ClientStreams,
    LocalTraining,
    Strategy,
    chosen_strategy,
    draw_batches,
)

SEED = 1
LEARNING_RATE = 0.02
SIDE = 28
"""Pixels of a side of an image."""
HIDDEN = 64
"""Hidden units of `mlp`, as in the demo."""


@dataclass(frozen=True)
class Workload:
    """An order with its data, model and batches."""

    order: Order
    split: Split
    classes: int

    @cached_property
    def task(self) -> Task:
        """The model as this project has it; no penalty, so that every simulator does the same."""
        shape = DataShape(kind=DataKind.IMAGE, shape=(SIDE, SIDE), classes=self.classes)
        return build_task(self.order.model.value, shape, ModelOptions(hidden=HIDDEN, l2=0.0))

    @cached_property
    def start(self) -> Vector:
        """First parameters, float32[d]."""
        return self.task.initial(torch.Generator().manual_seed(SEED))

    @cached_property
    def members(self) -> tuple[Indices, ...]:
        """Each client's examples."""
        return tuple(np.array_split(np.arange(len(self.split)), self.order.clients))

    def figures(self, strategy: Strategy) -> dict[str, int | float | bool | str | None]:
        """What everybody trains, and how we do."""
        order = self.order
        return {
            "model": order.model.value,
            "dimension": self.task.dimension,
            "clients": order.clients,
            "steps": order.steps,
            "batch": order.batch,
            "strategy": chosen_strategy(strategy, self.task, torch.device("cpu")),
        }

    @property
    def training(self) -> LocalTraining:
        """How every client trains: one pass over its examples."""
        return LocalTraining(learning_rate=LEARNING_RATE, epochs=1, batch_size=self.order.batch)

    @cached_property
    def batches(self) -> Batches:
        """The batches that `local_updates` draws from a generator with this seed."""
        return draw_batches(self.members, self.training, ClientStreams(np.random.default_rng(SEED)))

    def client_batches(self, client: int) -> list[tuple[Tensor, Tensor]]:
        """A client's batches in order: pixels float32[batch, 28, 28] in [-1, 1], and labels."""
        return [
            (
                torch.from_numpy(2.0 * self.split.inputs[chosen] - 1.0).float(),
                torch.from_numpy(self.split.labels[chosen]),
            )
            for chosen in self.batches.indices[client]
        ]

    def module(self) -> nn.Module:
        """The model as anybody would write it, with the first parameters."""
        module = plain_module(self.order.model, self.classes)
        module.load_state_dict(self.task.layout.unflatten(torch.tensor(self.start)))
        return module


@lru_cache(maxsize=2)
def workload(order: Order) -> Workload:
    """Build the work of an order; the same in every process."""
    count = order.clients * order.steps * order.batch
    if order.data_dir is not None:
        return _mnist(order, count)
    classes = 62 if order.model is SimulatedModel.CNN else 10
    generator = np.random.default_rng(SEED)
    pixels = generator.random((count, SIDE, SIDE), dtype=np.float32)
    return Workload(order, Split(pixels, generator.integers(0, classes, count)), classes)


def _mnist(order: Order, count: int) -> Workload:
    """Real digits, again from the first one when all have been dealt."""
    from simulations.learning.data.files import DataFolder
    from simulations.learning.data.images import load_mnist

    data = load_mnist(DataFolder(Path(order.data_dir or "")))
    chosen = np.arange(count) % len(data.train)
    split = Split(data.train.inputs[chosen], data.train.labels[chosen])
    return Workload(order, split, data.classes)


def plain_module(model: SimulatedModel, classes: int) -> nn.Module:
    """A stateful torch module with the names of the task's parameters."""
    layers: Sequence[tuple[str, nn.Module]] = {
        SimulatedModel.LOGISTIC: _dense([SIDE * SIDE, classes], ["output"], nn.ReLU),
        SimulatedModel.MLP: _dense([SIDE * SIDE, HIDDEN, classes], ["hidden", "output"], nn.Tanh),
        SimulatedModel.MLP60: _dense(
            [SIDE * SIDE, 60, 60, classes], ["layer0", "layer1", "layer2"], nn.ReLU
        ),
        SimulatedModel.TINY: [
            *_convolution("1", 1, 8, 3, pool=True),
            *_dense([8 * 13 * 13, classes], ["output"], nn.ReLU),
        ],
        SimulatedModel.LENET5: [
            *_convolution("1", 1, 64, 5, pool=True),
            *_convolution("2", 64, 32, 5, pool=True),
            *_dense([32 * 4 * 4, 128, classes], ["dense", "output"], nn.ReLU),
        ],
        SimulatedModel.CNN: [
            *_convolution("1", 1, 32, 3, pool=True),
            *_convolution("2", 32, 64, 3, pool=False),
            *_dense([64 * 11 * 11, 128, classes], ["dense", "output"], nn.ReLU),
        ],
    }[model]
    return nn.Sequential(OrderedDict([("channel", nn.Unflatten(1, (1, SIDE))), *layers]))


def _dense(
    widths: list[int], names: list[str], activation: type[nn.Module]
) -> list[tuple[str, nn.Module]]:
    """Dense layers with an activation between them."""
    layers: list[tuple[str, nn.Module]] = [("flat", nn.Flatten())]
    for place, name in enumerate(names):
        if place:
            layers.append((f"{name}_activation", activation()))
        layers.append((name, nn.Linear(widths[place], widths[place + 1])))
    return layers


def _convolution(
    number: str, channels: int, filters: int, side: int, *, pool: bool
) -> list[tuple[str, nn.Module]]:
    """A convolution with ReLU, and pooling if asked for."""
    layers: list[tuple[str, nn.Module]] = [
        (f"conv{number}", nn.Conv2d(channels, filters, side)),
        (f"relu{number}", nn.ReLU()),
    ]
    return [*layers, (f"pool{number}", nn.MaxPool2d(2))] if pool else layers


def train_client(module: nn.Module, batches: list[tuple[Tensor, Tensor]]) -> None:
    """Train a module on a client's batches, as anybody would write it."""
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
    for inputs, labels in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def sequential_sum(work: Workload, clients: Iterable[int] | None = None) -> NDArray[np.float64]:
    """Train some clients, or all, one after another with one module; sum of updates: float64[d]."""
    module = work.module()
    first = {name: value.clone() for name, value in module.state_dict().items()}
    total = np.zeros(work.task.dimension)
    for client in range(work.order.clients) if clients is None else clients:
        module.load_state_dict(first)
        train_client(module, work.client_batches(client))
        total += work.task.layout.flatten(dict(module.named_parameters())) - work.start
    return total
