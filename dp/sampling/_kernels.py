"""Compiled inner loop of the inversion sampler. No policy here: callers check arguments.

Nothing in this module draws randomness; it consumes words that the caller made.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled, sample

_SHORT_SCAN = np.uint64(8)
"""Entries that are scanned one after the other; longer runs are halved first."""

_ONE = np.uint64(1)

_TABLE = np.union1d(sample(20, below=255, kind=np.int64), [*range(49, 61), 255])


@compiled(
    lambda kind: (
        np.append(np.setdiff1d(np.arange(256), _TABLE), [_TABLE[9], 0]).astype(kind),
        _TABLE.astype(kind),
        np.searchsorted(_TABLE, np.arange(17) << 4).astype(np.int32),
        np.uint64(4),
        np.int64(-7),
        sample(256, below=50, kind=np.int64),
    ),
    kinds=(np.uint8, np.uint16, np.uint32),
    answer=0x3AB23D0A,
)
def add_decided(
    words: NDArray[np.unsignedinteger],
    table: NDArray[np.unsignedinteger],
    guide: NDArray[np.int32],
    shift: np.uint64,
    first: np.int64,
    out: NDArray[np.int64],
) -> int:
    """Add ``first + #{entries < words[i]}`` to ``out[i]``; stop at a word that is an entry.

    Returns how many words came before it. ``guide[b]`` counts the entries below ``b << shift``;
    the last entry is the largest word there is, so that every scan ends.
    """
    for i in range(words.size):
        word = np.uint64(words[i])
        bucket = word >> shift
        low = np.uint64(guide[bucket])
        # Most buckets have one entry at most: adding the comparison up costs no branch.
        low += np.uint64(table[low] < word)
        if table[low] < word:
            high = np.uint64(guide[bucket + _ONE])
            while low + _SHORT_SCAN < high:
                middle = (low + high) >> _ONE
                if table[middle] < word:
                    low = middle + _ONE
                else:
                    high = middle
            while table[low] < word:
                low += _ONE
        if table[low] == word:
            return i
        out[i] += first + np.int64(low)
    return len(words)
