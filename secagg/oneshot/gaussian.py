"""Keys and errors: the discrete Gaussian of parameter 6.4 on the integers, cut at 84.

Sample i inverts the cumulative distribution at u / 2^128, u the keystream block i of a key read as
a little-endian number: -84 + #{k in -84 .. 83 : u >= C_k} with C_k = floor(2^128 P(X <= k)). The
table is exact. A floor moves a threshold by less than one part in 2^128, and all of them together
make a sample's statistical distance from P less than 2^-123.

The sampler does not run in constant time.
"""

from __future__ import annotations

from bisect import bisect_right
from decimal import Context, Decimal
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from secagg.checks import require_int
from secagg.errors import ParameterError
from secagg.keystream import BLOCK_BYTES, MAX_BLOCKS, Keystream
from secagg.oneshot import _gaussian_kernels

SIGMA_TENTHS = 64
"""Ten times sigma: the weight of k is exp(-k^2 / (2 sigma^2))."""
CUT = 84
"""Largest magnitude of a sample; the cut-off tails have a probability of 2^-130."""
UNIFORM_BITS = 128

_DIGITS = 100
"""Decimal digits of the weights: an error of 10^-98 in C_k / 2^128 moves no floor."""
_CHUNK = 1 << 14
"""Samples of one cipher call: 256 KiB of keystream."""


def sample(key: bytes, count: int, start: int = 0) -> NDArray[np.int8]:
    """Samples start .. start + count of a key's stream: int8[count] in -84 .. 84.

    Args:
        key: 16 bytes, used for nothing else.
    """
    keystream = Keystream(key)
    require_int("count", count, 0)
    if not 0 <= start <= MAX_BLOCKS - count:
        raise ParameterError("start", start, f"at least 0, and the end at most {MAX_BLOCKS}")
    table = _table()
    samples = np.empty(count, np.int8)
    for low in range(0, count, _CHUNK):
        part = samples[low : low + _CHUNK]
        words = keystream.blocks(start + low, part.size).view("<u8")
        _gaussian_kernels.count_passed(
            words.reshape(-1, BLOCK_BYTES // 8), table.high, table.low, table.guide, -CUT, part
        )
    return samples


@lru_cache(maxsize=1)
def thresholds() -> tuple[int, ...]:
    """C_k = floor(2^128 P(X <= k)) for k = -84 .. 83, ascending."""
    context = Context(prec=_DIGITS)
    # k^2 / (2 sigma^2) with sigma = SIGMA_TENTHS / 10.
    halves = Decimal(2 * SIGMA_TENTHS**2)
    weights = [
        context.exp(context.divide(Decimal(-100 * k * k), halves)) for k in range(-CUT, CUT + 1)
    ]
    total = Decimal(0)
    for weight in weights:
        total = context.add(total, weight)
    found, passed = [], Decimal(0)
    for weight in weights[:-1]:
        passed = context.add(passed, weight)
        found.append(int(context.divide(context.multiply(passed, 1 << UNIFORM_BITS), total)))
    return tuple(found)


class _Table(NamedTuple):
    """The thresholds as the kernel wants them."""

    high: NDArray[np.uint64]
    low: NDArray[np.uint64]
    guide: NDArray[np.int16]


@lru_cache(maxsize=1)
def _table() -> _Table:
    found = thresholds()
    half = UNIFORM_BITS // 2
    cells = 1 << _gaussian_kernels.GUIDE_BITS
    width = (1 << UNIFORM_BITS) // cells
    return _Table(
        np.array([each >> half for each in found], np.uint64),
        np.array([each & ((1 << half) - 1) for each in found], np.uint64),
        np.array([bisect_right(found, cell * width) for cell in range(cells + 1)], np.int16),
    )
