"""Distributed discrete Gaussian noise.

The sum of the clients' noise is close to a discrete Gaussian, but is none: the event keeps the
number of contributors, so that accountants do not forget.

Source: Kairouz, Liu, Steinke 2021 (arXiv 2102.06387), Algorithms 1 and 2 without their rotation
and rounding, which are stages of their own here.
"""

from __future__ import annotations

from dataclasses import dataclass

from dp.events import DiscreteGaussianRelease
from dp.keystream import NoiseSeed
from dp.mechanisms.base import Sensitivities, require_wrap
from dp.mechanisms.limits import sub_gaussian_limit
from dp.noised import Noised
from dp.rounding import Quantized
from dp.sampling import DiscreteGaussianLaw, sample_law


@dataclass(frozen=True, slots=True)
class DiscreteGaussianMechanism:
    """P[z] proportional to exp(-z^2 / (2 ``sigma_squared``)) on every coordinate of every client.

    Attributes:
        sigma_squared: the parameter of one client's law, integer units squared; the valid range
            is that of ``DiscreteGaussianLaw``.
    """

    sigma_squared: float

    def __post_init__(self) -> None:
        """Raise ``TypeError`` or ``ValueError`` for a parameter out of range."""
        DiscreteGaussianLaw(self.sigma_squared)

    @property
    def noise(self) -> DiscreteGaussianLaw:
        """The law of one draw."""
        return DiscreteGaussianLaw(self.sigma_squared)

    @property
    def variance(self) -> float:
        """A little less than the parameter where that is small."""
        return self.noise.variance

    @property
    def residual_offset(self) -> float:
        """Zero: the law is symmetric."""
        return 0.0

    def add_noise(self, quantized: Quantized, seed: NoiseSeed) -> Noised:
        """Draw under ``Usage.INVERSION``. Args: as for ``Mechanism``."""
        values = sample_law(self.noise, seed, quantized.values.size)
        values += quantized.values
        return Noised(values, self.noise, quantized.l2_bound, quantized.linf_bound)

    def event(
        self, sensitivities: Sensitivities, contributors: int, dimension: int
    ) -> DiscreteGaussianRelease:
        """Args and Raises: as for ``Mechanism``."""
        return DiscreteGaussianRelease(
            self.sigma_squared, contributors, sensitivities.l2, sensitivities.linf, dimension
        )

    def total_limit(self, clients: int, dimension: int, wrap_probability: float) -> int:
        """A tail bound of the sum of all clients. Args and Raises: as for ``Mechanism``."""
        require_wrap(clients, dimension, wrap_probability)
        return sub_gaussian_limit(clients * self.sigma_squared, dimension, wrap_probability)
