"""Compression under example-level privacy: `veilsum reproduce compression`.

Source: "On the Interaction between Differential Privacy and Gradient Compression in Deep Learning",
a thesis, chapters 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from simulations.campaigns.campaign import Campaign
from simulations.campaigns.plots import MARKERS, Legend, Style, curve, curves, dress, panels
from simulations.campaigns.render import Column, Part, pivot, table
from simulations.campaigns.rows import Figures, Row, distinct, where
from simulations.campaigns.store import Cell, plain
from simulations.campaigns.study import Study
from simulations.common.figures import AMBER, BLUE, GREEN, GREY, ORANGE, PINK
from simulations.learning.example_level.breakdown import noise_error, share_kept
from simulations.learning.example_level.training import Setting
from simulations.reproduce.compression.claims import claims
from simulations.reproduce.compression.plan import PRESETS, Arm, Plan, load
from simulations.reproduce.compression.training import epsilons, gradient_error, trained

TITLES = {arm.name: arm.title for plan in PRESETS.values() for arm in plan.arms}

COLOURS = {
    "none": "black",
    "dgc": BLUE,
    "powersgd": ORANGE,
    "denoise": GREEN,
    "slow": GREY,
    "printed": PINK,
    "printed_slow": AMBER,
    "printed_average": GREY,
    "least": BLUE,
    "shared": PINK,
    "shared_slow": GREY,
}

# Errors below are drawn here: some are exactly zero, and the axis is logarithmic
SMALLEST_ERROR = 1e-4

NO_FIGURE = 1e-12  # a part of the error below this share of it is rounding of floats


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Train all arms at every noise and seed, and measure gradient errors at the first seed."""
    plan, seed = study.plan, study.seed
    task, data = load(plan.task)
    at = [
        (noise, arm, f"{plan.task} {noise:g} {arm.name}", plan.setting(noise, arm, task.dimension))
        for noise, arm in plan.points()
    ]

    def training(point: tuple[float, Arm, str, Setting], seed: int) -> Cell:
        _, arm, name, setting = point
        return Cell(f"{name} {seed}", trained, (plan.task, setting, arm, plan.averaged, seed))

    by_point = study.by_arm(at, training)
    errors = study.results(
        Cell(f"error {name}", gradient_error, (plan.task, setting, arm, plan.repeats, seed))
        for _, arm, name, setting in at
    )
    costs = study.results(
        Cell(
            f"epsilon {plan.task} {noise:g}",
            epsilons,
            (plan.setting(noise, Arm("none"), task.dimension), len(data.train), plan.delta),
        )
        for noise in plan.noise
    )
    return {
        "task": plan.task,
        "plan": {**plain(plan), "seeds": list(study.seeds)},
        "parameters": task.dimension,
        "examples": len(data.train),
        "tested": len(data.test),
        "adjacency": "one example more or less; against whoever sees every message",
        "sampling": "Poisson",
        "epsilon": {f"{z:g}": each for z, each in zip(plan.noise, costs, strict=True)},
        "runs": [run for of_seed in zip(*by_point, strict=True) for run in of_seed],
        "results": [
            _result(noise, arm, runs, error | _predicted(plan, noise, arm, task.dimension))
            for (noise, arm, *_), runs, error in zip(at, by_point, errors, strict=True)
        ],
    }


def _predicted(plan: Plan, noise: float, arm: Arm, dimension: int) -> dict[str, float]:
    """Return closed forms: what noise adds, and what of it top-k keeps."""
    added = noise_error(dimension, plan.clip, noise, plan.batch)
    kept = {"predicted_kept": added * share_kept(arm.value)} if arm.kind == "dgc" else {}
    return {"predicted_noise": added, **kept}


def _result(noise: float, arm: Arm, runs: Sequence[Row], error: Row) -> dict[str, Any]:
    """Return what the runs of an arm come to over all seeds, and its gradient error."""
    return {
        "noise_multiplier": noise,
        "arm": arm.name,
        "accuracy": float(np.mean([run["accuracy"] for run in runs])),
        "best": float(np.mean([run["best"] for run in runs])),
        "accuracies": [run["accuracy"] for run in runs],
        "bytes": float(np.mean([run["bytes"] for run in runs])),
        "error": error,
    }


PRIVACY = (
    Column("noise", "noise"),
    Column("epsilon of these runs", "ours", ".2f"),
    Column("by the thesis's way", "published", ".2f"),
    Column("100 epochs", "ours_100_epochs", ".2f"),
    Column("its way", "published_100_epochs", ".2f"),
)

WAY = Column("way", lambda row: TITLES[row["arm"]])

ACCURACY = Column("", lambda row: f"{100 * row['accuracy']:.1f} ({100 * row['best']:.1f})")
SENT = Column("", lambda row: f"{row['bytes'] / 1e6:,.1f} MB")

ERRORS = (
    Column("noise", "noise_multiplier", "g"),
    WAY,
    Column("after the clip", lambda row: _stage(row["error"]["clipping"])),
    Column("after the noise", lambda row: _stage(row["error"]["noise"])),
    Column("as used", lambda row: _stage(row["error"]["channel"])),
)


def _stage(error: Row) -> str:
    total = error["total"]
    # What is left of a difference of equal sums is no figure.
    floor, names = NO_FIGURE * total, ("bias", "variance")
    bias, variance = (0.0 if abs(error[name]) < floor else error[name] for name in names)
    return f"{total:.4g} = {bias:.3g} + {variance:.4g}"


def _with_errors(rows: Sequence[Row]) -> list[Row]:
    """Return the arms whose noise is on the sum: only there the error has stages."""
    return [row for row in rows if "channel" in row["error"]]


def _parts(figures: Figures) -> Iterator[Part]:
    costs = [{"noise": noise, **each} for noise, each in figures["epsilon"].items()]
    yield table("Privacy", PRIVACY, costs)
    rows, across, head = figures["results"], "noise_multiplier", "noise {:g}".format
    title = "Accuracy, %, mean of the last epochs (best epoch)"
    yield pivot(title, (WAY,), across, ACCURACY, rows, head=head, brief=True)
    yield pivot("Sent by a worker in the whole run", (WAY,), across, SENT, rows, head=head)
    title = "Squared error of the mean gradient: total = bias + variance"
    yield table(title, ERRORS, _with_errors(rows))


def _style(name: str, place: int, line: str = "-") -> Style:
    """Return the look of an arm; those that forget are hollow."""
    colour, marker = COLOURS[name.split("-")[0]], MARKERS[place % len(MARKERS)]
    return Style(TITLES[name], colour, marker, line, hollow=name.endswith("forgetful"))


def plot_accuracy(figures: Figures) -> Figure:
    """Plot accuracy by noise and by bytes, side by side."""
    figure, [[left, right]] = panels(1, 2, 14, 6)
    # Noise on each gradient has another epsilon than the axis says.
    rows = _with_errors(figures["results"])
    names = list(enumerate(distinct(rows, "arm")))
    by_noise = {name: _style(name, place) for place, name in names}
    by_bytes = {name: _style(name, place, ":") for place, name in names}
    curves(left, rows, "arm", by_noise, "noise_multiplier", "accuracy")
    curves(right, rows, "arm", by_bytes, "bytes", "accuracy")
    levels = figures["plan"]["noise"]
    costs = [PRIVACY[1].cell(figures["epsilon"][f"{z:g}"]) for z in levels]
    dress(left, "noise", "test accuracy", "by privacy", percents=True, legend=None)
    labels = [f"z = {z:g}\nepsilon {cost}" for z, cost in zip(levels, costs, strict=True)]
    left.set_xticks(levels, labels)
    title = "by traffic; the lower a point of an arm, the more noise"
    bytes_sent = "bytes sent by a worker in the whole run"
    dress(right, bytes_sent, "", title, log="x", percents=True, legend="right")
    return figure


def plot_convergence(figures: Figures) -> Figure:
    """Plot test accuracy by epoch, a panel for each noise; the first seed."""
    levels, seed = figures["plan"]["noise"], figures["plan"]["seeds"][0]
    figure, [axes] = panels(1, len(levels), 6 * len(levels), 6)
    for place, (panel, noise) in enumerate(zip(axes, levels, strict=True)):
        for number, run in enumerate(where(figures["runs"], noise_multiplier=noise, seed=seed)):
            curve(panel, run["curve"], "epoch", "accuracy", _style(run["arm"], number))
        # The last panel has every arm.
        legend: Legend = "right" if place + 1 == len(levels) else None
        title = f"noise multiplier {noise:g}"
        dress(panel, "epoch", "test accuracy", title, percents=True, legend=legend)
    return figure


def plot_errors(figures: Figures) -> Figure:
    """Plot the error by stage, bias and variance, and accuracy against the error."""
    figure, [[left, right]] = panels(1, 2, 14, 6)
    loudest = max(figures["plan"]["noise"])
    rows = where(figures["results"], noise_multiplier=loudest)
    stages = (("after the clip", "clipping"), ("after the noise", "noise"))
    bars = [(name, rows[0]["error"][stage]) for name, stage in stages]
    bars += [(TITLES[row["arm"]], row["error"]["channel"]) for row in _with_errors(rows)]
    for place, (part, colour) in enumerate((("bias", ORANGE), ("variance", BLUE))):
        sizes = [max(error[part], SMALLEST_ERROR) for _, error in bars]
        at = np.arange(len(bars)) + 0.4 * place
        left.barh(at, sizes, 0.4, color=colour, label=part, align="edge")
    left.set_yticks(np.arange(len(bars)) + 0.4, [name for name, _ in bars], fontsize=8)
    left.invert_yaxis()
    dress(left, f"squared error of the mean gradient at noise {loudest:g}", log="x")
    for row in _with_errors(figures["results"]):
        point = {**row, "total": max(row["error"]["channel"]["total"], SMALLEST_ERROR)}
        place = figures["plan"]["noise"].index(row["noise_multiplier"])
        curve(right, [point], "total", "accuracy", _style(row["arm"], place))
    x = "squared error at the first parameters; marks tell the noise"
    dress(right, x, "test accuracy", log="x", percents=True, legend=None)
    return figure


CAMPAIGN = Campaign(
    name="compression",
    title="Gradient compression under example-level privacy",
    presets=PRESETS,
    figures=figures_of,
    claims=claims,
    parts=_parts,
    plots={"accuracy": plot_accuracy, "convergence": plot_convergence, "error": plot_errors},
    stem="compression-{task}",
)
