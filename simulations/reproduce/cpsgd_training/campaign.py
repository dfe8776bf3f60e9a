"""cpSGD's Figure 2, on deformed digits: `veilsum reproduce cpsgd-mnist`.

For every k and every epsilon of a step the noise is solved for under the paper's accountant and
under ours, and the network is trained with each; beside them our own mechanism at the bits of the
paper, Gaussian noise by a trusted server, and the baseline without clip, rounding and noise. Every
one has a learning rate of its own.

Source: Agarwal et al. 2018 (arXiv 1805.10559), Section 5.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any, Final

from matplotlib.figure import Figure

from dp.accounting import gaussian_epsilon, gaussian_mu
from simulations.campaigns.campaign import Campaign
from simulations.campaigns.claims import OURS, Claim, gain, half_width
from simulations.campaigns.plots import Style, curve, dress, level, panels
from simulations.campaigns.render import (
    Column,
    Part,
    percent,
    pivot,
    points,
    rates_table,
    spread,
    table,
)
from simulations.campaigns.rows import Figures, Row, first, where
from simulations.campaigns.store import Cell
from simulations.campaigns.study import Study, dataset
from simulations.campaigns.tuning import at_own_rates, climb
from simulations.common.figures import BLUE, GREEN, GREY, ORANGE
from simulations.reproduce.cpsgd import mean_estimation
from simulations.reproduce.cpsgd.mean_estimation import Setting
from simulations.reproduce.cpsgd_training.training import Plan, Training, runs, trained

POINT: Final = 0.01  # of accuracy


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Solve for the noise of every run, choose its rate, and train it at every seed."""
    plan, data = study.plan, dataset(study.plan.data)
    training = Training(plan.course, study.seed)
    solved = study.results(
        Cell(f"noise of k = {k}, epsilon {e:g}", mean_estimation.point, (plan.setting, k, e))
        for e in plan.epsilons
        for k in plan.levels
    )
    chosen = runs(plan, solved)
    known = {run.name: run for run in chosen}
    trial = replace(plan.course, steps=min(plan.steps, plan.trial_steps))

    def cell(name: str, rate: float, seed: int, validating: bool) -> Cell:
        what, course = ("trial", trial) if validating else ("run", plan.course)
        title = f"{name}, {what}, rate {rate:g}, seed {seed}"
        return Cell(title, trained, (course, known[name], rate, seed, validating))

    firsts = {run.name: plan.rate if run.clipped else plan.plain_rate for run in chosen}
    search = partial(climb, most=plan.doublings)
    found = at_own_rates(study, firsts, cell, factor=2.0, search=search)
    return {
        "data": plan.data,
        "parameters": training.task.dimension,
        "examples": len(data.train),
        "tested": len(data.test),
        "participations": training.participations,
        "adjacency": "one client's vector replaced by another, as in the paper",
        "epsilon_of_all_steps": {
            f"{each:g}": all_steps(each, plan.setting.delta, training.participations)
            for each in plan.epsilons
        },
        "runs": [
            {
                "name": run.name,
                **run.figures,
                "rate": found[run.name].rate,
                "tried": found[run.name].tried,
                "accuracies": [result["accuracy"] for result in found[run.name].runs],
                "curve": _mean_curve(found[run.name].runs),
            }
            for run in chosen
        ],
    }


def _mean_curve(results: list[Any]) -> list[dict[str, Any]]:
    """Return the accuracy on the way, the mean over seeds."""
    return [
        {"step": at[0]["step"], "accuracy": fmean(each["accuracy"] for each in at)}
        for at in zip(*(result["curve"] for result in results), strict=True)
    ]


def all_steps(epsilon: float, delta: float, participations: int) -> float:
    """Return Gaussian noise's epsilon after so many steps with the same client, at one delta."""
    return float(gaussian_epsilon(gaussian_mu(epsilon, delta) * participations**0.5, delta))


def claims(figures: Figures) -> Iterator[Claim]:
    """Yield what Figure 2 says, and what our accountant changes."""
    plan, rows = figures["plan"], figures["runs"]
    levels, epsilons = sorted(plan["levels"]), sorted(plan["epsilons"])
    for epsilon in epsilons:
        mine = where(rows, epsilon=epsilon)
        at = f"at epsilon = {epsilon:g}"
        for low, high in itertools.pairwise(levels):
            text = f"accuracy depends on the bits: k = {high} above k = {low}, {at}"
            yield from _above(text, "Figure 2", mine, ("paper", high), ("paper", low))
        best = first(mine, way="paper", levels=levels[-1])
        if best:
            text = f"the baseline without noise and rounding above k = {levels[-1]}, {at}"
            yield _gain(text, "Figure 2", first(rows, way="plain"), best)
        for k in levels:
            text = f"our accountant's coins above the paper's for the same mechanism, k = {k}, {at}"
            yield from _above(text, OURS, mine, ("coupled", k), ("paper", k))
    for k in levels:
        ends = [first(rows, way="paper", levels=k, epsilon=e) for e in (epsilons[-1], epsilons[0])]
        if len(epsilons) > 1 and all(ends):
            text = f"accuracy depends on epsilon: {epsilons[-1]:g} above {epsilons[0]:g}, k = {k}"
            yield _gain(text, "Figure 2", *ends)


def _above(
    text: str, source: str, rows: list[Row], one: tuple[str, Any], other: tuple[str, Any]
) -> Iterator[Claim]:
    pair = [first(rows, way=way, levels=levels) for way, levels in (one, other)]
    if all(pair):
        yield _gain(text, source, *pair)


def _gain(text: str, source: str, one: Row, other: Row) -> Claim:
    """One row is more accurate than another, seed by seed; half a point is within the test set."""
    pair = [row["accuracies"] for row in (one, other)]
    seen = " and ".join(points(fmean(accuracies), None) for accuracies in pair)
    return Claim.more(text, source, gain(*pair), f"{seen} %", negligible=0.1 * POINT)


WAYS = {
    "paper": Style("paper's accountant", ORANGE, "o", "--"),
    "coupled": Style("same mechanism, our accountant", BLUE, "s", "-"),
    "conditional": Style("our mechanism, paper's bits", GREEN, "^", ":"),
}
LEVELS = {
    "plain": Style("baseline: no noise, no rounding", "black"),
    "clipped": Style("clip alone", "black", line=":"),
    "gaussian": Style("Gaussian noise by the server", GREY, line="-."),
}
TITLES = {way: look.label for way, look in (LEVELS | WAYS).items()}


def _levels(row: Row) -> Any:
    return f"(as {row['levels']})" if row["way"] == "conditional" else row["levels"]


def _mean(row: Row) -> float:
    return fmean(row["accuracies"])


def _half(row: Row) -> float | None:
    return half_width(row["accuracies"])


RUNS = (
    Column("epsilon of a step", "epsilon", "g"),
    Column("k", _levels),
    Column("coins by", lambda row: TITLES[row["way"]]),
    Column("m", "coins", ",d"),
    Column("bits", lambda row: "32 (float)" if row["way"] in LEVELS else row["bits"], ".2f"),
    Column("error / D^2", "error", ".4g"),
    Column("rate", "rate", "g"),
    Column("test accuracy, %", lambda row: spread(row["accuracies"], ".2f")),
)


def _parts(figures: Figures) -> Iterator[Part]:
    rows = sorted(figures["runs"], key=lambda row: (row["epsilon"] or 0.0, row["levels"] or 0))
    yield table("Accuracy", RUNS, rows, brief=True)
    curves = [{**row, **point} for row in rows for point in row["curve"]]
    title = "Accuracy by step, mean over seeds, %"
    yield pivot(title, (Column("run", "name"),), "step", percent("", "accuracy"), curves)
    yield rates_table(rows)


def plot(figures: Figures) -> Figure:
    """Plot accuracy against bits, one panel for each epsilon, as Figure 2 has it."""
    epsilons = sorted(figures["plan"]["epsilons"], reverse=True)
    figure, [axes] = panels(1, len(epsilons), 7 * len(epsilons), 6)
    for panel, epsilon in zip(axes, epsilons, strict=True):
        rows = where(figures["runs"], epsilon=epsilon)
        for way, look in WAYS.items():
            curve(panel, where(rows, way=way), "bits", _mean, look, _half)
            for row in where(rows, way=way) if way != "conditional" else ():
                panel.annotate(
                    f"k={row['levels']}, m={row['coins']}",
                    (row["bits"], _mean(row)),
                    (0, -13 if way == "paper" else 7),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                    color=look.colour,
                )
        for row in figures["runs"]:
            if row["way"] in LEVELS and row["epsilon"] in (None, epsilon):
                level(panel, _mean(row), LEVELS[row["way"]])
        title, x = f"epsilon = {epsilon:g} a step", "bits per coordinate and client, log2(k + m)"
        dress(panel, x, "test accuracy, higher is better", title, percents=True)
        panel.margins(x=0.12)
    return figure


CAMPAIGN = Campaign(
    name="cpsgd-mnist",
    title="cpSGD's Figure 2, on deformed digits",
    presets={
        "usual": Plan(),
        # 1,000 clients a step of the embedded digits.
        "quick": Plan(
            data="digits",
            deformed=False,
            setting=Setting(clients=1000, dimension=8192),
            levels=(4,),
            steps=40,
            rate=1.0,
            doublings=1,
            seeds=2,
        ),
    },
    figures=figures_of,
    claims=claims,
    parts=_parts,
    plots={"bits": plot},
)
