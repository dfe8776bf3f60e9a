"""Models of matrix products only: multilayer perceptrons, of numbers and of characters.

May use torch; must not know clients or the protocol.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

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


@dataclass(frozen=True, kw_only=True)
class MlpTask(Task):
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

    @property
    def family(self) -> Family:
        """Most of its work is in matrix products."""
        return Family.DENSE

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

    def scores(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return logits float32[m, classes] of float32[m, ...]."""
        flat = centred(inputs, self.kind).flatten(1)
        hidden = linear(flat, parameters["hidden.weight"], parameters["hidden.bias"]).tanh()
        return linear(hidden, parameters["output.weight"], parameters["output.bias"])


@dataclass(frozen=True, kw_only=True)
class ReluMlpTask(Task):
    """Classification by hidden layers of ReLU units, all of one width.

    cpSGD trains "a three-layer model (60 hidden nodes each with ReLU activation)" and says no more.
    The default reads that as three layers of weights, ``features - 60 - 60 - classes``: 51,370
    parameters on 28x28 pixels and ten classes. `layers` = 1 and 3 are the other two readings.

    Raises:
        ValueError: a number is out of range.

    Source: Agarwal et al. 2018 (arXiv 1805.10559), section 5.
    """

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
    def family(self) -> Family:
        """Most of its work is in matrix products."""
        return Family.DENSE

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

    def scores(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return logits float32[m, classes] of float32[m, ...]."""
        values = centred(inputs, self.kind).flatten(1)
        for layer in range(self.layers):
            values = self._layer(parameters, layer, values).relu()
        return self._layer(parameters, self.layers, values)

    def _layer(self, parameters: Parameters, layer: int, values: Tensor) -> Tensor:
        return linear(values, parameters[f"layer{layer}.weight"], parameters[f"layer{layer}.bias"])


@dataclass(frozen=True, kw_only=True)
class NgramTask(Task):
    """The next character from the last few: their embeddings, one hidden layer of tanh, a choice.

    Small enough for a million clients, and all in products that clients can share: where the
    recurrent models see a text of any length, this one sees `length` characters and no order
    beyond them.

    Raises:
        ValueError: a width is below 1, or there are fewer than two tokens or classes.

    Source: Bengio, Ducharme, Vincent and Jauvin 2003, "A Neural Probabilistic Language Model",
    Journal of Machine Learning Research 3, section 2, without direct connections.
    """

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

    @property
    def family(self) -> Family:
        """Most of its work is in matrix products."""
        return Family.DENSE

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

    def scores(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return logits float32[m, classes] of int64[m, length]."""
        values = embedding(inputs, parameters["embedding"]).flatten(1)
        hidden = linear(values, parameters["hidden.weight"], parameters["hidden.bias"]).tanh()
        return linear(hidden, parameters["output.weight"], parameters["output.bias"])
