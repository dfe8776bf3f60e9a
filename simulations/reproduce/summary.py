"""The reproduction of cpSGD in a few lines, for people."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def print_summary(figures: Mapping[str, Any], paths: Mapping[str, Path], console: Console) -> None:
    """Print what was found and where the files are."""
    console.print(_theorem_table(figures["theorems"]))
    console.print(_mean_table(figures["mean_estimation"]["points"]))
    for line in lines(figures):
        console.print(line, soft_wrap=True)
    for name, path in paths.items():
        console.print(f"{name}: {escape(str(path))}", soft_wrap=True)


def lines(figures: Mapping[str, Any]) -> list[str]:
    """Return the findings that are no table."""
    ratios = [p["error_ratio"] for p in figures["figure1"]["points"] if p["error_ratio"]]
    refuted = figures["theorem1_refuted"]
    return [
        f"Figure 1: at equal epsilon Theorem 1 allows {min(ratios):.2f} to {max(ratios):.1f} times "
        "the error of domination, more the larger the scale s.",
        f"Theorem 1 is false for large epsilon: with |x - x'|/sigma = "
        f"{refuted['l2_over_sigma']:.3f} it says epsilon = {refuted['theorem1_epsilon']:.2f} at "
        f"delta = {refuted['delta']:g}; the true delta there is at least "
        f"{refuted['true_delta_at_least']:.2g}.",
    ]


def _theorem_table(rows: list[Mapping[str, Any]]) -> Table:
    table = Table("theorem", "n", "d", "k", "m", "p", "vectors", title="mean squared error")
    for name in ("measured", "exact", "bound", "bound / measured"):
        table.add_column(name)
    for row in rows:
        counts = [str(row[name]) for name in ("clients", "dimension", "levels", "coins")]
        errors = [f"{row[name]:.4g}" for name in ("measured", "exact", "printed_bound")]
        ratio = f"{row['bound_over_measured']:.3f}"
        case = [row["theorem"], *counts, f"{row['probability']:g}", row["inputs"]]
        table.add_row(*case, *errors, ratio)
    return table


def _mean_table(points: list[Mapping[str, Any]]) -> Table:
    table = Table(title="the paper's error over ours, and bits saved at equal error")
    for name in ("k", "epsilon", "accountant", "and sensitivities", "our mechanism"):
        table.add_column(name)
    for name in ("bits saved, its mechanism", "bits saved, ours"):
        table.add_column(name)
    for point in points:
        ratio, saved = point["error_ratio"], point["bits_saved"]
        row = [ratio.get(way) for way in ("domination", "coupled", "conditional")]
        row += [saved.get(way) for way in ("coupled", "conditional")]
        shown = ["none" if value is None else f"{value:.2f}" for value in row]
        table.add_row(str(point["levels"]), f"{point['epsilon']:g}", *shown)
    return table
