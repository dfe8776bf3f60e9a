"""Plots of FedSel's reproduction, from its plain figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from simulations.common.figures import AMBER, BLUE, GREEN, GREY, ORANGE, PINK
from simulations.reproduce.fedsel.figures import OWN, SWEPT
from simulations.reproduce.plots import plain_ticks, quiet, sheet

STYLES: Final = {
    "NP": (GREY, "D", ":"),
    "PM": (ORANGE, "o", "--"),
    "RND-PM": (AMBER, "P", "--"),
    "EXP-PM": (BLUE, "s", "-"),
    "PE-PM": (PINK, "v", "-"),
    "PS-PM": (GREEN, "^", "-"),
}
"""Colour, marker and line of each arm that is drawn."""


def plot_rates(figures: Mapping[str, Any]) -> Figure:
    """Plot accuracy and balanced accuracy against the learning rate; logistic regression."""
    tables = list(figures["tables"])
    figure, panels = _panels(2, len(tables))
    for column, table in enumerate(tables):
        rows = {
            r["arm"]: r for r in figures["tuning"] if (r["table"], r["model"]) == (table, SWEPT)
        }
        for line, measure in enumerate(("accuracy", "balanced")):
            axes = panels[line][column]
            for arm, (colour, marker, style) in STYLES.items():
                axes.plot(
                    rows[arm]["rates"],
                    rows[arm][measure],
                    style,
                    color=colour,
                    marker=marker,
                    label=arm,
                )
            axes.set_xscale("log")
            axes.set_xlabel("learning rate")
        panels[0][column].axhline(
            figures["tables"][table]["majority"],
            color="black",
            linewidth=0.8,
            label="constant answer",
        )
        panels[0][column].set_title(f"{table}, {SWEPT}, epsilon = {figures['plan']['epsilon']:g}")
    panels[0][0].set_ylabel("accuracy")
    panels[1][0].set_ylabel("balanced accuracy")
    panels[0][0].legend(fontsize=8)
    return figure


def plot_epsilons(figures: Mapping[str, Any]) -> Figure:
    """Plot accuracy against epsilon: common rate and own rates, one epoch and two."""
    tables = list(figures["tables"])
    common = f"{figures['plan']['figure_rate']:g}"
    lines = [(part, mode) for part in ("figure2f", "figure2g") for mode in (common, OWN)]
    figure, panels = _panels(len(lines), len(tables))
    for line, (part, mode) in enumerate(lines):
        epochs = "one epoch" if part == "figure2f" else "two epochs"
        for column, table in enumerate(tables):
            axes = panels[line][column]
            chosen = (table, SWEPT, mode)
            found = [r for r in figures[part] if (r["table"], r["model"], r["mode"]) == chosen]
            _draw_epsilons(axes, found)
            axes.axhline(figures["tables"][table]["majority"], color="black", linewidth=0.8)
            axes.set_title(f"{table}, {epochs}, rate: {mode}", fontsize=10)
        panels[line][0].set_ylabel("accuracy")
    panels[0][0].legend(fontsize=8)
    return figure


def _draw_epsilons(axes: Axes, rows: list[Mapping[str, Any]]) -> None:
    """Draw one curve with its intervals for each arm."""
    for arm, (colour, marker, style) in STYLES.items():
        found = sorted((r for r in rows if r["arm"] == arm), key=lambda r: float(r["epsilon"]))
        if not found:
            continue
        axes.errorbar(
            [row["epsilon"] for row in found],
            [row["accuracy"]["mean"] for row in found],
            yerr=[row["accuracy"]["half"] for row in found],
            color=colour,
            marker=marker,
            linestyle=style,
            capsize=2.0,
            label=arm,
        )
    axes.set_xscale("log")
    plain_ticks(axes, sorted({row["epsilon"] for row in rows}))
    axes.set_xlabel("epsilon of a report")


def _panels(lines: int, columns: int) -> tuple[Figure, list[list[Axes]]]:
    figure = sheet(4.4 * columns, 3.2 * lines)
    panels = figure.subplots(lines, columns, squeeze=False)
    for axes in panels.ravel():
        quiet(axes)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    return figure, panels.tolist()
