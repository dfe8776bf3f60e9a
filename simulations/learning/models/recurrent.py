"""Recurrent networks for text: next characters, and the class of a short text.

Each LSTM layer has one bias, as in Keras, where torch has two that always act as their sum.

May use torch; must not know clients or the protocol.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from simulations.learning.models.dense import check_widths
from simulations.learning.models.task import IGNORED, Family, Parameters, Task

PAPER_VOCABULARY = 90
"""Token values of the paper's Shakespeare model."""

PADDING_TOKEN = 0
"""Fills texts up on the left; never to be predicted."""

EMBEDDING_RANGE = 0.05
"""First embeddings are uniform in plus or minus this, as in Keras."""


@dataclass(frozen=True, kw_only=True)
class RecurrentTask(Task):
    """Embedding, LSTM layers and a dense layer.

    First parameters are those of Keras: uniform embeddings, Xavier-uniform input weights,
    orthogonal recurrent weights, zero biases but for the forget gate, whose bias is one.
    """

    vocabulary: int = PAPER_VOCABULARY  # number of token values, at least 2
    embedded: int = 8  # length of an embedding
    hidden: int = 256  # units of an LSTM layer
    layers: int = 2  # LSTM layers, 1 to 9

    def __post_init__(self) -> None:
        """Check the numbers."""
        check_widths(min(self.vocabulary - 1, self.embedded), self.hidden, self.outputs)
        # One digit, so that names sort as numbers do.
        if not 1 <= self.layers <= 9:
            raise ValueError(f"layers must be in 1 .. 9, got {self.layers}")

    @property
    def family(self) -> Family:
        """Most of its work is in recurrences."""
        return Family.RECURRENT

    @property
    @abstractmethod
    def outputs(self) -> int:
        """The number of scores of a prediction."""

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {
            "embedding": (self.vocabulary, self.embedded),
            "output.weight": (self.outputs, self.hidden),
            "output.bias": (self.outputs,),
        }
        for layer in range(self.layers):
            inputs = self.hidden if layer else self.embedded
            shapes[f"lstm{layer}.input"] = (4 * self.hidden, inputs)
            shapes[f"lstm{layer}.recurrent"] = (4 * self.hidden, self.hidden)
            shapes[f"lstm{layer}.bias"] = (4 * self.hidden,)
        return shapes

    def _initialise(self, parameters: dict[str, Tensor], generator: torch.Generator) -> None:
        """Draw embedding, layers and output in this order; see the class for the laws."""
        parameters["embedding"].uniform_(-EMBEDDING_RANGE, EMBEDDING_RANGE, generator=generator)
        for layer in range(self.layers):
            nn.init.xavier_uniform_(parameters[f"lstm{layer}.input"], generator=generator)
            nn.init.orthogonal_(parameters[f"lstm{layer}.recurrent"], generator=generator)
            # Gates in torch's order: input, forget, cell, output.
            parameters[f"lstm{layer}.bias"][self.hidden : 2 * self.hidden] = 1.0
        nn.init.xavier_uniform_(parameters["output.weight"], generator=generator)

    def scores(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return logits by torch's fused LSTM; see `stackable_scores`."""
        values = embedding(inputs, parameters["embedding"])
        state = values.new_zeros(self.layers, len(inputs), self.hidden)
        absent = values.new_zeros(4 * self.hidden)
        weights = [
            weight
            for layer in range(self.layers)
            for weight in (*_layer(parameters, layer), absent)
        ]
        outputs, _, _ = torch.lstm(
            values,
            (state, state),
            weights,
            has_biases=True,
            num_layers=self.layers,
            dropout=0.0,
            train=True,
            bidirectional=False,
            batch_first=True,
        )
        return self._answer(parameters, outputs)

    def stackable_scores(self, parameters: Parameters, inputs: Tensor) -> Tensor:
        """Return logits of int64[m, length] step by step: torch cannot stack its fused LSTM."""
        values = embedding(inputs, parameters["embedding"])
        for layer in range(self.layers):
            values = self._unrolled(values, *_layer(parameters, layer))
        return self._answer(parameters, values)

    def _unrolled(self, values: Tensor, weight: Tensor, recurrent: Tensor, bias: Tensor) -> Tensor:
        """Return the outputs of one layer: float32[m, length, hidden]."""
        hidden = values.new_zeros(len(values), self.hidden)
        cell, outputs = hidden, []
        for step in linear(values, weight, bias).unbind(1):
            enter, forget, fresh, leave = (step + linear(hidden, recurrent)).chunk(4, dim=-1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * fresh.tanh()
            hidden = leave.sigmoid() * cell.tanh()
            outputs.append(hidden)
        return torch.stack(outputs, dim=1)

    @abstractmethod
    def _answer(self, parameters: Parameters, outputs: Tensor) -> Tensor:
        """Turn the last layer's outputs float32[m, length, hidden] into scores."""


def _layer(parameters: Parameters, layer: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return input weights, recurrent weights and bias of an LSTM layer."""
    prefix = f"lstm{layer}"
    return (
        parameters[f"{prefix}.input"],
        parameters[f"{prefix}.recurrent"],
        parameters[f"{prefix}.bias"],
    )


@dataclass(frozen=True, kw_only=True)
class LstmTask(RecurrentTask):
    """The Shakespeare network: 820,522 parameters with the paper's vocabulary of 90.

    Embedding 8, two LSTM layers of 256, dense to the vocabulary. It predicts the next character at
    every place: the targets are the inputs from the second on, and the label. Padding is never a
    target, so a text that starts late counts for the characters that it has.

    Source: arXiv 2307.10999, Appendix F.1, "Shakespeare Character Prediction Model".
    """

    @property
    def outputs(self) -> int:
        """Return the size of the vocabulary."""
        return self.vocabulary

    def targets(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return the next tokens: int64[m, length], IGNORED for padding."""
        following = torch.cat([inputs[:, 1:], labels.unsqueeze(1)], dim=1)
        return following.masked_fill(following == PADDING_TOKEN, IGNORED)

    def _answer(self, parameters: Parameters, outputs: Tensor) -> Tensor:
        return linear(outputs, parameters["output.weight"], parameters["output.bias"])


@dataclass(frozen=True, kw_only=True)
class LstmClassifierTask(RecurrentTask):
    """The Surnames network: one LSTM layer, whose last output tells the class.

    Source: "On the Interaction between Differential Privacy and Gradient Compression in Deep
    Learning", a thesis: 256 characters, embedding 64, 128 units, 18 classes.
    """

    vocabulary: int = 256
    embedded: int = 64
    hidden: int = 128
    layers: int = 1
    classes: int = 18  # labels

    @property
    def outputs(self) -> int:
        """Return the number of classes."""
        return self.classes

    def _answer(self, parameters: Parameters, outputs: Tensor) -> Tensor:
        return linear(outputs[:, -1], parameters["output.weight"], parameters["output.bias"])
