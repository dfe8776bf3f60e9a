"""Means of clipped gradients for a training step: on k levels, by our mechanism, Gaussian, plain.

All vectors have norms up to D = 1. Neighbours replace one client's vector, as in the paper. An
estimator takes the sum of the clients' vectors. Those who round to integers draw at once what all
clients would draw:

* *coins*: n sums of m fair coins are one sum of n m, which is exact;
* *rounding*: a normal of the largest variance that it can have, n/4 per coordinate, in place of a
  sum of n independent terms. It is small beside the coins; tests compare it with clients who round
  one after another.

Nothing here is secure, and the generator is NumPy's; the laws are what counts.

Source: Agarwal et al. 2018 (arXiv 1805.10559), Theorem 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dp import noise_multiplier_for_epsilon
from simulations.reproduce.cpsgd.mean_estimation import NORM, Setting
from sketch import PublicSeed, Rotation

FloatArray = NDArray[np.float64]


class Estimator(Protocol):
    """Estimates a mean of vectors of norms up to D from their sum."""

    def mean(self, total: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Estimate from the sum of all clients' vectors, float64[d]."""


@dataclass(frozen=True, slots=True)
class Plain:
    """The mean itself."""

    clients: int  # n

    def mean(self, total: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Divide by the number of clients."""
        del rng
        return total / self.clients


@dataclass(frozen=True, slots=True)
class Gaussian:
    """A trusted server adds normal noise to the sum; nobody rotates, rounds or pads."""

    setting: Setting  # clients and delta
    epsilon: float  # of one step, by the exact condition

    @property
    def sigma(self) -> float:
        """Standard deviation on the sum, per coordinate."""
        return 2.0 * NORM * noise_multiplier_for_epsilon(self.epsilon, self.setting.delta)

    def mean(self, total: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Add noise to the sum."""
        noise = self.sigma * rng.standard_normal(total.size)
        return np.asarray((total + noise) / self.setting.clients, np.float64)


@dataclass(frozen=True, slots=True)
class Rounded:
    """Rotated, rounded to integers, with coins: the paper's k levels, or our mechanism."""

    setting: Setting  # clients, and the padded dimension, a power of two
    coins: int  # m of one client, per coordinate
    width: float  # what one integer step is worth, in units of the vectors
    offset: float  # the integer, possibly a half, that stands for zero

    def mean(self, total: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Rotate the sum, round it as all clients together do, and add all their coins."""
        rotation = Rotation(self.setting.dimension, PublicSeed(rng.bytes(32)))
        rotated = rotation.forward(np.pad(total, (0, self.setting.dimension - total.size)))
        places = rotated / self.width + self.setting.clients * self.offset
        spread = 0.5 * math.sqrt(self.setting.clients) * rng.standard_normal(rotated.size)
        integers = np.rint(places + spread).astype(np.int64) + self.coins_of_all(rng, rotated.size)
        return rotation.inverse(self.estimate(integers))[: total.size]

    def coins_of_all(self, rng: np.random.Generator, length: int) -> NDArray[np.int64]:
        """Draw Bin(n m, 1/2)."""
        return rng.binomial(self.setting.clients * self.coins, 0.5, length)

    def estimate(self, total: NDArray[np.int64]) -> FloatArray:
        """Return the mean, still rotated, from the noised sum of the clients' integers."""
        places = total / self.setting.clients - self.offset - 0.5 * self.coins
        return np.asarray(self.width * places, np.float64)


def on_levels(setting: Setting, coins: int, levels: int) -> Rounded:
    """Return the k-level mechanism as printed, with the X of Theorem 4's constants."""
    width = setting.levels(levels, coins).width
    return Rounded(setting, coins, width, 0.5 * (levels - 1))


def by_scale(setting: Setting, coins: int, scale: float) -> Rounded:
    """Return this project's binomial mechanism at a scale: integer units for a norm of D."""
    return Rounded(setting, coins, 1.0 / scale, 0.0)
