"""Keep the largest entries of a decoded vector: what is mostly noise is better left out.

Post-processing of a released value: it spends no budget and needs no seed.

Source: arXiv 2307.10999, section 2 (top-k after decoding); Charikar, Chen and Farach-Colton 2002.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketch import _checks, _kernels

_WORDS: dict[Any, type[np.uint32] | type[np.uint64]] = {
    np.dtype(np.float32): np.uint32,
    np.dtype(np.float64): np.uint64,
}
_LONG = 1 << 16
"""Entries from which a sample pays, and wider digits: counting 2^16 of them costs like a pass."""
_SAMPLE = 1 << 12
_SLACK = 4.0
"""Standard deviations of a sample's rank by which the floor is lower than it seems to be."""


def top_k(values: _checks.Floats, k: int) -> NDArray[np.float64]:
    """The k entries of largest magnitude, all others zero.

    Of entries with equal magnitude at the border, those with the lowest index are kept, so the
    result is a function of the values alone.

    Args:
        values: float32[d] or float64[d], finite, d at least 1; left unchanged.
        k: number of entries to keep, 1 to d.

    Returns:
        float64[d]. It is the vector with at most k non-zero entries that is nearest in l2.
    """
    checked = _checks.update("values", values, None)
    indices = _largest(checked, k)
    kept = np.zeros(checked.size)
    kept[indices] = checked[indices]
    return kept


def top_k_indices(values: _checks.Floats, k: int) -> NDArray[np.int64]:
    """The places of the entries that `top_k` keeps, in increasing order: int64[k]."""
    return _largest(_checks.update("values", values, None), k)


def _largest(values: NDArray[Any], k: int) -> NDArray[np.int64]:
    k = _checks.integer("k", k, 1, values.size)
    candidates = _candidates(values, k) if values.size >= _LONG else None
    if candidates is None:
        return _selected(values, k)
    return candidates[_selected(values[candidates], k)]


def _selected(values: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Places of the k largest magnitudes, in order, found digit by digit."""
    words = _patterns(values)
    infinity = np.array(np.inf, values.dtype).view(words.dtype)
    digit_bits = 16 if words.size >= _LONG else 11
    border, ties = _kernels.magnitude_border(words, k, digit_bits, int(infinity))
    if ties == 0:
        _checks.finite("values", values)
    out = np.empty(k + 1, np.int64)
    _kernels.collect_above(words, border, ties, out)
    return out[:k]


def _patterns(values: NDArray[Any]) -> NDArray[Any]:
    """The bits of floats: uint32 or uint64, ordered as magnitudes are but for the top bit."""
    return values.view(_WORDS[values.dtype])


def _candidates(values: NDArray[Any], k: int) -> NDArray[np.int64] | None:
    """Indices of few entries, the k largest among them, or None if a sample could not tell.

    Entries at regular distances suggest a magnitude that a little more than k entries reach.
    Counting shows whether k do. The result of a selection does not depend on the guess, since
    whatever is not collected is smaller than k entries that are; what is not finite is larger than
    all numbers, so it is collected too.
    """
    words = _patterns(values)
    sample = words[:: words.size // _SAMPLE] & (np.iinfo(words.dtype).max >> 1)
    rank = sample.size * k / words.size
    lowered = math.ceil(rank + _SLACK * math.sqrt(rank) + 1)
    if lowered > sample.size // 2:
        return None
    place = sample.size - lowered
    floor = np.partition(sample, place)[place]
    out = np.empty(words.size + 1, np.int64)
    found = _kernels.collect_from(words, int(floor), out)
    return out[:found] if k <= found <= words.size // 2 else None
