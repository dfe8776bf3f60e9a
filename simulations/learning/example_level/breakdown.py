"""How wrong a released gradient is, and how much of that is bias and how much is variance.

For one batch and one model, g is the mean of the gradients without clip and noise, and G what the
server uses in its place. E|G - g|^2 = |E G - g|^2 + E|G - E G|^2. Of n repeats the variance is
estimated without bias, and the square of the mean's distance from g less variance / n, which is
without bias as well, but may come out below zero where there is next to none.

May use torch; must not know reports.

Source: "On the Interaction between Differential Privacy and Gradient Compression in Deep Learning",
a thesis, section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm

from simulations.learning.example_level.channel import Opening
from simulations.learning.example_level.clipped import ExampleGradients
from simulations.learning.example_level.training import Examples, noised_mean

REPEATS = 100
"""Draws of noise for every figure, as many as in the thesis."""

Floats = NDArray[np.float64] | NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class GradientError:
    """The squared l2 error of an estimate, in units of the gradient squared."""

    total: float  # mean of |G - g|^2
    bias: float  # |E G - g|^2
    variance: float  # E|G - E G|^2


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """The error after each stage."""

    clipping: GradientError  # after the clip
    noise: GradientError  # after clip and noise
    channel: GradientError  # as the server uses it
    norm: float  # |g|, of the clean mean
    norms: float  # median norm of the gradients of single examples


class ErrorTally:
    """Breaks the error of many estimates down, holding one of them at a time."""

    def __init__(self, goal: Floats) -> None:
        self._goal, self._sum = goal, np.zeros(goal.size)
        self._total, self._count = 0.0, 0

    def add(self, estimate: Floats) -> None:
        """Take in one more estimate, float[d]."""
        error = estimate.astype(np.float64) - self._goal
        self._total += float(error @ error)
        self._sum += error
        self._count += 1

    def result(self) -> GradientError:
        """Return the breakdown."""
        count = self._count
        if count < 2:
            raise ValueError(f"estimates must be at least two, got {count}")
        distance = float(self._sum @ self._sum) / count**2
        variance = (self._total - count * distance) / (count - 1)
        return GradientError(self._total / count, distance - variance / count, variance)


def break_down(
    gradients: ExampleGradients,
    model: NDArray[np.float32],
    examples: Examples,
    places: NDArray[np.int64],  # the examples of the batch
    *,
    clip: float,
    noise_multiplier: float,
    opening: Opening,  # makes the channels, as at the beginning of training
    seed: int,  # of the noise
    repeats: int = REPEATS,  # n, at least 2
    advance: Callable[[], None] = lambda: None,  # called after every repeat
) -> Breakdown:
    """Measure the errors of one batch at one model, with a fresh channel for every repeat."""
    if len(places) == 0:
        raise ValueError("places must name at least one example")
    inputs, labels = examples.part(places)
    start, count = torch.tensor(model), len(places)
    clean = gradients.clipped_sum(start, inputs, labels, None)
    goal = clean.total.numpy() / count
    clipped = gradients.clipped_sum(start, inputs, labels, clip).total
    clipping = float(np.sum((clipped.numpy() / count - goal) ** 2))
    generator = torch.Generator().manual_seed(seed)
    noise, channel = ErrorTally(goal), ErrorTally(goal)
    for _ in range(repeats):
        released = noised_mean(clipped, clip, noise_multiplier, count, generator)
        noise.add(released)
        channel.add(opening().send(released)[0])
        advance()
    return Breakdown(
        clipping=GradientError(clipping, clipping, 0.0),
        noise=noise.result(),
        channel=channel.result(),
        norm=float(np.linalg.norm(goal)),
        norms=float(clean.norms.median()),
    )


def noise_error(dimension: int, clip: float, noise_multiplier: float, batch: int) -> float:
    """Return what noise alone adds to the squared error of a mean: d (z C / B)^2."""
    return dimension * (noise_multiplier * clip / batch) ** 2


def share_kept(rate: float) -> float:
    """Return the share of the energy of pure Gaussian noise in its largest 1 / rate coordinates.

    With P[|Z| > t] = 1 / rate it is E[Z^2; |Z| > t] = 2 t phi(t) + 1 / rate.
    """
    if not rate >= 1.0:
        raise ValueError(f"rate must be at least 1, got {rate}")
    threshold = float(norm.isf(0.5 / rate))
    return 2.0 * threshold * float(norm.pdf(threshold)) + 1.0 / rate
