"""Plots of FedSel's reproduction, from its plain figures."""

from __future__ import annotations

from typing import Final

from matplotlib.figure import Figure

from simulations.common.figures import AMBER, BLUE, GREEN, GREY, ORANGE, PINK
from simulations.reproduce.engine.plots import Legend, Style, curve, dress, level, panels
from simulations.reproduce.engine.render import Figures
from simulations.reproduce.fedsel.figures import OWN
from simulations.reproduce.fedsel.plan import SWEPT

STYLES: Final = [
    Style("NP", GREY, "D", ":"),
    Style("PM", ORANGE, "o", "--"),
    Style("RND-PM", AMBER, "P", "--"),
    Style("EXP-PM", BLUE, "s", "-"),
    Style("PE-PM", PINK, "v", "-"),
    Style("PS-PM", GREEN, "^", "-"),
]
"""The arms that are drawn."""

CONSTANT: Final = Style("constant answer", "black")


def plot_rates(figures: Figures) -> Figure:
    """Plot accuracy and balanced accuracy against the learning rate; logistic regression."""
    tables = figures["tables"]
    figure, axes = panels(2, len(tables), 4.4 * len(tables), 6.4)
    for column, (name, about) in enumerate(tables.items()):
        rows = {r["arm"]: r for r in figures["tuning"] if (r["table"], r["model"]) == (name, SWEPT)}
        for line, measure in enumerate(("accuracy", "balanced")):
            panel = axes[line][column]
            for look in (each for each in STYLES if each.label in rows):
                row = rows[look.label]
                points = zip(row["rates"], row[measure], strict=True)
                curve(panel, [{"x": x, "y": y} for x, y in points], "x", "y", look)
            if measure == "accuracy":
                level(panel, about["majority"], CONSTANT)
            title = "" if line else f"{name}, {SWEPT}, epsilon = {figures['plan']['epsilon']:g}"
            label = {"accuracy": "accuracy", "balanced": "balanced accuracy"}[measure]
            legend: Legend = None if line or column else "best"
            shown = "" if column else label
            dress(panel, "learning rate", shown, title, log="x", percents=True, legend=legend)
    return figure


def plot_epsilons(figures: Figures) -> Figure:
    """Plot accuracy against epsilon: common rate and own rates, one epoch and two."""
    tables = figures["tables"]
    common = f"{figures['plan']['figure_rate']:g}"
    lines = [(part, mode) for part in ("figure2f", "figure2g") for mode in (common, OWN)]
    figure, axes = panels(len(lines), len(tables), 4.4 * len(tables), 3.2 * len(lines))
    for line, (part, mode) in enumerate(lines):
        epochs = "one epoch" if part == "figure2f" else "two epochs"
        for column, (name, about) in enumerate(tables.items()):
            panel = axes[line][column]
            rows = [r for r in figures[part] if (r["table"], r["mode"]) == (name, mode)]
            for look in STYLES:
                found = [row for row in rows if row["arm"] == look.label]
                if found:
                    curve(panel, found, "epsilon", "accuracy.mean", look, "accuracy.half")
            level(panel, about["majority"], CONSTANT)
            dress(
                panel,
                "epsilon of a report",
                "" if column else "accuracy",
                f"{name}, {epochs}, rate: {mode}",
                log="x",
                percents=True,
                ticks=sorted({row["epsilon"] for row in rows}),
                legend=None if line or column else "best",
            )
    return figure
