"""The plot of how many values a client sends: what a controller chose, and what it could have.

A controller that holds an interval of the mean update's length tells with every size the shortest
and the longest that it would have kept (`shortest` and `longest` of a record's figures); other
controllers, and earlier versions, tell neither.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Final

from simulations.common.pages.svg import Chart, Table
from simulations.common.tables import readable
from simulations.learning.records import Record, average_rate, second_half
from simulations.reports.run.folders import Run
from simulations.reports.run.plots import DASH, Line, RoundPlot, rounds_of, times

ARRIVED: Final = 1.5
"""A size within this factor of the median of the second half is about where it stays."""
LARGE_FACTOR: Final = 10.0
"""A sketch that is so many times shorter than the model would lie on the axis of a plain plot."""
BAND: Final = ("shortest", "longest")


def sketch_chart(run: Run, name: str) -> Chart | None:
    """Plot how many values a client sends; None if it is all of them, or if it sends no vector."""
    records = run.records
    sizes, dimension = [r["sketch_size"] for r in records], records[-1]["dimension"]
    if set(sizes) == {dimension} or not run.sends_vectors:
        return None
    band = [_interval(record) for record in records]
    has_band = any(map(any, band))
    plot = RoundPlot(name, "Values that a client sends", "values", 3 if has_band else 2)
    if dimension > LARGE_FACTOR * min(sizes):
        plot.in_logarithms(min(sizes) / 2.0)
    plot.draw_line(Line("sent", rounds_of(records), sizes), 0)
    plot.draw_level("parameters of the model", dimension)
    if has_band:
        low, high = zip(*(_drawn(record, dimension) for record in records), strict=True)
        plot.draw_band("shortest to longest", rounds_of(records), low, high)
    rows = [
        (
            str(r["round"]),
            f"{r['sketch_size']:,}",
            *((_whole(figure) for figure in interval) if has_band else ()),
            times(r["compression"]),
            str(r["bits"]),
            str(r.get("rationale") or DASH),
            _figures(r.get("figures") or {}, BAND if has_band else ()),
        )
        for r, interval in zip(records, band, strict=True)
    ]
    columns = ("round", "values", *(BAND if has_band else ()), "compression", "bits each")
    return plot.chart(_text(records), Table((*columns, "why", "figures"), tuple(rows)))


def _text(records: Sequence[Record]) -> str:
    """What was sent, in words."""
    sizes, dimension = [r["sketch_size"] for r in records], records[-1]["dimension"]
    if len(set(sizes)) == 1:
        said = f"{sizes[0]:,} values instead of {dimension:,}: "
        said += f"compression {times(average_rate(records))} over the whole run."
        given = _reasons(records)
        return f"{said} Why: {given}." if given else said
    late = second_half(records)
    why = _reasons(records[:1])
    text = [
        f"Between {min(sizes):,} and {max(sizes):,} values instead of {dimension:,}: compression "
        f"{times(average_rate(records))} over the whole run, {times(average_rate(late))} in the "
        "second half of its rounds.",
        f"The first round sends {sizes[0]:,}{f': {why}' if why else ''}.",
        f"After it {_moves(records)}.",
        _arrival(records),
    ]
    if any(any(_interval(record)) for record in records):
        text.append("The band is from the shortest to the longest size that the controller allows.")
    return " ".join(text)


def _arrival(records: Sequence[Record]) -> str:
    """From which round on the size was about where it is in the second half."""
    settled = median(r["sketch_size"] for r in second_half(records))
    away = [r for r in records if not settled / ARRIVED <= r["sketch_size"] <= settled * ARRIVED]
    about = f"within a factor of {ARRIVED:g} of the median of the second half, {settled:,.0f}"
    if not away:
        return f"All sizes are {about}."
    if away[-1] is records[-1]:
        return f"At the end the size still moves: it is not {about}."
    return f"After round {away[-1]['round']} all sizes are {about}."


def _moves(records: Sequence[Record]) -> str:
    """How often the size went down, up, or neither, with the controller's reasons for each."""
    moves: dict[str, list[Record]] = {"goes down": [], "goes up": [], "stays": []}
    for before, now in pairwise(records):
        change = now["sketch_size"] - before["sketch_size"]
        moves["goes down" if change < 0 else "goes up" if change > 0 else "stays"].append(now)
    said = [
        f"{move} in {_rounds(len(found))}{f' ({given})' if (given := _reasons(found)) else ''}"
        for move, found in moves.items()
        if found
    ]
    return "the size " + ", ".join(said)


def _reasons(records: Sequence[Record]) -> str:
    """The reasons that a controller gave, the commonest first, and how often if they differ."""
    given = Counter(str(r["rationale"]).rstrip(".") for r in records if r.get("rationale"))
    if len(given) == 1 and given.total() == len(records):
        return f'"{next(iter(given))}"'
    return ", ".join(f'"{reason}" in {_rounds(n)}' for reason, n in given.most_common())


def _rounds(count: int) -> str:
    return f"{count} round{'' if count == 1 else 's'}"


def _interval(record: Record) -> tuple[float | None, ...]:
    """The shortest and the longest size that a controller would have kept; None if not told."""
    figures = record.get("figures") or {}
    return tuple(figures.get(name) for name in BAND)


def _drawn(record: Record, dimension: int) -> tuple[float, float]:
    """The interval as it compares with what is sent: a second sketch added, no more than all."""
    short, long = _interval(record)
    if short is None or long is None:
        return math.nan, math.nan
    second = (record.get("figures") or {}).get("probe_size", 0.0)
    return min(short, dimension) + second, min(long, dimension) + second


def _whole(figure: float | None) -> str:
    return DASH if figure is None else f"{figure:,.0f}"


def _figures(figures: Mapping[str, float], named: Sequence[str]) -> str:
    """All figures but those that have columns of their own."""
    shown = ((name, value) for name, value in figures.items() if name not in named)
    return ", ".join(f"{name.replace('_', ' ')} {readable(value)}" for name, value in shown)
