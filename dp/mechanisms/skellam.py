"""Skellam noise: the difference of two Poisson variables, closed under sums.

Source: Agarwal, Kairouz, Liu 2021 (arXiv 2110.04995), Algorithm 1 without its rotation and
rounding, which are stages of their own here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dp.checks import require_integer
from dp.events import SkellamRelease
from dp.mechanisms.base import Sensitivities, SymmetricNoise, require_wrap
from dp.mechanisms.limits import skellam_limit
from dp.sampling import SkellamLaw


@dataclass(frozen=True, slots=True)
class SkellamMechanism(SymmetricNoise):
    """The centred difference of two Poisson variables on every coordinate of every client.

    Attributes:
        variance: of one client's noise, integer units squared; the valid range is that of
            ``SkellamLaw``.
    """

    name: ClassVar[str] = "skellam"
    unit: ClassVar[str] = "variance"

    variance: float

    def __post_init__(self) -> None:
        SkellamLaw(self.variance)

    @property
    def amount(self) -> float:
        """The variance: what the mechanism is made of."""
        return self.variance

    @property
    def noise(self) -> SkellamLaw:
        """The law of one draw."""
        return SkellamLaw(self.variance)

    @property
    def proxy_variance(self) -> None:
        """None: the tails are those of a Poisson law."""
        return None

    def event(
        self, sensitivities: Sensitivities, contributors: int, dimension: int
    ) -> SkellamRelease:
        """The sum is Skellam with the sum of the variances. Args: as for ``Mechanism``."""
        require_integer("contributors", contributors, 0)
        return SkellamRelease(
            self.variance * contributors, sensitivities.l2, sensitivities.linf, dimension
        )

    def total_limit(
        self, clients: int, dimension: int, wrap_probability: float, batches: int = 1
    ) -> int:
        """A tail bound of the sum of all clients. Args and Raises: as for ``Mechanism``."""
        require_wrap(clients, dimension, wrap_probability, bounded=False)
        return skellam_limit(clients * self.variance, dimension, wrap_probability)
