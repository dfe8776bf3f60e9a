"""Tables and a plot of cpSGD's training, from its plain figures."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from simulations.figures import BLUE, GREEN, GREY, ORANGE
from simulations.reproduce.report import markdown

WAYS = {
    "paper": ("paper's accountant", ORANGE, "o", "--"),
    "coupled": ("same mechanism, our accountant", BLUE, "s", "-"),
    "conditional": ("our mechanism, paper's bits", GREEN, "^", ":"),
}
TITLES = {
    "plain": "baseline: no noise, no rounding",
    "clipped": "clip alone",
    "gaussian": "Gaussian noise by the server",
    **{way: label for way, (label, *_) in WAYS.items()},
}

RUN_HEAD = ["epsilon of a step", "k", "coins by", "m", "bits", "error / D^2", "test accuracy"]

Rows = Sequence[Mapping[str, Any]]


def write(figures: Mapping[str, Any], folder: Path) -> dict[str, Path]:
    """Write figures, tables and the plot into a folder, made if need be; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {
        "figures": folder / "cpsgd-mnist.json",
        "tables": folder / "cpsgd-mnist-tables.md",
        "plot": folder / "cpsgd-mnist.png",
    }
    paths["figures"].write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    paths["tables"].write_text(tables(figures), encoding="utf-8")
    plot(figures, paths["plot"])
    return paths


def print_summary(figures: Mapping[str, Any], paths: Mapping[str, Path], console: Console) -> None:
    """Print the table of accuracies and where the files are."""
    table = Table(*RUN_HEAD)
    for row in figures["runs"]:
        table.add_row(*_run_row(row))
    console.print(table)
    for name, path in paths.items():
        console.print(f"{name}: {escape(str(path))}", soft_wrap=True)


def tables(figures: Mapping[str, Any]) -> str:
    """Return accuracies and the comparison of errors as Markdown."""
    rows = sorted(figures["runs"], key=lambda row: (row["epsilon"] or 0.0, row["levels"] or 0))
    text = f"## Accuracy\n\n{markdown([RUN_HEAD, *map(_run_row, rows)])}"
    if figures["check"]:
        head = ["run", "measured", "predicted", "ratio"]
        text += f"\n## One step, client by client\n\n{markdown([head, *_check_rows(figures)])}"
    if figures["first_epoch"]:
        head = ["run", "rounded", "steps", "test accuracy"]
        text += f"\n## One epoch, both ways\n\n{markdown([head, *_epoch_rows(figures)])}"
    return text


def _run_row(row: Mapping[str, Any]) -> list[str]:
    bits = "32 (float)" if row["way"] in ("plain", "clipped", "gaussian") else f"{row['bits']:.2f}"
    return [
        _shown(row["epsilon"], "g"),
        _shown(row["levels"], "d") if row["way"] != "conditional" else f"(as {row['levels']})",
        TITLES[row["way"]],
        _shown(row.get("coins"), ",d"),
        bits,
        f"{row['error']:.4g}",
        f"{100.0 * row['accuracy']:.2f} %",
    ]


def _check_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    return [
        [row["name"], f"{row['measured']:.4g}", f"{row['predicted']:.4g}", f"{row['ratio']:.4f}"]
        for row in figures["check"]
    ]


def _epoch_rows(figures: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    for row in figures["first_epoch"]:
        way = "client by client" if row["by_client"] else "all at once"
        rows.append([row["name"], way, str(row["step"]), f"{100.0 * row['accuracy']:.2f} %"])
    return rows


def plot(figures: Mapping[str, Any], path: Path) -> Path:
    """Plot accuracy against bits, one panel for each epsilon, as Figure 2 has it."""
    epsilons = sorted(figures["plan"]["epsilons"], reverse=True)
    figure = Figure(figsize=(7 * len(epsilons), 6), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    first: Axes | None = None
    for place, epsilon in enumerate(epsilons):
        axes = figure.add_subplot(1, len(epsilons), place + 1, sharey=first)
        first = first or axes
        _draw(axes, figures["runs"], epsilon)
    figure.savefig(path, format="png", metadata={"Software": None})
    return path


def _draw(axes: Axes, rows: Rows, epsilon: float) -> None:
    """Draw one panel: curves over k, and two levels to compare with."""
    for way, (label, colour, marker, line) in WAYS.items():
        found = [row for row in rows if row["way"] == way and row["epsilon"] == epsilon]
        bits, accuracies = [row["bits"] for row in found], [row["accuracy"] for row in found]
        axes.plot(bits, accuracies, line, color=colour, marker=marker, label=label)
        if way != "conditional":
            _name_points(axes, found, colour, -13 if way == "paper" else 7)
    for row in rows:
        if row["way"] == "plain":
            axes.axhline(row["accuracy"], color="black", label=TITLES["plain"])
        if row["way"] == "clipped":
            axes.axhline(row["accuracy"], color="black", linestyle=":", label=TITLES["clipped"])
        if row["way"] == "gaussian" and row["epsilon"] == epsilon:
            axes.axhline(row["accuracy"], color=GREY, linestyle="-.", label=TITLES["gaussian"])
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
    axes.margins(x=0.12)
    axes.set_title(f"epsilon = {epsilon:g} a step")
    axes.set_xlabel("bits per coordinate and client, log2(k + m)")
    axes.set_ylabel("test accuracy, higher is better")
    axes.legend(fontsize=9)


def _name_points(axes: Axes, rows: Rows, colour: str, above: int) -> None:
    """Write k and m at every point."""
    for row in rows:
        axes.annotate(
            f"k={row['levels']}, m={row['coins']}",
            (row["bits"], row["accuracy"]),
            (0, above),
            textcoords="offset points",
            ha="center",
            fontsize=8,
            color=colour,
        )


def _shown(value: float | int | None, form: str) -> str:
    return "-" if value is None else format(value, form)
