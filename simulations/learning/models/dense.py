"""Models of matrix products only: multilayer perceptrons, of numbers and of characters.

All are stacks of dense layers (`DenseTask`), whose gradients are written out for many clients at
once in :mod:`simulations.learning.training.stacked`.

May use torch; must not know clients or the protocol.
"""

from __future__ import annotations

import enum
import itertools
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from simulations.learning.data import DataKind
from simulations.learning.models.task import Family, Parameters, Task, centred

CPSGD_WIDTH = 60
"""Hidden units of a layer of cpSGD's network."""


def check_widths(features: int, hidden: int, classes: int) -> None:
    """Refuse networks without inputs, hidden units or a choice."""
    if features < 1 or hidden < 1 or classes < 2:
        raise ValueError(
            f"need features >= 1, hidden >= 1 and classes >= 2, "
            f"got {features}, {hidden} and {classes}"
        )


class Activation(enum.Enum):
    """What follows a hidden layer."""

    TANH = "tanh"
    RELU = "relu"

    def __call__(self, values: Tensor) -> Tensor:
        """Return the activations of these values."""
        return values.tanh() if self is Activation.TANH else values.relu()

    def slopes(self, activations: Tensor) -> Tensor:
        """Return the derivative at each value, in terms of its activation."""
        if self is Activation.TANH:
            return 1.0 - activations.square()
        return (activations > 0).to(activations.dtype)


class DenseTask(Task):
    """Dense layers with one activation between them; a subclass names the layers.

    The first layer takes the features of an input, or, where there is an embedding, the embeddings
    of its tokens one behind the other.
    """

    kind: DataKind  # pixels are centred
    activation: ClassVar[Activation] = Activation.TANH
    table: ClassVar[str | None] = None
    """Name of the embedding, if inputs are tokens."""

    @property
    def family(self) -> Family:
        """All of its work is in matrix products."""
        return Family.DENSE

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the layers, the output last."""
        return ("hidden", "output")

    @property
    def decay(self) -> float:
        """Return lambda of the penalty ``lambda / 2 * |weights|^2``, which leaves out biases."""
        return 0.0

    def entering(self, inputs: Tensor, *, overwrite: bool = False) -> Tensor:
        """Return the features of inputs [m, ...], or their tokens: [m, width].

        Args:
            overwrite: the inputs are nobody else's, and may be changed in place.
        """
        return centred(inputs, self.kind, overwrite=overwrite).flatten(1)

    def scores(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return float32[m, outputs] of inputs [m, ...]."""
        values = self.entering(inputs)
        if self.table is not None:
            values = embedding(values, parameters[self.table]).flatten(1)
        *hidden, output = self.names
        for layer in hidden:
            values = self.activation(_layer(parameters, layer, values))
        return _layer(parameters, output, values)

    def loss_slopes(self, scores: Tensor, targets: Tensor, shares: Tensor) -> Tensor:
        """Return the slopes of weighted `losses` by the scores, of cross entropy.

        Args:
            scores: float32[..., outputs].
            targets: int64[...], one for each loss.
            shares: float32[...], the weights of the losses.
        """
        # Class by class: torch is ten times slower along a short last axis.
        slopes = scores.movedim(-1, 0).softmax(dim=0).mul_(shares)
        return slopes.scatter_add_(0, targets[None], -shares[None]).movedim(0, -1)

    def penalty(self, parameters: Parameters) -> Tensor | None:
        """Return the penalty, or None without one."""
        if self.decay == 0.0:
            return None
        squares = [parameters[f"{layer}.weight"].square().sum() for layer in self.names]
        return 0.5 * self.decay * torch.stack(squares).sum()


def _layer(parameters: Parameters, layer: str, values: Tensor) -> Tensor:
    return linear(values, parameters[f"{layer}.weight"], parameters[f"{layer}.bias"])


@dataclass(frozen=True, kw_only=True)
class MlpTask(DenseTask):
    """Classification by one hidden layer of tanh units: ``features - hidden - classes``.

    tanh bounds the activations, and so how far noise in the first layer can reach
    (Papernot et al. 2021, arXiv 2007.14191).

    Raises:
        ValueError: a width is below 1, or there are fewer than two classes.
    """

    features: int = 64  # values of an input, whatever its shape
    hidden: int = 32  # tanh units
    classes: int = 10  # labels
    kind: DataKind = DataKind.IMAGE  # pixels are centred

    def __post_init__(self) -> None:
        """Check the widths."""
        check_widths(self.features, self.hidden, self.classes)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            "hidden.weight": (self.hidden, self.features),
            "hidden.bias": (self.hidden,),
            "output.weight": (self.classes, self.hidden),
            "output.bias": (self.classes,),
        }

    def _initialise(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Draw Xavier-uniform hidden weights and leave all else zero.

        A zero output layer makes the first prediction uniform, so that the first updates of all
        clients agree on what matters.
        """
        nn.init.xavier_uniform_(parameters["hidden.weight"], generator=generator)


@dataclass(frozen=True, kw_only=True)
class ReluMlpTask(DenseTask):
    """Classification by hidden layers of ReLU units, all of one width.

    cpSGD trains "a three-layer model (60 hidden nodes each with ReLU activation)" and says no more.
    The default reads that as three layers of weights, ``features - 60 - 60 - classes``: 51,370
    parameters on 28x28 pixels and ten classes. `layers` = 1 and 3 are the other two readings.

    Raises:
        ValueError: a number is out of range.

    Source: Agarwal et al. 2018 (arXiv 1805.10559), section 5.
    """

    activation = Activation.RELU
    features: int = 784  # values of an input, whatever its shape
    width: int = CPSGD_WIDTH  # ReLU units of a hidden layer
    layers: int = 2  # hidden layers, 1 to 9
    classes: int = 10  # labels
    kind: DataKind = DataKind.IMAGE  # pixels are centred

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_widths(self.features, self.width, self.classes)
        # One digit, so that names sort as numbers do.
        if not 1 <= self.layers <= 9:
            raise ValueError(f"layers must be in 1 .. 9, got {self.layers}")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the layers, the output last."""
        return tuple(f"layer{place}" for place in range(self.layers + 1))

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        widths = [self.features, *[self.width] * self.layers, self.classes]
        shapes: dict[str, tuple[int, ...]] = {}
        for layer, (fan_in, fan_out) in enumerate(itertools.pairwise(widths)):
            shapes[f"layer{layer}.weight"] = (fan_out, fan_in)
            shapes[f"layer{layer}.bias"] = (fan_out,)
        return shapes

    def _initialise(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Draw He-uniform hidden weights and Xavier-uniform output weights; biases are zero."""
        for layer in range(self.layers):
            weight = parameters[f"layer{layer}.weight"]
            nn.init.kaiming_uniform_(weight, nonlinearity="relu", generator=generator)
        nn.init.xavier_uniform_(parameters[f"layer{self.layers}.weight"], generator=generator)


@dataclass(frozen=True, kw_only=True)
class NgramTask(DenseTask):
    """The next character from the last few: their embeddings, one hidden layer of tanh, a choice.

    Small enough for a million clients, and all in products that clients can share: where the
    recurrent models see a text of any length, this one sees `length` characters and no order
    beyond them.

    Raises:
        ValueError: a width is below 1, or there are fewer than two tokens or classes.

    Source: Bengio, Ducharme, Vincent and Jauvin 2003, "A Neural Probabilistic Language Model",
    Journal of Machine Learning Research 3, section 2, without direct connections.
    """

    kind = DataKind.TEXT
    table = "embedding"
    vocabulary: int = 82  # number of token values, at least 2
    length: int = 4  # characters of an input
    embedded: int = 8  # length of an embedding
    hidden: int = 32  # tanh units
    classes: int = 82  # labels

    def __post_init__(self) -> None:
        """Check the widths."""
        check_widths(
            min(self.vocabulary - 1, self.length, self.embedded), self.hidden, self.classes
        )

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            "embedding": (self.vocabulary, self.embedded),
            "hidden.weight": (self.hidden, self.length * self.embedded),
            "hidden.bias": (self.hidden,),
            "output.weight": (self.classes, self.hidden),
            "output.bias": (self.classes,),
        }

    def _initialise(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Draw embeddings in [-1, 1] and Xavier-uniform hidden weights; leave all else zero.

        Embeddings of the size of a tanh unit's answer tell characters apart from the first round.
        """
        parameters["embedding"].uniform_(-1.0, 1.0, generator=generator)
        nn.init.xavier_uniform_(parameters["hidden.weight"], generator=generator)
