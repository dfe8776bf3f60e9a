"""Two plots: accuracy by arm, and the noise in the model by round beside what was planned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulations.common.figures import BLUE, GREEN, GREY, ORANGE
from simulations.reproduce.correlated.findings import row_of
from simulations.reproduce.correlated.plan import (
    ARMS,
    BANDED,
    INDEPENDENT,
    RETURNED,
    SCHEDULES,
    TASKS,
    TRUSTED_INDEPENDENT,
    TRUSTED_RETURNED,
)
from simulations.reproduce.engine.plots import Legend, Style, dress, panels
from simulations.reproduce.engine.render import Figures, Row

STYLES: Final = {
    INDEPENDENT: (ORANGE, "o", False),
    TRUSTED_INDEPENDENT: (ORANGE, "o", True),
    RETURNED: (BLUE, "s", False),
    TRUSTED_RETURNED: (BLUE, "s", True),
    BANDED: (GREEN, "^", True),
}
"""Colour by noise; open marks stand for a trusted server."""


def look(arm: str) -> Style:
    """Return how an arm looks."""
    colour, marker, hollow = STYLES.get(arm, (GREY, "D", False))
    return Style(ARMS[arm].title, colour, marker, "", hollow)


def accuracy(figures: Figures) -> Figure:
    """Draw a panel for each task and epsilon: a group of points for each schedule."""
    plan, rows = figures["plan"], figures["rows"]
    figure, axes = panels(
        len(plan["tasks"]),
        len(plan["epsilons"]),
        6.0 * len(plan["epsilons"]) + 2.5,
        4.0 * len(plan["tasks"]),
    )
    last = len(plan["epsilons"]) - 1
    for line, task in enumerate(plan["tasks"]):
        for column, epsilon in enumerate(plan["epsilons"]):
            panel = axes[line][column]
            for place, arm in enumerate(plan["arms"]):
                found = [
                    row_of(rows, task=task, arm=arm, schedule=schedule, epsilon=shown)
                    for schedule in plan["schedules"]
                    for shown in [epsilon if ARMS[arm].private else None]
                ]
                style = look(arm)
                shift = 0.11 * (place - (len(plan["arms"]) - 1) / 2)
                panel.errorbar(
                    [x + shift for x, row in enumerate(found) if row],
                    [row["accuracy"] for row in found if row],
                    yerr=[row["half_width"] or 0.0 for row in found if row],
                    color=style.colour,
                    marker=style.marker,
                    markerfacecolor="none" if style.hollow else style.colour,
                    linestyle="none",
                    capsize=2.0,
                    label=style.label,
                )
            title = f"{TASKS[task].title}, epsilon = {epsilon:g}"
            legend: Legend = "right" if (line, column) == (0, last) else None
            dress(panel, "", "test accuracy", title, percents=True, legend=legend)
            low, high = panel.get_ylim()
            panel.set_ylim(max(low, 0.0), min(high, 1.0))
            panel.set_xticks(
                range(len(plan["schedules"])), [SCHEDULES[name].title for name in plan["schedules"]]
            )
    return figure


def noise(figures: Figures) -> Figure:
    """Draw a panel for each task: noise in the model, measured as points, planned as lines."""
    plan = figures["plan"]
    schedules = [name for name in plan["schedules"] if not SCHEDULES[name].averaged]
    figure, axes = panels(
        len(plan["tasks"]), len(schedules), 6.0 * len(schedules) + 2.5, 4.0 * len(plan["tasks"])
    )
    for line, task in enumerate(plan["tasks"]):
        for column, schedule in enumerate(schedules):
            rows = [
                row
                for row in figures["rows"]
                if (row["task"], row["schedule"], row["epsilon"])
                == (task, schedule, plan["epsilons"][0])
            ]
            panel = axes[line][column]
            for row in rows:
                _curves(panel, row)
            title = f"{TASKS[task].title}, {SCHEDULES[schedule].title}"
            dress(panel, "round", "noise in the model, first rate = 1", title, legend=None)
            panel.set_ylim(bottom=0.0)
    _name_all(figure.axes, figure.axes[len(schedules) - 1])
    return figure


def _name_all(panels: Sequence[Axes], beside: Axes) -> None:
    """One legend for all panels: not every arm is in every one of them."""
    handles = {
        label: handle
        for panel in panels
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    beside.legend(
        handles.values(), handles, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5)
    )


def _curves(axes: Axes, row: Row) -> None:
    """Draw one arm's noise for a first rate of 1, in clips of one client over the cohort."""
    style, unit = look(row["arm"]), row["rate"] * row["clip"] / row["cohort"]
    measured = np.array(row["noise"]) / unit
    rounds = np.arange(1, len(measured) + 1)
    shown = slice(0, None, max(1, len(measured) // 15))
    axes.plot(rounds, np.array(row["planned"]["noise"]) / unit, color=style.colour, linewidth=1.0)
    axes.plot(
        rounds[shown],
        measured[shown],
        color=style.colour,
        marker=style.marker,
        markerfacecolor="none" if style.hollow else style.colour,
        linestyle="none",
        label=f"{style.label}, measured",
    )
