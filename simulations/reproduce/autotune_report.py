"""Tables and a plot of `simulations.reproduce.autotune`, from its plain figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from simulations.figures import BLUE, GREEN, GREY, ORANGE
from simulations.reproduce.report import markdown

STYLES = {
    "genie": (GREY, "o", "-"),
    "adapt_norm": (BLUE, "s", "--"),
    "adapt_budget": (GREEN, "^", ""),
}


def write(figures: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    """Write figures, table and plot into a folder, made if need be; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {
        "figures": folder / "autotune.json",
        "table": folder / "autotune-table.md",
        "plot": folder / "autotune.png",
    }
    head, rows = table_of(figures)
    paths["figures"].write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    paths["table"].write_text(markdown([head, *rows]), encoding="utf-8")
    plot(figures, paths["plot"])
    return paths


def table_of(figures: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Head and rows: accuracy and rate of every arm, a column for each noise multiplier."""
    results = figures["results"]
    head = ["", *(f"z = {row['noise_multiplier']:g}" for row in results)]
    rows = [[name, *(_cell(row["arms"][name]) for row in results)] for name in results[0]["arms"]]
    rows.append(["best fixed rate", *(f"{row['genie']:g}" for row in results)])
    rows.append(["d log rate / d log gamma", *(_number(row["gamma_slope"]) for row in results)])
    return head, rows


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _cell(arm: Mapping[str, Any]) -> str:
    width = arm["accuracy_half_width"]
    accuracy = f"{100 * arm['accuracy']:.2f}" + ("" if width is None else f" ± {100 * width:.2f}")
    return f"{accuracy} / {arm['rate']:.1f} ({arm['late_rate']:.1f})"


def print_summary(figures: Mapping[str, Any], paths: Mapping[str, Path], console: Console) -> None:
    """Print the table and where the files are."""
    head, rows = table_of(figures)
    table = Table(*head, title="accuracy in % / compression rate (of the second half)")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for name, path in paths.items():
        console.print(f"{name}: {escape(str(path))}", soft_wrap=True)


def plot(figures: Mapping[str, Any], path: Path) -> None:
    """Accuracy against rate, a panel for each noise multiplier."""
    results = figures["results"]
    figure = Figure(figsize=(4.2 * len(results), 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(results), sharey=True, squeeze=False)[0]
    for axes, row in zip(panels, results, strict=True):
        families: dict[str, list[Mapping[str, Any]]] = {}
        for name, arm in row["arms"].items():
            families.setdefault(name.split(" ")[0], []).append(arm)
        for family, arms in families.items():
            colour, marker, line = STYLES.get(family, (ORANGE, "D", ""))
            arms = sorted(arms, key=lambda arm: float(arm["rate"]))
            axes.errorbar(
                [arm["rate"] for arm in arms],
                [arm["accuracy"] for arm in arms],
                yerr=[arm["accuracy_half_width"] or 0.0 for arm in arms],
                color=colour,
                marker=marker,
                linestyle=line or "none",
                capsize=2.0,
                label=family,
            )
        axes.set_xscale("log")
        axes.set_title(f"noise multiplier {row['noise_multiplier']:g}")
        axes.set_xlabel("compression rate")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("test accuracy")
    panels[0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    panels[0].legend(fontsize=8)
    figure.savefig(path, dpi=130)
