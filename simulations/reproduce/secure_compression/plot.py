"""Three panels: accuracy by bytes, accuracy by clip, and what averages gain behind every way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, PercentFormatter

from simulations.common.figures import BLUE, GREEN, GREY, ORANGE
from simulations.reproduce.intervals import half_width
from simulations.reproduce.plots import sheet
from simulations.reproduce.secure_compression.claims import by_arm

Row = Mapping[str, Any]
Figures = Mapping[str, Any]


def plot(figures: Figures) -> Figure:
    """Draw the three panels."""
    figure = sheet(17, 7)
    left, middle, right = figure.subplots(1, 3)
    rows = [row for row in figures["rows"] if row["average"] == "none"]
    _by_bytes(left, rows)
    _by_clip(middle, rows, figures)
    _by_average(right, figures)
    for axes in (left, middle):
        axes.set_ylabel("test accuracy")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    for axes in (left, middle, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _by_bytes(axes: Axes, rows: list[Row]) -> None:
    """Filled marks count all messages, open ones the masked vectors alone."""
    styles = {"sketch": ("sketches", GREY, "o-"), "powersgd": ("secure PowerSGD", ORANGE, "s-")}
    for family, (label, colour, style) in styles.items():
        found = [row for row in rows if row["family"] == family]
        for measure, face, name in (
            ("total", colour, f"{label}, all messages"),
            ("vectors", "none", f"{label}, vectors alone"),
        ):
            ordered = sorted(found, key=lambda row: float(row["bytes"][measure]))
            axes.errorbar(
                [row["bytes"][measure] for row in ordered],
                [row["accuracy"] for row in ordered],
                yerr=_widths(ordered),
                fmt=style,
                color=colour,
                markerfacecolor=face,
                linewidth=1.0,
                capsize=2.0,
                label=name,
            )
    axes.set_xscale("log")
    axes.set_xlabel("bytes of a client in a round, both directions")
    axes.set_title("at equal epsilon, by bytes")


def _by_clip(axes: Axes, rows: list[Row], figures: Figures) -> None:
    """Full lines have learning rates of their own, dotted ones that of the right clip."""
    right = next(row for row in rows if row["arm"] == "sketch-1")
    clips = [row for row in rows if row["family"] in ("clip", "following") or row is right]
    for family, label, colour, marker in (
        ("clip", "fixed", GREY, "o"),
        ("following", "following, by its first clip", BLUE, "s"),
    ):
        # The right clip is the sketch of rate 1, whose value is 1 as well.
        beside = [right] if family == "clip" else []
        for found, line, rates in (
            ([row for row in rows if row["family"] == family] + beside, "-", "own rate"),
            ([r for r in figures["common"] if r["family"] == family] + beside, ":", "one rate"),
        ):
            ordered = sorted(found, key=lambda row: float(row["value"]))
            axes.errorbar(
                [row["value"] for row in ordered],
                [row["accuracy"] for row in ordered],
                yerr=_widths(ordered),
                color=colour,
                marker=marker,
                linestyle=line,
                capsize=2.0,
                label=f"{label}, {rates}",
            )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sorted({row["value"] for row in clips})))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _ratio(value)))
    axes.set_xlabel("clip over the right one")
    axes.set_title("fixed clips and those that follow")


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
    axes.set_xlabel("points of accuracy that Denoise gains, 95 %")
    axes.set_title("Denoise behind every way, by momentum")


def _ratio(value: float) -> str:
    return f"{value:g}" if value >= 1.0 else f"1/{1.0 / value:g}"


def _widths(rows: list[Row]) -> list[float]:
    return [half_width(row["accuracies"]) or 0.0 for row in rows]
