"""Compiled search loop of the domination accountant. Pure arithmetic on tables."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray


# The flags say "no NaN, sign of zero is irrelevant", both true of the tables; without them the
# running maximum is not vectorised. They do not change any sum or product.
@njit(cache=True, fastmath={"nnan", "nsz"})
def largest_bounds(
    upper_zq: NDArray[np.float64],
    base: NDArray[np.float64],
    slope: NDArray[np.float64],
    shifts: NDArray[np.int64],
    failures: NDArray[np.float64],
    first: NDArray[np.int64],
    last: NDArray[np.int64],
    best: NDArray[np.float64],
) -> None:
    """Set ``best[i]`` to the largest cheap bound of mu over the vertices of row i.

    The bound of vertex j is ``upper_zq[j + shifts[i]] + base[j] - failures[i] * slope[j]``, for
    ``first[i] <= j < last[i]``.
    """
    for row in range(shifts.size):
        start, stop = first[row], last[row]
        zq = upper_zq[start + shifts[row] : stop + shifts[row]]
        part, grade = base[start:stop], slope[start:stop]
        failure = failures[row]
        top = -np.inf
        for j in range(part.size):
            bound = zq[j] + part[j] - failure * grade[j]
            if bound > top:
                top = bound
        best[row] = top
