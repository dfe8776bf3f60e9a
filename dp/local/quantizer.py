"""Vectors of bounded coordinates, rounded at random to K equally spaced levels.

The levels are B_k = -U + 2 k U/(K - 1) for k = 0, ..., K - 1, and a coordinate x between B_k and
B_(k+1) goes up with probability (x - B_k)(K - 1)/(2U), so that its mean is x. Only the numbers k
are kept: small integers, which can be added up without their values being known.

Source: Suresh et al. 2017 (arXiv 1611.00429), Section 2.1; sqSGD, Equation 5. Equation 6 there is
garbled: it has k (x - B_k)/(2U) for the probability, which is not unbiased.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dp.checks import require_number, require_positive
from dp.clipping import NORM_SLACK
from dp.errors import SensitivityExceededError
from dp.keystream import NoiseSeed
from dp.local.agreement import require_levels
from dp.local.windows import round_inputs

LevelArray: TypeAlias = NDArray[np.int8] | NDArray[np.int16]

_INT8_LEVELS: Final = 128


@dataclass(frozen=True, slots=True)
class LevelQuantizer:
    """Unbiased rounding to K levels of [-U, U].

    Attributes:
        levels: K, ``2..2^15``.
        bound: U, positive and finite.
    """

    levels: int
    bound: float

    def __post_init__(self) -> None:
        require_levels(self.levels)
        require_number("bound", self.bound)
        require_positive("bound", self.bound)

    @property
    def step(self) -> float:
        """2U/(K - 1), the distance of two levels."""
        return 2.0 * self.bound / (self.levels - 1)

    @property
    def bits(self) -> int:
        """Bits of one level as it is sent."""
        return (self.levels - 1).bit_length()

    @property
    def dtype(self) -> np.dtype[Any]:
        """int8 where it holds K - 1, else int16."""
        return np.dtype(np.int8 if self.levels <= _INT8_LEVELS else np.int16)

    @property
    def mean_square(self) -> float:
        """U^2 (K + 1)/(3 (K - 1)): the mean of the squared levels."""
        return self.bound**2 * (self.levels + 1) / (3.0 * (self.levels - 1))

    def values(self, numbers: NDArray[Any]) -> NDArray[np.float64]:
        """Return B_k for numbers k, in their shape."""
        return self.step * (numbers - 0.5 * (self.levels - 1))

    def quantize(self, vectors: NDArray[np.float64], seed: NoiseSeed) -> LevelArray:
        """Round every coordinate to one of its two neighbouring levels.

        The probability has 64 bits; a coordinate's place among the levels is a double, so the mean
        is off by at most 2^-52 U.

        Args:
            vectors: float64[n, d], finite, within [-U, U] but for a relative ``NORM_SLACK``, which
                is cut off.
            seed: used under ``Usage.ROUNDING``; must not have rounded other vectors.

        Returns:
            int8[n, d] or int16[n, d] in 0 .. K - 1.
        """
        outside = int(np.count_nonzero(np.abs(vectors) > self.bound * (1.0 + NORM_SLACK)))
        if outside:
            raise SensitivityExceededError(
                f"{outside} of {vectors.size} coordinates lie outside [-{self.bound:g}, "
                f"{self.bound:g}]: clip first"
            )
        parts = np.clip(vectors / self.bound, -1.0, 1.0).reshape(-1)
        numbers = round_inputs(parts, self.levels - 1, seed)
        return numbers.astype(self.dtype).reshape(vectors.shape)

    def second_moment(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return E[B^2] of rounded coordinates: the chord of the square between two levels.

        Args:
            values: float64, within [-U, U].
        """
        place = np.clip((values / self.bound + 1.0) * 0.5 * (self.levels - 1), 0, self.levels - 1)
        lower = self.values(np.minimum(np.floor(place), self.levels - 2))
        return (2.0 * lower + self.step) * values - lower * (lower + self.step)

    def law(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return float64[d, K]: the probability of every level for every coordinate."""
        place = np.clip((values / self.bound + 1.0) * 0.5 * (self.levels - 1), 0, self.levels - 1)
        distance = np.abs(place[:, None] - np.arange(self.levels))
        return np.maximum(0.0, 1.0 - distance)
