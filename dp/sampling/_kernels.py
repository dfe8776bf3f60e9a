"""Compiled inner loop of the inversion sampler. No policy here: callers check arguments.

Nothing in this module draws randomness; it consumes words that the caller made.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled, sample

UNDECIDED = np.int64(-(2**63))
"""Marks a coordinate whose word equals a table entry. No law reaches this value."""

_SHORT_SCAN = 8
"""Entries that are scanned one after the other; longer runs are halved first."""


_TABLE = np.unique(np.concatenate([sample(20, below=256), np.arange(49, 61, dtype=np.uint64)]))


@compiled(
    lambda kind: (
        np.concatenate([_TABLE[:9], sample(40, below=256)]).astype(kind),
        _TABLE,
        np.searchsorted(_TABLE, np.arange(17) << 4).astype(np.int32),
        np.uint64(4),
        np.int64(-7),
        np.zeros(49, np.int64),
    ),
    kinds=(np.uint8, np.uint16, np.uint32, np.uint64),
    answer=0x474BCB2B,
)
def look_up(
    words: NDArray[np.unsignedinteger],
    table: NDArray[np.uint64],
    guide: NDArray[np.int32],
    shift: np.uint64,
    first: np.int64,
    out: NDArray[np.int64],
) -> int:
    """Set ``out[i] = first + #{entries <= words[i]}``; return how many are ``UNDECIDED``.

    ``guide[b]`` counts the entries below ``b << shift``, so those that share the top bits of a
    word are ``table[guide[b] : guide[b + 1]]``; an entry equal to the word is among them.
    """
    undecided = 0
    for i in range(words.size):
        word = np.uint64(words[i])
        bucket = np.int64(word >> shift)
        start = np.int64(guide[bucket])
        low = start
        high = np.int64(guide[bucket + 1])
        while high - low > _SHORT_SCAN:
            middle = (low + high) >> 1
            if table[middle] <= word:
                low = middle + 1
            else:
                high = middle
        while low < high and table[low] <= word:
            low += 1
        if low > start and table[low - 1] == word:
            out[i] = UNDECIDED
            undecided += 1
        else:
            out[i] = first + low
    return undecided
