"""Gaussian elimination over GF(p), for many small matrices at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PRIME = 2**31 - 1
"""Products of two elements stay below 2^62."""


def reduce_rows(matrices: NDArray[np.int64], columns: int) -> tuple[NDArray[np.int64], ...]:
    """Bring matrices to reduced row echelon form, and find the row at which `columns` end.

    They are int64[batch, rows, all columns], taken modulo `PRIME`. With them comes int64[batch],
    the first row without an entry in the first `columns` columns. From there on the rows are a
    reduced basis of all combinations in which these unknowns cancel.
    """
    a = np.mod(matrices, PRIME)
    batch, rows, width = a.shape
    every = np.arange(batch)
    rank = np.zeros(batch, np.int64)
    first = np.zeros(batch, np.int64)
    for column in range(width):
        if column == columns:
            first = rank.copy()
        candidates = (a[:, :, column] != 0) & (np.arange(rows) >= rank[:, None])
        found = candidates.any(axis=1)
        if not found.any():
            continue
        which, pivot, target = every[found], candidates.argmax(axis=1)[found], rank[found]
        row = a[which, pivot]
        a[which, pivot] = a[which, target]
        row = row * _inverse(row[:, column])[:, None] % PRIME
        a[which, target] = row
        factors = a[which, :, column]
        factors[np.arange(len(which)), target] = 0
        a[which] = (a[which] - factors[:, :, None] * row[:, None, :]) % PRIME
        rank[found] += 1
    if columns == width:
        first = rank
    return a, first


def _inverse(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Few of them differ in one column."""
    different, where = np.unique(values, return_inverse=True)
    return np.array([pow(int(value), -1, PRIME) for value in different], np.int64)[where]
