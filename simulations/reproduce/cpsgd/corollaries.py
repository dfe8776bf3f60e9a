"""cpSGD's Corollaries 2 and 3: bits of a coordinate at the privacy and error of Gaussian noise.

Both say main + O(log log(n d / epsilon)) bits, for epsilon up to 1:

    Corollary 2, unrotated    main = log2(sqrt(d) + d / (n epsilon^2))
    Corollary 3, rotated      main = log2(1 + d / (n epsilon^2))

What is counted: the fewest levels k whose error, with the coins m that the paper's accountant asks
for, is at most twice that of Theorem 2's Gaussian noise; log2(k + m) bits. Delta is fixed, so that
it is in the constant.

Source: Agarwal et al. 2018 (arXiv 1805.10559), Corollaries 2 and 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from dp.coins import MAX_COINS
from dp.mechanisms.levels import MAX_LEVELS, LevelMechanism, level_mse_bound
from dp.search import smallest
from simulations.reproduce.cpsgd.mean_estimation import NORM, Setting
from simulations.reproduce.cpsgd.scales import theorem1_of

ROOM: Final = 2.0  # error over that of Gaussian noise that is still "the same"
HIDDEN: Final = 3.0  # what the O(log log) may be, in log2(log2(n d / epsilon))


@dataclass(frozen=True, slots=True)
class Size:
    """The mean of so many vectors, at an epsilon, by one of the two mechanisms."""

    rotated: bool  # Corollary 3, not 2
    setting: Setting
    epsilon: float

    @property
    def main(self) -> float:
        """The main term, in bits."""
        d, n = self.setting.dimension, self.setting.clients
        return math.log2((1.0 if self.rotated else math.sqrt(d)) + d / (n * self.epsilon**2))

    def mechanism(self, levels: int, coins: int) -> LevelMechanism:
        """The paper's mechanism."""
        if self.rotated:
            return self.setting.levels(levels, coins)
        return LevelMechanism(NORM, NORM, levels, coins, rotated=False)

    def coins(self, levels: int) -> int | None:
        """The fewest coins of a client by the paper's accountant; None beyond what we count."""
        d, n, delta = self.setting.dimension, self.setting.clients, self.setting.delta

        def enough(coins: int) -> bool:
            return theorem1_of(self.mechanism(levels, coins).event(n, d), delta) <= self.epsilon

        return smallest(enough, 64 * levels, MAX_COINS)

    def is_accurate(self, levels: int) -> bool:
        """Whether so many levels have the error of Gaussian noise."""
        coins, setting = self.coins(levels), self.setting
        if coins is None:
            return False
        error = level_mse_bound(self.mechanism(levels, coins), setting.dimension, setting.clients)
        return error <= ROOM * setting.theorem2_error(self.epsilon)


def bits(size: Size) -> dict[str, Any]:
    """Return levels, coins and bits of the shortest message, and the corollary's terms."""
    setting = size.setting
    found = smallest(lambda above: size.is_accurate(above + 1), 16, MAX_LEVELS - 1)
    if found is None:
        raise ValueError(f"no levels that are counted are enough for {size}")
    levels = found + 1
    coins = size.coins(levels) or 0
    spent = math.log2(levels + coins)
    return {
        "corollary": 3 if size.rotated else 2,
        "clients": setting.clients,
        "dimension": setting.dimension,
        "epsilon": size.epsilon,
        "levels": levels,
        "coins": coins,
        "bits": spent,
        "main": size.main,
        "excess": (spent - size.main)
        / math.log2(math.log2(setting.clients * setting.dimension / size.epsilon)),
    }


SIZES: Final = [
    Size(rotated, Setting(clients=1 << n, dimension=1 << d), epsilon)
    for rotated, d, n, epsilon in product((False, True), (10, 15, 20), (16, 20, 24), (0.5, 1.0))
]
