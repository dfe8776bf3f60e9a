"""Plots of an audit as inline SVG: success rates, certified epsilons, variances of noise.

Every series has a marker of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from simulations.audits.base import Check, Figures
from simulations.common.figures import BLUE, ORANGE
from simulations.common.pages.svg import INK, Chart, blank, legend, ruled, write_svg
from simulations.common.tables import readable
from simulations.reports.audit.promises import records
from simulations.reports.audit.readings import (
    ALLOWED,
    BOUNDS,
    CEILINGS,
    headline,
    largest,
    number,
    rate_of,
)

WIDTH_INCHES: Final = 7.6
ROW_INCHES: Final = 0.3
MARGIN_INCHES: Final = 1.4
WITH, WITHOUT = "with the defence", "without it"
CEILING: Final = ">"
_SHIFT: Final = 0.16
Draw: TypeAlias = Callable[[Axes, float, Figures, str, str], None]
"""Draws one side of a check on a row, in a colour and with a marker."""


def charts(checks: Sequence[Check]) -> list[Chart]:
    """Return the plots for which there is something to show."""
    found = (rates_chart(checks), epsilon_chart(checks), variance_chart(checks))
    return [chart for chart in found if chart is not None]


def rates_chart(checks: Sequence[Check]) -> Chart | None:
    """Plot the success rate of every attack on both sides; None without attacks."""
    attacks = [
        c for c in checks if "succeeded" in c.with_defence and "succeeded" in c.without_defence
    ]
    if not attacks:
        return None
    known = records()
    names = [f"{c.id}  {known[c.id].name}" if c.id in known else c.id for c in attacks]
    figure, axes = _rows(names)
    for row, check in enumerate(attacks):
        _draw_sides(axes, row, check, _draw_rate)
    axes.set_xlim(-0.04, 1.04)
    axes.xaxis.set_major_formatter(PercentFormatter(xmax=1.0, decimals=0))
    sides = [side for c in attacks for side in (c.with_defence, c.without_defence)]
    hollow = "; hollow marker: a single run, without a rate" if None in map(rate_of, sides) else ""
    axes.set_xlabel(f"attacks that succeeded{hollow}")
    series = [(BLUE, "o", WITH), (ORANGE, "s", WITHOUT), (INK, "|", ALLOWED)]
    return _chart("rates", "How often each attack succeeds", attacks, figure, axes, series)


def epsilon_chart(checks: Sequence[Check]) -> Chart | None:
    """Plot certified beside accounted epsilon, with what the number of runs could certify."""
    audits = [
        c
        for c in checks
        if number(c.with_defence, "claimed_epsilon") is not None
        and largest(c.with_defence, BOUNDS) is not None
    ]
    if not audits:
        return None
    figure, axes = _rows([c.id.removeprefix("privacy-") for c in audits])
    for row, check in enumerate(audits):
        _draw_sides(axes, row, check, _draw_bound)
        accounted = number(check.with_defence, "claimed_epsilon")
        if accounted is not None:
            axes.plot([accounted], [row], color=INK, marker="|", markersize=20, markeredgewidth=2)
    axes.set_xscale("symlog", linthresh=1.0)
    axes.set_xlim(left=-0.05)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("epsilon, logarithmic above 1")
    series = [
        (BLUE, "o", f"certified, {WITH}"),
        (ORANGE, "s", f"certified, {WITHOUT}"),
        (INK, "|", "accounted"),
        (INK, CEILING, "the most that these runs could certify"),
    ]
    title = "Certified epsilon next to the accounted one"
    return _chart("epsilon", title, audits, figure, axes, series)


def variance_chart(checks: Sequence[Check]) -> Chart | None:
    """Plot the variance of released noise over the one accounted, with its tolerance."""
    audits = [c for c in checks if number(c.with_defence, "variance_ratio") is not None]
    if not audits:
        return None
    figure, axes = _rows([c.id.removeprefix("privacy-") for c in audits])
    axes.axvline(1.0, color=INK, linewidth=1.2)
    for row, check in enumerate(audits):
        _draw_sides(axes, row, check, _draw_ratio)
    axes.set_xlabel(
        "variance of the released noise, divided by the accounted one; lines: tolerance"
    )
    series = [(BLUE, "o", WITH), (ORANGE, "s", WITHOUT)]
    return _chart("variance", "Noise in the released sums", audits, figure, axes, series)


def _draw_rate(axes: Axes, row: float, figures: Figures, colour: str, marker: str) -> None:
    rate = rate_of(figures)
    if rate is None:
        share = float(bool(figures["succeeded"]))
        axes.plot([share], [row], color=colour, marker=marker, markerfacecolor="none")
        return
    axes.plot([rate.lower, rate.upper], [row, row], color=colour, linewidth=2.0)
    axes.plot([rate.share], [row], color=colour, marker=marker)
    if rate.chance:
        axes.plot([rate.chance], [row], color=INK, marker="|", markersize=9)


def _draw_bound(axes: Axes, row: float, figures: Figures, colour: str, marker: str) -> None:
    bound, ceiling = largest(figures, BOUNDS), largest(figures, CEILINGS)
    if ceiling is not None and math.isfinite(ceiling):
        axes.plot([0.0, ceiling], [row, row], color=INK, linewidth=0.8, alpha=0.6)
        axes.plot([ceiling], [row], color=INK, marker=CEILING, markersize=4, mfc="none")
    if bound is not None and math.isfinite(bound):
        axes.plot([bound], [row], color=colour, marker=marker)


def _draw_ratio(axes: Axes, row: float, figures: Figures, colour: str, marker: str) -> None:
    ratio = number(figures, "variance_ratio")
    tolerance = number(figures, "variance_tolerance")
    if ratio is None:
        return
    axes.plot([ratio], [row], color=colour, marker=marker)
    if tolerance is not None:
        ends = [ratio - tolerance, ratio + tolerance]
        axes.plot(ends, [row, row], color=colour, linewidth=2.0)


def _draw_sides(axes: Axes, row: float, check: Check, draw: Draw) -> None:
    draw(axes, row - _SHIFT, check.with_defence, BLUE, "o")
    draw(axes, row + _SHIFT, check.without_defence, ORANGE, "s")


def _rows(names: Sequence[str]) -> tuple[Figure, Axes]:
    """Return a figure with a row for each name, the first on top."""
    figure, (axes,) = blank(WIDTH_INCHES, MARGIN_INCHES + ROW_INCHES * len(names))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    ruled(axes, "x")
    return figure, axes


def _chart(
    name: str,
    title: str,
    checks: Sequence[Check],
    figure: Figure,
    axes: Axes,
    series: Sequence[tuple[str, str, str]],  # colour, marker and words of each
) -> Chart:
    """Name the series above the rows, two beside one another, and write the plot."""
    handles = [
        # Ceilings are hollow wherever they are drawn.
        axes.plot(
            [],
            [],
            color=colour,
            marker=marker,
            mfc="none" if marker == CEILING else colour,
            linestyle="none",
            label=label,
        )[0]
        for colour, marker, label in series
    ]
    legend(figure, handles, columns=2)
    text = " ".join(
        f"{c.id}: {WITH} {headline(c.with_defence)}; {WITHOUT} {headline(c.without_defence)}."
        + _accounted(c)
        for c in checks
    )
    return Chart(title, text, write_svg(name, title, text, figure))


def _accounted(check: Check) -> str:
    ceiling = largest(check.with_defence, CEILINGS)
    return "" if ceiling is None else f" Ceiling {readable(ceiling)}."
