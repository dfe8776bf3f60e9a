"""DP-SGD with compression: clip, noise, perhaps Denoise, compress, move the model.

With several workers each holds every k-th example, clips and adds up its own part of the batch,
adds noise of its own and sends its own message. The noise is whole in every message, because the
server reads messages one by one: an example's epsilon is that of a single worker, and the noise of
the sum grows with the root of the number of workers.

This measures learning. Its noise comes from torch's generator in single precision; what is
released for good takes the samplers of `dp`.

May use torch; must not know reports.

Source: Abadi et al. 2016 (arXiv 1607.00133), Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simulations.learning.data import Dataset
from simulations.learning.example_level.accounting import Account, Sampling, batches
from simulations.learning.example_level.channel import Channel, Opening
from simulations.learning.example_level.clipped import ExampleGradients, gradients_of
from simulations.learning.models import Task


class Noising(Enum):
    """Where the noise of a step goes; only the first has the epsilon of `Setting.account`."""

    SUM = "on the sum"
    EACH = "on each gradient"
    CLIPPED = "on each gradient, which is then clipped again"
    SHARED = "that of the sum, shared out to the gradients, each of which is then clipped again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How a model is trained."""

    learning_rate: float  # above 0
    batch: int  # expected examples of a step, of all workers, at least 1
    clip: float  # C, above 0
    noise_multiplier: float  # standard deviation of a worker's noise over C; 0 for none
    epochs: int  # at least 1; an epoch has round(N / batch) steps
    sampling: Sampling = Sampling.POISSON  # how batches are drawn
    workers: int = 1  # at least 1
    noising: Noising = Noising.SUM

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("learning_rate", "clip"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("batch", "epochs", "workers"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0.0 <= self.noise_multiplier < float("inf"):
            raise ValueError(f"noise_multiplier must not be negative, got {self.noise_multiplier}")

    def steps_of_epoch(self, examples: int) -> int:
        """Return the steps in which an example takes part once on average."""
        return max(1, round(examples / self.batch))

    def account(self, examples: int, delta: float) -> Account:
        """Return what the run costs one of so many examples."""
        return Account(
            examples=examples,
            batch=self.batch,
            steps=self.epochs * self.steps_of_epoch(examples),
            noise_multiplier=self.noise_multiplier,
            delta=delta,
            sampling=self.sampling,
        )


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """After an epoch."""

    epoch: int  # from 1
    accuracy: float  # on the test split
    loss: float  # on the test split
    bytes_per_worker: float  # sent so far, up to the server
    clipped: float  # share of this epoch's gradients that were longer than the clip


class Examples:
    """A training split as tensors."""

    def __init__(self, data: Dataset) -> None:
        self.inputs, self.labels = torch.tensor(data.train.inputs), torch.tensor(data.train.labels)

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.labels)

    def part(self, places: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return inputs and labels at these places."""
        chosen = torch.from_numpy(places)
        return self.inputs[chosen], self.labels[chosen]


def released_mean(
    gradients: ExampleGradients,
    model: Tensor,
    inputs: Tensor,
    labels: Tensor,
    setting: Setting,
    generator: torch.Generator,
) -> tuple[NDArray[np.float32], Tensor]:
    """Return a batch's noised mean, float32[d], and the norms of its gradients, float32[n]."""
    clip, multiplier = setting.clip, setting.noise_multiplier
    if setting.noising in (Noising.CLIPPED, Noising.SHARED):
        if setting.noising is Noising.SHARED:
            multiplier /= setting.batch**0.5
        found = gradients.noised_sum(model, inputs, labels, clip, multiplier, generator)
        multiplier = 0.0
    else:
        found = gradients.clipped_sum(model, inputs, labels, clip)
    if setting.noising is Noising.EACH:
        # Independent noise of n gradients adds up to this.
        multiplier *= len(labels) ** 0.5
    return noised_mean(found.total, clip, multiplier, setting.batch, generator), found.norms


def noised_mean(
    total: Tensor, clip: float, noise_multiplier: float, batch: int, generator: torch.Generator
) -> NDArray[np.float32]:
    """Return (total + N(0, (noise_multiplier clip)^2)) / batch as a new vector: float32[d]."""
    if noise_multiplier > 0.0:
        noise = torch.randn(total.shape, generator=generator)
        total = torch.add(total, noise, alpha=noise_multiplier * clip)
    mean: NDArray[np.float32] = (total / batch).numpy()
    return mean


class Training:
    """One run, step by step."""

    def __init__(
        self, task: Task, data: Dataset, setting: Setting, opening: Opening, seed: int
    ) -> None:
        self.setting, self._task, self._data = setting, task, data
        self._examples = Examples(data)
        self._gradients: ExampleGradients = gradients_of(task)
        self._channels: list[Channel] = [opening() for _ in range(setting.workers)]
        self.model = torch.tensor(task.initial(torch.Generator().manual_seed(seed)))
        self._noise = torch.Generator().manual_seed(seed + (1 << 32))
        # Delta plays no part in the order of the batches.
        account = setting.account(len(self._examples), 0.5)
        self._batches = batches(account, np.random.default_rng([seed, 2]))
        self._seen = self._clipped = self._sent = 0

    def epoch(self, number: int) -> EpochRecord:
        """Run one epoch more, and test the model."""
        self._seen = self._clipped = 0
        for _ in range(self.setting.steps_of_epoch(len(self._examples))):
            self.step()
        tested = self._task.evaluate(self.model.numpy(), self._data.test)
        return EpochRecord(
            epoch=number,
            accuracy=tested.accuracy,
            loss=tested.loss,
            bytes_per_worker=self._sent / self.setting.workers,
            clipped=self._clipped / max(1, self._seen),
        )

    def step(self) -> None:
        """Move the model by one batch."""
        places, workers = next(self._batches), self.setting.workers
        mean = np.zeros(self.model.numel())
        for worker, channel in enumerate(self._channels):
            mine = places[places % workers == worker] if workers > 1 else places
            used, sent = channel.send(self._released(mine))
            mean += used
            self._sent += sent
        self.model -= torch.from_numpy((self.setting.learning_rate * mean).astype(np.float32))

    def _released(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return a worker's part of the mean, with its noise."""
        released, norms = released_mean(
            self._gradients,
            self.model,
            *self._examples.part(places),
            self.setting,
            self._noise,
        )
        self._seen += len(places)
        self._clipped += int((norms > self.setting.clip).sum())
        return released


def train(
    task: Task,
    data: Dataset,
    setting: Setting,
    opening: Opening,
    seed: int,
    advance: Callable[[], None] = lambda: None,  # called after every epoch
) -> list[EpochRecord]:
    """Train a model; return what was measured after every epoch."""
    training, records = Training(task, data, setting, opening, seed), []
    for number in range(1, setting.epochs + 1):
        records.append(training.epoch(number))
        advance()
    return records
