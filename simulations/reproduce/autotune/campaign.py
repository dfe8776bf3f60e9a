"""Compression against accuracy in federated learning: `veilsum reproduce autotune`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from simulations.common.figures import BLUE, GREEN, GREY, ORANGE
from simulations.learning.configuration import RunConfig
from simulations.reproduce.autotune.plan import (
    EMBEDDED,
    SHAKESPEARE,
    WRITERS,
    Arm,
    Plan,
    base_of,
    point_config,
    run,
)
from simulations.reproduce.engine.campaign import Campaign
from simulations.reproduce.engine.claims import half_width
from simulations.reproduce.engine.federated import data_of
from simulations.reproduce.engine.plots import Style, curve, dress, panels
from simulations.reproduce.engine.render import Column, Figures, Part, Row, pivot, points
from simulations.reproduce.engine.store import Cell
from simulations.reproduce.engine.study import Study

SLACK = 0.01
"""Accuracy that the Genie may lose against no compression at the same noise."""

STYLES = {
    "genie": (GREY, "o", "-"),
    "adapt_norm": (BLUE, "s", "--"),
    "adapt_budget": (GREEN, "^", ""),
}


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Run every arm at every noise and seed; all are checked before the first is run."""
    plan, base = study.plan, base_of(study.plan)
    data_of(base)
    at = [(z, arm, seed) for seed in study.seeds for z in plan.noise for arm in plan.arms()]
    cells = []
    for noise, arm, seed in at:
        name = f"{noise:g}-{arm.name}-{seed}".replace(" ", "-")
        cells.append(Cell(name, run, (name, point_config(plan, base, noise, arm, seed))))
    found: dict[tuple[float, str], list[Row]] = {}
    for (noise, arm, _), result in zip(at, study.results(cells), strict=True):
        found.setdefault((noise, arm.name), []).append(result)
    return summarise(base, plan, {**found}) | {"seeds": list(study.seeds)}


def cell_of(runs: Sequence[Row]) -> dict[str, Any]:
    """Return means and half-widths of the runs of one arm; rates are harmonic means."""
    accuracies = [run["accuracy"] for run in runs]
    return {
        "accuracy": float(np.mean(accuracies)),
        "accuracy_half_width": half_width(accuracies),
        "rate": harmonic([run["rate"] for run in runs]),
        "late_rate": harmonic([run["late_rate"] for run in runs]),
        "accuracies": accuracies,
        "rates": [run["rate"] for run in runs],
        "seconds": sum(run["seconds"] for run in runs),
    }


def harmonic(rates: Sequence[float]) -> float:
    """The rate over several runs of equal length."""
    return len(rates) / sum(1.0 / rate for rate in rates)


def summarise(
    base: RunConfig, plan: Plan, runs: Mapping[tuple[float, str], Sequence[Row]]
) -> dict[str, Any]:
    """Every arm at every noise, the Genie's choice, and the law that rates follow gamma."""
    arms, rows = plan.arms(), []
    for noise in plan.noise:
        at_noise = {arm.name: cell_of(runs[noise, arm.name]) for arm in arms}
        free = at_noise["genie 1"]["accuracy"] - SLACK
        genies = [arm for arm in arms if arm.family == "genie"]
        best = [arm for arm in genies if at_noise[arm.name]["accuracy"] >= free][-1]
        slope = _slope([arm for arm in arms if arm.family == "adapt_norm"], at_noise)
        row = {"noise_multiplier": noise, "arms": at_noise, "genie": best.value}
        rows.append({**row, "gamma_slope": slope})
    return {
        "task": base.task.model_dump(exclude_none=True),
        "rounds": plan.rounds or base.rounds,
        "cohort": base.cohort.size,
        "rows_of_sketch": base.sketch.rows,
        "aggregator": base.engine.aggregator,
        "slack": SLACK,
        "results": rows,
    }


def _slope(arms: Sequence[Arm], found: Mapping[str, Row]) -> float | None:
    """Of log rate against log gamma: 1 if the rate is proportional to gamma."""
    rates = [(arm.value or 0.0, found[arm.name]["late_rate"]) for arm in arms]
    # An uncompressed run says nothing about the law.
    used = [(math.log(gamma), math.log(rate)) for gamma, rate in rates if rate > 1.0]
    if len(used) < 2:
        return None
    xs, ys = zip(*used, strict=True)
    return float(np.polyfit(xs, ys, 1)[0])


def _parts(figures: Figures) -> Iterator[Part]:
    rows: list[dict[str, Any]] = []
    for result in figures["results"]:
        noise = {"noise": result["noise_multiplier"]}
        rows += [{**noise, "way": name, "shown": _shown(a)} for name, a in result["arms"].items()]
        rows.append({**noise, "way": "best fixed rate", "shown": f"{result['genie']:g}"})
        slope = Column("", "gamma_slope", ".2f").cell(result)
        rows.append({**noise, "way": "d log rate / d log gamma", "shown": slope})
    title = "Accuracy in % / compression rate (of the second half)"
    labels, cell = (Column("", "way"),), Column("", "shown")
    yield pivot(title, labels, "noise", cell, rows, head="z = {:g}".format, brief=True)


def _shown(arm: Row) -> str:
    accuracy = points(arm["accuracy"], arm["accuracy_half_width"], ".2f")
    return f"{accuracy} / {arm['rate']:.1f} ({arm['late_rate']:.1f})"


def plot(figures: Figures) -> Figure:
    """Plot accuracy against rate, a panel for each noise multiplier."""
    results = figures["results"]
    figure, [axes] = panels(1, len(results), 4.8 * len(results), 4.2)
    for panel, row in zip(axes, results, strict=True):
        families: dict[str, list[Row]] = {}
        for name, arm in row["arms"].items():
            families.setdefault(name.split(" ")[0], []).append(arm)
        for family, arms in families.items():
            look = Style(family, *STYLES.get(family, (ORANGE, "D", "")))
            curve(panel, arms, "rate", "accuracy", look, "accuracy_half_width")
        title = f"noise multiplier {row['noise_multiplier']:g}"
        dress(panel, "compression rate", "test accuracy", title, log="x", percents=True)
    return figure


def check(plan: Plan) -> None:
    """Refuse a plan without a task.

    Raises:
        ConfigurationError: no file is named, or it is none.
    """
    base_of(plan)


CAMPAIGN = Campaign(
    name="autotune",
    title="Autotuned sketches beside fixed rates",
    presets={
        "usual": Plan(),
        "writers": WRITERS,
        "shakespeare": SHAKESPEARE,
        "quick": Plan(config=EMBEDDED, noise=(0.5,), rates=(8.0,), gammas=(0.1, 0.05)),
    },
    figures=figures_of,
    parts=_parts,
    plots={"rates": plot},
    check=check,
)
