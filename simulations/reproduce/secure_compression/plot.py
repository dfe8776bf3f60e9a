"""Three panels: accuracy by bytes, accuracy by clip, and what averages gain behind every way."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from simulations.common.figures import BLUE, GREEN, GREY, ORANGE
from simulations.reproduce.engine.claims import half_width
from simulations.reproduce.engine.plots import Style, curve, dress, panels
from simulations.reproduce.engine.render import Figures, Row
from simulations.reproduce.secure_compression.claims import alone, by_arm
from simulations.reproduce.secure_compression.plan import times


def plot(figures: Figures) -> Figure:
    """Draw the three panels."""
    figure, [[left, middle, right]] = panels(1, 3, 17, 7)
    rows = list(alone(figures).values())
    _by_bytes(left, rows)
    _by_clip(middle, rows, figures)
    _by_average(right, figures)
    return figure


def _half(row: Row) -> float:
    return half_width(row["accuracies"]) or 0.0


def _by_bytes(axes: Axes, rows: Sequence[Row]) -> None:
    """Filled marks count all messages, open ones the masked vectors alone."""
    for family, label, colour, marker in (
        ("sketch", "sketches", GREY, "o"),
        ("powersgd", "secure PowerSGD", ORANGE, "s"),
    ):
        found = [row for row in rows if row["family"] == family]
        for measure, name in (("total", "all messages"), ("vectors", "vectors alone")):
            hollow = measure == "vectors"
            look = Style(f"{label}, {name}", colour, marker, hollow=hollow)
            curve(axes, found, f"bytes.{measure}", "accuracy", look, _half)
    x = "bytes of a client in a round, both directions"
    title = "at equal epsilon, by bytes"
    dress(axes, x, "test accuracy", title, log="x", percents=True, legend="below")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _by_clip(axes: Axes, rows: Sequence[Row], figures: Figures) -> None:
    """Full lines have learning rates of their own, dotted ones that of the right clip."""
    right = next(row for row in rows if row["arm"] == "sketch-1")
    clips = [row for row in rows if row["family"] in ("clip", "following") or row is right]
    for family, label, colour, marker in (
        ("clip", "fixed", GREY, "o"),
        ("following", "following, by its first clip", BLUE, "s"),
    ):
        # The right clip is the sketch of rate 1, whose value is 1 as well.
        beside = [right] if family == "clip" else []
        for source, line, rates in ((rows, "-", "own rate"), (figures["common"], ":", "one rate")):
            found = [row for row in source if row["family"] == family] + beside
            look = Style(f"{label}, {rates}", colour, marker, line)
            curve(axes, found, "value", "accuracy", look, _half)
    title = "fixed clips and those that follow"
    x = "clip over the right one"
    dress(axes, x, "test accuracy", title, log="x", percents=True, legend="below")
    axes.xaxis.set_major_locator(FixedLocator(sorted({row["value"] for row in clips})))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: times(value).split(" ")[0]))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _by_average(axes: Axes, figures: Figures) -> None:
    pairs = (("none", "no average", BLUE), ("momentum", "the server's momentum", GREEN))
    for place, (other, label, colour) in enumerate(pairs):
        found = by_arm(figures, "denoise", other)
        axes.errorbar(
            [100.0 * each.mean for each in found],
            [number + 0.3 * place for number in range(len(found))],
            xerr=[100.0 * (each.half_width or 0.0) for each in found],
            fmt="o",
            color=colour,
            markersize=4,
            capsize=2.0,
            label=f"against {label}",
        )
        names = [f"{each.question}, {each.what.split(', ')[-1]}" for each in found]
        axes.set_yticks(range(len(found)), names, fontsize=7)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.invert_yaxis()
    title = "Denoise behind every way, by momentum"
    dress(axes, "points of accuracy that Denoise gains, 95 %", "", title, legend="below")
