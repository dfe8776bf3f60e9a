"""The table and the plot of the campaign of autotuned sketches, from its plain figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from simulations.common.figures import BLUE, GREEN, GREY, ORANGE
from simulations.reproduce.output import Report, Titled
from simulations.reproduce.plots import sheet
from simulations.reproduce.text import markdown, points, shown

STYLES = {
    "genie": (GREY, "o", "-"),
    "adapt_norm": (BLUE, "s", "--"),
    "adapt_budget": (GREEN, "^", ""),
}


def rows_of(figures: Mapping[str, Any]) -> list[list[str]]:
    """Return accuracy and rate of every arm, a column for each noise multiplier."""
    results = figures["results"]
    rows = [["", *(f"z = {row['noise_multiplier']:g}" for row in results)]]
    rows += [[name, *(_cell(row["arms"][name]) for row in results)] for name in results[0]["arms"]]
    rows.append(["best fixed rate", *(f"{row['genie']:g}" for row in results)])
    slopes = (shown(row["gamma_slope"], ".2f") for row in results)
    return [*rows, ["d log rate / d log gamma", *slopes]]


def _cell(arm: Mapping[str, Any]) -> str:
    accuracy = points(arm["accuracy"], arm["accuracy_half_width"], ".2f")
    return f"{accuracy} / {arm['rate']:.1f} ({arm['late_rate']:.1f})"


def _table(figures: Mapping[str, Any]) -> str:
    return markdown(rows_of(figures))


def plot(figures: Mapping[str, Any]) -> Figure:
    """Plot accuracy against rate, a panel for each noise multiplier."""
    results = figures["results"]
    figure = sheet(4.2 * len(results), 3.8, 130)
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
    return figure


def _summary(figures: Mapping[str, Any]) -> list[Titled]:
    return [("accuracy in % / compression rate (of the second half)", rows_of(figures))]


REPORT = Report("autotune", {"table": ("-table.md", _table), "plot": (".png", plot)}, _summary)
