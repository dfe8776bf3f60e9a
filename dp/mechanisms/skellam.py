"""Skellam noise: the difference of two Poisson variables, closed under sums.

Source: Agarwal, Kairouz, Liu 2021 (arXiv 2110.04995), Algorithm 1 without its rotation and
rounding, which are stages of their own here.
"""

from __future__ import annotations

from dataclasses import dataclass

from dp.events import SkellamRelease
from dp.keystream import NoiseSeed
from dp.mechanisms.base import Sensitivities, require_count, require_wrap
from dp.mechanisms.limits import skellam_limit
from dp.noised import Noised
from dp.rounding import Quantized
from dp.sampling import SkellamLaw, sample_law


@dataclass(frozen=True, slots=True)
class SkellamMechanism:
    """The centred difference of two Poisson variables on every coordinate of every client.

    Attributes:
        variance: of one client's noise, integer units squared; the valid range is that of
            ``SkellamLaw``.
    """

    variance: float

    def __post_init__(self) -> None:
        """Raise ``TypeError`` or ``ValueError`` for a variance out of range."""
        SkellamLaw(self.variance)

    @property
    def noise(self) -> SkellamLaw:
        """The law of one draw."""
        return SkellamLaw(self.variance)

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
    ) -> SkellamRelease:
        """The sum is Skellam with the sum of the variances. Args: as for ``Mechanism``."""
        require_count("contributors", contributors, 0)
        return SkellamRelease(
            self.variance * contributors, sensitivities.l2, sensitivities.linf, dimension
        )

    def total_limit(self, clients: int, dimension: int, wrap_probability: float) -> int:
        """A tail bound of the sum of all clients. Args and Raises: as for ``Mechanism``."""
        require_wrap(clients, dimension, wrap_probability)
        return skellam_limit(clients * self.variance, dimension, wrap_probability)
