"""FedSel's report: one coordinate, chosen privately, and its value, randomised.

The first stage chooses an index with ``selector.epsilon``, the second randomises the value found
there with ``scalar.epsilon``. The report is the pair, and its epsilons add up:

    P[(j, y) | v] = P[j | v] P[y | v_j]  <=  e^(epsilon1 + epsilon2) P[j | v'] P[y | v'_j].

No smaller sum would do. Let j be the largest coordinate of v, at the upper bound, and of v' the
smallest, beyond the lower bound: both factors are then at their worst at once.

The sum of reports estimates the sum of *sparse* vectors: of each client one clipped coordinate,
unscaled. That is no unbiased estimate of the sum of the vectors, as no server can know with what
probability a coordinate was chosen.

Source: Liu et al. 2020 (arXiv 2003.10637), Algorithm 1, Theorem 1 and Section 5.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from dp.checks import require_between_0_and_1, require_in, require_positive
from dp.events import LocalRelease
from dp.keystream import NoiseSeed
from dp.local.base import require_epsilon, require_vectors, summed_epsilon
from dp.local.scalars import Piecewise, ScalarRandomizer
from dp.local.selection import (
    NOTHING,
    Selector,
    exponential,
    perturbed_encoding,
    perturbed_sampling,
)

SELECTION_SHARE: Final = 0.1
"""mu, the share of epsilon for choosing: the paper's default."""

KEPT_SHARE: Final = 0.1
"""k/d, the share of coordinates that count as large: the paper's default."""

LARGEST_SHARE: Final = 0.2
"""theta, beyond which mu does harm: the paper's threshold."""

SelectorName = Literal["exponential", "encoding", "sampling"]


@dataclass(frozen=True, slots=True, eq=False)
class TwoStageReports:
    """Index and message of each of n clients.

    Attributes:
        indices: int64[n], in 0..d - 1, or ``NOTHING`` for a client that sent nothing else.
        messages: int64[n], of the scalar randomiser; 0 where nothing was chosen.
        randomizer: what made them.
    """

    indices: NDArray[np.int64]
    messages: NDArray[np.int64]
    randomizer: TwoStage

    def __len__(self) -> int:
        """Return the number n of reports."""
        return self.indices.size

    def values(self) -> NDArray[np.float64]:
        """Return float64[n]: the estimates of the chosen values, 0 where nothing was chosen."""
        estimates = self.randomizer.bound * self.randomizer.scalar.estimates(self.messages)
        return np.where(self.indices == NOTHING, 0.0, estimates)

    def estimate(self, index: int) -> NDArray[np.float64]:
        """Return float64[d]: one client's estimate, zero but for the coordinate that was sent."""
        out = np.zeros(self.randomizer.dimension)
        if self.indices[index] != NOTHING:
            out[self.indices[index]] = self.values()[index]
        return out

    def total(self) -> NDArray[np.float64]:
        """Return float64[d]: the sum of all estimates."""
        chosen = np.maximum(self.indices, 0)
        out = np.bincount(chosen, self.values(), self.randomizer.dimension)
        return np.asarray(out, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class TwoStage:
    """A selector, and a scalar randomiser for the value of what it chose.

    Attributes:
        selector: chooses a coordinate.
        scalar: randomises its value.
        bound: values are clipped to [-bound, bound], > 0.
    """

    selector: Selector
    scalar: ScalarRandomizer
    bound: float = 1.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if the bound is out of range."""
        require_positive("bound", self.bound)

    @property
    def dimension(self) -> int:
        """d, the number of coordinates."""
        return self.selector.dimension

    @property
    def epsilon(self) -> float:
        """Epsilon of a report: that of both stages, rounded up to a double."""
        return summed_epsilon(self.selector.epsilon, self.scalar.epsilon)

    @property
    def report_bits(self) -> float:
        """An index and a message."""
        return (self.selector.outputs - 1).bit_length() + self.scalar.report_bits

    def randomize(self, vectors: NDArray[np.float64], seed: NoiseSeed) -> TwoStageReports:
        """Return one report for each vector.

        Args:
            vectors: float64[n, d], finite.
            seed: must not have randomised other vectors.
        """
        return self.report(vectors, vectors, seed)

    def report(
        self, weighed: NDArray[np.float64], sent: NDArray[np.float64], seed: NoiseSeed
    ) -> TwoStageReports:
        """Choose by the magnitudes of one vector, and send the value of another.

        Args:
            weighed: float64[n, d], finite: whose large coordinates are looked for.
            sent: float64[n, d], finite: whose coordinate is sent.
            seed: must not have randomised other vectors.
        """
        require_vectors(weighed, self.dimension)
        require_vectors(sent, self.dimension)
        if weighed.shape != sent.shape:
            raise ValueError(f"sent must have shape {weighed.shape}, got {sent.shape}")
        indices = self.selector.select(np.abs(weighed), seed)
        # Where nothing was chosen a message is made all the same: time should not tell.
        values = sent[np.arange(len(sent)), np.maximum(indices, 0)]
        clipped = np.clip(values, -self.bound, self.bound) / self.bound
        messages = self.scalar.messages(np.clip(clipped, -1.0, 1.0), seed)
        return TwoStageReports(indices, np.where(indices == NOTHING, 0, messages), self)

    def event(self) -> LocalRelease:
        """Return what one report spends."""
        return LocalRelease(float(self.epsilon))


def two_stage(
    dimension: int,
    epsilon: float,
    *,
    selector: SelectorName = "sampling",
    selection_share: float = SELECTION_SHARE,
    kept_share: float = KEPT_SHARE,
    bound: float = 1.0,
) -> TwoStage:
    """Return FedSel with the Piecewise Mechanism for values.

    Args:
        dimension: d >= 2.
        epsilon: of a whole report.
        selector: EXP, PE or PS.
        selection_share: mu in [0, 1): epsilon1 = mu epsilon, and the rest is for the value.
        kept_share: k/d in (0, 1); k is rounded, and at least 1. EXP has none.
        bound: values are clipped to [-bound, bound].
    """
    require_epsilon(epsilon)
    require_in("selection_share", selection_share, 0.0, 1.0, "[)")
    require_between_0_and_1("kept_share", kept_share)
    for_choice = selection_share * epsilon
    chosen = _selector(selector, dimension, for_choice, kept_share)
    return TwoStage(chosen, Piecewise(_left(epsilon, for_choice)), bound)


def _left(epsilon: float, spent: float) -> float:
    """Return the largest float that epsilon has room for beside what is spent, exactly."""
    left = epsilon - spent
    while summed_epsilon(spent, left) > epsilon:
        left = math.nextafter(left, 0.0)
    return left


def _selector(name: str, dimension: int, epsilon: float, kept_share: float) -> Selector:
    top = min(max(1, round(kept_share * dimension)), max(1, dimension - 1))
    if name == "exponential":
        return exponential(dimension, epsilon)
    if name == "encoding":
        return perturbed_encoding(dimension, top, epsilon)
    if name == "sampling":
        return perturbed_sampling(dimension, top, epsilon)
    raise ValueError(f"selector must be exponential, encoding or sampling, got {name!r}")


def selection_share_for(
    dimension: int, clients: int, epsilon: float, largest: float = LARGEST_SHARE
) -> float:
    """Return mu by the paper's rule without parameters: values first, the rest for choosing.

    Values first get sqrt(d ln d/m), which the paper gives as an order of magnitude and which is
    read here with the constant 1. What is left, if anything, goes to the choice, but no more
    than ``largest`` of the whole: mu = min(largest, max(0, 1 - sqrt(d ln d/m)/epsilon)).

    Args:
        dimension: d >= 1.
        clients: m, reports in one sum, >= 1.
        epsilon: of a whole report.
        largest: theta in [0, 1).

    Source: Liu et al. 2020 (arXiv 2003.10637), Section 5.3.
    """
    require_epsilon(epsilon)
    if dimension < 1 or clients < 1:
        raise ValueError(f"dimension and clients must be positive, got {dimension} and {clients}")
    require_in("largest", largest, 0.0, 1.0, "[)")
    for_values = math.sqrt(dimension * math.log(dimension) / clients)
    return min(largest, max(0.0, 1.0 - for_values / epsilon))
