"""Several runs beside one another: what differs between them, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from simulations.common.figures import BLUE
from simulations.common.pages.svg import Chart, Table, literal
from simulations.common.tables import readable
from simulations.learning.records import Record, average_rate, number, second_half
from simulations.reports.run.charts import mean, split_bytes
from simulations.reports.run.folders import Run
from simulations.reports.run.plots import DASH, MARKERS, Line, RoundPlot, rounds_of, times, words_of

RESULTS: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("rounds",),
    "correct answers": ("last", "best"),
    "epsilon of one client": ("guaranteed", "spent, server", "spent, outsider"),
    "mean update": ("squared error",),
}
COSTS: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("clients lost",),
    "compression": ("all rounds", "second half"),
    "kB of a client in a round": ("vector", "protocol"),
    "seconds": ("in all", "compiling"),
}
"""What came of a run and what it took, with what neighbouring columns are about."""
OUTCOMES: Final = tuple(
    name for groups in (RESULTS, COSTS) for names in groups.values() for name in names
)
SHOWN_ANYWAY: Final = "rounds"


def settings_that_differ(runs: Sequence[Run]) -> list[str]:
    """Dotted keys whose values are not the same in all runs."""
    flat = [flattened(run.config.model_dump()) for run in runs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    return [key for key in keys if len({repr(settings.get(key)) for settings in flat}) > 1]


def flattened(settings: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Settings by dotted key; tables that are left out have none."""
    found: dict[str, object] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= flattened(value, f"{prefix}{key}.")
        elif value is not None:
            found[prefix + key] = value
    return found


def comparison_tables(runs: Sequence[Run]) -> list[tuple[str, Table]]:
    """What came of every run, what it took, and the settings that differ; each with a title."""
    found = [outcomes(run) for run in runs]
    tables = []
    for title, groups in (("Results", RESULTS), ("Costs", COSTS)):
        names = [name for columns in groups.values() for name in columns]
        rows = [
            (run.name, *(figures[name] for name in names))
            for run, figures in zip(runs, found, strict=True)
        ]
        spans = [("", 1), *((name, len(columns)) for name, columns in groups.items())]
        tables.append((title, Table(("run", *names), tuple(rows), tuple(spans))))
    keys = [key for key in settings_that_differ(runs) if key != SHOWN_ANYWAY]
    if keys:
        flat = [flattened(run.config.model_dump()) for run in runs]
        rows = [
            (run.name, *(readable(settings[key]) if key in settings else DASH for key in keys))
            for run, settings in zip(runs, flat, strict=True)
        ]
        tables.append(("Settings that differ", Table(("run", *keys), tuple(rows))))
    return tables


def outcomes(run: Run) -> dict[str, str]:
    """What came of a run, by the names of `OUTCOMES`."""
    records, tested = run.records, run.tested
    if not records:
        return dict.fromkeys(OUTCOMES, DASH) | {"rounds": f"0 of {run.config.rounds}"}
    last = records[-1]
    invited = sum(r["cohort"] for r in records)
    vector, protocol = zip(*map(split_bytes, records), strict=True)
    stages = [record.get("stages") or {} for record in records]
    compiled = sum(each.get("compiling", 0.0) for each in stages)
    return {
        "rounds": f"{len(records)} of {run.config.rounds}",
        "last": f"{tested[-1]['accuracy']:.1%}" if tested else DASH,
        "best": f"{max(number(r['accuracy']) for r in tested):.1%}" if tested else DASH,
        "guaranteed": words_of(run.guaranteed),
        "spent, server": words_of(number(last["epsilons"].get("server"))),
        "spent, outsider": words_of(number(last["epsilons"].get("outsider"))),
        "vector": readable(mean(vector) / 1000),
        "protocol": readable(mean(protocol) / 1000) if any(protocol) else DASH,
        "all rounds": times(average_rate(records)),
        "second half": times(average_rate(second_half(records))),
        "clients lost": f"{1 - sum(r['survivors'] for r in records) / invited:.1%}",
        "squared error": words_of(measured_error(records)),
        "in all": f"{sum(r['seconds'] for r in records):,.1f}",
        "compiling": f"{compiled:,.1f}" if any("compiling" in each for each in stages) else DASH,
    }


def comparison_charts(runs: Sequence[Run]) -> list[Chart]:
    """Plots of all runs at once, where there is something to compare."""
    shown = [run for run in runs if run.tested]
    if len(shown) < 2:
        return []
    found = (accuracy_overlay(shown), privacy_plot(shown), sketch_overlay(shown))
    return [chart for chart in found if chart is not None]


def accuracy_overlay(runs: Sequence[Run]) -> Chart:
    """Plot test accuracy by round, a curve for each run."""
    plot = RoundPlot("all-accuracy", "Test accuracy of all runs", "correct answers", len(runs))
    for place, run in enumerate(runs):
        values = [number(record["accuracy"]) for record in run.tested]
        plot.draw_line(Line(run.name, rounds_of(run.tested), values), place)
    plot.in_percent()
    text = "After the last round: " + _said(runs, "last")
    return plot.chart(text, _by_round(runs, "accuracy", ".1%"))


def privacy_plot(runs: Sequence[Run]) -> Chart | None:
    """Plot accuracy over the epsilon that is guaranteed against the server.

    None with fewer than two finite epsilons.
    """
    points = [
        (run.guaranteed, number(run.tested[-1]["accuracy"]), run.name)
        for run in runs
        if math.isfinite(number(run.records[-1]["epsilons"].get("server")))
    ]
    finite = [point for point in points if math.isfinite(point[0])]
    if len({epsilon for epsilon, _, _ in finite}) < 2:
        return None
    plot = RoundPlot("all-privacy", "Accuracy and privacy", "correct answers", 1)
    for place, (epsilon, accuracy, label) in enumerate(finite):
        # Below those of runs that came to nearly the same.
        beside = sum(
            other == epsilon and abs(accuracy - height) < 0.05
            for other, height, _ in finite[:place]
        )
        plot.axes.plot([epsilon], [accuracy], color=BLUE, marker=MARKERS[0])
        plot.axes.annotate(
            literal(label),
            (epsilon, accuracy),
            textcoords="offset points",
            xytext=(5, -11 - 11 * beside),
            fontsize=9,
        )
    plot.axes.set_xlabel("epsilon, guaranteed against the server", fontsize=11)
    plot.axes.set_xlim(0.0, 1.25 * max(epsilon for epsilon, _, _ in finite))
    plot.in_percent()
    text = ", ".join(
        f"{label}: {accuracy:.1%} at epsilon {readable(epsilon)}"
        for epsilon, accuracy, label in finite
    )
    rows = [(label, readable(epsilon), f"{accuracy:.1%}") for epsilon, accuracy, label in finite]
    return plot.chart(text + ".", Table(("run", "epsilon", "correct"), tuple(rows)))


def sketch_overlay(runs: Sequence[Run]) -> Chart | None:
    """Plot compression by round; None if no run compresses."""
    shown = [run for run in runs if run.sends_vectors]
    if all(record["compression"] == 1.0 for run in shown for record in run.records):
        return None
    plot = RoundPlot(
        "all-compression", "Compression of all runs", "model size / sketch size", len(shown)
    )
    for place, run in enumerate(shown):
        rates = [record["compression"] for record in run.records]
        plot.draw_line(Line(run.name, rounds_of(run.records), rates), place)
    text = (
        f"Over the whole run: {_said(shown, 'all rounds')} In the second half of its rounds: "
        f"{_said(shown, 'second half')}"
    )
    return plot.chart(text, _by_round(shown, "compression", ".3g"))


def measured_error(records: Sequence[Record]) -> float:
    """Mean over rounds of the squared error of the mean update; NaN if it was never measured."""
    values = [number((record.get("error") or {}).get("measured")) for record in records]
    known = [value for value in values if math.isfinite(value)]
    return mean(known) if known else math.nan


def _said(runs: Sequence[Run], outcome: str) -> str:
    return ", ".join(f"{run.name} {outcomes(run)[outcome]}" for run in runs) + "."


def _by_round(runs: Sequence[Run], key: Literal["accuracy", "compression"], form: str) -> Table:
    """A row for each round, a column for each run."""
    values = [
        {record["round"]: number(record[key]) for record in run.records if record[key] is not None}
        for run in runs
    ]
    rounds = sorted({now for found in values for now in found})
    rows = [
        (str(now), *(format(found[now], form) if now in found else DASH for found in values))
        for now in rounds
    ]
    return Table(("round", *(run.name for run in runs)), tuple(rows))
