"""A learning task: a real torch model seen as one float32 vector.

The protocol sums vectors, so a task hides names and shapes behind :class:`ParameterLayout`,
which fixes the order (sorted by name) once for all parties. The model holds no state: it is
built on the ``meta`` device and every call receives its parameters, which is what lets
:mod:`simulations.training` run many clients in one call.

May use torch; must not know clients or the protocol.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from simulations.data import Split

Vector = NDArray[np.float32]
"""All parameters in layout order: float32[d]."""


@dataclass(frozen=True, slots=True)
class ParameterLayout:
    """Names and shapes of a model's parameters, in the order in which they are flattened.

    Args:
        shapes: (name, shape) pairs, sorted by name without repetition.

    Raises:
        ValueError: no parameter, or names not strictly increasing.
    """

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    def __post_init__(self) -> None:
        """Check the order."""
        names = self.names
        if not names or any(a >= b for a, b in itertools.pairwise(names)):
            raise ValueError(f"names must be strictly increasing and not empty, got {names}")

    @classmethod
    def of(cls, parameters: Mapping[str, Tensor]) -> ParameterLayout:
        """Read the layout of named tensors; the order of the mapping does not matter."""
        return cls(tuple((name, tuple(parameters[name].shape)) for name in sorted(parameters)))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names in order."""
        return tuple(name for name, _ in self.shapes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the number of scalars per parameter, in order."""
        return tuple(math.prod(shape) for _, shape in self.shapes)

    @property
    def dimension(self) -> int:
        """Return d, the number of scalars in all."""
        return sum(self.sizes)

    def flatten(self, parameters: Mapping[str, Tensor]) -> Vector:
        """Concatenate named tensors into float32[dimension].

        Raises:
            ValueError: names or shapes are not those of the layout.
        """
        if ParameterLayout.of(parameters) != self:
            raise ValueError("the parameters do not have the names and shapes of this layout")
        parts = [parameters[name].detach().reshape(-1) for name in self.names]
        vector: Vector = torch.cat(parts).to(torch.float32).numpy()
        return vector

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Cut float32[dimension] into named views of the same memory.

        Raises:
            ValueError: the vector has another shape.
        """
        if vector.shape != (self.dimension,):
            raise ValueError(f"expected a vector of {self.dimension}, got {tuple(vector.shape)}")
        parts = torch.split(vector, list(self.sizes))
        return {
            name: part.reshape(shape)
            for (name, shape), part in zip(self.shapes, parts, strict=True)
        }


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How well a model does on a split.

    Args:
        accuracy: share of examples with the right label, in [0, 1].
        loss: mean cross entropy in nats; may be infinite or NaN for a diverged model.
    """

    accuracy: float
    loss: float


class MlpTask:
    """Classification by one hidden layer of tanh units: ``features - hidden - classes``.

    tanh bounds the activations, and so how far noise in the first layer can reach
    (Papernot et al. 2021, arXiv 2007.14191). Pixels in [0, 1] are mapped to ``2 x - 1``:
    a constant everyone knows, so it costs no privacy.
    """

    def __init__(self, *, features: int = 64, hidden: int = 32, classes: int = 10) -> None:
        """Describe the model; no parameter is allocated.

        Raises:
            ValueError: a width is below 1, or there are fewer than two classes.
        """
        if features < 1 or hidden < 1 or classes < 2:
            raise ValueError(
                f"need features >= 1, hidden >= 1 and classes >= 2, "
                f"got {features}, {hidden} and {classes}"
            )
        with torch.device("meta"):
            self._module = nn.Sequential(
                OrderedDict(
                    hidden=nn.Linear(features, hidden),
                    activation=nn.Tanh(),
                    output=nn.Linear(hidden, classes),
                )
            )
        self.layout = ParameterLayout.of(dict(self._module.named_parameters()))

    @property
    def dimension(self) -> int:
        """Return d, the number of parameters."""
        return self.layout.dimension

    def initial(self, generator: torch.Generator) -> Vector:
        """Draw first parameters: Xavier-uniform hidden weights, all else zero.

        A zero output layer makes the first prediction uniform, so that the first updates of all
        clients agree on what matters.

        Post: result is float32[dimension] and depends on the generator's state alone.
        """
        parameters = {name: torch.zeros(shape) for name, shape in self.layout.shapes}
        nn.init.xavier_uniform_(parameters["hidden.weight"], generator=generator)
        return self.layout.flatten(parameters)

    def logits(self, vector: Tensor, images: Tensor) -> Tensor:
        """Return float32[m, classes] for images float32[m, features] under float32[d]."""
        output: Tensor = functional_call(
            self._module, self.layout.unflatten(vector), (2.0 * images - 1.0,)
        )
        return output

    def loss(self, vector: Tensor, images: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Return the weighted mean cross entropy in nats, a scalar.

        Args:
            vector: float32[d].
            images: float32[m, features].
            labels: int64[m].
            weights: float32[m], not negative, not all zero; 0 marks padding.
        """
        losses = nn.functional.cross_entropy(self.logits(vector, images), labels, reduction="none")
        # Padding is masked rather than multiplied, so that it cannot carry 0 * inf = NaN.
        kept = torch.where(weights > 0, losses * weights, torch.zeros_like(losses))
        return kept.sum() / weights.sum()

    def evaluate(self, vector: Vector, split: Split) -> Evaluation:
        """Measure accuracy and mean loss of parameters float32[d] on a split.

        Raises:
            ValueError: the vector has another shape.
        """
        labels = torch.tensor(split.labels)
        with torch.no_grad():
            logits = self.logits(torch.tensor(vector), torch.tensor(split.images))
            loss = nn.functional.cross_entropy(logits, labels)
            right = (logits.argmax(dim=1) == labels).to(torch.float64).mean()
        return Evaluation(accuracy=float(right), loss=float(loss))
