"""Two sums over sets that differ in one client, and what their difference says of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np

from protocol import Dropouts, Stage
from simulations.audits.base import Floats, Integers, derived_seed
from simulations.audits.paths import WholePath
from simulations.threats.rounds.released import LENGTH, long_vector, on_grid

TARGET: Final = 1
_WITHOUT_TARGET: Final[Dropouts] = {TARGET: Stage.INPUT}


def smallest_difference(survivors: Sequence[Collection[int]]) -> int:
    """The fewest clients by which two of these sets differ; 0 if all are alike."""
    pairs = combinations(map(frozenset, survivors), 2)
    return min((len(one ^ other) for one, other in pairs if one != other), default=0)


@dataclass(frozen=True)
class Differencing:
    """Pairs of rounds in which all clients but the target put in the same.

    Attributes:
        others: float64[n, d], updates on the integer grid, so that rounding hides nothing.
        integers: int64[L], what the target's update is before noise, in world 1.
        update: float64[d], the same as an update.
    """

    path: WholePath
    others: Floats
    integers: Integers
    update: Floats

    @classmethod
    def draw(cls, path: WholePath, seed: int) -> Differencing:
        """Random inputs of the others, nearly the longest of the target."""
        parameters = path.claimed.parameters
        rng = np.random.default_rng(derived_seed(seed, "others"))
        others = rng.integers(-1, 2, (path.settings.cohort, LENGTH))
        integers = long_vector(parameters.sketch_clip_l2 * parameters.scale)
        return cls(path, on_grid(parameters, others), integers, on_grid(parameters, integers))

    def difference(self, number: int, world: int) -> Floats:
        """float64[L]: the sum with the target less the sum without, in integer units."""
        table = self.others.copy()
        table[TARGET] = world * self.update
        with_target, _ = self.path.released(2 * number, table)
        without, _ = self.path.released(2 * number + 1, table, _WITHOUT_TARGET)
        return with_target - without

    def score(self, number: int, world: int) -> float:
        """Inner product with what the target may have put in."""
        return float(self.integers @ self.difference(number, world))

    def is_exact(self, number: int) -> bool:
        """Whether the difference is the target's integers, every one of them."""
        # Decoding divides and multiplies again: far less than half a unit.
        found = np.rint(self.difference(number, 1)).astype(np.int64)
        return bool(np.array_equal(found, self.integers))

    def survivors(self) -> list[tuple[int, ...]]:
        """The sets of clients that both sums are over."""
        rounds: tuple[tuple[int, Dropouts], ...] = ((0, {}), (1, _WITHOUT_TARGET))
        return [self.path.total(n, self.others, lost).survivors for n, lost in rounds]
