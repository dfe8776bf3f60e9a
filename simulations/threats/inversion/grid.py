"""Pictures beside what each attack made of them, and how much noise it takes to stop the strongest.

Every function draws on its own ``Figure``, never on matplotlib's global state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from simulations.audits.base import Exhibit, Floats
from simulations.common.figures import BLUE, DOTS_PER_INCH, GREEN, GREY, ORANGE, WIDTH_PIXELS, png
from simulations.threats.inversion.experiments import Noised
from simulations.threats.inversion.results import Reconstructions
from simulations.threats.inversion.views import ServerView

COLUMNS: Final = 8
"""Most pictures in a row."""

_VIEW_COLOURS: Final = {ServerView.PLAIN: ORANGE, ServerView.SUM: BLUE, ServerView.NOISED: GREEN}
_ROW_PIXELS: Final = 78
_TITLE_PIXELS: Final = 52


def picture_grid(results: Sequence[Reconstructions], clients: int, epsilon: float) -> Exhibit:
    """Draw one block for each attack: originals, and what came of each view."""
    rows = 1 + len(ServerView)
    height = len(results) * (rows * _ROW_PIXELS + _TITLE_PIXELS) + 10
    figure = _figure(height)
    blocks = np.atleast_1d(np.asarray(figure.subfigures(len(results), 1), dtype=object))
    for block, result in zip(blocks, results, strict=True):
        block.suptitle(_upper(result.title), fontsize=14, x=0.02, ha="left")
        axes = block.subplots(rows, 1)
        columns = min(COLUMNS, len(result.originals[ServerView.PLAIN]))
        _strip(
            axes[0], result.originals[ServerView.PLAIN][:columns], result.side, "original", "black"
        )
        for row, view in zip(axes[1:], ServerView, strict=True):
            words = f"{_said(view, clients, epsilon)}\n{result.psnr[view].mean():.1f} dB on average"
            _strip(row, result.guesses[view][:columns], result.side, words, _VIEW_COLOURS[view])
    return Exhibit(
        f"Pictures from updates: {results[0].data}",
        " ".join(_sentence(result, clients, epsilon) for result in results),
        "image/png",
        png(figure),
    )


def noise_curve(points: Sequence[Noised], threshold: float, data: str, clients: int) -> Exhibit:
    """Draw the PSNR of `pictures_by_epsilon`; a round without noise is told in the text only."""
    figure = _figure(460)
    axes = figure.add_subplot()
    axes.set_title("One client's picture, all the rest of the sum known", fontsize=15)
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    drawn = [point for point in points if math.isfinite(point.epsilon)]
    where = [point.epsilon for point in drawn]
    for name, values, colour, marker, line in (
        ("best picture", [float(point.psnr.max()) for point in drawn], BLUE, "o", "-"),
        ("mean over pictures", [float(point.psnr.mean()) for point in drawn], ORANGE, "s", ":"),
    ):
        axes.plot(
            where, values, color=colour, marker=marker, linestyle=line, linewidth=2.0, label=name
        )
    axes.axhline(threshold, color=GREY, linestyle="--", label="counts as recovered")
    axes.set_xscale("log", base=10)
    axes.set_xlabel("epsilon of the round", fontsize=13)
    axes.set_ylabel("PSNR in dB", fontsize=13)
    axes.set_ylim(0.0, 1.15 * max(threshold, *(float(point.psnr.max()) for point in drawn)))
    axes.legend(loc="lower right")
    told = "; ".join(
        f"epsilon {point.epsilon:g}: {point.recovered(threshold)} of {len(point.psnr)} recovered, "
        f"{point.psnr.mean():.1f} dB on average, {point.psnr.max():.1f} at best"
        for point in points
    )
    text = (
        f"{data}, one picture for each of {clients} clients, all of the clip spent on it. {told}."
    )
    return Exhibit(f"Pictures by epsilon: {data}", text, "image/png", png(figure))


def _figure(height: int) -> Figure:
    """An empty figure of the usual width and so many pixels in height."""
    size = (WIDTH_PIXELS / DOTS_PER_INCH, height / DOTS_PER_INCH)
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _strip(axes: Axes, pictures: Floats, side: tuple[int, int], words: str, colour: str) -> None:
    """Draw pictures in a row, its name on the left; fewer than all leave the right side empty."""
    height, width = side
    gap = max(1, width // 8)
    strip = np.full((height, COLUMNS * (width + gap) - gap), np.nan)
    for column, picture in enumerate(pictures):
        first = column * (width + gap)
        strip[:, first : first + width] = picture.reshape(side)
    axes.imshow(strip, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest", aspect="equal")
    axes.set_anchor("W")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_ylabel(words, rotation=0, ha="right", va="center", fontsize=11, color=colour)


def _said(view: ServerView, clients: int, epsilon: float) -> str:
    """A view in the words of a row."""
    if view is ServerView.PLAIN:
        return "plain update"
    if view is ServerView.SUM:
        return f"secure sum of {clients}"
    return f"noised sum, eps {epsilon:g}"


def _sentence(result: Reconstructions, clients: int, epsilon: float) -> str:
    """Say in words what a block shows."""
    parts = []
    for view in ServerView:
        recovered, trials = result.counts(view)
        parts.append(
            f"{_said(view, clients, epsilon)}: {recovered} of {trials} pictures recovered, "
            f"{result.psnr[view].mean():.1f} dB on average, {result.psnr[view].max():.1f} at best"
        )
    return f"{_upper(result.title)} ({result.data}). {'; '.join(parts)}."


def _upper(words: str) -> str:
    return words[:1].upper() + words[1:]
