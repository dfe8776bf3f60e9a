"""Keep the largest entries of a decoded vector: what is mostly noise is better left out.

Post-processing of a released value: it spends no budget and needs no seed.

Source: arXiv 2307.10999, section 2 (top-k after decoding); Charikar, Chen and Farach-Colton 2002.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sketch import _checks


def top_k(values: _checks.Floats, k: int) -> NDArray[np.float64]:
    """The k entries of largest magnitude, all others zero.

    Of entries with equal magnitude at the border, those with the lowest index are kept, so the
    result is a function of the values alone.

    Args:
        values: float32[d] or float64[d], finite, d at least 1; left unchanged.
        k: number of entries to keep, 1 to d.

    Returns:
        float64[d]. It is the vector with at most k non-zero entries that is nearest in l2.

    Raises:
        TypeError: not an array or tensor of these dtypes, or `k` is not an integer.
        ValueError: not one-dimensional, an entry is not finite, or `k` out of range.
    """
    checked = _checks.update("values", values, None)
    length = checked.size
    k = _checks.integer("k", k, 1, length)
    kept = _checks.copied("values", checked)
    magnitudes = np.abs(kept)
    border = np.partition(magnitudes, length - k)[length - k]
    kept[magnitudes < border] = 0.0
    ties = np.flatnonzero(magnitudes == border)
    kept[ties[k - np.count_nonzero(magnitudes > border) :]] = 0.0
    return kept
