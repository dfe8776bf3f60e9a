"""PrivQuant: a whole vector of levels, reported as another one that mostly agrees with it.

A client rounds its vector to levels, x. With probability p it reports a vector V drawn uniformly
from all that agree with x in at least tau places, else one drawn from all the others:

    P[V = v | x] = p / S_hi  if v agrees with x in tau places or more,  else  (1 - p) / S_lo.

There are two probabilities in all, so that epsilon = ln(p/(1-p) S_lo/S_hi), exactly, whatever x.
By symmetry V_j is x_j with some probability, and every other level with one and the same, hence
E[V_j | x] = m x_j for

    m = p A/S_hi - (1 - p) A/S_lo,        A = C(d - 1, tau - 1) (K - 1)^(d - tau),

and V/m is unbiased. What is sent are the numbers of the levels, which a secure sum can add up.

How exactly this is drawn: p is a multiple of 2^-64 and is compared with 64 bits; the number of
agreements is drawn by inversion with as many bits as it takes, the places and the other levels by
unbiased whole numbers. Nothing is cut off or rounded, so epsilon is that of the law above, as a
double rounded up. The one approximation, in the rounding to levels, touches neither it nor x.

Source: sqSGD ("Practical Locally Private Federated Learning with Communication Efficiency"),
Algorithm 1 and Theorem 1; K = 2 is PrivUnit_inf of Bhowmick et al. 2018 (arXiv 1812.00984). The
derivation of m and the range of kappa are in docs/local-dp-sqsgd.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dp.checks import require_float, require_integer
from dp.events import LocalRelease
from dp.keystream import Keystream, NoiseSeed, Usage
from dp.local.agreement import AgreementLaw, AgreementSums, agree_in, require_dimension
from dp.local.base import MIN_EPSILON, require_vectors
from dp.local.quantizer import LevelArray, LevelQuantizer
from dp.sampling import sample_law

MAX_OUTCOMES: Final = 1 << 12
"""Most vectors of levels whose probabilities are listed one by one."""

LEAST_EPSILON: Final = MIN_EPSILON / 2.0
"""Below it a report says nothing. Reports made for ``MIN_EPSILON`` have a little less than that."""

_WORDS: Final = 1 << 64
_BLOCK: Final = 1 << 12
"""Coordinates whose levels are added up together: a few rows stay in the cache."""


@dataclass(frozen=True, slots=True)
class PrivQuant:
    """The randomiser for one kappa and one p; see ``dp.local.calibration`` for choosing them.

    Attributes:
        dimension: d, ``1..2^24``.
        levels: K, ``2..2^15``.
        bound: U: coordinates lie in [-U, U].
        kappa: agreements less disagreements must be above it, ``1 - d .. d - 1``; the paper has
            0 .. d - 1.
        probability: p of the high set, in (0, 1), a multiple of 2^-64.

    Raises:
        TypeError, ValueError: an attribute is out of range, or the report would say nothing: the
            high set must be the likelier one, vector by vector.
    """

    dimension: int
    levels: int
    bound: float
    kappa: int
    probability: float

    def __post_init__(self) -> None:
        require_dimension(self.dimension)
        LevelQuantizer(self.levels, self.bound)
        require_integer("kappa", self.kappa, 1 - self.dimension, self.dimension - 1)
        require_float("probability", self.probability)
        words = self.probability * _WORDS
        if not (0.0 < self.probability < 1.0 and words == math.floor(words)):
            raise ValueError(
                f"probability must be a multiple of 2^-64 in (0, 1), got {self.probability!r}"
            )
        if self.epsilon < LEAST_EPSILON:
            raise ValueError(
                f"kappa {self.kappa} and probability {self.probability!r} make reports that agree "
                f"no more likely than others (d = {self.dimension}, K = {self.levels}): raise one "
                "of the two"
            )

    @property
    def threshold(self) -> int:
        """Least number of agreements in the high set: tau = ceil((d + kappa + 1) / 2)."""
        return (self.dimension + self.kappa + 2) // 2

    @property
    def sums(self) -> AgreementSums:
        """The sizes of the two sets."""
        return AgreementSums(self.dimension, self.levels, self.threshold)

    @property
    def quantizer(self) -> LevelQuantizer:
        """How vectors become levels."""
        return LevelQuantizer(self.levels, self.bound)

    @property
    def epsilon(self) -> float:
        """ln(p/(1-p) S_lo/S_hi): what one report spends, exactly, rounded up to a double."""
        return self.sums.log_density_ratio(self.probability)

    @property
    def factor(self) -> float:
        """m, in (0, 1): E[V | x] = m x.

        m = p A/S_hi (1 - e^-epsilon) is the difference of the two terms without cancellation.
        """
        _, high = self.sums.steps
        return self.probability * high * -math.expm1(-self.epsilon)

    @property
    def report_bits(self) -> float:
        """Bits of one report: ceil(log2 K) for each of the d coordinates."""
        return float(self.dimension * self.quantizer.bits)

    def event(self) -> LocalRelease:
        """Return what one report spent."""
        return LocalRelease(self.epsilon)

    def randomize(self, vectors: NDArray[np.float64], seed: NoiseSeed) -> LevelReports:
        """Round every row to levels, and report a vector that mostly agrees.

        Args:
            vectors: float64[n, d] within [-U, U], n >= 1; one client is n = 1.
            seed: must not have randomised other vectors.

        Raises:
            NonFiniteUpdateError: a coordinate is NaN or infinite.
            SensitivityExceededError: a coordinate lies outside [-U, U].
        """
        require_vectors(vectors, self.dimension)
        levels = self.quantizer.quantize(vectors, seed)
        agree_in(levels, self._agreements(len(levels), seed), self.levels, seed)
        return LevelReports(self, levels)

    def _agreements(self, count: int, seed: NoiseSeed) -> NDArray[np.int64]:
        """Draw in how many places each report agrees.

        One number is drawn from either set and one of the two is used, so that the work does not
        tell which.
        """
        words = np.empty(count, dtype="<u8")
        Keystream(seed.derive(Usage.AGREEMENT_SIDE)).fill(words)
        side = words < np.uint64(int(self.probability * _WORDS))
        low = AgreementLaw(self.dimension, self.levels, 0, self.threshold - 1)
        high = AgreementLaw(self.dimension, self.levels, self.threshold, self.dimension)
        drawn_low = sample_law(low, seed.derive(Usage.AGREEMENT_COUNT, 0), count)
        drawn_high = sample_law(high, seed.derive(Usage.AGREEMENT_COUNT, 1), count)
        return np.where(side, drawn_high, drawn_low)

    def decode_sum(self, level_sum: NDArray[Any], count: int) -> NDArray[np.float64]:
        """Return the sum of the estimates of ``count`` reports whose levels add up to this.

        Args:
            level_sum: integers [d], each in ``0 .. count (K - 1)``; wider than the levels.
            count: n, at least 0.

        Raises:
            ValueError: another shape, or sums that so many reports cannot have.
        """
        if level_sum.shape != (self.dimension,):
            raise ValueError(f"level_sum must be [{self.dimension}], got {level_sum.shape}")
        top = count * (self.levels - 1)
        if not (level_sum.min() >= 0 and level_sum.max() <= top):
            raise ValueError(f"level_sum must lie in 0..{top} for {count} reports")
        return self.quantizer.step / self.factor * (level_sum - 0.5 * top)

    def variance(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the variance of every coordinate of one estimate, rounding included.

        V_j has the law of "x_j with probability m, else any level", so that with s^2 the mean of
        the squared levels E[V_j^2 | x] = m x_j^2 + (1 - m) s^2, and with the value t before
        rounding

            Var = (1 - m) s^2 / m^2 + E[x_j^2] / m - t^2.

        Args:
            values: float64, within [-U, U].
        """
        m = self.factor
        noise = (1.0 - m) * self.quantizer.mean_square / m**2
        return noise + self.quantizer.second_moment(values) / m - values**2

    @property
    def worst_variance(self) -> float:
        """The largest variance of one coordinate, over all values in [-U, U].

        Between two levels the variance is a parabola with its top at their middle over m.
        """
        edges = self.quantizer.values(np.arange(self.levels))
        tops = np.clip(0.5 * (edges[1:] + edges[:-1]) / self.factor, edges[:-1], edges[1:])
        return float(self.variance(tops).max())

    def log_probability(self, agreements: int) -> float:
        """Return ln P[V = v | x] of a vector of levels that agrees with x in so many places."""
        low, high = self.sums.log_sizes
        if agreements >= self.threshold:
            return math.log(self.probability) - high
        return math.log1p(-self.probability) - low

    def pmf(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the law of the report of one vector, rounding included.

        Args:
            vector: float64[d] within [-U, U], with K^d at most ``MAX_OUTCOMES``.

        Returns:
            float64[K^d]; report (v_1, ..., v_d) has number v_1 K^(d-1) + ... + v_d.

        Raises:
            ValueError: K^d is larger.
        """
        outcomes = self.levels**self.dimension
        if outcomes > MAX_OUTCOMES:
            raise ValueError(f"K^d must be at most {MAX_OUTCOMES} to list a law, got {outcomes}")
        reports = np.stack(np.unravel_index(np.arange(outcomes), (self.levels,) * self.dimension))
        rounded = np.ones(1)
        for law in self.quantizer.law(vector):
            rounded = np.multiply.outer(rounded, law).reshape(-1)
        agreements = (reports[:, :, None] == reports[:, None, :]).sum(axis=0)
        counts = range(self.dimension + 1)
        density = np.exp([self.log_probability(count) for count in counts])
        return np.asarray(density[agreements] @ rounded)


@dataclass(frozen=True, slots=True, eq=False)
class LevelReports:
    """Reports as levels, each a number 0 .. K - 1.

    Attributes:
        randomizer: who made them.
        levels: int8[n, d] or int16[n, d], read-only.
    """

    randomizer: PrivQuant
    levels: LevelArray

    def __post_init__(self) -> None:
        """Raise ``ValueError`` unless the levels are those of the randomiser; freeze them."""
        expected = self.randomizer.quantizer.dtype
        if self.levels.dtype != expected or self.levels.shape[1:] != (self.randomizer.dimension,):
            raise ValueError(
                f"levels must be {expected}[n, {self.randomizer.dimension}], "
                f"got {self.levels.dtype}{list(self.levels.shape)}"
            )
        if self.levels.size and not (
            self.levels.min() >= 0 and self.levels.max() < self.randomizer.levels
        ):
            raise ValueError(f"levels must lie in 0..{self.randomizer.levels - 1}")
        self.levels.flags.writeable = False

    def __len__(self) -> int:
        """Return the number n of reports."""
        return len(self.levels)

    def estimate(self, index: int) -> NDArray[np.float64]:
        """Return float64[d]: what one report says of its vector, without bias."""
        return self.randomizer.decode_sum(self.levels[index], 1)

    def level_sum(self) -> NDArray[np.int64]:
        """Return int64[d]: the sum of the levels, as a secure sum would give it."""
        out = np.empty(self.levels.shape[1], dtype=np.int64)
        for start in range(0, out.size, _BLOCK):
            part = self.levels[:, start : start + _BLOCK]
            out[start : start + _BLOCK] = part.sum(axis=0, dtype=np.int64)
        return out

    def total(self) -> NDArray[np.float64]:
        """Return float64[d]: the sum of all estimates."""
        return self.randomizer.decode_sum(self.level_sum(), len(self))
