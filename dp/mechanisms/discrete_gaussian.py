"""Distributed discrete Gaussian noise.

The sum of the clients' noise is close to a discrete Gaussian, but is none: the event keeps the
number of contributors, so that accountants do not forget.

Source: Kairouz, Liu, Steinke 2021 (arXiv 2102.06387), Algorithms 1 and 2 without their rotation
and rounding, which are stages of their own here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dp.events import DiscreteGaussianRelease
from dp.mechanisms.base import Sensitivities, SymmetricNoise, require_wrap
from dp.mechanisms.limits import sub_gaussian_limit
from dp.sampling import DiscreteGaussianLaw


@dataclass(frozen=True, slots=True)
class DiscreteGaussianMechanism(SymmetricNoise):
    """P[z] proportional to exp(-z^2 / (2 ``sigma_squared``)) on every coordinate of every client.

    Attributes:
        sigma_squared: the parameter of one client's law, integer units squared; the valid range
            is that of ``DiscreteGaussianLaw``.
    """

    name: ClassVar[str] = "discrete-gaussian"
    unit: ClassVar[str] = "variance"

    sigma_squared: float

    def __post_init__(self) -> None:
        DiscreteGaussianLaw(self.sigma_squared)

    @property
    def amount(self) -> float:
        """The parameter: what the mechanism is made of."""
        return self.sigma_squared

    @property
    def noise(self) -> DiscreteGaussianLaw:
        """The law of one draw."""
        return DiscreteGaussianLaw(self.sigma_squared)

    @property
    def variance(self) -> float:
        """A little less than the parameter where that is small."""
        return self.noise.variance

    @property
    def proxy_variance(self) -> float:
        """The parameter, which is above the variance."""
        return self.sigma_squared

    def event(
        self, sensitivities: Sensitivities, contributors: int, dimension: int
    ) -> DiscreteGaussianRelease:
        """Args and Raises: as for ``Mechanism``."""
        return DiscreteGaussianRelease(
            self.sigma_squared, contributors, sensitivities.l2, sensitivities.linf, dimension
        )

    def total_limit(
        self, clients: int, dimension: int, wrap_probability: float, batches: int = 1
    ) -> int:
        """A tail bound of the sum of all clients. Args and Raises: as for ``Mechanism``."""
        require_wrap(clients, dimension, wrap_probability, bounded=False)
        return sub_gaussian_limit(clients * self.sigma_squared, dimension, wrap_probability)
