"""Means of clipped gradients for a training step: on k levels, by our mechanism, Gaussian, plain.

All vectors have norms up to D = 1. Neighbours replace one client's vector, as in the paper. Every
estimator takes the clients' vectors in one of two ways:

* ``each``: every client rotates and rounds by the mechanism itself; the sum is one of integers;
* ``summed``: the float sum is rotated, and what n clients' rounding does to it is drawn at once, as
  a normal of the largest variance that rounding can have, n/4 per coordinate.

The second is an approximation, for long runs: of the rounding only, which is small beside the
coins, and a sum of n independent terms. Both add the coins of all clients at once. That is exact:
n sums of m fair coins are one sum of n m. Nothing here is secure, and the generator is NumPy's; the
laws are what counts.

Source: Agarwal et al. 2018 (arXiv 1805.10559), Theorem 4.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dp import Bounded, NoiseSeed, clip_l2, noise_multiplier_for_epsilon, quantize
from dp.mechanisms.levels import LevelMechanism
from simulations.reproduce.cpsgd.mean_estimation import NORM, Conditional, Setting
from sketch import PublicSeed, Rotation

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Estimator(Protocol):
    """Estimates a mean of vectors of norms up to D from their sum; `Rounded` from each, too."""

    def summed(self, total: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Estimate from the sum of all clients' vectors, float64[d]."""


@dataclass(frozen=True, slots=True)
class Plain:
    """The mean itself."""

    clients: int  # n

    def summed(self, total: FloatArray, rng: np.random.Generator) -> FloatArray:
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

    def summed(self, total: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Add noise to the sum."""
        noise = self.sigma * rng.standard_normal(total.size)
        return np.asarray((total + noise) / self.setting.clients, np.float64)


@dataclass(frozen=True, slots=True)
class Rounded(ABC):
    """Rotated, rounded to integers, with coins."""

    setting: Setting  # clients, and the padded dimension, a power of two
    coins: int  # m of one client, per coordinate

    @property
    @abstractmethod
    def width(self) -> float:
        """What one integer step is worth, in units of the vectors."""

    @property
    @abstractmethod
    def offset(self) -> float:
        """The integer, possibly a half, that stands for zero."""

    @abstractmethod
    def integers(self, rotated: Bounded, seed: NoiseSeed) -> IntArray:
        """Round one client's rotated vector: int64[D]."""

    def rotation(self, rng: np.random.Generator) -> Rotation:
        """Draw the public rotation of a step."""
        return Rotation(self.setting.dimension, PublicSeed(rng.bytes(32)))

    def padded(self, vector: FloatArray) -> FloatArray:
        """Append zeros up to the rotation's length."""
        return np.pad(vector, (0, self.setting.dimension - vector.size))

    def add_each(
        self, vectors: Iterable[FloatArray], rotation: Rotation, rng: np.random.Generator
    ) -> IntArray:
        """Return the sum of all clients' integers, without coins: int64[D]."""
        total = np.zeros(self.setting.dimension, np.int64)
        for vector in vectors:
            total += self.integers(self.rotated(vector, rotation), NoiseSeed(rng.bytes(32)))
        return total

    def rotated(self, vector: FloatArray, rotation: Rotation) -> Bounded:
        """Pad, clip and rotate one client's vector."""
        return clip_l2(self.padded(vector), NORM).map_isometry(rotation.forward)

    def release(
        self, integers: IntArray, rotation: Rotation, rng: np.random.Generator
    ) -> FloatArray:
        """Add all clients' coins to the sum and estimate the mean: float64[D]."""
        total = integers + self.coins_of_all(rng, integers.size)
        return rotation.inverse(self.estimate(total))

    def coins_of_all(self, rng: np.random.Generator, length: int) -> IntArray:
        """Draw Bin(n m, 1/2)."""
        return rng.binomial(self.setting.clients * self.coins, 0.5, length)

    def estimate(self, total: IntArray) -> FloatArray:
        """Return the mean, still rotated, from the noised sum."""
        places = total / self.setting.clients - self.offset - 0.5 * self.coins
        return np.asarray(self.width * places, np.float64)

    def summed(self, total: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Estimate from the sum of all clients' vectors, with the spread of their rounding."""
        rotation, clients = self.rotation(rng), self.setting.clients
        rotated = rotation.forward(self.padded(total))
        spread = 0.5 * math.sqrt(clients) * rng.standard_normal(rotated.size)
        integers = np.rint(rotated / self.width + clients * self.offset + spread)
        return self.release(integers.astype(np.int64), rotation, rng)[: total.size]

    def each(self, vectors: Iterable[FloatArray], rng: np.random.Generator) -> FloatArray:
        """Estimate from the vectors; the length of the first counts."""
        rotation, rows = self.rotation(rng), iter(vectors)
        first = next(rows)
        integers = self.add_each([first], rotation, rng) + self.add_each(rows, rotation, rng)
        return self.release(integers, rotation, rng)[: first.size]


@dataclass(frozen=True, slots=True)
class OnLevels(Rounded):
    """The k-level mechanism as printed, with the X of Theorem 4's constants."""

    levels: int  # k

    @property
    def mechanism(self) -> LevelMechanism:
        """The mechanism of one client."""
        return self.setting.levels(self.levels, self.coins)

    @property
    def width(self) -> float:
        """2 X / (k - 1)."""
        return self.mechanism.width

    @property
    def offset(self) -> float:
        """The middle of the levels."""
        return 0.5 * (self.levels - 1)

    def integers(self, rotated: Bounded, seed: NoiseSeed) -> IntArray:
        """Round at random, unconditionally."""
        return self.mechanism.quantize(rotated, seed).values


@dataclass(frozen=True, slots=True)
class ByScale(Rounded):
    """This project's binomial mechanism."""

    scale: float  # integer units for a vector of norm D

    @property
    def width(self) -> float:
        """One over the scale."""
        return 1.0 / self.scale

    @property
    def offset(self) -> float:
        """Zero stands for zero."""
        return 0.0

    def integers(self, rotated: Bounded, seed: NoiseSeed) -> IntArray:
        """Round at random until the norm is within its bound."""
        linf = Conditional(self.setting, self.scale).linf
        return quantize(rotated, self.scale, linf, seed).values
