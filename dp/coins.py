"""Binomial noise from fair coins: the popcount of keystream bits.

The number of ones among m uniform bits is exactly Bin(m, 1/2): no floating point, no tables, no
rejection, and a running time that depends on m and the length only. Bits come as AES-CTR
keystream, which is also why a coin is cheap: the cipher makes many bits per clock cycle. Above
``POPCOUNT_COINS`` that many bits are too many: the same law is drawn by inversion from 32 of them
(``dp.sampling``), as exactly, though not with the same memory accesses whatever is drawn.

Noise is kept in integers by subtracting ``coins // 2``. For an odd number of coins that leaves
a mean of one half, which the server subtracts once per client after the sum
(``residual_offset``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dp._kernels import popcount_runs, popcount_words
from dp.checks import require_integer
from dp.keystream import Keystream, NoiseSeed, Usage
from dp.noised import Noised
from dp.rounding import Quantized
from dp.sampling import BinomialLaw, accumulate_law

MAX_COINS: Final = 1 << 24
"""Coins per coordinate of one client: the largest table that is quick to compute."""

POPCOUNT_COINS: Final = 256
"""Up to this many coins they are counted one by one; part of the layout, as is the rest of it."""

_WORD_BITS: Final = 64
_WORDS: Final = tuple(np.dtype(f"<u{size}") for size in (1, 2, 4, 8))


def require_coins(coins: int) -> None:
    """Raise unless ``coins`` is an integer in ``0..MAX_COINS``."""
    require_integer("coins", coins, 0, MAX_COINS)


def noise_limit(coins: int) -> int:
    """Return the largest absolute value of ``Bin(coins) - coins // 2``."""
    return coins - coins // 2


def residual_offset(coins: int) -> float:
    """Return the mean of ``Bin(coins, 1/2) - coins // 2``: 0 for even coins, 0.5 for odd."""
    return coins / 2 - coins // 2


@dataclass(frozen=True, slots=True)
class Coins:
    """What one client added: fair coins, centred.

    Attributes:
        count: fair coins per coordinate, ``0 <= count <= MAX_COINS``.
        batches: in how many batches they were drawn; every odd one is centred for itself, so the
            noise may reach half a unit further for each two.
    """

    count: int
    batches: int = 1

    def __post_init__(self) -> None:
        require_coins(self.count)
        require_integer("batches", self.batches, 1)

    @property
    def noise_limit(self) -> int:
        """Largest absolute value of the noise of one coordinate."""
        return noise_limit(self.count) + self.batches // 2

    @property
    def variance(self) -> float:
        """Variance of the noise of one coordinate."""
        return self.count / 4.0


def sample_binomial(seed: NoiseSeed, coins: int, length: int) -> NDArray[np.int64]:
    """Draw ``length`` independent values of exactly Bin(coins, 1/2).

    Layout, fixed so that a rebuilt seed rebuilds the noise: up to 64 coins, coordinate i takes
    word i of 8, 16, 32 or 64 bits (the narrowest that fits); up to ``POPCOUNT_COINS``,
    ``ceil(coins / 64)`` consecutive 64-bit words. Words are little-endian; of the last word the low
    bits count. Above that, the layout is that of ``sample_law``, with the sub-seed of
    ``Usage.COINS`` as its seed.

    Args:
        seed: used under ``Usage.COINS``; must not have drawn another vector.
        coins: fair coins per coordinate, ``0 <= coins <= MAX_COINS``.

    Returns:
        int64[length] with ``0 <= result <= coins``.
    """
    if length < 0:
        raise ValueError(f"length must not be negative, got {length}")
    out = np.zeros(length, dtype=np.int64)
    accumulate_binomial(seed, coins, out)
    return out


def accumulate_binomial(seed: NoiseSeed, coins: int, out: NDArray[np.int64]) -> None:
    """Add to ``out`` what ``sample_binomial`` draws: the coins are counted where they go.

    Args:
        out: int64[length], contiguous; left with room for ``coins`` more.
    """
    require_coins(coins)
    if coins > POPCOUNT_COINS:
        accumulate_law(BinomialLaw(coins, 0.5), seed.derive(Usage.COINS), out)
    elif coins > _WORD_BITS:
        _count_many_words(Keystream(seed.derive(Usage.COINS)), coins, out)
    elif coins > 0:
        _count_one_word(Keystream(seed.derive(Usage.COINS)), coins, out)


def _narrowest_word(coins: int) -> np.dtype[Any]:
    """Return the smallest unsigned type with at least ``coins`` bits, ``coins <= 64``."""
    return _WORDS[(coins > 8) + (coins > 16) + (coins > 32)]


def _count_one_word(stream: Keystream, coins: int, out: NDArray[np.int64]) -> None:
    """Add to ``out`` where one word holds all coins of a coordinate."""
    mask = np.uint64((1 << coins) - 1)
    start = 0
    for words in stream.chunks(_narrowest_word(coins), out.size):
        popcount_words(words, mask, out[start : start + words.size])
        start += words.size


def _count_many_words(stream: Keystream, coins: int, out: NDArray[np.int64]) -> None:
    """Add to ``out`` where a coordinate spans several 64-bit words."""
    words_each = -(-coins // _WORD_BITS)
    last_mask = np.uint64((1 << (coins - _WORD_BITS * (words_each - 1))) - 1)
    position = 0
    for words in stream.chunks(_WORDS[-1], out.size * words_each):
        popcount_runs(words, position, words_each, last_mask, out)
        position += words.size


def add_coins(quantized: Quantized, coins: int, seed: NoiseSeed) -> Noised:
    """Add ``Bin(coins, 1/2) - coins // 2`` to every coordinate.

    Post: ``abs(result.values) <= quantized.linf_bound + coins - coins // 2``, and the mean of
    the added noise is ``residual_offset(coins)``.

    Args:
        quantized: the client's bounded integers.
        coins: the client's own coins per coordinate.
        seed: used under ``Usage.COINS``; must not have drawn another vector.
    """
    require_coins(coins)
    noised = quantized.values - coins // 2
    accumulate_binomial(seed, coins, noised)
    return Noised(noised, Coins(coins), quantized.square_bound, quantized.linf_bound)
