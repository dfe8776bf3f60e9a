"""Tables, plot and summary of the adaptive mean estimation, from its plain figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulations.common.figures import AMBER, BLUE, GREEN, GREY, ORANGE, PINK
from simulations.reproduce.output import Report
from simulations.reproduce.plots import plain_ticks, quiet, sheet
from simulations.reproduce.text import section

SHOWN: Final = {
    "fixed 1": ("no compression", GREY, "o", ":"),
    "genie": ("genie", "black", "s", "--"),
    "doubling": ("doubling", AMBER, "v", "-."),
    "adapt norm": ("Adapt Norm", BLUE, "^", "-"),
    "adapt tail": ("Adapt Tail", ORANGE, "D", "-"),
    "adapt tail, fresh": ("Adapt Tail, fresh last round", PINK, "X", "--"),
    "adapt tail, top-k": ("Adapt Tail, top-k", GREEN, "P", "-"),
}

FAMILIES: Final = {
    "norm": ("norm", "length of the mean, in units of the clip"),
    "tail": ("clients", "clients; the mean is a power law"),
}


def tables(figures: Mapping[str, Any]) -> str:
    """Return one Markdown table for each form."""
    return "\n".join(
        section(f"{form.capitalize()} form", _rows(figures["points"], form))
        for form in ("untrusted", "central")
    )


def _rows(points: Sequence[Mapping[str, Any]], form: str) -> list[list[str]]:
    head = ["mean", "n", "norm", "method", "squared error (95 %)", "coordinates sent (95 %)"]
    rows = [[*head, "rounds", "most spent of epsilon"]]
    for point in points:
        for row in point["forms"][form]:
            name = row["method"]
            if name == "genie":
                name = f"genie: {row['picked']}"
            case = [point["family"], str(point["clients"]), f"{point['norm']:g}", name]
            error = f"{row['error']:.3g} +- {row['error_half_width']:.1g}"
            sent = f"{row['sent']:.0f} +- {row['sent_half_width']:.0f}"
            spent = f"{row['most_spent']:.3f}"
            rows.append([*case, error, sent, f"{row['rounds']:.1f}", spent])
    return rows


def plot(figures: Mapping[str, Any]) -> Figure:
    """Plot error and coordinates of the untrusted and the central form against each family."""
    figure = sheet(16, 14, 90)
    panels = figure.subplots(4, 2, squeeze=False)
    for column, family in enumerate(FAMILIES):
        points = [point for point in figures["points"] if point["family"] == family]
        for line, form in enumerate(("untrusted", "central")):
            for place, (name, label) in enumerate(
                (("error", "squared error"), ("sent", "coordinates per client"))
            ):
                axes = panels[2 * line + place][column]
                _draw(axes, points, form, name)
                axes.set_ylabel(f"{label}, lower is better")
                axes.set_xlabel(FAMILIES[family][1])
                axes.set_title(f"{form} form")
    panels[0][0].legend(fontsize=9, ncols=2)
    return figure


def _draw(axes: Axes, points: Sequence[Mapping[str, Any]], form: str, name: str) -> None:
    for method, (label, colour, marker, line) in SHOWN.items():
        rows = [
            (point[FAMILIES[point["family"]][0]], row)
            for point in points
            for row in point["forms"][form]
            if row["method"] == method
        ]
        if rows:
            axes.errorbar(
                [x for x, _ in rows],
                [row[name] for _, row in rows],
                yerr=[min(row[f"{name}_half_width"], 0.9 * row[name]) for _, row in rows],
                color=colour,
                marker=marker,
                linestyle=line,
                capsize=2.0,
                label=label,
            )
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_ticks(axes, sorted({point[FAMILIES[point["family"]][0]] for point in points}))
    quiet(axes)


def _summary(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the adaptive methods cost beside the genie."""
    for point in figures["points"]:
        for form, rows in point["forms"].items():
            found = {row["method"]: row for row in rows}
            shown = [
                f"{label} {found[name]['error']:.3g} / {found[name]['sent']:.0f}"
                for name, (label, *_) in SHOWN.items()
                if name in found
            ]
            where = f"{point['family']}, n = {point['clients']}, norm {point['norm']:g}, {form}"
            yield f"{where}: {'; '.join(shown)}"
    yield "Figures are squared error / coordinates that a client sends."


REPORT = Report(
    "adaptive-mean", {"tables": ("-tables.md", tables), "plot": (".png", plot)}, _summary
)
