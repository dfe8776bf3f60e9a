"""Plots of the reproduction of cpSGD, from its plain figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulations.common.figures import BLUE, GREEN, GREY, ORANGE, PINK
from simulations.reproduce.engine.plots import Style, curve, dress, level, panels, style
from simulations.reproduce.engine.render import Figures, Row

WAYS = {
    "paper": Style("paper's accountant", ORANGE, "o", "--"),
    "domination": Style("domination, paper's sensitivities", PINK, "v", "-."),
    "coupled": Style("domination, coupled sensitivities", BLUE, "s", "-"),
    "conditional": Style("ours: conditional rounding, same bits", GREEN, "^", "-"),
}

ERROR = "mean squared error, lower is better"


def plot_figure1(figures: Figures) -> Figure:
    """Plot error against epsilon: at several scales, and of a mean on k levels."""
    figure, [[left, right]] = panels(1, 2, 14, 6)
    part = figures["figure1"]
    for place, inverse in enumerate(_values(part["points"], "inverse_scale")):
        rows = [point for point in part["points"] if point["inverse_scale"] == inverse]
        scale = "1" if inverse == 1 else f"1/{inverse}"
        for who, name, line in (("theorem1", "Theorem 1", "--"), ("domination", "domination", "-")):
            of = style(place, f"{name}, s = {scale}")
            look = Style(of.label, of.colour, of.marker, line, hollow=who == "theorem1")
            curve(left, rows, "epsilon", f"error.{who}", look)
    _gaussians(left, part["points"], "error.lemma1", "error.gaussian")
    title = f"binomial mechanism, d = {part['dimension']:,}, D2 = Dinf = {part['l2']:g}"
    ticks = (0.5, 1.0, 2.0, 4.0)
    dress(left, "epsilon", ERROR, title, log="xy", ticks=ticks)
    part = figures["mean_estimation"]
    levels = _values(part["points"], "levels")
    # The second largest k, or the larger of two.
    k = levels[-2] if len(levels) > 2 else levels[-1]
    rows = [point for point in part["points"] if point["levels"] == k]
    for way, look in WAYS.items():
        curve(right, rows, "epsilon", f"ways.{way}.error", look)
    _gaussians(right, rows, "theorem2_error", "gaussian_error")
    title = f"mean of {part['clients']:,} vectors, k = {k}, d = {part['dimension']:,}"
    dress(right, "epsilon", ERROR, title, log="xy", ticks=ticks)
    return figure


def plot_bits(figures: Figures) -> Figure:
    """Plot error against bits of a coordinate of a message, at two values of epsilon."""
    figure, [axes] = panels(1, 2, 14, 6)
    points = figures["mean_estimation"]["points"]
    available = _values(points, "epsilon")
    chosen = (min(available, key=lambda e: abs(e - 1.0)), max(available))
    for panel, epsilon in zip(axes, chosen, strict=True):
        rows = [point for point in points if point["epsilon"] == epsilon]
        level(panel, rows[0]["gaussian_error"], Style("Gaussian, exact condition", GREY))
        for way, look in WAYS.items():
            curve(panel, rows, f"ways.{way}.bits", f"ways.{way}.error", look)
        title = f"epsilon = {epsilon:g}; k = {', '.join(map(str, _values(rows, 'levels')))}"
        dress(panel, "bits per coordinate and client, log2 of the alphabet", ERROR, title, log="y")
    return figure


def _gaussians(axes: Axes, rows: Sequence[Row], paper: str, exact: str) -> None:
    """Draw the Gaussian mechanism by the paper's formula and by the exact condition."""
    once = list({row["epsilon"]: row for row in rows}.values())
    curve(axes, once, "epsilon", paper, Style("Gaussian, paper", "black", "", ":"))
    curve(axes, once, "epsilon", exact, Style("Gaussian, exact", GREY, "", "-"))


def _values(points: Sequence[Row], name: str) -> list[Any]:
    """Return the different values of a figure, in order of appearance."""
    return list(dict.fromkeys(point[name] for point in points))
