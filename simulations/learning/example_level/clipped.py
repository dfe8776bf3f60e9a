"""The sum of clipped gradients of single examples: the heart of DP-SGD.

Two ways that agree up to float rounding. *Stacked* makes the gradients of a chunk of examples with
``vmap(grad)`` and works for every task. *Tapped* never makes them (`taps`), for the tasks that have
a forward pass of that kind (`networks`). Both take a chunk at a time; no array ever holds a vector
for each example of a batch.

Milliseconds of one core (`docs/clipping.md` has all chunks):

    Surnames LSTM, 32 names of 14   stacked 53,  tapped 8;  one ordinary gradient of the batch 5
    CNN, 128 images of 28x28        stacked 131, tapped 86; one ordinary gradient of the batch 61

An example whose gradient is not finite counts as zero, which keeps to every clip.

May use torch; must not know rounds, noise or accounting.

Source: Abadi et al. 2016 (arXiv 1607.00133), Algorithm 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn.functional import cross_entropy

from dp.errors import NonFiniteUpdateError
from simulations.learning.example_level.networks import TAPPED
from simulations.learning.example_level.taps import Slopes
from simulations.learning.models.task import Parameters, Task


@dataclass(frozen=True, slots=True, eq=False)
class ClippedSum:
    """What a batch came to."""

    total: Tensor  # float32[d], the sum of the clipped gradients
    norms: Tensor  # float32[n], before clipping; infinite or NaN for an example that counts as zero


class ExampleGradients(ABC):
    """Gradients of single examples of one task.

    Args:
        chunk: examples handled together, at least 1; None for what was fastest.
    """

    usual_chunk: ClassVar[int]

    def __init__(self, task: Task, chunk: int | None = None) -> None:
        self.task, self.chunk = task, self.usual_chunk if chunk is None else chunk
        if self.chunk < 1:
            raise ValueError(f"chunk must be at least 1, got {chunk}")

    def clipped_sum(
        self, model: Tensor, inputs: Tensor, labels: Tensor, clip: float | None
    ) -> ClippedSum:
        """Sum the gradients, each scaled down to l2 norm `clip` if it is longer.

        Args:
            model: float32[d].
            inputs: float32[n, ...] or int64[n, length]; n may be 0.
            labels: int64[n].
            clip: C, above 0; None clips nothing.
        """
        if clip is not None and not clip > 0.0:
            raise ValueError(f"clip must be positive, got {clip}")
        found = self._by_chunks(partial(self._add, clip), model, inputs, labels)
        if not torch.isfinite(found.total).all():
            raise NonFiniteUpdateError("the sum of the gradients is not finite")
        return found

    def noised_sum(
        self,
        model: Tensor,
        inputs: Tensor,
        labels: Tensor,
        clip: float,
        noise_multiplier: float,
        generator: torch.Generator,
    ) -> ClippedSum:
        """Sum the gradients, each clipped, given noise of its own, and clipped again.

        Source: "On the Interaction between Differential Privacy and Gradient Compression in Deep
        Learning", a thesis, Algorithm 1; but training divides by the expected batch, where that
        divides by the actual one. Arguments as for `clipped_sum`.
        """
        add = partial(self._add_noised, clip, noise_multiplier * clip, generator)
        return self._by_chunks(add, model, inputs, labels)

    def _by_chunks(
        self,
        add: Callable[[Tensor, Parameters, Tensor, Tensor], Tensor],
        model: Tensor,
        inputs: Tensor,
        labels: Tensor,
    ) -> ClippedSum:
        """Add every chunk to the total by what adds one and returns its norms."""
        parameters = self.task.layout.unflatten(model)
        total, norms = torch.zeros_like(model), [model.new_zeros(0)]
        for first in range(0, len(labels), self.chunk):
            part = slice(first, first + self.chunk)
            norms.append(add(total, parameters, inputs[part], labels[part]))
        return ClippedSum(total, torch.cat(norms))

    def _add_noised(
        self,
        clip: float,
        deviation: float,
        generator: torch.Generator,
        total: Tensor,
        parameters: Parameters,
        inputs: Tensor,
        labels: Tensor,
    ) -> Tensor:
        named = self._rows(parameters, inputs, labels)
        rows = torch.cat([named[name].flatten(1) for name in self.task.layout.names], dim=1)
        norms: Tensor = rows.norm(dim=1)
        rows[~torch.isfinite(norms)] = 0.0
        rows *= clip_factors(rows.norm(dim=1), clip)[:, None]
        rows.add_(torch.randn(rows.shape, generator=generator), alpha=deviation)
        total += clip_factors(rows.norm(dim=1), clip) @ rows
        return norms

    def _add(
        self,
        clip: float | None,
        total: Tensor,
        parameters: Parameters,
        inputs: Tensor,
        labels: Tensor,
    ) -> Tensor:
        """Add the clipped gradients of a chunk to the total; return the norms."""
        norms, named = self._chunk_sum(parameters, inputs, labels, clip)
        finite = torch.isfinite(norms)
        if clip is not None and not finite.all():
            # Zero times infinity is no zero: the others are summed without them.
            _, named = self._chunk_sum(parameters, inputs[finite], labels[finite], clip)
        for place, value in self.task.layout.unflatten(total).items():
            value.add_(named[place].reshape(value.shape))
        return norms

    @abstractmethod
    def _chunk_sum(
        self, parameters: Parameters, inputs: Tensor, labels: Tensor, clip: float | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return norms float32[n] and the sum of the clipped gradients by name."""

    @abstractmethod
    def _rows(self, parameters: Parameters, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the gradients of a chunk by name: float32[n, ...]."""


class StackedGradients(ExampleGradients):
    """Made by `vmap`, for any task."""

    usual_chunk = 16

    def _chunk_sum(
        self, parameters: Parameters, inputs: Tensor, labels: Tensor, clip: float | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        named = self._rows(parameters, inputs, labels)
        squares = [value.square().sum(dim=1) for value in named.values()]
        norms = torch.stack(squares).sum(dim=0).sqrt()
        factors = clip_factors(norms, clip)
        return norms, {name: factors @ value for name, value in named.items()}

    def _rows(self, parameters: Parameters, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        slopes = vmap(grad(partial(_loss, self.task)), in_dims=(None, 0, 0))
        found = slopes(parameters, inputs, labels)
        return {name: value.flatten(1) for name, value in found.items()}


class TappedGradients(ExampleGradients):
    """Never made, for the tasks of `networks`."""

    usual_chunk = 64

    def __init__(self, task: Task, chunk: int | None = None) -> None:
        super().__init__(task, chunk)
        if type(task) not in TAPPED:
            known = ", ".join(kind.__name__ for kind in TAPPED)
            raise TypeError(f"task must be one of {known}, got {type(task).__name__}")
        self._forward = partial(TAPPED[type(task)], task)

    def _chunk_sum(
        self, parameters: Parameters, inputs: Tensor, labels: Tensor, clip: float | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        slopes = self._slopes(parameters, inputs, labels)
        norms = slopes.squared_norms().sqrt()
        return norms, slopes.weighted_sum(clip_factors(norms, clip))

    def _rows(self, parameters: Parameters, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return self._slopes(parameters, inputs, labels).gradients()

    def _slopes(self, parameters: Parameters, inputs: Tensor, labels: Tensor) -> Slopes:
        scores, taps = self._forward(parameters, inputs)
        return Slopes(taps, cross_entropy(scores, labels, reduction="sum"))


def gradients_of(task: Task, chunk: int | None = None) -> ExampleGradients:
    """Return the faster way for a task."""
    kind = TappedGradients if type(task) in TAPPED else StackedGradients
    return kind(task, chunk)


def clip_factors(norms: Tensor, clip: float | None) -> Tensor:
    """Return float32[n]: what brings a vector of each norm down to at most the clip."""
    return torch.ones_like(norms) if clip is None else clip / norms.clamp(min=clip)


def _loss(task: Task, parameters: Parameters, example: Tensor, label: Tensor) -> Tensor:
    """Return the loss of one example."""
    weights = torch.ones(1, dtype=torch.float32, device=label.device)
    return task.loss_of(
        parameters, example.unsqueeze(0), label.unsqueeze(0), weights, stackable=True
    )
