"""Tables and plots of `veilsum reproduce compression`, from its plain figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from simulations.common.figures import BLUE, GREEN, GREY, ORANGE
from simulations.reproduce.compression.plan import ARMS
from simulations.reproduce.output import Report, Titled
from simulations.reproduce.plots import MARKERS, quiet, sheet
from simulations.reproduce.text import section, shown

TITLES = {arm.name: arm.title for arm in ARMS}

COLOURS = {"none": "black", "dgc": BLUE, "powersgd": ORANGE, "denoise": GREEN, "slow": GREY}

SMALLEST_ERROR = 1e-4
"""Errors below are drawn here: some are exactly zero, and the axis is logarithmic."""

STAGES = (("after the clip", "clipping"), ("after the noise", "noise"))

NO_FIGURE = 1e-12
"""A part of the error below this share of it is rounding of floats."""

Figures = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]


def tables(figures: Figures) -> str:
    """Return claims, privacy, accuracies and errors as Markdown."""
    plan, parts = figures["plan"], []
    parts.append(
        f"{figures['task']}: {figures['parameters']:,} parameters, {figures['examples']:,} "
        f"examples, {figures['tested']:,} tested; {plan['epochs']} epochs, batch "
        f"{plan['batch']}, learning rate {plan['learning_rate']:g}, clip {plan['clip']:g}, delta "
        f"{plan['delta']:g}, seeds {', '.join(map(str, plan['seeds']))}. Batches are Poisson "
        "samples; an example more or less, against whoever sees every message.\n"
    )
    for title, rows in (
        ("Claims", _claims(figures)),
        ("Privacy", _privacy_rows(figures)),
        ("Accuracy, %, mean of the last epochs (best epoch)", _accuracy_rows(figures)),
        ("Sent by a worker in the whole run", _byte_rows(figures)),
        ("Squared error of the mean gradient: total = bias + variance", _error_rows(figures)),
    ):
        parts.append(section(title, rows))
    return "\n".join(parts)


def _claims(figures: Figures) -> list[list[str]]:
    rows = [["claim", "thesis", "here", "verdict", "from"]]
    for claim in figures["claims"]:
        measured = shown(claim["measured"], ".4g")
        if claim["half_width"] is not None:
            measured += f" ± {claim['half_width']:.2g}"
        row = [claim["claim"], shown(claim["published"], ".4g"), measured]
        rows.append([*row, claim["verdict"], claim["why"]])
    return rows


def _privacy_rows(figures: Figures) -> list[list[str]]:
    rows = [["noise", "epsilon of these runs", "by the thesis's way", "100 epochs", "its way"]]
    for noise, epsilon in figures["epsilon"].items():
        names = ("ours", "published", "ours_100_epochs", "published_100_epochs")
        rows.append([noise, *(_epsilon(epsilon[name]) for name in names)])
    return rows


def _epsilon(value: float | str) -> str:
    return "infinite" if isinstance(value, str) else f"{value:.2f}"


def _accuracy_rows(figures: Figures) -> list[list[str]]:
    return _by_arm(figures, lambda row: f"{100 * row['accuracy']:.1f} ({100 * row['best']:.1f})")


def _byte_rows(figures: Figures) -> list[list[str]]:
    return _by_arm(figures, lambda row: f"{row['bytes'] / 1e6:,.1f} MB")


def _error_rows(figures: Figures) -> list[list[str]]:
    rows = [["noise", "way", "after the clip", "after the noise", "as used"]]
    for row in figures["results"]:
        error = row["error"]
        stages = [_stage(error[name]) for name in ("clipping", "noise", "channel")]
        rows.append([f"{row['noise_multiplier']:g}", _title(row["arm"]), *stages])
    return rows


def _stage(error: Mapping[str, float]) -> str:
    total = error["total"]
    # What is left of a difference of equal sums is no figure.
    floor, names = NO_FIGURE * total, ("bias", "variance")
    bias, variance = (0.0 if abs(error[name]) < floor else error[name] for name in names)
    return f"{total:.4g} = {bias:.3g} + {variance:.4g}"


def _by_arm(figures: Figures, cell: Callable[[Mapping[str, Any]], str]) -> list[list[str]]:
    """One row for every arm, one column for every noise."""
    levels = figures["plan"]["noise"]
    found = {(row["noise_multiplier"], row["arm"]): row for row in figures["results"]}
    names = dict.fromkeys(row["arm"] for row in figures["results"])
    head = ["", *(f"noise {level:g}" for level in levels)]
    return [
        head,
        *(
            [_title(name)]
            + [cell(found[level, name]) if (level, name) in found else "-" for level in levels]
            for name in names
        ),
    ]


def plot_accuracy(figures: Figures) -> Figure:
    """Plot accuracy by epsilon and by bytes, side by side."""
    figure = sheet(14, 6)
    left, right = figure.subplots(1, 2, sharey=True)
    levels = figures["plan"]["noise"]
    names = list(dict.fromkeys(row["arm"] for row in figures["results"]))
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        rows = [row for row in figures["results"] if row["arm"] == name]
        at = [levels.index(row["noise_multiplier"]) + width * place - 0.4 for row in rows]
        heights = [row["accuracy"] for row in rows]
        colour, alpha = _colour(name), 0.45 if name.endswith("forgetful") else 1.0
        left.bar(at, heights, width, align="edge", color=colour, alpha=alpha, edgecolor="white")
        sizes = [row["bytes"] for row in rows]
        marker = MARKERS[place % len(MARKERS)]
        right.plot(sizes, heights, marker + ":", color=colour, alpha=alpha, label=_title(name))
    labels = [f"z = {z:g}\nepsilon {_epsilon(_of(figures, z))}" for z in levels]
    left.set_xticks(range(len(levels)), labels)
    left.set_ylabel("test accuracy, higher is better")
    left.set_title("by privacy; bars in the order of the legend")
    right.set_xscale("log")
    right.set_xlabel("bytes sent by a worker in the whole run")
    right.set_title("by traffic; the lower a point of an arm, the more noise")
    right.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    for axes in (left, right):
        quiet(axes)
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
    return figure


def _of(figures: Figures, noise: float) -> float | str:
    epsilon: float | str = figures["epsilon"][f"{noise:g}"]["ours"]
    return epsilon


def plot_convergence(figures: Figures) -> Figure:
    """Plot test accuracy by epoch, a panel for each noise; the first seed."""
    levels, seed = figures["plan"]["noise"], figures["plan"]["seeds"][0]
    figure = sheet(6 * len(levels), 6)
    panels = np.atleast_1d(figure.subplots(1, len(levels), sharey=True))
    for axes, level in zip(panels, levels, strict=True):
        runs = [r for r in figures["runs"] if (r["noise_multiplier"], r["seed"]) == (level, seed)]
        for place, run in enumerate(runs):
            epochs = [record["epoch"] for record in run["curve"]]
            heights = [record["accuracy"] for record in run["curve"]]
            line = ":" if run["arm"].endswith("forgetful") else "-"
            marker = MARKERS[place % len(MARKERS)]
            colour, label = _colour(run["arm"]), _title(run["arm"])
            axes.plot(epochs, heights, line, marker=marker, ms=4, color=colour, label=label)
        axes.set_title(f"noise multiplier {level:g}")
        axes.set_xlabel("epoch")
        axes.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
        quiet(axes)
    panels[0].set_ylabel("test accuracy")
    # Of the last panel, which has every arm.
    panels[-1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def plot_errors(figures: Figures) -> Figure:
    """Plot the error by stage, bias and variance, and accuracy against the error."""
    figure = sheet(14, 6)
    left, right = figure.subplots(1, 2)
    loudest = max(figures["plan"]["noise"])
    rows = [row for row in figures["results"] if row["noise_multiplier"] == loudest]
    bars: list[tuple[str, Mapping[str, float]]] = []
    if rows:
        bars = [(name, rows[0]["error"][stage]) for name, stage in STAGES]
        bars += [(_title(row["arm"]), row["error"]["channel"]) for row in rows]
    names = [name for name, _ in bars]
    for part, colour in (("bias", ORANGE), ("variance", BLUE)):
        at = np.arange(len(bars)) + (0.0 if part == "bias" else 0.4)
        sizes = [max(error[part], SMALLEST_ERROR) for _, error in bars]
        left.barh(at, sizes, 0.4, color=colour, label=part, align="edge")
    left.set_yticks(np.arange(len(bars)) + 0.4, names, fontsize=8)
    left.invert_yaxis()
    left.set_xscale("log")
    left.set_xlabel(f"squared error of the mean gradient at noise {loudest:g}")
    left.legend()
    for row in figures["results"]:
        error = max(row["error"]["channel"]["total"], SMALLEST_ERROR)
        marker = MARKERS[figures["plan"]["noise"].index(row["noise_multiplier"]) % len(MARKERS)]
        fill = "none" if row["arm"].endswith("forgetful") else _colour(row["arm"])
        right.plot(error, row["accuracy"], marker, color=_colour(row["arm"]), markerfacecolor=fill)
    right.set_xscale("log")
    right.set_xlabel("squared error at the first parameters; marks tell the noise")
    right.set_ylabel("test accuracy")
    right.yaxis.set_major_formatter(PercentFormatter(xmax=1.0))
    for axes in (left, right):
        quiet(axes)
    return figure


def _title(name: str) -> str:
    return TITLES.get(name, name)


def _colour(name: str) -> str:
    return COLOURS[name.split("-")[0]]


def _summary(figures: Figures) -> list[Titled]:
    return [("accuracy, %", _accuracy_rows(figures)), ("claims", _claims(figures))]


REPORT = Report(
    "compression-{task}",
    {
        "tables": ("-tables.md", tables),
        "accuracy": ("-accuracy.png", plot_accuracy),
        "convergence": ("-convergence.png", plot_convergence),
        "error": ("-error.png", plot_errors),
    },
    _summary,
)
