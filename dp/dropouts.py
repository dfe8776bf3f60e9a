"""Binomial noise that is exact whoever drops out: coins in batches that can be taken off again.

Every client adds enough coins for the worst tolerated case, as batches with a seed each. Once
the survivors are known, they reveal the seeds of the batches that were not needed, and the server
subtracts that noise. The honest survivors are left with the target number of coins, and less than
one coin each above it. ``docs/dropouts.md`` has the proofs.

This module says how many coins there are, which batches go, and what their noise is. How seeds
are shared, who may ask for them, and how the survivors are agreed upon, it does not know; it
relies on it that ``dropped`` is computed from a set of survivors which a quorum signed, that a
client answers for one such set only, and that too few shares of a kept batch get out to rebuild
it.

Source: Jiang, Wang, Chen, "Dordis: Efficient Federated Learning with Dropout-Resilient
Differential Privacy", EuroSys 2024, arXiv 2209.12528, for noise that is added in pieces and
removed by seed. Coins, counts and proofs are our own.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dp.coins import MAX_COINS, Coins, noise_limit, residual_offset, sample_binomial
from dp.errors import PrivacyError
from dp.keystream import NoiseSeed
from dp.noised import Noised
from dp.rounding import Quantized


class BatchVariant(enum.Enum):
    """How the coins that may have to go are cut into batches."""

    PER_DROPOUT = "one batch for each dropout that raises the need"
    BINARY = "powers of two and a remainder"


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
            "the noise would be too thin, so no sum may be released"
        )
        self.dropped = dropped
        self.tolerated = tolerated

    def __reduce__(self) -> tuple[type[TooManyDropoutsError], tuple[int, int]]:
        """Rebuild from both figures, so that the error survives process boundaries."""
        return type(self), (self.dropped, self.tolerated)


def _require_integer(name: str, value: object, smallest: int) -> None:
    """Raise unless ``value`` is an int of at least ``smallest``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if value < smallest:
        raise ValueError(f"{name} must be at least {smallest}, got {value}")


@dataclass(frozen=True, slots=True)
class CoinSchedule:
    """How many coins each client adds, in which batches, and which of them go.

    With h(d) = cohort - d - tolerated_colluders, the fewest honest survivors after d dropouts,
    each survivor keeps C_d = ceil(target_coins / h(d)) coins. All methods are functions of public
    numbers: every client and the server compute the same answer.

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
        _require_integer("target_coins", self.target_coins, 1)
        _require_integer("cohort", self.cohort, 1)
        _require_integer("tolerated_dropouts", self.tolerated_dropouts, 0)
        _require_integer("tolerated_colluders", self.tolerated_colluders, 0)
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
                f"target_coins = {self.target_coins} asks {most} coins of one client, "
                f"at most {MAX_COINS} are possible"
            )
        object.__setattr__(self, "batches", (self._needed(0), *self._removable_batches()))

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
        """Return C_d, the coins per coordinate that each survivor must keep.

        Post: ``needed`` does not fall as ``dropped`` grows.

        Args:
            dropped: d, clients of the cohort that are not in the signed set of survivors,
                ``0 <= dropped <= tolerated_dropouts``.

        Raises:
            TooManyDropoutsError: ``dropped > tolerated_dropouts``; no sum may be released.
            TypeError, ValueError: ``dropped`` is not an int, or negative.
        """
        _require_integer("dropped", dropped, 0)
        if dropped > self.tolerated_dropouts:
            raise TooManyDropoutsError(dropped, self.tolerated_dropouts)
        return self._needed(dropped)

    def kept(self, dropped: int) -> tuple[int, ...]:
        """Return the indices of ``batches`` that stay in the sum, in order; 0 is always there.

        Args and Raises: as for ``needed``.
        """
        extra = self.needed(dropped) - self.batches[0]
        if self.variant is BatchVariant.BINARY:
            return (0, *_binary_subset(sum(self.batches[1:]), extra))
        return (0, *_prefix(self.batches[1:], extra))

    def removed(self, dropped: int) -> tuple[int, ...]:
        """Return the indices of ``batches`` whose seeds each survivor gives up, in order.

        Post: ``removed(d)`` and ``kept(d)`` are disjoint and cover ``range(len(batches))``.

        Args and Raises: as for ``needed``.
        """
        kept = set(self.kept(dropped))
        return tuple(index for index in range(len(self.batches)) if index not in kept)

    def kept_coins(self, dropped: int) -> int:
        """Return the coins that stay, per survivor and coordinate, counted from the batches.

        Post: ``kept_coins(d) == needed(d)``.

        Args and Raises: as for ``needed``.
        """
        return sum(self.batches[index] for index in self.kept(dropped))

    def honest_coins(self, dropped: int) -> int:
        """Return the coins to account for: those of the fewest honest survivors together.

        This is the ``coins`` of the round's ``BinomialRelease``. The server has a say in who drops
        out, so an accountant that needs parameters fixed in advance is given ``target_coins``,
        which is never more.

        Post: ``0 <= honest_coins(d) - target_coins < cohort - d - tolerated_colluders``.

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
        if self.variant is BatchVariant.BINARY:
            return _binary_batches(self._needed(self.tolerated_dropouts) - self._needed(0))
        needs = [self._needed(d) for d in range(self.tolerated_dropouts + 1)]
        return tuple(later - earlier for earlier, later in pairwise(needs) if later > earlier)


def _binary_batches(extra: int) -> tuple[int, ...]:
    """Cut ``extra`` coins into ``extra.bit_length()`` batches, 1, 2, 4, ... and a remainder.

    Every number in ``0..extra`` is the sum of some of them: see ``_binary_subset``.
    """
    powers = (extra + 1).bit_length() - 1
    remainder = extra + 1 - (1 << powers)
    return tuple(1 << j for j in range(powers)) + ((remainder,) if remainder else ())


def _binary_subset(extra: int, amount: int) -> tuple[int, ...]:
    """Return which of ``_binary_batches(extra)``, counted from 1, add up to ``amount``.

    An amount that the powers 1, ..., 2^(m-1) cannot reach takes the remainder r as well. The rest
    is then at least 2^m - r > 0 and at most extra - r = 2^m - 1: its binary digits.
    """
    powers = (extra + 1).bit_length() - 1
    last: tuple[int, ...] = ()
    if amount >> powers:
        amount -= extra + 1 - (1 << powers)
        last = (powers + 1,)
    return tuple(j + 1 for j in range(powers) if amount >> j & 1) + last


def _prefix(sizes: Sequence[int], amount: int) -> tuple[int, ...]:
    """Return the first batches, counted from 1, that add up to ``amount``."""
    count = 0
    while amount > 0:
        amount -= sizes[count]
        count += 1
    return tuple(range(1, count + 1))


def add_batches(quantized: Quantized, schedule: CoinSchedule, seeds: Sequence[NoiseSeed]) -> Noised:
    """Add the noise of all batches to a client's bounded integers.

    Args and Raises: as for ``batch_noise``.
    """
    noise = batch_noise(seeds, schedule, quantized.values.size)
    noise += quantized.values
    coins = Coins(sum(schedule.batches), len(schedule.batches))
    return Noised(noise, coins, quantized.l2_bound, quantized.linf_bound)


def batch_noise(
    seeds: Sequence[NoiseSeed], schedule: CoinSchedule, length: int
) -> NDArray[np.int64]:
    """Draw the noise that one client adds: all its batches, each from its own seed.

    Post: ``abs(result) <= schedule.largest_noise``. Subtracting ``removed_noise`` of the removed
    seeds leaves, bit for bit, the noise of the kept batches.

    Args:
        seeds: one secret seed for each of ``schedule.batches``, in order, all different.
        schedule: the round's schedule.
        length: number of coordinates, >= 0.

    Returns:
        int64[length]: the sum over batches b of ``Bin(b, 1/2) - b // 2``.

    Raises:
        TypeError: a seed is not a ``NoiseSeed``, or ``length`` is not an int.
        ValueError: the number of seeds is wrong, a seed occurs twice, or ``length < 0``.
    """
    if len(seeds) != len(schedule.batches):
        raise ValueError(f"seeds must be {len(schedule.batches)}, one a batch, got {len(seeds)}")
    _require_distinct(seeds)
    return _sum_of_batches(list(zip(seeds, schedule.batches, strict=True)), length)


def removed_noise(
    seeds_by_batch: Mapping[int, NoiseSeed], schedule: CoinSchedule, dropped: int, length: int
) -> NDArray[np.int64]:
    """Rebuild the noise of one survivor that the server subtracts from the sum.

    Args:
        seeds_by_batch: the revealed seed of each index in ``schedule.removed(dropped)``, and no
            other: a seed of a kept batch must not have been revealed.
        schedule: the round's schedule.
        dropped: clients of the cohort that are not in the signed set of survivors.
        length: number of coordinates, >= 0.

    Returns:
        int64[length]: the sum over removed batches b of ``Bin(b, 1/2) - b // 2``.

    Raises:
        TooManyDropoutsError: ``dropped > schedule.tolerated_dropouts``.
        TypeError: a seed is not a ``NoiseSeed``, or an integer is not an int.
        ValueError: a removed batch has no seed, a kept one has, or an integer is negative.

    A seed that occurs twice is the doing of its owner. It harms the owner's noise alone, which an
    owner who works against the others can withhold anyway; refusing it would let one client end
    every round.
    """
    removed = schedule.removed(dropped)
    if set(seeds_by_batch) != set(removed):
        missing = sorted(set(removed) - set(seeds_by_batch))
        surplus = sorted(set(seeds_by_batch) - set(removed))
        raise ValueError(
            f"seeds_by_batch must hold exactly the removed batches after {dropped} dropouts: "
            f"missing {missing}, not to be revealed {surplus}"
        )
    return _sum_of_batches(
        [(seeds_by_batch[index], schedule.batches[index]) for index in removed], length
    )


def _sum_of_batches(batches: Sequence[tuple[NoiseSeed, int]], length: int) -> NDArray[np.int64]:
    """Return the sum of ``Bin(coins) - coins // 2`` over ``batches``, one vector at a time."""
    _require_integer("length", length, 0)
    for seed, _ in batches:
        if not isinstance(seed, NoiseSeed):
            raise TypeError(f"a batch's seed must be a NoiseSeed, got {type(seed).__name__}")
    total = np.zeros(length, dtype=np.int64)
    centre = 0
    for seed, coins in batches:
        total += sample_binomial(seed, coins, length)
        centre += coins // 2
    total -= centre
    return total


def _require_distinct(seeds: Iterable[NoiseSeed]) -> None:
    """Raise if a seed occurs twice: revealing it for one batch would reveal the other."""
    materials = [seed.material for seed in seeds if isinstance(seed, NoiseSeed)]
    if len(set(materials)) != len(materials):
        raise ValueError("seeds must all be different, one was given for two batches")
