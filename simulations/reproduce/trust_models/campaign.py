"""Local, distributed and central privacy on one task: `veilsum reproduce trust-models`.

For every setting candidates are tried, and the best is evaluated with other seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import numpy as np

from simulations.reproduce.engine.campaign import Campaign
from simulations.reproduce.engine.claims import half_width
from simulations.reproduce.engine.render import (
    Column,
    Figures,
    Grid,
    Part,
    Row,
    Text,
    percent,
    pivot,
    points,
    table,
)
from simulations.reproduce.engine.store import Cell
from simulations.reproduce.engine.study import Study, dataset
from simulations.reproduce.engine.tuning import Outcome, Way, grid, tune_then_evaluate
from simulations.reproduce.trust_models.findings import claims, findings
from simulations.reproduce.trust_models.methods import BY_NAME, METHODS, Candidate, Trust
from simulations.reproduce.trust_models.plan import PRESETS, Plan, Setting
from simulations.reproduce.trust_models.plot import plot
from simulations.reproduce.trust_models.training import overhead_bytes, run


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Tune and evaluate every setting; all are checked before the first is run."""
    plan, data = study.plan, dataset(study.plan.data)
    settings = plan.settings()
    for setting in settings:
        for candidate in plan.candidates(setting):
            plan.config(setting, candidate, study.seed).check()
    found = tune_then_evaluate(study, [_way(study, setting) for setting in settings])
    outcomes = dict(zip(settings, found, strict=True))
    labels = data.test.labels
    figures = {
        "clients": plan.rounds * plan.cohort,
        "records": len(data.train),
        "tested": len(labels),
        "majority": float(np.bincount(labels).max() / len(labels)),
        "rows": [_row(study, setting, outcome) for setting, outcome in outcomes.items()],
    }
    facts = {**study.facts(), **figures}
    return facts | {"findings": findings(facts), "claims": claims(facts)}


def _way(study: Study[Plan], setting: Setting) -> Way[Candidate]:
    plan, seed = study.plan, study.seed

    def cells(setting: Setting, candidate: Candidate, seeds: Sequence[int]) -> list[Cell]:
        """Return the runs of one candidate."""
        name = f"{setting.name} {candidate.bound:g} {candidate.reach:g}"
        return [Cell(f"{name} {s}", run, (plan.config(setting, candidate, s),)) for s in seeds]

    other = plan.tuned(setting)
    return Way(
        grid(plan.candidates(setting)),
        lambda candidate: cells(other, candidate, plan.trial_seeds(setting, seed)),
        lambda candidate: cells(setting, candidate, plan.evaluation_seeds(setting, seed)),
    )


def _row(study: Study[Plan], setting: Setting, outcome: Outcome[Candidate]) -> dict[str, Any]:
    """Return what a setting comes to: its runs, and the candidate that was chosen for it."""
    plan, chosen, first = study.plan, outcome.chosen, outcome.runs[0]
    config = plan.config(setting, chosen, study.seed)
    accuracies = [result["accuracy"] for result in outcome.runs]
    overhead = 0
    if setting.of.trust is Trust.COHORT:
        given = (config, first["parameters"])
        overhead = study.result(Cell(f"bytes {setting.name}", overhead_bytes, given))
    parts = {
        "by_epsilon": plan.by_epsilon,
        "by_bytes": plan.by_bytes,
        "by_clients": plan.by_clients,
    }
    return {
        **asdict(setting),
        **{name: setting in getattr(plan, name)() for name in parts},
        "title": setting.of.title,
        "trust": setting.of.trust.value,
        "clients": config.task.population,
        "cohort": config.cohort.size,
        "reports": config.participations,
        "parameters": first["parameters"],
        "accuracy": float(np.mean(accuracies)),
        "half_width": half_width(accuracies),
        "accuracies": accuracies,
        "recorded_bytes": first["bytes"],
        "overhead_bytes": overhead,
        "bytes": config.participations * (first["bytes"] + overhead),
        "epsilon_server": first["epsilon_server"],
        "epsilon_outsider": first["epsilon_outsider"],
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


def _factor(name: str) -> Column:
    """Return the column of a factor that is known, or bounded from one side."""
    words = {"=": "", ">": "more than ", ">=": "at least ", "<": "fewer than ", "<=": "at most "}

    def shown(row: Row) -> str:
        """Return it in words."""
        factor: Mapping[str, Any] = row[name]
        return f"{words[factor['relation']]}{factor['value']:.3g}"

    heads = {
        "epsilon_factor": "times the epsilon that local needs to be as good",
        "clients_factor": "clients of local in the place of one",
    }
    return Column(heads[name], shown)


ACCURACY: Final = percent("accuracy, %", "accuracy", "half_width")
FOUND: Final = (
    Column("epsilon", "epsilon", "g"),
    percent("central", "central"),
    percent("distributed", "distributed"),
    percent("best local", "local"),
    Column("which", lambda row: BY_NAME[row["best_local"]].title),
    percent("ahead of local", "ahead", "ahead_half_width", "+.1f"),
    percent("below central", "below_central"),
    _factor("epsilon_factor"),
    _factor("clients_factor"),
)
BYTES: Final = (
    Column("method", "title"),
    Column("knob", _knob),
    Column("bytes of a client", "bytes", ",.0f"),
    Column("of them recorded in a round", "recorded_bytes", ",.0f"),
    Column("accuracy, %", _with_spent),
)
CHOSEN: Final = (
    Column("method", "title"),
    Column("epsilon", "epsilon", "g"),
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
    yield _by_epsilon(rows)
    order = {method.name: place for place, method in enumerate(METHODS)}
    varied = [row for row in rows if row["by_bytes"]]
    varied.sort(key=lambda row: (order[row["method"]], row["knob"]))
    title = f"Accuracy by bytes, epsilon = {figures['plan']['byte_epsilon']:g}"
    yield table(title, BYTES, varied, brief=True)
    fewer = sorted((row for row in rows if row["by_clients"]), key=lambda row: -row["clients"])
    yield pivot(
        "The distributed sum with fewer clients, %",
        (Column("epsilon", "epsilon", "g"),),
        "clients",
        ACCURACY,
        fewer,
        head="{:,} clients".format,
    )
    yield table("What was chosen by trial", CHOSEN, rows)


def _by_epsilon(rows: Sequence[Row]) -> Grid:
    """Return a line for every method, a column for every epsilon."""
    labels = (Column("method", _named), Column("trusts", "trust"))
    found = [row for row in rows if row["by_epsilon"]]
    title, cell = "Accuracy at equal epsilon, %", Column("", _with_spent)
    head = "epsilon {:g}".format
    return pivot(title, labels, "epsilon", cell, found, head=head, brief=True)


def _on_bytes(found: Mapping[str, Any]) -> str:
    local, sums = found["local"], found["distributed"]

    def span(part: Mapping[str, Any]) -> str:
        """Return the fewest and the most bytes."""
        return f"{part['fewest_bytes']:,.0f} to {part['most_bytes']:,.0f}"

    apart = "overlap" if found["overlap"] else "do not overlap: below, only local privacy can speak"
    return (
        f"At epsilon = {found['epsilon']:g} a local client sends {span(local)} bytes, a client of "
        f"the real protocol sends and receives {span(sums)}; they {apart}. The cheapest "
        f"distributed sum takes {found['bytes_factor']:,.0f} times the bytes of the best local "
        "method."
    )


CAMPAIGN = Campaign(
    name="trust-models",
    title="Local, distributed and central privacy on one task",
    presets=PRESETS,
    figures=figures_of,
    parts=_parts,
    plots={"accuracy": plot},
)
