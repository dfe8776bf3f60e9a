"""vqSGD with the cross-polytope: a unit vector as one of 2d vertices, told truthfully or not.

A vector of the unit ball is a mixture of the vertices +-sqrt(d) e_i: |v_i|/sqrt(d) of the one with
the sign of v_i, and (1 - |v|_1/sqrt(d))/(2d) of every one. A vertex drawn from the mixture has the
vector as its mean. Randomised response then keeps it or replaces it by another vertex; the
vertices add up to zero, so dividing by the difference of the two probabilities leaves no bias.

Several draws from one vector are several reports. Each gets an equal share of epsilon: their
epsilons add up, also where the draws are averaged into one report.

Source: Gandikota et al. 2021 (arXiv 1911.07971), Sections 3 and 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dp.checks import require_integer
from dp.clipping import NORM_SLACK
from dp.errors import SensitivityExceededError
from dp.events import LocalRelease
from dp.keystream import Keystream, NoiseSeed, Usage
from dp.local._kernels import draw_vertices
from dp.local.base import require_dimension, require_epsilon, require_vectors, shared_epsilon
from dp.local.windows import WindowLaw, window_law

MAX_REPEATS: Final = 1 << 20

_WORD: Final = np.dtype("<u8")


@dataclass(frozen=True, slots=True, eq=False)
class CrossPolytopeReports:
    """The vertices that n clients sent.

    Attributes:
        vertices: int64[n, repeats]; i stands for +sqrt(d) e_i, and d + i for -sqrt(d) e_i.
        randomizer: what made them.
    """

    vertices: NDArray[np.int64]
    randomizer: CrossPolytope

    def __len__(self) -> int:
        """Return the number n of reports."""
        return len(self.vertices)

    def estimate(self, index: int) -> NDArray[np.float64]:
        """Return float64[d]: the estimate of one client's vector."""
        return self._sum(self.vertices[index])

    def total(self) -> NDArray[np.float64]:
        """Return float64[d]: the sum of all estimates."""
        return self._sum(self.vertices.reshape(-1))

    def _sum(self, vertices: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the scaled sum of vertices."""
        d = self.randomizer.dimension
        counts = np.bincount(vertices, minlength=2 * d)
        return np.asarray(self.randomizer.scale * (counts[:d] - counts[d:]), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class CrossPolytope:
    """Randomised response over the vertices of the cross-polytope.

    Attributes:
        dimension: d.
        epsilon: of a whole report, all repeats together.
        repeats: R, vertices of one report, ``1 <= repeats <= MAX_REPEATS``.
    """

    dimension: int
    epsilon: float
    repeats: int = 1

    def __post_init__(self) -> None:
        require_dimension(self.dimension)
        require_epsilon(self.epsilon)
        require_integer("repeats", self.repeats, 1, MAX_REPEATS)
        require_epsilon(shared_epsilon(self.epsilon, self.repeats))

    @property
    def law(self) -> WindowLaw:
        """The law of one vertex, given which one was drawn: a window of one among 2d."""
        return window_law(2 * self.dimension, 1, shared_epsilon(self.epsilon, self.repeats))

    @property
    def scale(self) -> float:
        """What one vertex adds to the estimate of its coordinate: sqrt(d)/(R rho)."""
        return math.sqrt(self.dimension) / (self.repeats * self.law.gain)

    @property
    def report_bits(self) -> float:
        """R numbers of a vertex."""
        return float(self.repeats * (2 * self.dimension - 1).bit_length())

    def randomize(self, vectors: NDArray[np.float64], seed: NoiseSeed) -> CrossPolytopeReports:
        """Return one report for each vector.

        Args:
            vectors: float64[n, d], each of L2 norm at most 1 (but for ``NORM_SLACK``).
            seed: must not have randomised other vectors.

        Raises:
            NonFiniteUpdateError: a coordinate is NaN or infinite.
            SensitivityExceededError: a vector is longer than 1.
        """
        require_vectors(vectors, self.dimension)
        with np.errstate(over="ignore"):
            squares = np.einsum("ij,ij->i", vectors, vectors)
        longer = int(np.count_nonzero(squares > (1.0 + NORM_SLACK) ** 2))
        if longer:
            raise SensitivityExceededError(
                f"{longer} of {vectors.shape[0]} vectors are longer than 1: scale and clip first"
            )
        drawn = self._vertices(vectors, seed)
        sent = self.law.draw(drawn.reshape(-1), seed)
        return CrossPolytopeReports(sent.reshape(drawn.shape), self)

    def _vertices(self, vectors: NDArray[np.float64], seed: NoiseSeed) -> NDArray[np.int64]:
        """Draw the true vertices: int64[n, R], with 53 bits, which moves the input by that much."""
        out = np.empty((vectors.shape[0], self.repeats), dtype=np.int64)
        words = np.empty(out.size, dtype=_WORD)
        Keystream(seed.derive(Usage.LOCAL_VERTEX)).fill(words)
        draw_vertices(np.ascontiguousarray(vectors), words, np.empty(self.dimension), out)
        return out

    def mixture(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return float64[2d]: the probabilities with which the true vertex is drawn."""
        d = self.dimension
        parts = np.concatenate([np.maximum(vector, 0.0), np.maximum(-vector, 0.0)])
        # Within the slack of the norm the sum may be above sqrt(d): then it is the whole.
        parts /= max(math.sqrt(d), float(parts.sum()))
        return parts + (1.0 - float(parts.sum())) / (2 * d)

    def probabilities(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return float64[2d]: the law of one vertex of the report of a vector."""
        law = self.law
        kept = (law.inside - law.outside) / law.total
        return kept * self.mixture(vector) + law.outside / law.total

    def variance(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return float64[d]: the variance of the estimate of each coordinate of a vector.

        One vertex falls on coordinate i with probability q_i, so that the second moment of its
        estimate is d q_i/rho^2; R of them are independent.
        """
        chances = self.probabilities(vector).reshape(2, -1).sum(axis=0)
        square = self.dimension / self.law.gain**2
        return np.asarray((square * chances - np.square(vector)) / self.repeats)

    @property
    def worst_variance(self) -> float:
        """The largest total variance, summed over coordinates: d/(R rho^2), of the zero vector."""
        return self.dimension / (self.repeats * self.law.gain**2)

    def event(self) -> LocalRelease:
        """Return what one report spends, all repeats together."""
        return LocalRelease(float(self.epsilon))
