"""Local, distributed and central privacy on one task: `veilsum reproduce trust-models`.

For every setting candidates are tried, and the best is evaluated with other seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from simulations.campaigns.campaign import Campaign
from simulations.campaigns.claims import half_width
from simulations.campaigns.plots import Style, curves, dress, level, panels
from simulations.campaigns.render import Column, Part, Text, percent, pivot, points, table
from simulations.campaigns.rows import Figures, Row, first, where
from simulations.campaigns.store import Cell
from simulations.campaigns.study import Study, dataset
from simulations.campaigns.tuning import Outcome, Way, grid, split_off, tune_then_evaluate
from simulations.common.figures import AMBER, BLUE, GREEN, GREY, ORANGE, PINK, SKY
from simulations.studies.trust_models.findings import claims, findings
from simulations.studies.trust_models.methods import BY_NAME, METHODS, Candidate, Trust
from simulations.studies.trust_models.plan import PRESETS, Plan, Setting
from simulations.studies.trust_models.training import VALIDATION, run


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Tune and evaluate every setting; all are checked before the first is run."""
    plan, data = study.plan, dataset(study.plan.data)
    settings = plan.settings()
    for setting in settings:
        for candidate in plan.candidates(setting):
            plan.config(setting, candidate, study.seed).check()
    outcomes = tune_then_evaluate(study, {each: _way(study, each) for each in settings})
    labels = split_off(data.test, VALIDATION)[1].labels
    figures = {
        "clients": plan.rounds * plan.cohort,
        "records": len(data.train),
        "tested": len(labels),
        "majority": float(np.bincount(labels).max() / len(labels)),
        "rows": [_row(study, setting, outcome) for setting, outcome in outcomes.items()],
    }
    return figures | {"findings": findings({**study.facts(), **figures})}


def _way(study: Study[Plan], setting: Setting) -> Way[Candidate]:
    plan = study.plan

    def cells(candidate: Candidate, trial: bool) -> list[Cell]:
        of = plan.tuned(setting) if trial else setting
        seeds = (plan.trial_seeds if trial else plan.evaluation_seeds)(setting, study.seed)
        name = f"{of.name} {candidate.bound:g} {candidate.reach:g}"
        configs = [(seed, plan.config(of, candidate, seed)) for seed in seeds]
        return [Cell(f"{name} {seed}", run, (config, trial)) for seed, config in configs]

    return Way(grid(plan.candidates(setting)), cells)


def _row(study: Study[Plan], setting: Setting, outcome: Outcome[Candidate]) -> dict[str, Any]:
    """Return what a setting comes to: its runs, and the candidate that was chosen for it."""
    plan, chosen, one = study.plan, outcome.chosen, outcome.runs[0]
    config = plan.config(setting, chosen, study.seed)
    accuracies = [result["accuracy"] for result in outcome.runs]
    return {
        **asdict(setting),
        "by_epsilon": setting in plan.by_epsilon(),
        "by_bytes": setting in plan.by_bytes(),
        "by_clients": setting in plan.by_clients(),
        "title": setting.of.title,
        "trust": setting.of.trust.value,
        "clients": config.task.population,
        "cohort": config.cohort.size,
        "reports": config.participations,
        "parameters": one["parameters"],
        "accuracy": float(np.mean(accuracies)),
        "half_width": half_width(accuracies),
        "accuracies": accuracies,
        "bytes": config.participations * one["bytes"],
        "epsilon_server": one["epsilon_server"],
        "epsilon_outsider": one["epsilon_outsider"],
        "bound": chosen.bound,
        "reach": chosen.reach,
        "tried": [[c.bound, c.reach, accuracy] for c, accuracy in outcome.tried.items()],
    }


def _with_spent(row: Row) -> str:
    """Return the accuracy, and what was spent where that is clearly less than allowed."""
    spent = row["epsilon_outsider" if row["trust"] == Trust.SERVER.value else "epsilon_server"]
    less = isinstance(spent, float) and spent < 0.9 * row["epsilon"]
    accuracy = points(row["accuracy"], row["half_width"])
    return accuracy + (f" (spent {spent:.2g})" if less else "")


def _knob(row: Row) -> str:
    return f"{BY_NAME[row['method']].knob.label} {row['knob']:g}"


def _named(row: Row) -> str:
    usual = BY_NAME[row["method"]].knob.usual
    return str(row["title"]) if row["knob"] == usual else f"{row['title']}, {_knob(row)}"


def _edge(row: Row) -> str | None:
    """Return which of the two figures is the smallest or the largest that was tried."""
    names = []
    for place, (name, key) in enumerate((("clip", "bound"), ("rate", "reach"))):
        values = {each[place] for each in row["tried"]}
        # Of two values both are at an edge, and of one no other was tried: that says nothing.
        if len(values) > 2 and row[key] in (min(values), max(values)):
            names.append(name)
    return ", ".join(names) or None


RELATIONS: Final = {
    "=": "",
    ">": "more than ",
    ">=": "at least ",
    "<": "fewer than ",
    "<=": "at most ",
}


def _factor(head: str, key: str) -> Column:
    """Return the column of a factor that is known, or bounded from one side."""
    return Column(head, lambda row: f"{RELATIONS[row[key]['relation']]}{row[key]['value']:.3g}")


EPSILON: Final = Column("epsilon", "epsilon", "g")
ACCURACY: Final = percent("accuracy, %", "accuracy", "half_width")
FOUND: Final = (
    EPSILON,
    percent("central", "central"),
    percent("distributed", "distributed"),
    percent("best local", "local"),
    Column("which", lambda row: BY_NAME[row["best_local"]].title),
    percent("ahead of local", "ahead", "ahead_half_width", "+.1f"),
    percent("below central", "below_central"),
    _factor("times the epsilon that local needs to be as good", "epsilon_factor"),
    _factor("clients of local in the place of one", "clients_factor"),
)
BYTES: Final = (
    Column("method", "title"),
    Column("knob", _knob),
    Column("bytes of a client", "bytes", ",.0f"),
    Column("accuracy, %", _with_spent),
)
CHOSEN: Final = (
    Column("method", "title"),
    EPSILON,
    Column("knob", "knob", "g"),
    Column("clients", "clients", ","),
    Column("clip", "bound", "g"),
    Column("rate", lambda row: row["reach"] / row["bound"], ".3g"),
    Column("at an edge of the grid", _edge),
)


def _parts(figures: Figures) -> Iterator[Part]:
    rows, found = figures["rows"], figures["findings"]
    yield table("The best of each kind, %", FOUND, found["by_epsilon"], brief=True)
    yield Text(_on_bytes(found["by_bytes"]), brief=True)
    yield pivot(
        "Accuracy at equal epsilon, %",
        (Column("method", _named), Column("trusts", "trust")),
        "epsilon",
        Column("", _with_spent),
        where(rows, by_epsilon=True),
        head="epsilon {:g}".format,
        brief=True,
    )
    order = list(BY_NAME)
    varied = where(rows, by_bytes=True)
    varied.sort(key=lambda row: (order.index(row["method"]), row["knob"]))
    title = f"Accuracy by bytes, epsilon = {figures['plan']['byte_epsilon']:g}"
    yield table(title, BYTES, varied, brief=True)
    yield pivot(
        "The distributed sum with fewer clients, %",
        (EPSILON,),
        "clients",
        ACCURACY,
        sorted(where(rows, by_clients=True), key=lambda row: -row["clients"]),
        head="{:,} clients".format,
    )
    yield table("What was chosen by trial", CHOSEN, rows)


def _on_bytes(found: Row) -> str:
    local, sums = (
        f"{found[kind]['fewest_bytes']:,.0f} to {found[kind]['most_bytes']:,.0f}"
        for kind in ("local", "distributed")
    )
    apart = "overlap" if found["overlap"] else "do not overlap: below, only local privacy can speak"
    return (
        f"At epsilon = {found['epsilon']:g} a local client sends {local} bytes, a client of "
        f"the real protocol sends and receives {sums}; they {apart}. The cheapest "
        f"distributed sum takes {found['bytes_factor']:,.0f} times the bytes of the best local "
        "method."
    )


STYLES: Final = {
    "central": ("black", "s"),
    "distributed": (BLUE, "o"),
    "piecewise": (ORANGE, "^"),
    "hybrid": (AMBER, "v"),
    "cross_polytope": (GREEN, "D"),
    "sqsgd": (PINK, "P"),
    "fedsel_ps": (SKY, "X"),
    "fedsel_pe": (GREY, "<"),
}
LINES: Final = {Trust.SERVER: "--", Trust.COHORT: "-", Trust.NOBODY: ":"}
MARGIN: Final = 0.03  # above the highest accuracy and below the lowest


def plot(figures: Figures) -> Figure:
    """Draw accuracy by epsilon and by bytes."""
    figure, [[left, right]] = panels(1, 2, 14, 5.6)
    rows, plan = figures["rows"], figures["plan"]
    by_bytes = {}
    for method in METHODS:
        if method.trust is Trust.EVERYBODY:
            continue
        look = (*STYLES[method.name], LINES[method.trust])
        shown = where(rows, method=method.name, by_epsilon=True)
        names = {False: method.title, True: f"{method.title}, sketch"}
        looks = {hollow: Style(name, *look, hollow) for hollow, name in names.items()}
        usual = method.knob.usual
        sketched = [{**row, "sketched": row["knob"] != usual} for row in shown]
        curves(left, sketched, "sketched", looks, "epsilon", "accuracy", "half_width")
        by_bytes[method.name] = Style(f"{method.title}: {method.knob.label}", *look)
    curves(right, where(rows, by_bytes=True), "method", by_bytes, "bytes", "accuracy", "half_width")
    plain = first(rows, trust=Trust.EVERYBODY.value)
    for axes in (left, right):
        level(axes, plain["accuracy"], Style("no privacy", "black"))
        level(axes, figures["majority"], Style("one answer", GREY, line="-."))
    ticks, x = [*plan["epsilons"], *plan["more_epsilons"]], "epsilon of a client, whole run"
    title = "equal epsilon, one report of each client"
    dress(left, x, "test accuracy", title, log="x", percents=True, ticks=ticks)
    title, x = f"by bytes, epsilon = {plan['byte_epsilon']:g}", "bytes of a client, whole run"
    dress(right, x, "test accuracy", title, log="x", percents=True)
    # By the means: with few seeds an interval may be longer than all there is.
    heights = [figures["majority"], *(row["accuracy"] for row in rows)]
    for axes in (left, right):
        axes.set_ylim(max(0.0, min(heights) - MARGIN), min(1.0, max(heights) + MARGIN))
    return figure


CAMPAIGN = Campaign(
    name="trust-models",
    title="Local, distributed and central privacy on one task",
    presets=PRESETS,
    figures=figures_of,
    claims=claims,
    parts=_parts,
    plots={"accuracy": plot},
)
