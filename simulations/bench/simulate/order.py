"""What simulated training is asked for; without torch, so that a command can offer it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class SimulatedModel(Enum):
    """Models whose training is measured, on 28x28 pixels."""

    LOGISTIC = "logistic"
    MLP = "mlp"
    MLP60 = "mlp60"
    TINY = "tiny"
    LENET5 = "lenet5"
    CNN = "cnn"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be simulated; small, so that a peer's workers can rebuild the rest from it.

    Args:
        model: the network.
        clients: of the cohort; each has examples of its own.
        steps: SGD steps of a client, one pass over its examples.
        batch: examples of a step.
        data_dir: folder with MNIST; made-up pixels and 62 classes for `cnn` if left out.
    """

    model: SimulatedModel
    clients: int
    steps: int
    batch: int
    data_dir: str | None = None
