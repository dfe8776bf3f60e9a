"""One plot of two panels: accuracy at equal epsilon, and accuracy by bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from simulations.common.figures import AMBER, BLUE, GREEN, GREY, ORANGE, PINK, SKY
from simulations.reproduce.plots import plain_ticks, quiet, sheet
from simulations.reproduce.trust_models.methods import BY_NAME, METHODS, Trust

Row = Mapping[str, Any]
Figures = Mapping[str, Any]

STYLES = {
    "central": ("black", "s"),
    "distributed": (BLUE, "o"),
    "piecewise": (ORANGE, "^"),
    "hybrid": (AMBER, "v"),
    "cross_polytope": (GREEN, "D"),
    "sqsgd": (PINK, "P"),
    "fedsel_ps": (SKY, "X"),
    "fedsel_pe": (GREY, "<"),
}

MARGIN = 0.03
"""Above the highest accuracy and below the lowest."""

LINES = {Trust.SERVER: "--", Trust.COHORT: "-", Trust.NOBODY: ":"}


def plot(figures: Figures) -> Figure:
    """Draw both panels."""
    figure = sheet(14, 5.6)
    left, right = figure.subplots(1, 2, sharey=True)
    for method in METHODS:
        if method.trust is Trust.EVERYBODY:
            continue
        rows = [row for row in figures["rows"] if row["method"] == method.name]
        usual = [r for r in rows if r["by_epsilon"] and r["knob"] == method.knob.usual]
        _curve(left, usual, "epsilon", method.title)
        if method.trust is Trust.COHORT:
            sketched = [r for r in rows if r["by_epsilon"] and r["knob"] != method.knob.usual]
            _curve(left, sketched, "epsilon", f"{method.title}, sketch", hollow=True)
        varied = [row for row in rows if row["by_bytes"]]
        _curve(right, varied, "bytes", f"{method.title}: {method.knob.label}")
    _finish(figures, left, right)
    return figure


def _curve(
    axes: Axes, rows: Sequence[Row], across: str, label: str, *, hollow: bool = False
) -> None:
    """Draw one method, with intervals."""
    rows = sorted(rows, key=lambda row: float(row[across]))
    method = BY_NAME[rows[0]["method"]]
    colour, marker = STYLES[method.name]
    axes.errorbar(
        [row[across] for row in rows],
        [row["accuracy"] for row in rows],
        yerr=[row["half_width"] or 0.0 for row in rows],
        color=colour,
        marker=marker,
        markerfacecolor="none" if hollow else colour,
        linestyle=LINES[method.trust],
        capsize=2.0,
        label=label,
    )


def _finish(figures: Figures, left: Axes, right: Axes) -> None:
    """Draw what is the same for all methods, scales, titles and legends."""
    plain = next(r for r in figures["rows"] if r["trust"] == Trust.EVERYBODY.value)
    for axes in (left, right):
        axes.axhline(plain["accuracy"], color="black", linewidth=0.8, label="no privacy")
        axes.axhline(
            figures["majority"], color=GREY, linewidth=0.8, linestyle="-.", label="one answer"
        )
        axes.set_xscale("log")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        quiet(axes)
        axes.legend(fontsize=8)
    # By the means: with few seeds an interval may be longer than all there is.
    heights = [figures["majority"], *(row["accuracy"] for row in figures["rows"])]
    left.set_ylim(max(0.0, min(heights) - MARGIN), min(1.0, max(heights) + MARGIN))
    plan = figures["plan"]
    plain_ticks(left, [*plan["epsilons"], *plan["more_epsilons"]])
    left.set_title("equal epsilon, one report of each client")
    left.set_xlabel("epsilon of a client, whole run")
    left.set_ylabel("test accuracy")
    right.set_title(f"by bytes, epsilon = {plan['byte_epsilon']:g}")
    right.set_xlabel("bytes of a client, whole run")
