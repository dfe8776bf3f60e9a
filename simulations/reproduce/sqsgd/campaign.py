"""sqSGD's Figures 1 to 3 and 5: accuracy by levels, epsilon, baseline: `veilsum reproduce sqsgd`.

Source: sqSGD ("Practical Locally Private Federated Learning with Communication Efficiency"),
Section 4.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from simulations.campaigns.campaign import Campaign
from simulations.campaigns.plots import curve, dress, panels, style
from simulations.campaigns.render import (
    Column,
    Part,
    percent,
    pivot,
    rates_table,
    spread,
    table,
)
from simulations.campaigns.rows import Figures, Row
from simulations.campaigns.store import Cell, plain
from simulations.campaigns.study import Study, dataset
from simulations.campaigns.tuning import at_own_rates, grid
from simulations.reproduce.sqsgd.claims import claims, final_accuracies, mean_accuracies
from simulations.reproduce.sqsgd.plan import PRESETS, Plan, build_model, runs, theory
from simulations.reproduce.sqsgd.training import trained

TITLES = {
    "plain": "no privacy, no clip",
    "sqsgd": "sqSGD",
    "equal-sqsgd": "sqSGD, bits of Figure 3",
    "piecewise": "Piecewise, with sqSGD's residual",
    "piecewise-scaled": "Piecewise, as published",
    "equal-vqsgd": "vqSGD, repeats not paid for",
    "vqsgd-paid": "vqSGD, repeats paid for",
    "sqsgd-narrow": "sqSGD, U/10, best division",
    "traded-sqsgd": "sqSGD, bits of Figure 5",
}

PANELS = {
    1: "Figure 1: levels",
    2: "Figure 2: epsilon",
    3: "Figure 3: baselines at equal bits",
    5: "Figure 5: levels against coordinates, at equal bits",
    0: "not in the paper",
}


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Choose the rate of every way, and train it at every seed."""
    plan, task = study.plan, build_model(study.plan.model)
    data, chosen = dataset(plan.data), runs(study.plan, task.dimension)
    known = {run.name: run.algorithm for run in chosen}

    def cell(name: str, rate: float, seed: int, validating: bool) -> Cell:
        title = f"{name}, {'trial' if validating else 'run'}, rate {rate:g}, seed {seed}"
        return Cell(title, trained, (plan.setting, known[name], name, rate, seed, validating))

    # All of them: near chance a climb would stop at the first one that happens to be worse.
    found = at_own_rates(
        study,
        dict.fromkeys(known, plan.rate),
        cell,
        factor=10.0**0.5,
        search=lambda _: grid(range(plan.steps + 1)),
        trials=plan.tuning_seeds,
    )
    rows = [
        {
            "name": run.name,
            "figures": list(run.figures),
            **run.facts,
            "report_bytes": None if run.algorithm is None else run.algorithm.report_bytes,
            "rate": found[run.name].rate,
            "tried": found[run.name].tried,
            "results": found[run.name].runs,
        }
        for run in chosen
    ]
    return {
        "plan": {**plain(plan), "seeds": list(study.seeds)},
        "data": data.name,
        "model": plan.model,
        "parameters": task.dimension,
        "examples": len(data.train),
        "tested": len(data.test),
        "rounds_of_epoch": plan.setting.rounds_of_epoch(len(data.train)),
        "adjacency": "any input of one client replaced by any other, one report",
        "theory": theory(plan, task.dimension),
        "runs": rows,
    }


def _final(row: Row) -> str:
    gone = sum(result["diverged"] for result in row["results"])
    return spread(final_accuracies(row)) + (f" ({gone} diverged)" if gone else "")


RUNS = (
    Column("figure", "figures"),
    Column("way", lambda row: TITLES[row["way"]]),
    Column("K", "levels"),
    Column("epsilon", "epsilon", "g"),
    Column("epsilon of a report", "epsilon_report", ",.1f"),
    Column("sent of a client", "kept", ",d"),
    Column("bits", "bits", ",d"),
    Column("error of a report", "error", ".4g"),
    Column("rate", "rate", "g"),
    Column("accuracy, %", _final),
    Column("mean over epochs, %", lambda row: spread(mean_accuracies(row))),
)

SETTINGS = (
    Column("sent", "kept", ","),
    Column("epsilon", "epsilon", "g"),
    Column("K", "levels"),
    Column("kappa", "printed.kappa"),
    Column("in 0 .. d - 1", lambda row: "yes" if row["kappa_in_printed_range"] else "**no**"),
    Column("m", "printed.factor", ".4f"),
    Column("variance / U^2", "printed.variance", ".4g"),
    Column("best share of kappa", "best.share", ".3f"),
    Column("m", "best.factor", ".4f"),
    Column("variance / U^2", "best.variance", ".4g"),
)


def _parts(figures: Figures) -> Iterator[Part]:
    rows = figures["runs"]
    yield table("Runs", RUNS, rows, brief=True)
    curves = [{**row, **point} for row in rows for point in _curve(row)]
    title = "Accuracy by epoch, mean over seeds, %"
    yield pivot(title, (Column("run", "name"),), "epoch", percent("", "mean"), curves)
    yield rates_table(rows)
    yield table("What the settings mean", SETTINGS, figures["theory"])


def _curve(row: Row) -> list[dict[str, Any]]:
    """Return mean accuracy over seeds after each epoch."""
    curves = [[point["accuracy"] for point in result["curve"]] for result in row["results"]]
    by_epoch = enumerate(zip(*curves, strict=True), 1)
    return [{"epoch": epoch, "mean": fmean(each)} for epoch, each in by_epoch]


def plot(figures: Figures) -> Figure:
    """Plot accuracy by learning rate, of the runs that choose it: a panel for each figure."""
    figure, axes = panels(2, 3, 20, 10)
    unprotected, *others = figures["runs"]
    for panel, (number, title) in zip(chain(*axes), PANELS.items(), strict=False):
        drawn = [each for each in others if number in (each["figures"] or [0])]
        for place, row in enumerate([unprotected, *drawn]):
            levels = "" if row["levels"] is None else f", K = {row['levels']}"
            epsilon = "" if row["epsilon"] is None else f", epsilon = {row['epsilon']:g}"
            look = style(place - 1, f"{TITLES[row['way']]}{levels}{epsilon}")
            found = [{"rate": rate, "accuracy": accuracy} for rate, accuracy in row["tried"]]
            curve(panel, found, "rate", "accuracy", look)
        dress(panel, "learning rate", "accuracy of a trial", title, log="x", percents=True)
    axes[1][2].set_axis_off()
    return figure


CAMPAIGN = Campaign(
    name="sqsgd",
    title="sqSGD: accuracy by levels, epsilon and baseline",
    presets=PRESETS,
    figures=figures_of,
    claims=claims,
    parts=_parts,
    plots={"accuracy": plot},
    stem="sqsgd-{data}",
    check=Plan.check,
)
