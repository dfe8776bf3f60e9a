"""No noise at all, as a real class: ablations run through the same code and the same accounting."""

from __future__ import annotations

from dataclasses import dataclass

from dp.coins import Coins
from dp.events import NonPrivateRelease
from dp.keystream import NoiseSeed
from dp.mechanisms.base import Sensitivities, require_wrap
from dp.noised import Noised
from dp.rounding import Quantized


@dataclass(frozen=True, slots=True)
class NoNoise:
    """The sum as it is. Its event has an infinite epsilon."""

    @property
    def noise(self) -> Coins:
        """No coins."""
        return Coins(0)

    @property
    def variance(self) -> float:
        """Zero."""
        return 0.0

    @property
    def residual_offset(self) -> float:
        """Zero."""
        return 0.0

    def add_noise(self, quantized: Quantized, seed: NoiseSeed) -> Noised:
        """Change the type and nothing else; the seed is not used."""
        return Noised(quantized.values, self.noise, quantized.l2_bound, quantized.linf_bound)

    def event(
        self, sensitivities: Sensitivities, contributors: int, dimension: int
    ) -> NonPrivateRelease:
        """Say that nothing was hidden, whatever the arguments."""
        return NonPrivateRelease()

    def total_limit(self, clients: int, dimension: int, wrap_probability: float) -> int:
        """Zero. Args and Raises: as for ``Mechanism``."""
        require_wrap(clients, dimension, wrap_probability)
        return 0
