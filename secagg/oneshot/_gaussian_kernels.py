"""Compiled inversion of a cumulative table by uniform 128-bit numbers."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

GUIDE_BITS = 12
"""Leading bits that decide nearly every sample."""


@njit(cache=True, nogil=True)
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
        lowest: the value below all thresholds.
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
