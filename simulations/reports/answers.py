"""Answers of surveys as pictures: bars and points with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from protocol.statistics.answers import Answer
from simulations.common.figures import BLUE, GREY, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def panels(answers: Sequence[Answer]) -> bytes:
    """Draw several as one picture, a panel for each; PNG."""
    from matplotlib.figure import Figure

    columns = min(len(answers), 3)
    rows = -(-len(answers) // columns)
    figure = Figure((4.5 * columns, 3.5 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for place, panel in enumerate(axes):
        if place < len(answers):
            draw(answers[place], panel)
        else:
            panel.set_axis_off()
    return png(figure)


def draw(answer: Answer, axes: Axes | None = None) -> Axes:
    """Draw the main estimate with 95 % intervals: bars over bins, points for anything else."""
    from matplotlib.figure import Figure

    axes = Figure(layout="constrained").subplots() if axes is None else axes
    values = np.atleast_1d(answer.value)
    low, high = (np.atleast_1d(end) for end in answer.interval())
    reach = np.abs(np.stack([values - low, high - values]))
    reach[~np.isfinite(reach)] = 0.0
    if answer.edges.size == values.size + 1:
        middle = 0.5 * (answer.edges[1:] + answer.edges[:-1])
        axes.bar(middle, values, np.diff(answer.edges), color=BLUE, alpha=0.6, edgecolor="white")
        axes.errorbar(middle, values, reach, fmt="none", ecolor=GREY, capsize=2)
    else:
        places = np.arange(values.size)
        axes.errorbar(places, values, reach, fmt="o", color=BLUE, ecolor=GREY, capsize=3)
        axes.set_xticks(places, answer.labels, rotation=30 if values.size > 4 else 0)
    axes.set_title(answer.name)
    axes.set_ylabel("count" if answer.edges.size else answer.kind)
    return axes
