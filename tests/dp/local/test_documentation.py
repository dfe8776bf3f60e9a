"""The tables of docs/local-dp.md are what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest
from local_laws import continuous_piecewise_variance

from dp import LocalAccountant, LocalRelease
from dp.local import Duchi, Hybrid, Piecewise

PAGE = (Path(__file__).parents[3] / "docs" / "local-dp.md").read_text()


def _rows(header: str) -> list[list[str]]:
    """The cells of the table whose head starts with these words."""
    lines = PAGE[PAGE.index(header) :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_distances_from_the_continuous_variance() -> None:
    for epsilon, *cells in _rows("| epsilon | 8 bits"):
        for bits, cell in zip((8, 12, 16, 20), cells, strict=True):
            randomizer = Piecewise(float(epsilon), bits)
            found = max(
                abs(randomizer.variance(t) / continuous_piecewise_variance(float(epsilon), t) - 1.0)
                for t in (0.0, 0.3, 0.7, 1.0)
            )
            assert found == pytest.approx(float(cell), rel=0.06)


def test_largest_variances() -> None:
    for epsilon, *cells in _rows("| epsilon | Duchi"):
        for kind, cell in zip((Duchi, Piecewise, Hybrid), cells, strict=True):
            assert kind(float(epsilon)).worst_variance == pytest.approx(float(cell), rel=5e-4)


def test_composition() -> None:
    for reports, *cells in _rows("| reports | sum"):
        count, epsilon = reports.split(" of ")
        accountant = LocalAccountant()
        accountant.compose(LocalRelease(float(epsilon)), int(count))
        bounds = accountant.bounds(1e-5)
        found = [bounds[name] for name in ("sum", "deviation", "optimal")]
        assert found == pytest.approx([float(cell) for cell in cells], rel=5e-4)
