"""The limit of sketching: scatter and gather with the hashes of a row in ready tables."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def ready_scatter(
    values: NDArray[np.float64],
    bucket: NDArray[np.uint32],
    sign: NDArray[np.int8],
    row: NDArray[np.float64],
) -> None:
    """Add sign[q] * values[q] to row[bucket[q]] for every q, in place.

    Args:
        values: float64[d].
        bucket: uint32[d], each below P.
        sign: int8[d] of -1 and +1.
        row: float64[P], updated in place.
    """
    for q in range(values.size):
        row[bucket[q]] += sign[q] * values[q]


@njit(cache=True, nogil=True)
def ready_gather(
    row: NDArray[np.float64],
    bucket: NDArray[np.uint32],
    sign: NDArray[np.int8],
    out: NDArray[np.float64],
) -> None:
    """Add sign[q] * row[bucket[q]] to out[q] for every q, in place; arguments as above."""
    for q in range(out.size):
        out[q] += sign[q] * row[bucket[q]]
