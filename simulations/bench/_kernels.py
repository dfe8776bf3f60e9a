"""Compiled loops that do the bare work of a kernel and no more: what it must cost at least."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled


@compiled()
def ready_scatter(
    values: NDArray[np.float64],  # float64[d]
    bucket: NDArray[np.uint32],  # uint32[d], each below P
    sign: NDArray[np.int8],  # int8[d] of -1 and +1
    row: NDArray[np.float64],  # float64[P], updated in place
) -> None:
    """Scatter with the hashes of a sketch's row in ready tables.

    Adds sign[q] * values[q] to row[bucket[q]] for every q, in place.
    """
    for q in range(values.size):
        row[bucket[q]] += sign[q] * values[q]


@compiled()
def ready_gather(
    row: NDArray[np.float64],
    bucket: NDArray[np.uint32],
    sign: NDArray[np.int8],
    out: NDArray[np.float64],
) -> None:
    """Gather with them: add sign[q] * row[bucket[q]] to out[q] for every q, in place."""
    for q in range(out.size):
        out[q] += sign[q] * row[bucket[q]]
