"""Plots of the reproduction of cpSGD, from its plain figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulations.common.figures import BLUE, GREEN, GREY, ORANGE, PINK
from simulations.reproduce.plots import COLOURS, MARKERS, plain_ticks, quiet, sheet

Points = Sequence[Mapping[str, Any]]

WAYS = {
    "paper": ("paper's accountant", ORANGE, "o", "--"),
    "domination": ("domination, paper's sensitivities", PINK, "v", "-."),
    "coupled": ("domination, coupled sensitivities", BLUE, "s", "-"),
    "conditional": ("ours: conditional rounding, same bits", GREEN, "^", "-"),
}

ACCOUNTANTS = (
    ("theorem1", "Theorem 1", "--", "none"),
    ("domination", "domination", "-", "full"),
)


def plot_figure1(figures: Mapping[str, Any]) -> Figure:
    """Plot error against epsilon: at several scales, and of a mean on k levels."""
    figure, (left, right) = _panels()
    _draw_scales(left, figures["figure1"])
    _draw_mean(right, figures["mean_estimation"])
    for axes in (left, right):
        axes.set_xlabel("epsilon")
        axes.set_ylabel("mean squared error, lower is better")
        axes.set_xscale("log")
        axes.set_yscale("log")
        plain_ticks(axes, [0.5, 1.0, 2.0, 4.0])
    return figure


def plot_bits(figures: Mapping[str, Any]) -> Figure:
    """Plot error against bits of a coordinate of a message, at two values of epsilon."""
    figure, panels = _panels()
    part = figures["mean_estimation"]
    available = _values(part["points"], "epsilon")
    chosen = (min(available, key=lambda e: abs(e - 1.0)), max(available))
    for axes, epsilon in zip(panels, chosen, strict=True):
        points = [point for point in part["points"] if point["epsilon"] == epsilon]
        axes.axhline(points[0]["gaussian_error"], color=GREY, label="Gaussian, exact condition")
        for way, (label, colour, marker, line) in WAYS.items():
            found = [p["ways"][way] for p in points if p["ways"].get(way) is not None]
            bits = [way_figures["bits"] for way_figures in found]
            errors = [way_figures["error"] for way_figures in found]
            axes.plot(bits, errors, line, color=colour, marker=marker, label=label)
        axes.set_yscale("log")
        axes.set_xlabel("bits per coordinate and client, log2 of the alphabet")
        axes.set_ylabel("mean squared error, lower is better")
        levels = ", ".join(str(k) for k in _values(points, "levels"))
        axes.set_title(f"epsilon = {epsilon:g}; k = {levels}")
        axes.legend(fontsize=9)
    return figure


def _draw_scales(axes: Axes, part: Mapping[str, Any]) -> None:
    """Draw Figure 1: two accountants at each scale, beside Gaussian noise."""
    points = part["points"]
    for place, inverse in enumerate(_values(points, "inverse_scale")):
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        scale = "1" if inverse == 1 else f"1/{inverse}"
        rows = [point for point in points if point["inverse_scale"] == inverse]
        for who, name, line, fill in ACCOUNTANTS:
            found = [p for p in rows if p["error"][who] is not None]
            epsilons = [p["epsilon"] for p in found]
            errors = [p["error"][who] for p in found]
            (curve,) = axes.plot(epsilons, errors, line, color=colour, marker=marker)
            curve.set(fillstyle=fill, markersize=5.0, label=f"{name}, s = {scale}")
    rows = [point for point in points if point["inverse_scale"] == points[0]["inverse_scale"]]
    _draw_gaussians(axes, rows, [(p["error"]["lemma1"], p["error"]["gaussian"]) for p in rows])
    axes.set_title(f"binomial mechanism, d = {part['dimension']:,}, D2 = Dinf = {part['l2']:g}")
    axes.legend(fontsize=8, ncols=2)


def _draw_mean(axes: Axes, part: Mapping[str, Any]) -> None:
    """Draw the mean on k levels at the second largest k, or the largest of two."""
    levels = _values(part["points"], "levels")
    k = levels[-2] if len(levels) > 2 else levels[-1]
    rows = [point for point in part["points"] if point["levels"] == k]
    for way, (label, colour, marker, line) in WAYS.items():
        found = [p for p in rows if p["ways"].get(way) is not None]
        errors = [p["ways"][way]["error"] for p in found]
        axes.plot(
            [p["epsilon"] for p in found], errors, line, color=colour, marker=marker, label=label
        )
    _draw_gaussians(axes, rows, [(p["theorem2_error"], p["gaussian_error"]) for p in rows])
    axes.set_title(f"mean of {part['clients']:,} vectors, k = {k}, d = {part['dimension']:,}")
    axes.legend(fontsize=9)


def _draw_gaussians(axes: Axes, rows: Points, errors: Sequence[tuple[float, float]]) -> None:
    """Draw the Gaussian mechanism by the paper's formula and by the exact condition."""
    epsilons = [row["epsilon"] for row in rows]
    axes.plot(epsilons, [e for e, _ in errors], ":", color="black", label="Gaussian, paper")
    axes.plot(epsilons, [e for _, e in errors], "-", color=GREY, label="Gaussian, exact")


def _panels() -> tuple[Figure, tuple[Axes, Axes]]:
    """Return a figure with two panels side by side."""
    figure = sheet(14, 6)
    panels = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    for axes in panels:
        quiet(axes)
    return figure, panels


def _values(points: Points, name: str) -> list[Any]:
    """Return the different values of a figure, in order of appearance."""
    return list(dict.fromkeys(point[name] for point in points))
