"""The default: every client adds its own fair coins.

Thin, because the coins are in ``dp.coins``, and batches of them that can be taken off the sum
again after dropouts in ``dp.dropouts``.

Source: Agarwal, Suresh, Yu, Kumar, McMahan 2018 (arXiv 1805.10559), p = 1/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

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

    name: ClassVar[str] = "binomial"
    unit: ClassVar[str] = "coins"

    coins: int

    def __post_init__(self) -> None:
        """Raise ``TypeError`` or ``ValueError`` for coins out of range."""
        require_coins(self.coins)

    @property
    def amount(self) -> int:
        """The number of coins: what the mechanism is made of."""
        return self.coins

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

    @property
    def proxy_variance(self) -> float:
        """The variance itself: cosh(t / 2) is at most exp(t^2 / 8)."""
        return self.variance

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

    def total_limit(
        self, clients: int, dimension: int, wrap_probability: float, batches: int = 1
    ) -> int:
        """All coins on one side; or less, where a wrap is accepted.

        The n m coins of a coordinate are off their mean by more than t with probability at most
        2 exp(-2 t^2 / (n m)). Args and Raises: as for ``Mechanism``.

        Source: Hoeffding 1963, Theorem 1.
        """
        require_wrap(clients, dimension, wrap_probability)
        certain = clients * Coins(self.coins, batches).noise_limit
        if not wrap_probability:
            return certain
        total = clients * self.coins
        reach = math.sqrt(total / 2.0 * math.log(2.0 * dimension / wrap_probability))
        # Each batch of an odd number of coins has a mean of one half.
        return min(certain, math.ceil(reach + clients * batches / 2.0))
