"""Noise under seeds that are searched: the product's, and a twin's with 32-bit seeds.

The adversary is the one that differential privacy is about: it sees the released sum and knows what
every other client put into it, noise and all. What is left is the victim's quantised update plus
its own coins. It guesses the seed of these coins, subtracts them, and looks whether an update may
be left over.

How it knows: an update is clipped, so its squared norm is at most the public bound. Below a wrong
seed two independent noises are left, of variance coins / 2 in every coordinate, and their norm is
far larger unless the noise was too little to hide anything. Sums of squares only grow, so the first
coordinates refute nearly all candidates, and never the right one.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dp import NoiseSeed, clip_l2, quantize
from dp.coins import sample_binomial
from simulations.audits.base import Integers, noise_seed
from simulations.threats.seed_search.search import (
    Expand,
    Numbers,
    SearchResult,
    mersenne_outputs,
    search_seeds,
)

CLIENTS: Final = 5
DIMENSION: Final = 256
COINS: Final = 64
"""Of one client: a standard deviation of 4 units."""
SCALE: Final = 6.0
LINF: Final = 6
FIRST: Final = 16
"""Coordinates that the search looks at."""
WEAK_BITS: Final = 32
SEED_BITS: Final = 256
DAY_SECONDS: Final = 86_400

Draw: TypeAlias = Callable[[int, int], Integers]
"""The noise of a numbered seed: (number, length) -> int64[length], centred."""


def our_noise(number: int, length: int) -> Integers:
    """Our coins of a seed, written as a number below 2^256: int64[length]."""
    seed = NoiseSeed(number.to_bytes(SEED_BITS // 8, "little"))
    return sample_binomial(seed, COINS, length) - COINS // 2


def weak_noise(number: int, length: int) -> Integers:
    """The twin's coins: the ones among two outputs of a Mersenne Twister for each coordinate."""
    generator = np.random.RandomState(number)
    words = generator.randint(0, 1 << 32, 2 * length, dtype=np.uint32)
    ones: Integers = np.bitwise_count(words).reshape(length, 2).sum(1, dtype=np.int64)
    return ones - COINS // 2


@dataclass(frozen=True, slots=True, eq=False)
class Released:
    """A released sum, less everything that the adversary knows of it."""

    remainder: Integers  # int64[`DIMENSION`]: the victim's quantised update plus its noise
    bound: float
    plain: Integers  # int64[`DIMENSION`], the update; only to see whether the adversary is right

    def accept(self, noise: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which noises, uint32[`FIRST`, N] ones among the coins, may leave an update."""
        centred = self.remainder[: noise.shape[0], None] + COINS // 2
        left = centred.astype(np.int32) - noise.astype(np.int32)
        return np.asarray(np.einsum("ij,ij->j", left, left) <= self.bound)

    def recovered(self, search: SearchResult, number_of: Callable[[int], int], draw: Draw) -> bool:
        """Whether exactly one candidate leaves an update, and that is the victim's."""
        left = [self.remainder - draw(number_of(each), DIMENSION) for each in search.found]
        claims = [plain for plain in left if int(plain @ plain) <= self.bound]
        return len(claims) == 1 and bool(np.array_equal(claims[0], self.plain))


def release(draw: Draw, number: int, rng: np.random.Generator) -> Released:
    """A round of quantised, noised updates, and its sum seen by who knows all but one of them."""
    updates = rng.normal(size=(CLIENTS, DIMENSION))
    quantized = [
        quantize(clip_l2(update, 1.0), SCALE, LINF, noise_seed(int(rng.integers(1 << 62))))
        for update in updates
    ]
    others = [draw(int(rng.integers(1 << WEAK_BITS)), DIMENSION) for _ in range(CLIENTS - 1)]
    inputs = [
        each.values + noise
        for each, noise in zip(quantized, [draw(number, DIMENSION), *others], strict=True)
    ]
    known = np.sum(inputs[1:], axis=0)
    remainder = np.sum(inputs, axis=0) - known
    return Released(remainder, quantized[0].square_bound, quantized[0].values)


def _our_first(told: int, told_bits: int, numbers: Numbers) -> NDArray[np.uint32]:
    """Ones among the first coins of seeds that agree with what is told."""
    seeds = [each << told_bits | told for each in numbers.tolist()]
    rows = [our_noise(seed, FIRST) + COINS // 2 for seed in seeds]
    return np.array(rows, np.uint32).T


def _weak_first(start: int, numbers: Numbers) -> NDArray[np.uint32]:
    """Ones among the first coins of the twin's seeds start + number."""
    words = mersenne_outputs((numbers + np.uint64(start)).astype(np.uint32), 2 * FIRST)
    ones = np.bitwise_count(words)
    return (ones[0::2] + ones[1::2]).astype(np.uint32)


def search_ours(rng: np.random.Generator, told_bits: int, tried_bits: int) -> bool:
    """Attack the product's noise: whether the update was recovered."""
    number = int.from_bytes(NoiseSeed.fresh().material, "little")
    released = release(our_noise, number, rng)
    told = number & ((1 << told_bits) - 1)
    expand: Expand = partial(_our_first, told, told_bits)
    search = search_seeds(range(1 << tried_bits), expand, released.accept)
    return released.recovered(search, lambda each: each << told_bits | told, our_noise)


def search_weak(rng: np.random.Generator, number: int, window: range) -> tuple[bool, SearchResult]:
    """Attack the twin's noise: whether the update was recovered, and the search."""
    released = release(weak_noise, number, rng)
    expand: Expand = partial(_weak_first, window.start)
    search = search_seeds(range(len(window)), expand, released.accept)
    return released.recovered(search, lambda each: window.start + each, weak_noise), search


def told_window(number: int, tried_bits: int) -> range:
    """All seeds with the high bits of one."""
    first = number >> tried_bits << tried_bits
    return range(first, first + (1 << tried_bits))


def search_time_stamp(rng: np.random.Generator) -> tuple[bool, SearchResult]:
    """Attack noise whose seed is the second of the round: all seconds of the day are tried."""
    today = int(time.time()) // DAY_SECONDS * DAY_SECONDS
    moment = today + secrets.randbelow(DAY_SECONDS)
    return search_weak(rng, moment, range(today, today + DAY_SECONDS))
