"""What the server does with the mean update: plain and momentum SGD, or Adam.

All of it is post-processing of a released value, so it costs no privacy.

Source: Reddi et al. 2021 (arXiv 2003.00295), Algorithm 2 (FedAvgM and FedAdam; no bias correction).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from simulations.learning.configuration import Server
from simulations.learning.models.layout import Vector


@dataclass(frozen=True, slots=True, eq=False)
class ModelState:
    """A model and what its optimiser remembers: all that a checkpoint needs of learning."""

    model: Vector  # float32[d]
    velocity: NDArray[np.float64]  # float64[d], the moving mean of updates
    # float64[d], the moving mean of their squares; zeros unless the optimiser is Adam
    squares: NDArray[np.float64]
    # float64[d], the mean of the last models, if they are averaged; None if there is none yet
    average: NDArray[np.float64] | None = None
    averaged: int = 0  # how many models are in it

    @classmethod
    def initial(cls, model: Vector) -> ModelState:
        """Before the first round."""
        return cls(model, np.zeros(model.size), np.zeros(model.size))

    @property
    def released(self) -> Vector:
        """The model that is tested and handed out, float32[d]; the mean of the last, if any."""
        return self.model if self.average is None else self.average.astype(np.float32)

    def with_average(self) -> ModelState:
        """This model counted among those that are averaged."""
        before = np.zeros(self.model.size) if self.average is None else self.average
        count = self.averaged + 1
        return replace(self, average=before + (self.model - before) / count, averaged=count)


def optimize(
    server: Server, state: ModelState, mean: NDArray[np.float64], rate: float
) -> ModelState:
    """Move the model by one mean update.

    Args:
        mean: float64[d], the mean of the clients' updates; a step along it lowers their losses.
    """
    if server.optimizer == "adam":
        velocity = server.momentum * state.velocity + (1.0 - server.momentum) * mean
        squares = server.beta2 * state.squares + (1.0 - server.beta2) * mean**2
        step = velocity / (np.sqrt(squares) + server.adaptivity)
    else:
        velocity = server.momentum * state.velocity + mean
        squares, step = state.squares, velocity
    model = (state.model + rate * step).astype(np.float32)
    return replace(state, model=model, velocity=velocity, squares=squares)
