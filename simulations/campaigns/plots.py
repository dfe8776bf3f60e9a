"""What all plots share: panels, axes, curves with intervals, colours and marks in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, PercentFormatter, ScalarFormatter

from simulations.campaigns.rows import Row, Value, value_of
from simulations.common.figures import AMBER, BLUE, DOTS_PER_INCH, GREEN, GREY, ORANGE, PINK, SKY

Legend = Literal["best", "right", "below"] | None

COLOURS: Final = (ORANGE, BLUE, GREEN, PINK, AMBER, SKY, GREY)
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True, slots=True)
class Style:
    """How a curve looks; one that is hollow has open marks."""

    label: str
    colour: str
    marker: str = "o"
    line: str = "-"
    hollow: bool = False


def style(place: int, label: str) -> Style:
    """Return the style of the curve in this place; from the eighth on lines are dashed."""
    again, place = divmod(place, len(COLOURS))
    return Style(label, COLOURS[place], MARKERS[place], "--" if again else "-")


def panels(
    lines: int, columns: int, width: float, height: float
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure and its axes, line by line; the size is that of the figure, in inches."""
    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(lines, columns, squeeze=False).tolist()


def curve(
    axes: Axes, rows: Iterable[Row], x: Value, y: Value, look: Style, width: Value | None = None
) -> None:
    """Draw rows from left to right, with intervals if they have any; missing ones are left out."""
    found = [row for row in rows if value_of(row, y) is not None]
    found.sort(key=lambda row: float(value_of(row, x)))
    widths: Any = None
    if width is not None:
        widths = np.array([value_of(row, width) or 0.0 for row in found], np.float64).T
    axes.errorbar(
        [value_of(row, x) for row in found],
        [value_of(row, y) for row in found],
        yerr=widths,
        color=look.colour,
        marker=look.marker,
        markersize=5.0,
        markerfacecolor="none" if look.hollow else look.colour,
        linestyle=look.line or "none",
        capsize=2.0,
        label=look.label,
    )


def curves(
    axes: Axes,
    rows: Iterable[Row],
    key: Value,
    looks: Mapping[Any, Style],
    x: Value,
    y: Value,
    width: Value | None = None,
) -> None:
    """Draw a curve for each value of a key that has a look, as far as there are rows of it."""
    listed = list(rows)
    for each, look in looks.items():
        found = [row for row in listed if value_of(row, key) == each]
        if found:
            curve(axes, found, x, y, look, width)


def level(axes: Axes, height: float, look: Style) -> None:
    """Draw a horizontal line."""
    axes.axhline(height, color=look.colour, linestyle=look.line, linewidth=1.0, label=look.label)


def dress(
    axes: Axes,
    x: str = "",
    y: str = "",
    title: str = "",
    *,
    log: str = "",
    percents: bool = False,
    ticks: Sequence[float] = (),
    legend: Legend = "best",
) -> None:
    """Name axes, draw a pale grid and a legend: "best" in the panel, "right" of it, or "below".

    `log` is "x", "y" or "xy"; `percents`: heights are shares; `ticks`: plain numbers on a
    logarithmic x axis.
    """
    axes.set(xlabel=x, ylabel=y, title=title)
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    if percents:
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
    if len(ticks):
        axes.set_xticks(list(ticks))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if legend == "right":
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    elif legend == "best":
        axes.legend(fontsize=8)
    elif legend is not None:
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
