"""What all plots have in common: the sheet, quiet axes, plain numbers, colours in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, ScalarFormatter

from simulations.common.figures import AMBER, BLUE, DOTS_PER_INCH, GREEN, GREY, ORANGE, PINK, SKY

COLOURS: Final = (ORANGE, BLUE, GREEN, PINK, AMBER, SKY, GREY)
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")


def sheet(width: float, height: float, dots_per_inch: int = DOTS_PER_INCH) -> Figure:
    """Return an empty figure, its size in inches."""
    figure = Figure(figsize=(width, height), dpi=dots_per_inch, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def quiet(axes: Axes) -> None:
    """Draw a pale grid, and no frame above and on the right."""
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def plain_ticks(axes: Axes, ticks: Sequence[float]) -> None:
    """Mark a logarithmic axis by plain numbers."""
    axes.set_xticks(list(ticks))
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
