"""A learning task: a torch model seen as one float32 vector, with its loss and its score.

The protocol sums vectors, so a task hides names and shapes behind a layout. A task is a pair of
pure functions, first parameters and loss: it holds sizes and no tensors, so it can be sent to
another process, and :mod:`simulations.learning.training` can run many clients in one call.

`loss_of` uses whatever is fastest for one client, unless it is asked for operations that torch can
stack over clients. They agree up to float rounding.

No model has dropout: an update shall be a function of parameters and batch alone, whichever way
and in whatever company it is computed.

May use torch; must not know clients, rounds or privacy.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from protocol.exchange.parallel import in_order
from protocol.exchange.ranks import ALONE, Ranks
from simulations.learning.data import DataKind, Split
from simulations.learning.models.layout import ParameterLayout, Vector

Parameters = Mapping[str, Tensor]
"""Named parameters, with the shapes of the layout."""

IGNORED = -100
"""Target that no loss and no score counts: torch's own convention."""

EVALUATION_BATCH = 128
"""Examples evaluated together unless told otherwise: some ten MB for the largest model."""

EVALUATED_AHEAD = 8
"""Batches in an executor's hands at once."""


class Family(enum.Enum):
    """What a model mostly computes; it decides how clients are best trained together."""

    DENSE = "dense"
    CONVOLUTIONAL = "convolutional"
    RECURRENT = "recurrent"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How well a model does on a split."""

    accuracy: float  # share of right predictions, in [0, 1]
    # mean loss of a prediction, without any penalty; cross entropies are in nats. May be infinite
    # or NaN for a diverged model
    loss: float


def centred(inputs: Tensor, kind: DataKind, *, overwrite: bool = False) -> Tensor:
    """Map pixels from [0, 1] to [-1, 1], ``2 x - 1``; leave other inputs as they are.

    A constant that everyone knows: statistics of the clients' data would cost privacy.
    """
    if kind is not DataKind.IMAGE:
        return inputs
    # In one pass: 2 x is exact, so that this rounds once as ``2 x - 1`` does.
    return torch.add(
        inputs.new_full((), -1.0), inputs, alpha=2.0, out=inputs if overwrite else None
    )


class Task(ABC):
    """A model as federated training needs it: each one says its shapes, first values and scores."""

    @abstractmethod
    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Name the shapes of all parameters, in any order."""

    @cached_property
    def layout(self) -> ParameterLayout:
        """The order of the parameters in the vector."""
        return ParameterLayout.sorted(self._shapes())

    @property
    @abstractmethod
    def family(self) -> Family:
        """What the model mostly computes."""

    @property
    def dimension(self) -> int:
        """Return d, the number of parameters."""
        return self.layout.dimension

    def initial(self, generator: torch.Generator) -> Vector:
        """Draw first parameters.

        Post: result is float32[dimension] and depends on the generator's state alone.
        """
        parameters = {name: torch.zeros(shape) for name, shape in self.layout.shapes}
        self._initialise(parameters, generator)
        return self.layout.flatten(parameters)

    @abstractmethod
    def _initialise(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Fill zero tensors in place, in an order that never changes."""

    @abstractmethod
    def scores(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return what the model says: float32[m, classes], or [m, length, classes]."""

    def stackable_scores(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return the same by operations that torch stacks over clients without a loop."""
        return self.scores(parameters, inputs)

    def targets(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return what should be predicted: int64[m] or [m, length], IGNORED for nothing."""
        del inputs
        return labels

    def losses(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each prediction, in the shape of the targets; 0 where IGNORED."""
        if targets.dim() == 1:
            return cross_entropy(scores, targets, reduction="none")
        flat = cross_entropy(
            scores.flatten(0, 1), targets.flatten(), reduction="none", ignore_index=IGNORED
        )
        return flat.reshape(targets.shape)

    def mean_loss(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the mean of `losses` over the targets that count; NaN if none does."""
        return cross_entropy(
            scores.flatten(0, -2), targets.flatten(), reduction="mean", ignore_index=IGNORED
        )

    def predictions(self, scores: Tensor) -> Tensor:
        """Return the label that the scores speak for: int64, in the shape of the targets."""
        return scores.argmax(dim=-1)

    def right(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return which of the predictions that count are right: bool[n]."""
        counts = targets != IGNORED
        return self.predictions(scores)[counts] == targets[counts]

    def penalty(self, parameters: Parameters) -> Tensor | None:
        """Return what is added to the loss whatever the data, if anything."""
        del parameters
        return None

    def loss(self, vector: Tensor, inputs: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted mean loss, and the penalty if there is one, as a scalar.

        Args:
            vector: float32[d].
            inputs: float32[m, ...] or int64[m, length].
            labels: int64[m].
            weights: float32[m], not negative; 0 marks padding.

        Post: 0, with a gradient of 0, if there is nothing to predict.
        """
        parameters = self.layout.unflatten(vector)
        return self.loss_of(parameters, inputs, labels, weights, stackable=True)

    def loss_of(
        self,
        parameters: Parameters,
        inputs: Tensor,
        labels: Tensor,
        weights: Tensor,
        *,
        stackable: bool = False,
    ) -> Tensor:
        """Return the same of named parameters.

        Args:
            stackable: use operations that torch stacks over clients, not the fastest for one.
        """
        scores = (self.stackable_scores if stackable else self.scores)(parameters, inputs)
        return self._reduced(parameters, scores, self.targets(inputs, labels), weights)

    def _reduced(
        self, parameters: Parameters, scores: Tensor, targets: Tensor, weights: Tensor
    ) -> Tensor:
        """Average over the predictions that count."""
        losses = self.losses(scores, targets)
        if targets.dim() > 1:
            weights = weights.unsqueeze(1) * (targets != IGNORED)
        # Padding is masked rather than multiplied, so that it cannot carry 0 * inf = NaN.
        kept = torch.where(weights > 0, losses * weights, torch.zeros_like(losses))
        total = weights.sum()
        mean = kept.sum() / torch.where(total > 0, total, torch.ones_like(total))
        penalty = self.penalty(parameters)
        return mean if penalty is None else mean + penalty * (total > 0)

    def evaluate(
        self,
        vector: Vector,
        split: Split,
        batch: int = EVALUATION_BATCH,  # the most examples that are looked at together, at least 1
        executor: Executor | None = None,
        ranks: Ranks = ALONE,  # which share the batches; all get the same result
        device: str = "cpu",  # where to compute, as torch names it
    ) -> Evaluation:
        """Measure accuracy and mean loss of parameters float32[d] on a split.

        Args:
            executor: threads that look at several batches at once; the result is the same.

        Raises:
            ValueError: the vector has another shape, or batch is below 1.
        """
        if batch < 1:
            raise ValueError(f"batch must be at least 1, got {batch}")
        parameters = self.layout.unflatten(torch.tensor(vector, device=device))
        parts = [slice(first, first + batch) for first in range(0, len(split), batch)]
        own = parts[ranks.rank :: ranks.size]
        tasks = (partial(self._tally, parameters, split, part, device) for part in own)
        tallies = [tally() for tally in in_order(tasks, executor, EVALUATED_AHEAD)]
        loss, right, count = 0.0, 0, 0
        gathered = ranks.gather(tallies)
        # In the order of the batches: a sum of floats depends on it.
        for number in range(len(parts)):
            lost, hits, here = gathered[number % ranks.size][number // ranks.size]
            loss, right, count = loss + lost, right + hits, count + here
        if count == 0:
            raise ValueError("the split has nothing to predict")
        return Evaluation(accuracy=right / count, loss=loss / count)

    def judged(
        self, vector: Vector, split: Split, examples: NDArray[np.int64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Which predictions of some examples are right, and the loss of each, of float32[d].

        Args:
            examples: places in the split, int64[m].
        """
        parameters = self.layout.unflatten(torch.tensor(vector))
        with torch.no_grad():
            inputs = torch.tensor(split.inputs[examples])
            targets = self.targets(inputs, torch.tensor(split.labels[examples]))
            scores = self.scores(parameters, inputs)
            losses = self.losses(scores, targets)[targets != IGNORED]
            return self.right(scores, targets).numpy(), losses.double().numpy()

    def _tally(
        self, parameters: dict[str, Tensor], split: Split, part: slice, device: str
    ) -> tuple[float, int, int]:
        """Total loss, right predictions and number of targets of a part."""
        with torch.no_grad():
            inputs = torch.tensor(split.inputs[part], device=device)
            targets = self.targets(inputs, torch.tensor(split.labels[part], device=device))
            scores = self.scores(parameters, inputs)
            right = self.right(scores, targets)
            lost = float(self.mean_loss(scores, targets)) * len(right) if len(right) else 0.0
            return lost, int(right.sum()), len(right)
