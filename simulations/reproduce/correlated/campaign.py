"""Noise that comes back, in training: `veilsum reproduce correlated`.

For every setting learning rates are sought on a part of the training data with seeds of their own,
and the best is evaluated on the test data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Any, Final

import numpy as np

from simulations.reproduce.correlated.findings import claims, comparisons, planned
from simulations.reproduce.correlated.plan import (
    ARMS,
    PRESETS,
    SCHEDULES,
    TASKS,
    Plan,
    Setting,
    check,
)
from simulations.reproduce.correlated.plot import accuracy as accuracy_plot
from simulations.reproduce.correlated.plot import noise as noise_plot
from simulations.reproduce.correlated.training import run
from simulations.reproduce.engine.campaign import Campaign
from simulations.reproduce.engine.claims import half_width
from simulations.reproduce.engine.render import (
    Column,
    Figures,
    Grid,
    Part,
    Row,
    percent,
    pivot,
    points,
    table,
)
from simulations.reproduce.engine.seeds import tried
from simulations.reproduce.engine.store import Cell
from simulations.reproduce.engine.study import Study
from simulations.reproduce.engine.tuning import Outcome, Way, climb, tune_then_evaluate


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Seek the rate of every setting, evaluate it, and compare."""
    plan = study.plan
    settings = list(plan.settings())
    for setting in settings:
        plan.config(setting, plan.first_power(setting), study.seed).check()
    found: dict[Setting, Outcome[int]] = {}
    for averaged in (False, True):
        # Averages second: they look at runs that are already there.
        now = [s for s in settings if SCHEDULES[s.schedule].averaged is averaged]
        ways = [_way(study, setting) for setting in now]
        outcomes = tune_then_evaluate(study, ways, partial(_scored, _score(averaged)))
        found |= dict(zip(now, outcomes, strict=True))
    rows = [_row(study, setting, found[setting]) for setting in settings]
    compared = comparisons(rows)
    return {
        "tasks": {name: _task(name) for name in plan.tasks},
        "rows": rows,
        "comparisons": compared,
        "claims": claims(compared),
    }


def _scored(name: str, result: Row) -> float:
    """Return how good a trial is."""
    return float(result[name])


def _score(averaged: bool) -> str:
    return "averaged" if averaged else "accuracy"


def _task(name: str) -> dict[str, Any]:
    task = TASKS[name]
    return {
        "title": task.title,
        "rounds": task.rounds,
        "cohort": task.cohort,
        "population": task.table["population"],
        "clip": task.clip,
    }


def _way(study: Study[Plan], setting: Setting) -> Way[int]:
    plan = study.plan
    tuned = Setting(setting.task, setting.of.tuned_as, setting.epsilon, setting.schedule)

    def trials(power: int) -> list[Cell]:
        """Return runs on a part of the training data; those of the arm that is tuned for it."""
        return [
            Cell(f"{tuned.title} {power} {seed}", run, (given, plan.validation))
            for seed in tried(study.seed, plan.tuning_seeds)
            for given in [plan.config(tuned, power, seed)]
        ]

    def runs(power: int) -> list[Cell]:
        """Return the runs that count."""
        return [
            Cell(f"{setting.title} {power} {seed}", run, (plan.config(setting, power, seed),))
            for seed in study.seeds
        ]

    return Way(
        climb(plan.first_power(setting), plan.climb),
        trials,
        runs,
        # Ties go to the smaller rate, so that the order of trials decides nothing.
        lambda means: max(sorted(means), key=lambda power: means[power]),
    )


def _row(study: Study[Plan], setting: Setting, outcome: Outcome[int]) -> dict[str, Any]:
    """Return what a setting comes to."""
    plan, schedule = study.plan, SCHEDULES[setting.schedule]
    config, first = plan.config(setting, outcome.chosen, study.seed), outcome.runs[0]
    accuracies = [result[_score(schedule.averaged)] for result in outcome.runs]
    noises = [result["noise"] for result in outcome.runs if result.get("noise")]
    return {
        "task": setting.task,
        "arm": setting.arm,
        "epsilon": setting.epsilon,
        "schedule": setting.schedule,
        "rate": 2.0**outcome.chosen,
        "clip": config.privacy.clip_l2,
        "cohort": config.cohort.size,
        "accuracy": fmean(accuracies),
        "half_width": half_width(accuracies),
        "accuracies": accuracies,
        "diverged": sum(result["diverged"] for result in outcome.runs),
        "parameters": first.get("parameters"),
        "bits": first.get("bits"),
        "epsilons": first.get("epsilons"),
        "noise": np.sqrt(np.mean(np.square(noises), axis=0)).tolist() if noises else None,
        "planned": planned(config) if setting.of.private else None,
        "tried": [[2.0**power, outcome.tried[power]] for power in sorted(outcome.tried)],
        "at_edge": abs(outcome.chosen - plan.first_power(setting)) == plan.climb,
    }


def _accuracy(row: Row) -> str:
    lost = f", {row['diverged']} lost" if row["diverged"] else ""
    return points(row["accuracy"], row["half_width"]) + lost


def _spent(row: Row) -> float | None:
    """Return epsilon against the server if nobody is trusted, else against outsiders."""
    if not ARMS[row["arm"]].private or row["epsilons"] is None:
        return None
    server = row["epsilons"]["server"]
    spent: float = row["epsilons"]["outsider"] if server == "inf" else server
    return spent


def _measured(row: Row) -> float | None:
    """Return the noise in all models over that of the plan, in standard deviations."""
    if not row["noise"]:
        return None
    squares = [np.sum(np.square(each)) for each in (row["noise"], row["planned"]["noise"])]
    return float(np.sqrt(squares[0] / squares[1]))


CHOSEN: Final = (
    Column("task", "task"),
    Column("noise", lambda row: ARMS[row["arm"]].title),
    Column("goal", "epsilon", "g"),
    Column("server", lambda row: SCHEDULES[row["schedule"]].title),
    Column("rate", "rate", "g"),
    Column("at an edge of the search", "at_edge"),
    Column("accuracy, %", _accuracy),
    Column("epsilon", _spent, ".3g"),
    Column("if members collude", "epsilons.without_members", ".3g"),
    Column("if all other clients do", "epsilons.sybil", ".3g"),
    Column("bits", "bits", "g"),
)
NOISE: Final = (
    Column("task", "task"),
    Column("noise", lambda row: ARMS[row["arm"]].title),
    Column("epsilon", "epsilon", "g"),
    Column("returned share", "planned.share", ".3f"),
    Column("planned: smaller than independent by", "planned.gain", ".2f"),
    Column("measured over planned", _measured, ".3f"),
)
COMPARED: Final = (
    Column("task", "task"),
    Column("epsilon", "epsilon", "g"),
    Column("server", lambda row: SCHEDULES[row["schedule"]].title),
    percent("points", "mean", "half_width", "+.1f"),
    Column("verdict", "verdict"),
)


def _parts(figures: Figures) -> Iterator[Part]:
    rows = figures["rows"]
    for task in figures["tasks"]:
        yield _by_arm(task, [row for row in rows if row["task"] == task])
    said = dict.fromkeys(each["statement"] for each in figures["comparisons"])
    for statement in said:
        found = [each for each in figures["comparisons"] if each["statement"] == statement]
        yield table(statement[0].upper() + statement[1:], COMPARED, found, brief=True)
    plain = [r for r in rows if r["schedule"] == "constant" and ARMS[r["arm"]].private]
    yield table("Noise in the model, constant rate", NOISE, plain)
    yield table("What was chosen by trial, and epsilon at the end", CHOSEN, rows)


def _by_arm(task: str, rows: Sequence[Row]) -> Grid:
    """Return a line for every arm, a column for every epsilon and schedule."""
    labels = (
        Column("noise", lambda row: ARMS[row["arm"]].title),
        Column("epsilon", "epsilon", "g"),
    )
    return pivot(
        f"Accuracy, {TASKS[task].title}, %",
        labels,
        "schedule",
        Column("", _accuracy),
        rows,
        head=lambda name: SCHEDULES[name].title,
        brief=True,
    )


CAMPAIGN: Final = Campaign(
    name="correlated",
    title="Noise that comes back, in training",
    presets=PRESETS,
    figures=figures_of,
    parts=_parts,
    plots={"accuracy": accuracy_plot, "noise": noise_plot},
    check=check,
)
