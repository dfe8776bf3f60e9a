"""Compiled inversion of a cumulative table by uniform 128-bit numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled, sample

GUIDE_BITS = 12
"""Leading bits that decide nearly every sample."""


_HIGH = np.arange(1, 8, dtype=np.uint64) << np.uint64(61)


@compiled(
    lambda _: (
        sample(40, 2, below=(1 << 64) - 1),
        _HIGH,
        sample(7),
        np.searchsorted(
            _HIGH >> np.uint64(64 - GUIDE_BITS), np.arange((1 << GUIDE_BITS) + 1)
        ).astype(np.int16),
        -3,
        np.zeros(40, np.int8),
    ),
    answer=0x7D1BA8F0,
)
def count_passed(
    words: NDArray[np.uint64],
    high: NDArray[np.uint64],
    low: NDArray[np.uint64],
    guide: NDArray[np.int16],
    lowest: int,
    samples: NDArray[np.int8],
) -> None:
    """samples[i] = lowest + #{k : u_i >= C_k} for ascending 128-bit thresholds C_k.

    Args:
        words: uint64[count, 2], the low and high half of each u_i.
        high: uint64[thresholds], the high halves of the C_k.
        low: uint64[thresholds], their low halves.
        guide: int16[2^GUIDE_BITS + 1]: entry g counts the C_k <= g 2^(128 - GUIDE_BITS).
        samples: int8[count], output.
    """
    shift = np.uint64(64 - GUIDE_BITS)
    for i in range(samples.size):
        top, bottom = words[i, 1], words[i, 0]
        cell = top >> shift
        passed, most = guide[cell], guide[cell + np.uint64(1)]
        while passed < most and (
            top > high[passed] or (top == high[passed] and bottom >= low[passed])
        ):
            passed += 1
        samples[i] = np.int8(lowest + passed)
