"""Binomial noise from fair coins: the popcount of keystream bits.

The number of ones among m uniform bits is exactly Bin(m, 1/2): no floating point, no tables, no
rejection, and a running time that depends on m and the length only. Bits come as AES-CTR
keystream, which is also why a coin is cheap: the cipher makes many bits per clock cycle.

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
from dp.clipping import require_l2_bound, require_vector
from dp.errors import SensitivityExceededError
from dp.keystream import Keystream, NoiseSeed, Usage
from dp.rounding import Quantized, require_linf_bound

MAX_COINS: Final = 1 << 24
"""Coins per coordinate of one client. More would take longer than a round may last."""

_WORD_BITS: Final = 64
_WORDS: Final = tuple(np.dtype(f"<u{size}") for size in (1, 2, 4, 8))


def require_coins(coins: int) -> None:
    """Raise unless ``coins`` is an integer in ``0..MAX_COINS``."""
    if isinstance(coins, bool) or not isinstance(coins, int):
        raise TypeError(f"coins must be an int, got {type(coins).__name__}")
    if not 0 <= coins <= MAX_COINS:
        raise ValueError(f"coins must lie in 0..{MAX_COINS}, got {coins}")


def noise_limit(coins: int) -> int:
    """Return the largest absolute value of ``Bin(coins) - coins // 2``."""
    return coins - coins // 2


def residual_offset(coins: int) -> float:
    """Return the mean of ``Bin(coins, 1/2) - coins // 2``: 0 for even coins, 0.5 for odd."""
    return coins / 2 - coins // 2


@dataclass(frozen=True, slots=True, eq=False)
class Noised:
    """An integer vector with the client's own coins added.

    Attributes:
        values: int64[d], read-only.
        coins: fair coins per coordinate that were added.
        l2_bound: norm bound of the vector *before* noise: the sensitivity, in integer units.
        linf_bound: coordinate bound before noise.
        batches: in how many batches the coins were drawn; every odd one is centred for itself, so
            the noise may reach half a unit further for each two.
    """

    values: NDArray[np.int64]
    coins: int
    l2_bound: float
    linf_bound: int
    batches: int = 1

    def __post_init__(self) -> None:
        """Check types, and that no coordinate is beyond signal plus noise.

        Raises:
            TypeError, ValueError: wrong dtype, number of dimensions, coins or bounds.
            SensitivityExceededError: a coordinate is larger than these coins can explain.
        """
        require_vector(self.values, (np.dtype(np.int64),), "values")
        require_coins(self.coins)
        require_l2_bound(self.l2_bound)
        require_linf_bound(self.linf_bound)
        limit = self.linf_bound + noise_limit(self.coins) + self.batches // 2
        if self.values.size and not (-limit <= self.values.min() and self.values.max() <= limit):
            raise SensitivityExceededError(f"a noised coordinate exceeds {limit}")
        self.values.flags.writeable = False


def sample_binomial(seed: NoiseSeed, coins: int, length: int) -> NDArray[np.int64]:
    """Draw ``length`` independent values of exactly Bin(coins, 1/2).

    Layout, fixed so that a rebuilt seed rebuilds the noise: up to 64 coins, coordinate i takes
    word i of 8, 16, 32 or 64 bits (the narrowest that fits); above that, ``ceil(coins / 64)``
    consecutive 64-bit words. Words are little-endian; of the last word the low bits count.

    Args:
        seed: used under ``Usage.COINS``; must not have drawn another vector.
        coins: fair coins per coordinate, ``0 <= coins <= MAX_COINS``.
        length: number of coordinates, >= 0.

    Returns:
        int64[length] with ``0 <= result <= coins``.

    Raises:
        TypeError, ValueError: an argument is out of range.
    """
    require_coins(coins)
    if length < 0:
        raise ValueError(f"length must not be negative, got {length}")
    out = np.zeros(length, dtype=np.int64)
    if coins == 0:
        return out
    stream = Keystream(seed.derive(Usage.COINS))
    if coins <= _WORD_BITS:
        _fill_one_word(stream, coins, out)
    else:
        _fill_many_words(stream, coins, out)
    return out


def _narrowest_word(coins: int) -> np.dtype[Any]:
    """Return the smallest unsigned type with at least ``coins`` bits, ``coins <= 64``."""
    return next(word for word in _WORDS if 8 * word.itemsize >= coins)


def _fill_one_word(stream: Keystream, coins: int, out: NDArray[np.int64]) -> None:
    """Set ``out`` where one word holds all coins of a coordinate."""
    mask = np.uint64((1 << coins) - 1)
    start = 0
    for words in stream.chunks(_narrowest_word(coins), out.size):
        popcount_words(words, mask, out[start : start + words.size])
        start += words.size


def _fill_many_words(stream: Keystream, coins: int, out: NDArray[np.int64]) -> None:
    """Add to the zeroed ``out`` where a coordinate spans several 64-bit words."""
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

    Raises:
        TypeError, ValueError: ``coins`` is out of range.
    """
    noise = sample_binomial(seed, coins, quantized.values.size)
    noise -= coins // 2
    noise += quantized.values
    return Noised(noise, coins, quantized.l2_bound, quantized.linf_bound)
