"""Vectors in [-1, 1]^d by a few sampled coordinates, each a scalar report with a share of epsilon.

k = max(1, min(d, floor(epsilon/2.5))) coordinates are drawn without replacement and independently
of the vector, each is randomised with epsilon/k, and the estimates are scaled by d/k. The report
is the coordinates with their messages: k scalar reports, whose epsilons add up.

Source: Wang et al. 2019 (arXiv 1907.00782), Algorithm 4 and Section IV.B.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dp.checks import require_within
from dp.events import LocalRelease
from dp.keystream import Keystream, NoiseSeed, Usage
from dp.local._kernels import choose_coordinates
from dp.local.base import (
    require_dimension,
    require_epsilon,
    require_unit_range,
    require_vectors,
    shared_epsilon,
)
from dp.local.scalars import DEFAULT_BITS, Hybrid, Piecewise, ScalarRandomizer

EPSILON_EACH: Final = 2.5
"""About what a coordinate should get (Wang et al., Equation (12))."""

_WORD: Final = np.dtype("<u8")
_WORDS_AT_ONCE: Final = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class SampledReports:
    """The sampled coordinates of n clients, and their messages.

    Attributes:
        coordinates: int32[n, k], in 0..d - 1, none twice in a row.
        messages: int64[n, k], as sent.
        randomizer: what made them.
    """

    coordinates: NDArray[np.int32]
    messages: NDArray[np.int64]
    randomizer: SampledCoordinates

    def __len__(self) -> int:
        """Return the number n of reports."""
        return len(self.coordinates)

    def estimate(self, index: int) -> NDArray[np.float64]:
        """Return float64[d]: the estimate of one client's vector, zero where nothing was sent."""
        out = np.zeros(self.randomizer.dimension)
        out[self.coordinates[index]] = self._values(self.messages[index])
        return out

    def total(self) -> NDArray[np.float64]:
        """Return float64[d]: the sum of all estimates."""
        values = self._values(self.messages.reshape(-1))
        out = np.bincount(self.coordinates.reshape(-1), values, self.randomizer.dimension)
        return np.asarray(out, dtype=np.float64)

    def _values(self, messages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return estimates, scaled for the coordinates that were not sampled."""
        return self.randomizer.factor * self.randomizer.scalar.estimates(messages)


@dataclass(frozen=True, slots=True)
class SampledCoordinates:
    """k sampled coordinates, each randomised as a scalar.

    Attributes:
        dimension: d.
        epsilon: of a whole report.
        sampled: k, ``1 <= sampled <= dimension``.
        scalar: of one coordinate; k of its epsilons are at most ``epsilon``.
    """

    dimension: int
    epsilon: float
    sampled: int
    scalar: ScalarRandomizer

    def __post_init__(self) -> None:
        require_dimension(self.dimension)
        require_epsilon(self.epsilon)
        require_within("sampled", self.sampled, 1, self.dimension)
        if self.scalar.epsilon > shared_epsilon(self.epsilon, self.sampled):
            raise ValueError(
                f"scalar may spend at most epsilon {self.epsilon!r} / {self.sampled}, got "
                f"{self.scalar.epsilon!r}"
            )

    @property
    def factor(self) -> float:
        """d/k, which makes up for the coordinates that are not sampled."""
        return self.dimension / self.sampled

    @property
    def report_bits(self) -> float:
        """Bits of the k messages, each with its coordinate unless all are sent."""
        named = self.sampled < self.dimension
        index_bits = (self.dimension - 1).bit_length() if named else 0
        return self.sampled * (self.scalar.report_bits + index_bits)

    def randomize(self, vectors: NDArray[np.float64], seed: NoiseSeed) -> SampledReports:
        """Return one report for each vector.

        Args:
            vectors: float64[n, d], each coordinate in [-1, 1].
            seed: must not have randomised other vectors.

        Raises:
            NonFiniteUpdateError: a coordinate is NaN or infinite.
            SensitivityExceededError: a coordinate lies outside [-1, 1].
        """
        require_vectors(vectors, self.dimension)
        require_unit_range(vectors)
        shape = (vectors.shape[0], self.sampled)
        coordinates = sample_coordinates(*shape, self.dimension, seed)
        values = np.take_along_axis(vectors, coordinates, axis=1).reshape(-1)
        messages = self.scalar.messages(values, seed).reshape(shape)
        return SampledReports(coordinates, messages, self)

    def variance(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return float64[d]: the variance of the estimate of each coordinate of a vector.

        A coordinate is d/k times its scalar estimate with probability k/d and 0 otherwise, so
        its second moment is d/k times that of the scalar.
        """
        return self.scalar.moments.scaled(self.factor).variance(vector)

    @property
    def worst_variance(self) -> float:
        """The largest variance of a coordinate over all vectors."""
        return self.scalar.moments.scaled(self.factor).worst

    def event(self) -> LocalRelease:
        """Return what one report spends."""
        return LocalRelease(float(self.epsilon))


def sampled_count(dimension: int, epsilon: float) -> int:
    """Return k = max(1, min(d, floor(epsilon/2.5)))."""
    return max(1, min(dimension, math.floor(epsilon / EPSILON_EACH)))


def sampled_piecewise(
    dimension: int, epsilon: float, bits: int = DEFAULT_BITS
) -> SampledCoordinates:
    """Return the multi-dimensional Piecewise Mechanism.

    Args:
        dimension: d >= 1.
        epsilon: of a whole report.
        bits: of one coordinate's message.
    """
    return _sampled(Piecewise, dimension, epsilon, bits)


def sampled_hybrid(dimension: int, epsilon: float, bits: int = DEFAULT_BITS) -> SampledCoordinates:
    """Return the multi-dimensional Hybrid Mechanism; arguments as of ``sampled_piecewise``."""
    return _sampled(Hybrid, dimension, epsilon, bits)


def _sampled(
    kind: type[Piecewise | Hybrid], dimension: int, epsilon: float, bits: int
) -> SampledCoordinates:
    """Return a scalar randomiser of this kind on as many coordinates as epsilon is enough for."""
    require_dimension(dimension)
    require_epsilon(epsilon)
    k = sampled_count(dimension, epsilon)
    return SampledCoordinates(dimension, epsilon, k, kind(shared_epsilon(epsilon, k), bits))


def sample_coordinates(rows: int, count: int, dimension: int, seed: NoiseSeed) -> NDArray[np.int32]:
    """Draw ``count`` of ``dimension`` coordinates without replacement, anew for each row.

    Returns:
        int32[rows, count]; every ordered choice is equally likely.
    """
    out = np.empty((rows, count), dtype=np.int32)
    order = np.arange(dimension, dtype=np.int32)
    stream = Keystream(seed.derive(Usage.LOCAL_COORDINATES))
    at_once = max(1, _WORDS_AT_ONCE // count)
    words = np.empty(min(rows, at_once) * count, dtype=_WORD)
    done = 0
    while done < rows:
        piece = out[done : done + at_once]
        stream.fill(words)
        done += int(choose_coordinates(words, order, piece))
    return out
