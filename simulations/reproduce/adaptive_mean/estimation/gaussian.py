"""Gaussian noise for a sum, by a trusted server: exact, on a lattice.

The noise is a normal variable rounded to a fine lattice that contains the integers. As
``total + round(N) == round(total + N)`` for an integer total, the release is a rounding of the
textbook mechanism, and whatever holds for that holds here exactly; no float ever stands for a
continuous normal variable.

Source: Dwork, Roth 2014, Appendix A, for the mechanism; Mironov 2012, "On significance of the
least significant bits for differential privacy", for why floats will not do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dp.keystream import NoiseSeed, Usage
from dp.sampling import RoundedGaussianLaw, sample_law

MIN_SIGMA: Final = 2.0**-20
MAX_SIGMA: Final = RoundedGaussianLaw.MAX_SIGMA
"""The lattice is never coarser than the integers, and its table has to stay small."""

_LATTICE_POINTS: Final = 256.0
"""Lattice points per standard deviation, at least: rounding adds 1.3e-6 of the variance."""

_LARGEST_TOTAL: Final = 1 << 53
"""Integers up to here are floats exactly, so that adding the noise rounds once and last."""


@dataclass(frozen=True, slots=True)
class GaussianMechanism:
    """N(0, sigma^2), rounded to a lattice, on every coordinate of the sum.

    Attributes:
        sigma: standard deviation in integer units, ``MIN_SIGMA..MAX_SIGMA``.
    """

    sigma: float

    def __post_init__(self) -> None:
        """Raise ``TypeError`` or ``ValueError`` for a sigma out of range."""
        if not isinstance(self.sigma, float):
            raise TypeError(f"sigma must be a float, got {type(self.sigma).__name__}")
        if not MIN_SIGMA <= self.sigma <= MAX_SIGMA:
            raise ValueError(
                f"sigma must lie in [{MIN_SIGMA:g}, {MAX_SIGMA:g}] integer units, "
                f"got {self.sigma!r}: choose another scale"
            )

    @property
    def lattice_bits(self) -> int:
        """g, where the lattice is the multiples of 2^-g."""
        return max(0, math.ceil(math.log2(_LATTICE_POINTS / self.sigma)))

    @property
    def server_variance(self) -> float:
        """Variance per coordinate of the sum: sigma^2, and 4^-g / 12 for the rounding."""
        return self.sigma**2 + 4.0**-self.lattice_bits / 12.0

    def release(self, total: NDArray[np.int64], seed: NoiseSeed) -> NDArray[np.float64]:
        """Add the server's noise to the sum.

        Args:
            total: int64[d], magnitudes up to 2^53.
            seed: used under ``Usage.SERVER_NOISE``; must not have drawn another vector.

        Returns:
            float64[d].

        Raises:
            TypeError, ValueError: the total has another dtype, or is too large.
        """
        if total.dtype != np.int64:
            raise TypeError(f"total must have dtype int64, got {total.dtype}")
        largest = max(int(total.max(initial=0)), -int(total.min(initial=0)))
        if largest > _LARGEST_TOTAL:
            raise ValueError(f"total must stay within 2^53, got a magnitude of {largest}")
        bits = self.lattice_bits
        law = RoundedGaussianLaw(math.ldexp(self.sigma, bits))
        draws = sample_law(law, seed.derive(Usage.SERVER_NOISE), total.size)
        return np.asarray(total + np.ldexp(draws.astype(np.float64), -bits), np.float64)
