"""Page, plot and summary of the comparison at equal error, from its plain figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from simulations.reproduce.output import Report, Titled
from simulations.reproduce.plots import COLOURS, MARKERS, plain_ticks, quiet, sheet
from simulations.reproduce.text import section

Figures = Mapping[str, Any]


def page(figures: Figures) -> str:
    """Return the setting and all tables as Markdown."""
    task = figures["task"]
    parts = [
        f"The sum of {task['clients']} vectors of {task['dimension']:,} coordinates and norms up "
        f"to 1, delta = {task['delta']:g} for all rounds together. z is the root of the mean "
        "squared error of a coordinate of the sum, rounding included. Epsilon is what the analysis "
        "named gives; bits are those of a coordinate, from a client.\n",
        section("Epsilon of one round, by z", _by_noise(figures, 0)),
    ]
    for place, rounds in enumerate(task["rounds"][1:], start=1):
        parts.append(section(f"Epsilon of {rounds} rounds, by z", _by_noise(figures, place)))
    parts.append(section("Bits of a coordinate, by z", _table(figures, lambda row: row["bits"])))
    return "\n".join(parts)


def _by_noise(figures: Figures, place: int) -> list[list[str]]:
    return _table(figures, lambda row: row["epsilon"][place])


def _table(figures: Figures, value: Any) -> list[list[str]]:
    """Return a row a system, a column a level of noise."""
    points = figures["points"]
    rows = [["system", "trusted with vectors", *(f"z = {point['noise']:g}" for point in points)]]
    for each in zip(*(point["systems"] for point in points), strict=True):
        rows.append([each[0]["system"], each[0]["trust"], *(_shown(value(row)) for row in each)])
    return rows


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.4g}" if value < 1e4 else f"{value:,.0f}"


def plot(figures: Figures) -> Figure:
    """Plot the epsilon of one round against the error."""
    figure = sheet(9, 6)
    axes = figure.subplots()
    noises = [point["noise"] for point in figures["points"]]
    rows: Sequence[Sequence[Mapping[str, Any]]] = [point["systems"] for point in figures["points"]]
    for number, each in enumerate(zip(*rows, strict=True)):
        heights = [float(row["epsilon"][0]) for row in each]
        again, place = divmod(number, len(COLOURS))
        line = MARKERS[place] + ("--" if again else "-")
        axes.plot(noises, heights, line, color=COLOURS[place], label=each[0]["system"])
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_ticks(axes, noises)
    quiet(axes)
    axes.set_xlabel("error z of a coordinate of the sum, over the clip")
    axes.set_ylabel("epsilon of one round, lower is better")
    axes.legend(fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _summary(figures: Figures) -> Iterator[str | Titled]:
    for place, rounds in enumerate(figures["task"]["rounds"]):
        yield f"epsilon after {rounds} round(s), by error z", _by_noise(figures, place)


REPORT = Report("equal-error", {"page": (".md", page), "plot": (".png", plot)}, _summary)
