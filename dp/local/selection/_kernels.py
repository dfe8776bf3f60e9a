"""Compiled inner loop of the selectors. No policy here: callers check arguments."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled, sample

_DIGIT_BITS = 8
_BUCKETS = 256
_LOW_DIGIT = np.uint64(_BUCKETS - 1)
_TOP_SHIFT = 64 - _DIGIT_BITS


@compiled(
    lambda _: (sample(4, 20), np.array([0, 19, -3, 7]), np.zeros(4, np.int64)),
    answer=0x14415E36,
)
def find_positions(
    bits: NDArray[np.uint64], positions: NDArray[np.int64], out: NDArray[np.int64]
) -> None:
    """Set ``out[i]`` to the index in row i of what is at ``positions[i]`` in falling order.

    Of equal numbers the one with the lower index comes first. A negative position is copied.
    ``bits`` are those of floats that are not negative: they are ordered as the floats are. A radix
    selection, byte by byte from the top: at most nine passes over a row, whatever it holds.
    """
    counts = np.empty(_BUCKETS, dtype=np.int64)
    for row in range(positions.size):
        before = positions[row]
        if before < 0:
            out[row] = before
            continue
        values = bits[row]
        prefix = np.uint64(0)
        shift = _TOP_SHIFT
        while True:
            counts[:] = 0
            if shift == _TOP_SHIFT:
                for value in values:
                    counts[np.int64(value >> np.uint64(shift))] += 1
            else:
                above = np.uint64(shift + _DIGIT_BITS)
                for value in values:
                    if value >> above == prefix:
                        counts[np.int64((value >> np.uint64(shift)) & _LOW_DIGIT)] += 1
            bucket = _BUCKETS - 1
            while before >= counts[bucket]:
                before -= counts[bucket]
                bucket -= 1
            prefix = (prefix << np.uint64(_DIGIT_BITS)) | np.uint64(bucket)
            if counts[bucket] == 1 or shift == 0:
                break
            shift -= _DIGIT_BITS
        for i in range(values.size):
            if values[i] >> np.uint64(shift) == prefix:
                if before == 0:
                    out[row] = i
                    break
                before -= 1
