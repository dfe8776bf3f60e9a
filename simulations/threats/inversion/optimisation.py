"""Pictures by search: change a dummy picture until its gradient points where the seen one does.

    minimise over x in [0, 1]^pixels:   1 - cos(gradient(x, y), seen) + weight * TV(x)

TV is the mean absolute difference of neighbouring pixels; the labels y are from `analytic`.

Source: Zhu, Liu and Han 2019 (arXiv 1906.08935) for the idea; Geiping et al. 2020
(arXiv 2003.14053), section 4 and equation (4), for this objective.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from secagg import ParameterError
from simulations.audits.base import Floats, Integers
from simulations.learning.models import Task, Vector
from simulations.learning.models.convolutional import image_sides


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How long and how to search."""

    steps: int  # of Adam, >= 1
    rate: float = 0.1  # of Adam, in pixels; it falls to nothing by a cosine
    total_variation: float = 1e-3  # weight of TV, >= 0
    seed: int = 0  # of the random start

    def __post_init__(self) -> None:
        if self.steps < 1 or not self.rate > 0.0 or not self.total_variation >= 0.0:
            raise ParameterError(
                "steps, rate, total_variation",
                (self.steps, self.rate, self.total_variation),
                "at least 1, positive, not negative",
            )


def invert(
    task: Task,
    model: Vector,
    gradient: Floats,
    labels: Integers,
    shape: tuple[int, ...],
    search: Search,
) -> Floats:
    """Search pictures, float64[m, pixels] in [0, 1], whose mean gradient points where one does.

    It is float64[d], of any length, and was taken at the model float32[d].
    """
    generator = torch.Generator().manual_seed(search.seed)
    pictures = torch.rand((len(labels), *image_sides(shape)), generator=generator)
    pictures.requires_grad_()
    seen = torch.tensor(gradient, dtype=torch.float32)
    seen = seen / seen.norm().clamp_min(torch.finfo(torch.float32).tiny)
    answers = torch.tensor(labels)
    optimizer = torch.optim.Adam([pictures], lr=search.rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, search.steps)
    for _ in range(search.steps):
        distance = 1.0 - _cosine(task, model, pictures, answers, seen)
        objective = distance + search.total_variation * _variation(pictures)
        (slope,) = torch.autograd.grad(objective, pictures)
        pictures.grad = slope.sign()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            pictures.clamp_(0.0, 1.0)
    found: Floats = pictures.detach().flatten(1).numpy().astype(np.float64)
    return found


def _cosine(task: Task, model: Vector, pictures: Tensor, labels: Tensor, seen: Tensor) -> Tensor:
    """Cosine of the angle between the pictures' gradient and the unit vector seen."""
    vector = torch.tensor(model, requires_grad=True)
    loss = task.loss_of(task.layout.unflatten(vector), pictures, labels, torch.ones(len(labels)))
    (own,) = torch.autograd.grad(loss, vector, create_graph=True)
    cosine: Tensor = own @ seen / own.norm().clamp_min(torch.finfo(torch.float32).tiny)
    return cosine


def _variation(pictures: Tensor) -> Tensor:
    """Mean absolute difference of neighbouring pixels."""
    down = (pictures[..., 1:, :] - pictures[..., :-1, :]).abs().mean()
    return down + (pictures[..., :, 1:] - pictures[..., :, :-1]).abs().mean()
