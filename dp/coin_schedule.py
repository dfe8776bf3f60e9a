"""How many coins each client adds so that noise is exact whoever drops out, and which ones go.

Every client adds enough coins for the worst tolerated case, in batches. Once the survivors are
known, the batches that were not needed go. The honest survivors are left with the target number of
coins, and hardly more: less than one coin each, and ``SURPLUS_PERCENT`` where that saves batches.
``docs/dropouts.md`` has the proofs.

Whole numbers only, all of them public: the noise itself is in ``dp.dropouts``.

Source: Jiang, Wang, Chen, "Dordis: Efficient Federated Learning with Dropout-Resilient
Differential Privacy", EuroSys 2024, arXiv 2209.12528, for noise that is added in pieces and
removed by seed. Coins, counts and proofs are our own.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from dp.checks import require_integer
from dp.coins import MAX_COINS, noise_limit, residual_offset
from dp.errors import PrivacyError

SURPLUS_PERCENT: Final = 2
"""Coins, so variance, beyond the need that a survivor may keep: for fewer seeds to share."""


class BatchVariant(enum.Enum):
    """How the coins that may have to go are cut into batches."""

    PER_DROPOUT = "one batch for each dropout that raises the need"
    BINARY = "a unit, its doubles, and the rest"


class TooManyDropoutsError(PrivacyError, ValueError):
    """More clients dropped than the noise was sized for: no sum may be released.

    Attributes:
        dropped: how many clients of the cohort are missing.
        tolerated: how many may be missing.
    """

    def __init__(self, dropped: int, tolerated: int) -> None:
        """Store both figures and build a message that shows them."""
        super().__init__(
            f"dropped must be at most tolerated_dropouts = {tolerated}, got {dropped}: "
            "the noise would be too small, so no sum may be released"
        )
        self.dropped = dropped
        self.tolerated = tolerated

    def __reduce__(self) -> tuple[type[TooManyDropoutsError], tuple[int, int]]:
        """Rebuild from both figures, so that the error survives process boundaries."""
        return type(self), (self.dropped, self.tolerated)


@dataclass(frozen=True, slots=True)
class CoinSchedule:
    """How many coins each client adds, in which batches, and which of them go.

    With h(d) = cohort - d - tolerated_colluders, the fewest honest survivors after d dropouts,
    each survivor keeps at least C_d = ceil(target_coins / h(d)) coins: with PER_DROPOUT no more,
    with BINARY up to ``SURPLUS_PERCENT`` more. All methods are functions of public numbers: every
    client and the server compute the same answer.

    Pre: ``cohort - tolerated_dropouts - tolerated_colluders >= 1``.
    Post: ``sum(batches) == needed(tolerated_dropouts)``, and every batch has at least one coin.

    Attributes:
        target_coins: N >= 1, coins per coordinate that honest survivors must hold together.
        cohort: n, clients that were invited; whoever is not among the survivors has dropped.
        tolerated_dropouts: T >= 0, the most clients that may be missing from a released sum.
        tolerated_colluders: T_C >= 0, the most survivors whose coins the server may know.
        variant: how the removable coins are cut.
        batches: coins of each batch of one client, computed. ``batches[0]`` is never removed and
            its seed never shared; the others are removable.

    Raises:
        TypeError: a number is not an int, or ``variant`` is not a ``BatchVariant``.
        ValueError: a number is too small, nobody honest may be left, or a client would need more
            than ``MAX_COINS`` coins; the message names the argument.
    """

    target_coins: int
    cohort: int
    tolerated_dropouts: int
    tolerated_colluders: int
    variant: BatchVariant = BatchVariant.PER_DROPOUT
    batches: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the arguments and cut the batches."""
        require_integer("target_coins", self.target_coins, 1)
        require_integer("cohort", self.cohort, 1)
        require_integer("tolerated_dropouts", self.tolerated_dropouts, 0)
        require_integer("tolerated_colluders", self.tolerated_colluders, 0)
        if not isinstance(self.variant, BatchVariant):
            raise TypeError(f"variant must be a BatchVariant, got {type(self.variant).__name__}")
        if self.cohort <= self.tolerated_dropouts + self.tolerated_colluders:
            raise ValueError(
                "cohort must exceed tolerated_dropouts + tolerated_colluders = "
                f"{self.tolerated_dropouts} + {self.tolerated_colluders}, got {self.cohort}"
            )
        most = self._needed(self.tolerated_dropouts)
        if most > MAX_COINS:
            raise ValueError(
                f"target_coins = {self.target_coins} asks one client for {most} coins; at most "
                f"{MAX_COINS} are possible"
            )
        removable = self._removable_batches()
        object.__setattr__(self, "batches", (most - sum(removable), *removable))

    @classmethod
    def best(
        cls,
        target_coins: int,
        cohort: int,
        tolerated_dropouts: int,
        tolerated_colluders: int,
    ) -> CoinSchedule:
        """Return the variant with fewer removable batches, so fewer seeds to share.

        On a tie it is PER_DROPOUT, whose removed sets are nested.

        Args and Raises: as for the class.
        """
        candidates = [
            cls(target_coins, cohort, tolerated_dropouts, tolerated_colluders, variant)
            for variant in (BatchVariant.PER_DROPOUT, BatchVariant.BINARY)
        ]
        return min(candidates, key=lambda schedule: len(schedule.batches))

    @property
    def largest_noise(self) -> int:
        """Largest absolute value of one client's noise *before* removal, for sizing the field.

        Up to ``len(batches) / 2`` more than for the same coins in one batch, as every odd batch
        is centred for itself.
        """
        return sum(noise_limit(coins) for coins in self.batches)

    def needed(self, dropped: int) -> int:
        """Return C_d, the coins per coordinate that each survivor must keep at least.

        Post: ``needed`` does not fall as ``dropped`` grows.

        Args:
            dropped: d, clients of the cohort that are not in the signed set of survivors,
                ``0 <= dropped <= tolerated_dropouts``.

        Raises:
            TooManyDropoutsError: ``dropped > tolerated_dropouts``; no sum may be released.
        """
        require_integer("dropped", dropped, 0)
        if dropped > self.tolerated_dropouts:
            raise TooManyDropoutsError(dropped, self.tolerated_dropouts)
        return self._needed(dropped)

    def kept(self, dropped: int) -> tuple[int, ...]:
        """Return the indices of ``batches`` that stay in the sum, in order; 0 is always there.

        Args and Raises: as for ``needed``.
        """
        extra = self.needed(dropped) - self.batches[0]
        select = _binary_subset if self.variant is BatchVariant.BINARY else _prefix
        return (0, *select(self.batches[1:], extra))

    def removed(self, dropped: int) -> tuple[int, ...]:
        """Return the indices of ``batches`` whose seeds each survivor gives up, in order.

        Post: ``removed(d)`` and ``kept(d)`` are disjoint and cover ``range(len(batches))``.

        Args and Raises: as for ``needed``.
        """
        kept = set(self.kept(dropped))
        return tuple(index for index in range(len(self.batches)) if index not in kept)

    def kept_coins(self, dropped: int) -> int:
        """Return the coins that stay, per survivor and coordinate, counted from the batches.

        Post: ``needed(d) <= kept_coins(d) <= (1 + SURPLUS_PERCENT / 100) needed(d)``, and equal to
        ``needed(d)`` with PER_DROPOUT and after the most dropouts.

        Args and Raises: as for ``needed``.
        """
        return sum(self.batches[index] for index in self.kept(dropped))

    def honest_coins(self, dropped: int) -> int:
        """Return the coins to account for: those of the fewest honest survivors together.

        This is the ``coins`` of the round's ``BinomialRelease``. The server has a say in who drops
        out, so an accountant that needs parameters fixed in advance is given ``target_coins``,
        which is never more.

        Post: ``honest_coins(d) >= target_coins``.

        Args and Raises: as for ``needed``.
        """
        return self.kept_coins(dropped) * self._honest(dropped)

    def residual_offset(self, dropped: int) -> float:
        """Return the mean of one survivor's noise after removal: 0.5 for each odd kept batch.

        The server subtracts it once per survivor.

        Args and Raises: as for ``needed``.
        """
        return sum(residual_offset(self.batches[index]) for index in self.kept(dropped))

    def _honest(self, dropped: int) -> int:
        """Return h(d), the fewest honest survivors."""
        return self.cohort - dropped - self.tolerated_colluders

    def _needed(self, dropped: int) -> int:
        """Return C_d without checking ``dropped``."""
        return -(-self.target_coins // self._honest(dropped))

    def _removable_batches(self) -> tuple[int, ...]:
        """Return the sizes of batches 1, 2, ...; none is empty."""
        needs = [self._needed(d) for d in range(self.tolerated_dropouts + 1)]
        if self.variant is BatchVariant.BINARY:
            return _fewest_batches(needs)
        return tuple(later - earlier for earlier, later in pairwise(needs) if later > earlier)


def _fewest_batches(needs: Sequence[int]) -> tuple[int, ...]:
    """Return the first ``_binary_batches`` that leave little surplus, whatever the need is.

    The search ends: with as many batches as the largest extra has binary digits the unit is 1, and
    nothing is left over.
    """
    extra = needs[-1] - needs[0]
    cuts = (_binary_batches(extra, count) for count in range(extra.bit_length() + 1))
    return next(
        cut for cut in cuts if all(_fits(cut, needs[-1] - sum(cut), need) for need in needs)
    )


def _fits(removable: Sequence[int], base: int, need: int) -> bool:
    """Whether what is kept beside ``base`` exceeds the need by ``SURPLUS_PERCENT`` at most."""
    chosen = _binary_subset(removable, need - base)
    surplus = base + sum(removable[index - 1] for index in chosen) - need
    return 100 * surplus <= SURPLUS_PERCENT * need


def _binary_batches(extra: int, count: int) -> tuple[int, ...]:
    """Cut ``extra`` coins into ``count`` batches: a unit, twice, four times it ..., and the rest.

    The unit is the smallest with which they are enough: the rest is then at most as large as the
    next power would be. ``count`` is at most ``extra.bit_length()``; none is then empty.
    """
    if count == 0:
        return ()
    unit = -(-extra // ((1 << count) - 1))
    powers = tuple(unit << j for j in range(count - 1))
    return (*powers, extra - sum(powers))


def _binary_subset(batches: Sequence[int], amount: int) -> tuple[int, ...]:
    """Return which of ``_binary_batches``, counted from 1, add up to ``amount``, or a little more.

    That is less than one unit more. An amount that the powers cannot reach takes the rest as well;
    what is then still missing is more than -1 unit, and no more than the powers are together.
    """
    if amount <= 0:
        return ()
    unit, powers = batches[0], len(batches) - 1
    units = -(-amount // unit)
    last: tuple[int, ...] = ()
    if units >> powers:
        units = -((batches[-1] - amount) // unit)
        last = (powers + 1,)
    return tuple(j + 1 for j in range(powers) if units >> j & 1) + last


def _prefix(sizes: Sequence[int], amount: int) -> tuple[int, ...]:
    """Return the first batches, counted from 1, that add up to ``amount``."""
    count = 0
    while amount > 0:
        amount -= sizes[count]
        count += 1
    return tuple(range(1, count + 1))
