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
    """What is to be simulated; small, so that a peer's workers can rebuild the rest from it."""

    model: SimulatedModel  # the network
    clients: int  # of the cohort; each has examples of its own
    steps: int  # SGD steps of a client, one pass over its examples
    batch: int  # examples of a step
    # folder with MNIST; made-up pixels and 62 classes for `cnn` if left out
    data_dir: str | None = None
