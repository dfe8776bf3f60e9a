"""Counts along a tree: the spec's errors, and the least squares of a dense matrix."""

from __future__ import annotations

import numpy as np
import pytest

from protocol.statistics.tree import isotonic, nodes, path, prefixes

# Root mean square error of a prefix over the noise, where paths have length 1: without a
# total, with it, and with a cell of its own for those who do not answer.
RMS = {64: (2.707, 2.075, 2.145), 256: (3.345, 2.680, 2.737), 1024: (3.979, 3.291, 3.338)}


@pytest.mark.parametrize("leaves", RMS)
def test_errors_of_prefixes_are_those_of_the_table(leaves: int) -> None:
    levels = round(np.log(leaves) / np.log(4))
    zeros = np.zeros(nodes(levels))
    found = []
    for of_total in (np.inf, 1e-12, 1.0 / levels):
        errors = prefixes(zeros, levels, 1.0, 0.0, of_total).errors()[1:-1]
        found.append(np.sqrt(levels * np.mean(errors**2)))
    assert found == pytest.approx(RMS[leaves], abs=1e-3)


@pytest.mark.parametrize("of_total", [np.inf, 0.2])
def test_two_passes_are_least_squares(of_total: float) -> None:
    """And their errors are those of its inverse."""
    levels, leaves, rng = 2, 16, np.random.default_rng(2)
    counts, total = rng.normal(0, 3, nodes(levels)), 7.0
    sees = np.zeros((nodes(levels), leaves))
    for leaf in range(leaves):
        sees[path(leaf, levels), leaf] = 1.0
    values = counts
    if np.isfinite(of_total):
        weight = np.sqrt(1.5 / of_total)
        sees = np.vstack([sees, weight * np.ones(leaves)])
        values = np.append(counts, weight * total)
    found = prefixes(counts, levels, 1.5, total, of_total)
    dense = np.linalg.lstsq(sees, values, rcond=None)[0]
    assert np.diff(found.count) == pytest.approx(dense, abs=1e-9)
    spread = 1.5 * np.linalg.inv(sees.T @ sees)
    for quantile in (0.0, 0.3):
        for end in range(leaves + 1):
            slope = (np.arange(leaves) < end) - quantile
            expected = np.sqrt(slope @ spread @ slope)
            assert found.errors(quantile)[end] == pytest.approx(expected, abs=1e-9)


def test_isotonic_counts_do_not_fall() -> None:
    assert isotonic(np.array([1.0, 3.0, 2.0, 5.0])).tolist() == [1.0, 2.5, 2.5, 5.0]
