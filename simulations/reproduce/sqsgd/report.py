"""Tables, a plot and the page of `veilsum reproduce sqsgd`, from its plain figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from simulations.reproduce.intervals import half_width
from simulations.reproduce.output import Report, Titled
from simulations.reproduce.plots import COLOURS, MARKERS, quiet, sheet
from simulations.reproduce.sqsgd.claims import final_accuracies, mean_accuracies
from simulations.reproduce.text import points, section, shown

Figures = Mapping[str, Any]
Row = Mapping[str, Any]

TITLES = {
    "plain": "no privacy, no clip",
    "sqsgd": "sqSGD",
    "equal-sqsgd": "sqSGD, bits of Figure 3",
    "piecewise": "Piecewise, with sqSGD's residual",
    "piecewise-scaled": "Piecewise, as published",
    "equal-vqsgd": "vqSGD, repeats not paid for",
    "vqsgd-paid": "vqSGD, repeats paid for",
    "sqsgd-narrow": "sqSGD, U/10, best division",
}
PANELS = {
    1: "Figure 1: levels",
    2: "Figure 2: epsilon",
    3: "Figure 3: baselines at equal bits",
    0: "not in the paper",
}

RUN_HEAD = [
    "figure",
    "way",
    "K",
    "epsilon",
    "epsilon of a report",
    "sent of a client",
    "bits",
    "error of a report",
    "accuracy, %",
    "mean over epochs, %",
]


def tables(figures: Figures) -> str:
    """Return claims, accuracies and theory as Markdown."""
    plan = figures["plan"]
    rounds = plan["epochs"] * figures["rounds_of_epoch"]
    parts = [
        f"{figures['data']}: {figures['parameters']:,} parameters, {plan['clients']} clients, "
        f"{figures['examples']:,} examples, {figures['tested']:,} tested; {plan['epochs']} epochs "
        f"of {figures['rounds_of_epoch']} rounds, batch {plan['batch']}, rate {plan['rate']:g}, "
        f"U = {plan['bound']:g}, seeds {', '.join(map(str, plan['seeds']))}. Epsilon is that of "
        f"one report, {figures['adjacency']}; a client sends {rounds:,} of them, and all of them "
        f"together spend {rounds:,} times as much. Intervals: 95 %, Student's law over seeds.\n"
    ]
    for title, rows in (
        ("Claims", _claim_rows(figures)),
        ("Runs", _run_rows(figures)),
        ("Accuracy by epoch, mean over seeds, %", _curve_rows(figures)),
        ("What the settings mean", _theory_rows(figures)),
    ):
        parts.append(section(title, rows))
    return "\n".join(parts)


def _claim_rows(figures: Figures) -> list[list[str]]:
    rows = [["where", "claim", "verdict", "seen"]]
    for claim in figures["claims"]:
        rows.append([claim["source"], claim["claim"], claim["verdict"], claim["seen"]])
    return rows


def _run_rows(figures: Figures) -> list[list[str]]:
    return [RUN_HEAD, *(_run_row(row) for row in figures["runs"])]


def _run_row(row: Row) -> list[str]:
    return [
        ", ".join(map(str, row["figures"])) or "-",
        TITLES[row["way"]],
        shown(row["levels"], "d"),
        shown(row["epsilon"], "g"),
        shown(row["epsilon_report"], ",.1f"),
        shown(row["kept"], ",d"),
        shown(row["bits"], ",d"),
        shown(row["error"], ".4g"),
        _spread(final_accuracies(row)) + _note(row),
        _spread(mean_accuracies(row)),
    ]


def _curve_rows(figures: Figures) -> list[list[str]]:
    epochs = figures["plan"]["epochs"]
    rows = [["run", *(str(epoch) for epoch in range(1, epochs + 1))]]
    for row in figures["runs"]:
        rows.append([row["name"], *(f"{100 * each:.1f}" for each in _curve(row))])
    return rows


def _theory_rows(figures: Figures) -> list[list[str]]:
    rows = [
        [
            "sent",
            "epsilon",
            "K",
            "kappa",
            "in 0 .. d - 1",
            "m",
            "variance / U^2",
            "best share of kappa",
            "m",
            "variance / U^2",
        ]
    ]
    for setting in figures["theory"]:
        printed, best = setting["printed"], setting["best"]
        rows.append(
            [
                f"{setting['kept']:,}",
                f"{setting['epsilon']:g}",
                str(setting["levels"]),
                str(printed["kappa"]),
                "yes" if setting["kappa_in_printed_range"] else "**no**",
                f"{printed['factor']:.4f}",
                f"{printed['variance']:.4g}",
                f"{best['share']:.3f}",
                f"{best['factor']:.4f}",
                f"{best['variance']:.4g}",
            ]
        )
    return rows


def plot(figures: Figures) -> Figure:
    """Plot accuracy by epoch: a panel for each of the paper's figures, and one for the rest."""
    figure = sheet(14, 10)
    first: Axes | None = None
    for place, (number, title) in enumerate(PANELS.items()):
        axes = figure.add_subplot(2, 2, place + 1, sharey=first)
        first = first or axes
        _draw(axes, [row for row in figures["runs"] if _belongs(row, number)])
        axes.set_title(title)
    return figure


def _belongs(row: Row, number: int) -> bool:
    return row["way"] == "plain" or (number in row["figures"] if number else not row["figures"])


def _draw(axes: Axes, rows: Sequence[Row]) -> None:
    """Draw one panel: means over seeds, and bars from the lowest to the highest."""
    others = [row for row in rows if row["way"] != "plain"]
    for row in rows:
        if row["way"] == "plain":
            axes.plot(*_points(row), color="black", label=TITLES["plain"])
    for place, row in enumerate(others):
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        epochs, means = _points(row)
        axes.errorbar(epochs, means, _bars(row), color=colour, marker=marker, label=_label(row))
    quiet(axes)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
    axes.set_xlabel("epochs")
    axes.set_ylabel("test accuracy, higher is better")
    axes.legend(fontsize=9)


def _label(row: Row) -> str:
    levels = "" if row["levels"] is None else f", K = {row['levels']}"
    return f"{TITLES[row['way']]}{levels}, epsilon = {row['epsilon']:g}"


def _points(row: Row) -> tuple[list[int], list[float]]:
    means = _curve(row)
    return list(range(1, len(means) + 1)), means


def _curve(row: Row) -> list[float]:
    """Mean accuracy over seeds after each epoch."""
    curves = [[point["accuracy"] for point in result["curve"]] for result in row["results"]]
    return [fmean(each) for each in zip(*curves, strict=True)]


def _bars(row: Row) -> list[list[float]]:
    """Distances from the mean down to the lowest and up to the highest seed."""
    curves = [[point["accuracy"] for point in result["curve"]] for result in row["results"]]
    columns = list(zip(*curves, strict=True))
    below = [fmean(column) - min(column) for column in columns]
    above = [max(column) - fmean(column) for column in columns]
    return [below, above]


def _spread(values: Sequence[float]) -> str:
    return points(fmean(values), half_width(values))


def _note(row: Row) -> str:
    gone = sum(result["diverged"] for result in row["results"])
    return f" ({gone} diverged)" if gone else ""


def _summary(figures: Figures) -> list[Titled]:
    return [("runs", _run_rows(figures)), ("claims", _claim_rows(figures))]


REPORT = Report(
    "sqsgd-{data}", {"tables": ("-tables.md", tables), "plot": (".png", plot)}, _summary
)
