"""Plots as inline SVG that take the colours of the page around them, light or dark.

Drawn on figures of their own. Text stays text. Every colour stands for one of the page's
(`base.css`), so a plot must use those of `simulations.common.figures` and `INK` alone.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from simulations.common.figures import AMBER, BLUE, GREEN, ORANGE, PINK, SKY

INK: Final = "#5f5f5e"
"""Stands for the colour of the page's text."""

_ON_PAGE: Final = {
    INK: "currentColor",
    BLUE: "var(--blue)",
    ORANGE: "var(--orange)",
    GREEN: "var(--green)",
    PINK: "var(--pink)",
    AMBER: "var(--amber)",
    SKY: "var(--sky)",
}


@dataclass(frozen=True, slots=True)
class Table:
    """The figures of a plot, as cells in words."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    # names over neighbouring columns, each with how many; all columns, or nothing
    groups: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """A plot for a page."""

    title: str  # what it shows
    text: str  # the same in words
    svg: str  # an `svg` element with both as its text alternative
    table: Table | None = None  # its figures; None if the page has them elsewhere


def blank(width_inches: float, height_inches: float, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """Return an empty figure with panels above one another that share their x axis."""
    figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
    FigureCanvasSVG(figure)
    first = figure.add_subplot(rows, 1, 1)
    others = [figure.add_subplot(rows, 1, row, sharex=first) for row in range(2, rows + 1)]
    for axes in (first, *others):
        axes.set_axisbelow(True)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color(INK)
        axes.tick_params(which="both", colors=INK, length=0, labelsize=10)
        axes.xaxis.label.set_color(INK)
        axes.yaxis.label.set_color(INK)
    return figure, [first, *others]


def ruled(axes: Axes, axis: str) -> None:
    """Draw faint lines across the plot at the ticks of axis "x" or "y"."""
    lines = axes.xaxis if axis == "x" else axes.yaxis
    lines.grid(visible=True, color=INK, alpha=0.25, linewidth=0.8)


def literal(text: str) -> str:
    """Text as it is, where a plot would take what is between dollars for mathematics."""
    return text.replace("$", r"\$")


def legend(figure: Figure, handles: Sequence[object], columns: int) -> None:
    """Name the series above the plot."""
    figure.legend(
        handles=list(handles),
        loc="outside upper left",
        ncols=columns,
        frameon=False,
        labelcolor=INK,
        fontsize=10,
    )


def write_svg(name: str, title: str, text: str, figure: Figure) -> str:
    """Write a figure as an `svg` element that scales, without any reference to the outside."""
    file = io.StringIO()
    # Only while it is written: letters as text, and ids that do not change from run to run.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    drawn = file.getvalue()
    inside = drawn[drawn.index(">", drawn.index("<svg ")) + 1 :]
    inside = re.sub(r"<metadata>.*?</metadata>", "", inside, flags=re.DOTALL)
    for colour, name_on_page in _ON_PAGE.items():
        inside = inside.replace(colour.lower(), name_on_page)
    # Two plots on one page must not share ids.
    inside = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", inside)
    width, height = (72 * inches for inches in figure.get_size_inches())
    head = (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(text)}</desc>'
    )
    return head + inside
