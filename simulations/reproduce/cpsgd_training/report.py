"""Tables, the plot and the summary of cpSGD's training, from its plain figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from simulations.common.figures import BLUE, GREEN, GREY, ORANGE
from simulations.reproduce.output import Report, Titled
from simulations.reproduce.plots import quiet, sheet
from simulations.reproduce.text import section, shown

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


def tables(figures: Mapping[str, Any]) -> str:
    """Return accuracies and the comparison of errors as Markdown."""
    rows = sorted(figures["runs"], key=lambda row: (row["epsilon"] or 0.0, row["levels"] or 0))
    parts = [section("Accuracy", [RUN_HEAD, *map(_run_row, rows)])]
    if figures["check"]:
        head = ["run", "measured", "predicted", "ratio"]
        parts.append(section("One step, client by client", [head, *_check_rows(figures)]))
    if figures["first_epoch"]:
        head = ["run", "rounded", "steps", "test accuracy"]
        parts.append(section("One epoch, both ways", [head, *_epoch_rows(figures)]))
    return "\n".join(parts)


def _run_row(row: Mapping[str, Any]) -> list[str]:
    bits = "32 (float)" if row["way"] in ("plain", "clipped", "gaussian") else f"{row['bits']:.2f}"
    return [
        shown(row["epsilon"], "g"),
        shown(row["levels"], "d") if row["way"] != "conditional" else f"(as {row['levels']})",
        TITLES[row["way"]],
        shown(row.get("coins"), ",d"),
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


def plot(figures: Mapping[str, Any]) -> Figure:
    """Plot accuracy against bits, one panel for each epsilon, as Figure 2 has it."""
    epsilons = sorted(figures["plan"]["epsilons"], reverse=True)
    figure = sheet(7 * len(epsilons), 6)
    first: Axes | None = None
    for place, epsilon in enumerate(epsilons):
        axes = figure.add_subplot(1, len(epsilons), place + 1, sharey=first)
        first = first or axes
        _draw(axes, figures["runs"], epsilon)
    return figure


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
    quiet(axes)
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


def _summary(figures: Mapping[str, Any]) -> list[Titled]:
    return [(None, [RUN_HEAD, *map(_run_row, figures["runs"])])]


REPORT = Report("cpsgd-mnist", {"tables": ("-tables.md", tables), "plot": (".png", plot)}, _summary)
