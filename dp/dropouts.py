"""Binomial noise that can be taken off again: one batch of coins, one seed.

Clients draw the batches of a ``CoinSchedule`` from a seed each. Once the survivors are known, they
reveal the seeds of the batches that were not needed, and the server subtracts that noise.

How seeds are shared, who may ask for them, and how the survivors are agreed upon, this module does
not know; it relies on it that ``dropped`` is computed from a set of survivors which a quorum
signed, that a client answers for one such set only, and that too few shares of a kept batch get
out to rebuild it.

Source: as for ``dp.coin_schedule``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dp.checks import require_integer
from dp.coin_schedule import CoinSchedule
from dp.coins import Coins, accumulate_binomial
from dp.keystream import NoiseSeed
from dp.noised import Noised
from dp.rounding import Quantized


def add_batches(quantized: Quantized, schedule: CoinSchedule, seeds: Sequence[NoiseSeed]) -> Noised:
    """Add the noise of all batches to a client's bounded integers.

    Args and Raises: as for ``batch_noise``.
    """
    noise = quantized.values.copy()
    _accumulate(_batches(seeds, schedule), noise)
    coins = Coins(sum(schedule.batches), len(schedule.batches))
    return Noised(noise, coins, quantized.square_bound, quantized.linf_bound)


def batch_noise(
    seeds: Sequence[NoiseSeed], schedule: CoinSchedule, length: int
) -> NDArray[np.int64]:
    """Draw the noise that one client adds: all its batches, each from its own seed.

    Post: ``abs(result) <= schedule.largest_noise``. Subtracting ``removed_noise`` of the removed
    seeds leaves, bit for bit, the noise of the kept batches.

    Args:
        seeds: one secret seed for each of ``schedule.batches``, in order, all different.

    Returns:
        int64[length]: the sum over batches b of ``Bin(b, 1/2) - b // 2``.
    """
    total = _zeros(length)
    _accumulate(_batches(seeds, schedule), total)
    return total


def removed_noise(
    seeds_by_batch: Mapping[int, NoiseSeed], schedule: CoinSchedule, dropped: int, length: int
) -> NDArray[np.int64]:
    """Rebuild the noise of one survivor that the server subtracts from the sum.

    Args: as for ``accumulate_removed``.

    Returns:
        int64[length]: the sum over removed batches b of ``Bin(b, 1/2) - b // 2``.
    """
    total = _zeros(length)
    accumulate_removed(seeds_by_batch, schedule, dropped, total)
    return total


def accumulate_removed(
    seeds_by_batch: Mapping[int, NoiseSeed],
    schedule: CoinSchedule,
    dropped: int,
    out: NDArray[np.int64],
) -> None:
    """Add ``removed_noise`` to ``out``.

    Args:
        seeds_by_batch: the revealed seed of each index in ``schedule.removed(dropped)``, and no
            other: a seed of a kept batch must not have been revealed.

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
    _accumulate([(seeds_by_batch[index], schedule.batches[index]) for index in removed], out)


def _batches(seeds: Sequence[NoiseSeed], schedule: CoinSchedule) -> list[tuple[NoiseSeed, int]]:
    """Return each seed with the coins that it draws."""
    if len(seeds) != len(schedule.batches):
        raise ValueError(f"seeds must be {len(schedule.batches)}, one per batch, got {len(seeds)}")
    _require_distinct(seeds)
    return list(zip(seeds, schedule.batches, strict=True))


def _zeros(length: int) -> NDArray[np.int64]:
    """Return zeros to add noise to."""
    require_integer("length", length, 0)
    return np.zeros(length, dtype=np.int64)


def _accumulate(batches: Sequence[tuple[NoiseSeed, int]], out: NDArray[np.int64]) -> None:
    """Add ``Bin(coins) - coins // 2`` of every batch to ``out``."""
    for seed, _ in batches:
        if not isinstance(seed, NoiseSeed):
            raise TypeError(f"a batch's seed must be a NoiseSeed, got {type(seed).__name__}")
    out -= sum(coins // 2 for _, coins in batches)
    for seed, coins in batches:
        accumulate_binomial(seed, coins, out)


def _require_distinct(seeds: Iterable[NoiseSeed]) -> None:
    """Raise if a seed occurs twice: revealing it for one batch would reveal the other."""
    materials = [seed.material for seed in seeds if isinstance(seed, NoiseSeed)]
    if len(set(materials)) != len(materials):
        raise ValueError("seeds must all be different, but one was given for two batches")
