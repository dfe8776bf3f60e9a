"""The default: every client adds its own fair coins.

Thin, because the coins are in ``dp.coins``, and batches of them that can be taken off the sum
again after dropouts in ``dp.dropouts``.

Source: Agarwal, Suresh, Yu, Kumar, McMahan 2018 (arXiv 1805.10559), p = 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass

from dp.checks import require_integer
from dp.coins import Coins, add_coins, require_coins, residual_offset
from dp.events import BinomialRelease
from dp.keystream import NoiseSeed
from dp.mechanisms.base import Sensitivities, require_wrap
from dp.noised import Noised
from dp.rounding import Quantized


@dataclass(frozen=True, slots=True)
class BinomialMechanism:
    """Bin(coins, 1/2) - coins // 2 on every coordinate of every client.

    Attributes:
        coins: of one client, per coordinate, ``0 <= coins <= MAX_COINS``.
    """

    coins: int

    def __post_init__(self) -> None:
        """Raise ``TypeError`` or ``ValueError`` for coins out of range."""
        require_coins(self.coins)

    @property
    def noise(self) -> Coins:
        """One batch of coins."""
        return Coins(self.coins)

    @property
    def variance(self) -> float:
        """A quarter per coin."""
        return self.noise.variance

    @property
    def residual_offset(self) -> float:
        """One half for an odd number of coins, else zero."""
        return residual_offset(self.coins)

    def add_noise(self, quantized: Quantized, seed: NoiseSeed) -> Noised:
        """Draw under ``Usage.COINS``. Args: as for ``Mechanism``."""
        return add_coins(quantized, self.coins, seed)

    def event(
        self, sensitivities: Sensitivities, contributors: int, dimension: int
    ) -> BinomialRelease:
        """All coins together are Bin(contributors coins, 1/2), up to a shift."""
        require_integer("contributors", contributors, 0)
        return BinomialRelease(
            self.coins * contributors, sensitivities.l2, sensitivities.linf, dimension
        )

    def total_limit(self, clients: int, dimension: int, wrap_probability: float) -> int:
        """A sure bound: all coins fall on one side. Args and Raises: as for ``Mechanism``."""
        require_wrap(clients, dimension, wrap_probability)
        return clients * self.noise.noise_limit
