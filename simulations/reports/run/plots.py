"""Small plots over rounds: lines, and layers on top of one another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    PercentFormatter,
)

from simulations.common.figures import AMBER, BLUE, GREEN, ORANGE, PINK, SKY
from simulations.common.pages.svg import INK, Chart, Table, blank, legend, literal, ruled, write_svg
from simulations.common.tables import readable
from simulations.learning.records import Record

WIDTH_INCHES: Final = 4.6
"""One on a phone without scaling, two beside one another on a desk."""
HEIGHT_INCHES: Final = 2.9
COLOURS: Final = (BLUE, ORANGE, GREEN, PINK, AMBER, SKY)
MARKERS: Final = ("o", "s", "^", "D", "v", "P")
LINES: Final = ("-", "--", ":", "-.")
MOST_MARKERS: Final = 30
LEGEND_INCHES: Final = 0.22
"""Of one line of a legend."""
DASH: Final = "-"
"""In the place of a figure that is not there."""


@dataclass(frozen=True, slots=True)
class Line:
    """A curve. `rounds` and `values` are of one length; NaN leaves a gap."""

    label: str
    rounds: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Layer:
    """One part of a sum, a value for every round."""

    label: str
    colour: str
    values: Sequence[float]


class RoundPlot:
    """A plot over rounds in the making."""

    def __init__(self, name: str, title: str, label: str, labels: int) -> None:
        self._name, self._title = name, title
        self._handles: list[Any] = []
        self._shares = False
        self._least = 0.0
        self._last = 0
        self._columns = 2 if labels <= 8 else 3
        lines = -(-labels // self._columns) if labels > 1 else 0
        self._figure, (self._axes,) = blank(WIDTH_INCHES, HEIGHT_INCHES + LEGEND_INCHES * lines)
        self._legend = labels > 1
        ruled(self._axes, "y")
        self._axes.set_xlabel("round", fontsize=11)
        self._axes.set_ylabel(label, fontsize=11)
        self._axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))

    @property
    def axes(self) -> Axes:
        """To set scales and limits."""
        return self._axes

    def draw_line(self, line: Line, place: int) -> None:
        """Draw a curve in the looks of its place among the series."""
        self._last = max(self._last, *line.rounds)
        (handle,) = self._axes.plot(
            line.rounds,
            line.values,
            color=COLOURS[place % len(COLOURS)],
            marker=MARKERS[place % len(MARKERS)],
            linestyle=LINES[place // len(COLOURS) % len(LINES)],
            linewidth=1.8,
            markersize=4.5,
            markevery=max(1, len(line.rounds) // MOST_MARKERS),
            label=literal(line.label),
        )
        self._handles.append(handle)

    def draw_level(self, label: str, value: float) -> None:
        """Draw a level that is the same in every round."""
        handle = self._axes.axhline(value, color=INK, linestyle="--", linewidth=1.2, label=label)
        self._handles.append(handle)

    def draw_band(
        self, label: str, rounds: Sequence[int], low: Sequence[float], high: Sequence[float]
    ) -> None:
        """Draw an interval of every round behind the lines; NaN leaves a gap."""
        edges = np.append(np.asarray(rounds) - 0.5, rounds[-1] + 0.5)
        handle = self._axes.stairs(
            np.asarray(high, float), edges, baseline=np.asarray(low, float), fill=True,
            color=SKY, alpha=0.45, linewidth=0.0, zorder=1.0, label=label,
        )  # fmt: skip
        self._handles.append(handle)

    def draw_layers(self, rounds: Sequence[int], layers: Sequence[Layer]) -> None:
        """Draw layers on top of one another, the first at the bottom; one path for each."""
        self._last = rounds[-1]
        edges = np.append(np.asarray(rounds) - 0.5, rounds[-1] + 0.5)
        base = np.zeros(len(rounds))
        for layer in layers:
            top = base + layer.values
            handle = self._axes.stairs(
                top, edges, baseline=base, fill=True, color=layer.colour, label=layer.label
            )
            self._handles.append(handle)
            base = top

    def draw_dots(self, label: str, rounds: Sequence[int], values: Sequence[float]) -> None:
        """Draw values beside layers."""
        (handle,) = self._axes.plot(
            rounds, values, color=INK, marker="_", markersize=7, markeredgewidth=1.8,
            linestyle="none", label=label,
        )  # fmt: skip
        self._handles.append(handle)

    def in_percent(self) -> None:
        """Values are shares of 1, all of which are shown."""
        self._shares = True

    def in_logarithms(self, least: float) -> None:
        """Values differ by large factors: equal distances are equal factors."""
        self._least = least

    def chart(self, text: str, table: Table | None = None) -> Chart:
        """Write it; its vertical axis begins at 0 unless said otherwise, its rounds at 1."""
        if self._last:
            self._axes.set_xlim(0.4, self._last + 0.6)
        if self._shares:
            self._axes.set_ylim(0.0, 1.0)
            self._axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
        elif self._least:
            self._axes.set_yscale("log")
            self._axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            self._axes.set_ylim(self._least, 1.3 * self._axes.dataLim.y1)
            self._axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            self._axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            self._axes.set_ylim(0.0, 1.08 * self._axes.dataLim.y1 or 1.0)
        if self._legend:
            legend(self._figure, self._handles, self._columns)
        svg = write_svg(self._name, self._title, text, self._figure)
        return Chart(self._title, text, svg, table)


def rounds_of(records: Sequence[Record]) -> list[int]:
    """The numbers of rounds."""
    return [int(record["round"]) for record in records]


def words_of(value: float) -> str:
    """A figure for reading."""
    if math.isnan(value):
        return DASH
    return "infinite" if math.isinf(value) else readable(value)


def times(rate: float) -> str:
    """A compression rate for reading."""
    return f"{rate:.3g}x"
