"""The k-level binomial mechanism as printed in cpSGD, to reproduce its theorems.

Client: clip coordinates to [-X, X], round at random, and *unconditionally*, to one of k levels,
add Bin(m, p). Server: undo all three on the mean. Sensitivities hold with a probability only, so
the chain of types is one of its own, ``Bounded -> Levels -> NoisedLevels``: neither can pass for
a vector with sure bounds. Rotation happens outside; the mechanism is told of it.

X = D needs no rotation (Theorem 3). With one, ``rotated_clip`` is enough but for a probability
(Theorem 4).

Source: Agarwal, Suresh, Yu, Kumar, McMahan 2018 (arXiv 1805.10559), Sections 4 and 5, Theorems 3
and 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dp._kernels import round_levels
from dp.checks import require_between_0_and_1, require_integer, require_positive
from dp.clipping import Bounded, require_l2_bound, require_vector
from dp.coins import accumulate_binomial, require_coins
from dp.errors import SensitivityExceededError
from dp.events import LevelRelease
from dp.keystream import Keystream, NoiseSeed, Usage
from dp.sampling import BinomialLaw, accumulate_law

MAX_LEVELS: Final = 1 << 24
"""Leaves 29 bits of a double for the fraction that is rounded at random."""

_WORD: Final = np.dtype("<u4")


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """A vector as levels.

    Attributes:
        values: int64[d], read-only, in ``0 .. levels - 1``.
        levels: k.
    """

    values: NDArray[np.int64]
    levels: int

    def __post_init__(self) -> None:
        """Raise unless every value is a level."""
        _require_range(self.values, self.levels - 1, "level")
        self.values.flags.writeable = False


@dataclass(frozen=True, slots=True, eq=False)
class NoisedLevels:
    """Levels with Bin(coins, p) added.

    Attributes:
        values: int64[d], read-only, in ``0 .. levels - 1 + coins``.
        levels: k.
        coins: m.
    """

    values: NDArray[np.int64]
    levels: int
    coins: int

    def __post_init__(self) -> None:
        """Raise unless every value is a level plus so many coins at most."""
        _require_range(self.values, self.levels - 1 + self.coins, "noised level")
        self.values.flags.writeable = False


def _require_range(values: NDArray[np.int64], top: int, what: str) -> None:
    """Raise unless ``values`` is int64[d] in 0 .. top."""
    require_vector(values, (np.dtype(np.int64),), "values")
    if values.size and not (values.min() >= 0 and values.max() <= top):
        raise SensitivityExceededError(f"a {what} lies outside 0..{top}")


@dataclass(frozen=True, slots=True)
class LevelMechanism:
    """Levels 0 .. k - 1 at -X + 2 X r / (k - 1), and Bin(m, p) on top.

    Attributes:
        norm: D, the L2 bound of the vectors.
        clip: X, the coordinate clip, in the same units.
        levels: k, ``2 <= levels <= MAX_LEVELS``.
        coins: m, of one client, per coordinate, ``0 <= coins <= MAX_COINS``.
        probability: p of one coin, a multiple of 2^-64 in (0, 1/2].
        rotated: whether vectors were rotated at random, which X relies on.
    """

    norm: float
    clip: float
    levels: int
    coins: int
    probability: float = 0.5
    rotated: bool = False

    def __post_init__(self) -> None:
        require_l2_bound(self.norm)
        require_positive("clip", self.clip)
        require_integer("levels", self.levels, 2, MAX_LEVELS)
        require_coins(self.coins)
        BinomialLaw(self.coins, self.probability)
        # The event has the same range for p and the same type for the flag.
        self.event(0, 1)

    @property
    def width(self) -> float:
        """Distance of two levels, 2 X / (k - 1), in the units of the vectors."""
        return 2.0 * self.clip / (self.levels - 1)

    @property
    def variance(self) -> float:
        """Variance of one client's noise, in units of a level: m p (1 - p)."""
        return self.coins * self.probability * (1.0 - self.probability)

    @property
    def residual_offset(self) -> float:
        """Mean of one client's noise, in units of a level: m p."""
        return self.coins * self.probability

    def quantize(self, bounded: Bounded, seed: NoiseSeed) -> Levels:
        """Clip coordinates and round at random; each draw has 32 bits, as in ``dp.quantize``.

        Args:
            bounded: float64[d], ``bounded.l2_bound <= norm``.
            seed: used under ``Usage.ROUNDING``; must not have rounded another vector.
        """
        if bounded.l2_bound > self.norm:
            raise SensitivityExceededError(
                f"the vector is bounded by {bounded.l2_bound!r}, the mechanism by {self.norm!r}"
            )
        out = np.empty(bounded.values.size, dtype=np.int64)
        stream = Keystream(seed.derive(Usage.ROUNDING))
        start = 0
        for words in stream.chunks(_WORD, out.size):
            piece = slice(start, start + words.size)
            round_levels(
                bounded.values[piece], 1.0 / self.width, self.levels - 1.0, words, out[piece]
            )
            start += words.size
        return Levels(out, self.levels)

    def add_noise(self, quantized: Levels, seed: NoiseSeed) -> NoisedLevels:
        """Add Bin(m, p), not centred.

        Args:
            seed: used under ``Usage.COINS``; must not have drawn another vector.
        """
        if quantized.levels != self.levels:
            raise ValueError(f"quantized must have {self.levels} levels, got {quantized.levels}")
        values = quantized.values.copy()
        if self.probability == 0.5:
            accumulate_binomial(seed, self.coins, values)
        else:
            law = BinomialLaw(self.coins, self.probability)
            accumulate_law(law, seed.derive(Usage.COINS), values)
        return NoisedLevels(values, self.levels, self.coins)

    def estimate(self, total: NDArray[np.int64], clients: int) -> NDArray[np.float64]:
        """Estimate the mean of the clients' (clipped) vectors, without bias.

        Args:
            total: int64[d], the sum of ``NoisedLevels.values``.

        Returns:
            float64[d], in the units of the vectors.
        """
        require_integer("clients", clients, 1)
        levels = total / clients - self.residual_offset
        return np.asarray(-self.clip + self.width * levels, np.float64)

    def event(self, contributors: int, dimension: int) -> LevelRelease:
        """Return what the release of a sum is accounted as; sensitivities are Equation (10)."""
        require_integer("contributors", contributors, 0)
        return LevelRelease(
            coins=self.coins * contributors,
            probability=self.probability,
            levels=self.levels,
            norm=self.norm / self.clip,
            dimension=dimension,
            rotated=self.rotated,
        )

    def total_limit(self, clients: int) -> int:
        """Return the largest value of a coordinate of the sum; the smallest is zero."""
        require_integer("clients", clients, 1)
        return clients * (self.levels - 1 + self.coins)


def rotated_clip(norm: float, dimension: int, clients: int, delta: float) -> float:
    """Return X = D sqrt(2 ln(2 n d / delta) / d), which belongs to the constants of Theorem 4.

    After a random rotation all coordinates of all clients are within it, except with probability
    delta, if d is a power of two; ``sketch.flat_bound`` covers other lengths. The X printed in the
    paper is sqrt(2) larger.

    Args:
        delta: in (0, 1).
    """
    return norm * math.sqrt(2.0 * _log_term(dimension, clients, delta) / dimension)


def level_mse_bound(mechanism: LevelMechanism, dimension: int, clients: int) -> float:
    """Bound E |estimate - mean|^2 for vectors that the coordinate clip does not touch.

    (d / n) X^2 / (k - 1)^2 (1 + 4 m p (1 - p)): rounding has at most a quarter of a squared width
    in each coordinate, the coins have exactly m p (1 - p). With X = D this is Theorem 3.
    Theorem 4, where X = ``rotated_clip``, adds 4 D^2 delta^2 for a clip that strikes after all.
    """
    require_integer("dimension", dimension, 1)
    require_integer("clients", clients, 1)
    return dimension / clients * mechanism.width**2 * (0.25 + mechanism.variance)


def _log_term(dimension: int, clients: int, delta: float) -> float:
    """Return ln(2 n d / delta)."""
    require_integer("dimension", dimension, 1)
    require_integer("clients", clients, 1)
    require_between_0_and_1("delta", delta)
    return math.log(2.0 * clients * dimension / delta)
