"""Noise that comes back, in training: `veilsum reproduce correlated`.

For every setting learning rates are sought on a part of the training data with seeds of their own,
and the best is evaluated on the test data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from operator import itemgetter
from statistics import fmean
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulations.campaigns.campaign import Campaign
from simulations.campaigns.claims import half_width
from simulations.campaigns.plots import Legend, dress, panels
from simulations.campaigns.render import Column, Part, percent, pivot, table, with_lost
from simulations.campaigns.rows import Figures, Row, distinct, first, where
from simulations.campaigns.store import Cell
from simulations.campaigns.study import Study
from simulations.campaigns.tuning import Outcome, by_steps, climb
from simulations.common.figures import BLUE, GREEN, GREY, ORANGE
from simulations.studies.correlated.findings import claims, comparisons, planned
from simulations.studies.correlated.plan import ARMS, PRESETS, SCHEDULES, TASKS, Plan, Setting
from simulations.studies.correlated.training import run


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Seek the rate of every setting, evaluate it, and compare."""
    plan = study.plan
    starts = {setting: plan.first_power(setting) for setting in plan.settings()}
    for setting, power in starts.items():
        plan.config(setting, power, study.seed).check()

    def cell(of: Setting, power: int, seed: int, trial: bool) -> Cell:
        """Return a run; a trial is of the arm that is tuned for it, on a part of the data."""
        of = replace(of, arm=of.of.tuned_as) if trial else of
        more = (plan.validation,) if trial else ()
        return Cell(f"{of.title} {power} {seed}", run, (plan.config(of, power, seed), *more))

    found: dict[Setting, Outcome[int]] = {}
    # Averages second: they look at runs that are already there.
    for score in ("accuracy", "averaged"):
        found |= by_steps(
            study,
            {each: start for each, start in starts.items() if each.score == score},
            cell,
            partial(climb, most=plan.climb),
            trials=plan.tuning_seeds,
            score=itemgetter(score),
        )
    rows = [_row(study, setting, found[setting]) for setting in starts]
    tasks = {
        name: {
            "title": TASKS[name].title,
            "rounds": TASKS[name].rounds,
            "cohort": TASKS[name].cohort,
            "population": TASKS[name].table["population"],
            "clip": TASKS[name].clip,
        }
        for name in plan.tasks
    }
    return {"tasks": tasks, "rows": rows, "comparisons": comparisons(rows)}


def _row(study: Study[Plan], setting: Setting, outcome: Outcome[int]) -> dict[str, Any]:
    plan = study.plan
    config, one = plan.config(setting, outcome.chosen, study.seed), outcome.runs[0]
    accuracies = [result[setting.score] for result in outcome.runs]
    noises = [result["noise"] for result in outcome.runs if result.get("noise")]
    return {
        **asdict(setting),
        "rate": 2.0**outcome.chosen,
        "clip": config.privacy.clip_l2,
        "cohort": config.cohort.size,
        "accuracy": fmean(accuracies),
        "half_width": half_width(accuracies),
        "accuracies": accuracies,
        "diverged": sum(result["diverged"] for result in outcome.runs),
        "parameters": one.get("parameters"),
        "bits": one.get("bits"),
        "epsilons": one.get("epsilons"),
        "noise": np.sqrt(np.mean(np.square(noises), axis=0)).tolist() if noises else None,
        "planned": planned(config) if setting.of.private else None,
        "tried": [[2.0**power, outcome.tried[power]] for power in sorted(outcome.tried)],
        "at_edge": abs(outcome.chosen - plan.first_power(setting)) == plan.climb,
    }


def _spent(row: Row) -> Any:
    """Return epsilon against the server if nobody is trusted, else against outsiders."""
    if not ARMS[row["arm"]].private or row["epsilons"] is None:
        return None
    server = row["epsilons"]["server"]
    return row["epsilons"]["outsider"] if server == "inf" else server


def _measured(row: Row) -> float | None:
    """Return the noise in all models over that of the plan, in standard deviations."""
    if not row["noise"]:
        return None
    squares = [np.sum(np.square(each)) for each in (row["noise"], row["planned"]["noise"])]
    return float(np.sqrt(squares[0] / squares[1]))


TASK: Final = Column("task", "task")
ARM: Final = Column("noise", lambda row: ARMS[row["arm"]].title)
EPSILON: Final = Column("epsilon", "epsilon", "g")
SERVER: Final = Column("server", lambda row: SCHEDULES[row["schedule"]].title)
CHOSEN: Final = (
    TASK,
    ARM,
    Column("goal", "epsilon", "g"),
    SERVER,
    Column("rate", "rate", "g"),
    Column("at an edge of the search", "at_edge"),
    Column("accuracy, %", with_lost),
    Column("epsilon", _spent, ".3g"),
    Column("if members collude", "epsilons.without_members", ".3g"),
    Column("if all other clients do", "epsilons.sybil", ".3g"),
    Column("bits", "bits", "g"),
)
NOISE: Final = (
    TASK,
    ARM,
    EPSILON,
    Column("returned share", "planned.share", ".3f"),
    Column("planned: smaller than independent by", "planned.gain", ".2f"),
    Column("measured over planned", _measured, ".3f"),
)
COMPARED: Final = (
    TASK,
    EPSILON,
    SERVER,
    percent("points", "mean", "half_width", "+.1f"),
    Column("verdict", "verdict"),
)


def _parts(figures: Figures) -> Iterator[Part]:
    rows, compared = figures["rows"], figures["comparisons"]
    for task in figures["tasks"]:
        yield pivot(
            f"Accuracy, {TASKS[task].title}, %",
            (ARM, EPSILON),
            "schedule",
            Column("", with_lost),
            where(rows, task=task),
            head=lambda name: SCHEDULES[name].title,
            brief=True,
        )
    for said in distinct(compared, "statement"):
        title = said[0].upper() + said[1:]
        yield table(title, COMPARED, where(compared, statement=said), brief=True)
    plain = [row for row in where(rows, schedule="constant") if ARMS[row["arm"]].private]
    yield table("Noise in the model, constant rate", NOISE, plain)
    yield table("What was chosen by trial, and epsilon at the end", CHOSEN, rows)


# Colour by noise; open marks stand for a trusted server
STYLES: Final = {
    "independent": (ORANGE, "o", False),
    "trusted-independent": (ORANGE, "o", True),
    "returned": (BLUE, "s", False),
    "trusted-returned": (BLUE, "s", True),
    "banded": (GREEN, "^", True),
    "plain": (GREY, "D", False),
}


def marks(arm: str) -> dict[str, Any]:
    """Return how the points of an arm look."""
    colour, marker, hollow = STYLES[arm]
    face = "none" if hollow else colour
    return {"color": colour, "marker": marker, "markerfacecolor": face, "linestyle": "none"}


def accuracy(figures: Figures) -> Figure:
    """Draw a panel for each task and epsilon: a group of points for each schedule."""
    plan, rows = figures["plan"], figures["rows"]
    tasks, epsilons, arms = plan["tasks"], plan["epsilons"], plan["arms"]
    size = (6.0 * len(epsilons) + 2.5, 4.0 * len(tasks))
    figure, axes = panels(len(tasks), len(epsilons), *size)
    for line, task in enumerate(tasks):
        for column, epsilon in enumerate(epsilons):
            panel = axes[line][column]
            for place, arm in enumerate(arms):
                at = {"task": task, "arm": arm, "epsilon": epsilon if ARMS[arm].private else None}
                found = [first(rows, **at, schedule=schedule) for schedule in plan["schedules"]]
                shift = 0.11 * (place - (len(arms) - 1) / 2)
                panel.errorbar(
                    [x + shift for x, row in enumerate(found) if row],
                    [row["accuracy"] for row in found if row],
                    yerr=[row["half_width"] or 0.0 for row in found if row],
                    capsize=2.0,
                    label=ARMS[arm].title,
                    **marks(arm),
                )
            title = f"{TASKS[task].title}, epsilon = {epsilon:g}"
            legend: Legend = "right" if (line, column) == (0, len(epsilons) - 1) else None
            dress(panel, "", "test accuracy", title, percents=True, legend=legend)
            low, high = panel.get_ylim()
            panel.set_ylim(max(low, 0.0), min(high, 1.0))
            titles = [SCHEDULES[name].title for name in plan["schedules"]]
            panel.set_xticks(range(len(titles)), titles)
    return figure


def noise(figures: Figures) -> Figure:
    """Draw a panel for each task: noise in the model, measured as points, planned as lines."""
    plan = figures["plan"]
    schedules = [name for name in plan["schedules"] if not SCHEDULES[name].averaged]
    size = (6.0 * len(schedules) + 2.5, 4.0 * len(plan["tasks"]))
    figure, axes = panels(len(plan["tasks"]), len(schedules), *size)
    for line, task in enumerate(plan["tasks"]):
        for column, schedule in enumerate(schedules):
            panel, at = axes[line][column], {"task": task, "schedule": schedule}
            for row in where(figures["rows"], **at, epsilon=plan["epsilons"][0]):
                _curves(panel, row)
            title = f"{TASKS[task].title}, {SCHEDULES[schedule].title}"
            dress(panel, "round", "noise in the model, first rate = 1", title, legend=None)
            panel.set_ylim(bottom=0.0)
    # One legend for all panels: not every arm is in every one of them.
    named = [each.get_legend_handles_labels() for each in figure.axes]
    handles = {label: handle for pair in named for handle, label in zip(*pair, strict=True)}
    beside = figure.axes[len(schedules) - 1]
    beside.legend(
        handles.values(), handles, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5)
    )
    return figure


def _curves(axes: Axes, row: Row) -> None:
    """Draw one arm's noise for a first rate of 1, in clips of one client over the cohort."""
    unit = row["rate"] * row["clip"] / row["cohort"]
    measured, expected = np.array(row["noise"]) / unit, np.array(row["planned"]["noise"]) / unit
    rounds = np.arange(1, len(measured) + 1)
    shown = slice(0, None, max(1, len(measured) // 15))
    look = marks(row["arm"])
    axes.plot(rounds, expected, color=look["color"], linewidth=1.0)
    axes.plot(rounds[shown], measured[shown], label=f"{ARMS[row['arm']].title}, measured", **look)


CAMPAIGN: Final = Campaign(
    name="correlated",
    title="Noise that comes back, in training",
    presets=PRESETS,
    figures=figures_of,
    claims=claims,
    parts=_parts,
    plots={"accuracy": accuracy, "noise": noise},
    check=Plan.check,
)
