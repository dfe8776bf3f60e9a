"""The figures of FedSel's reproduction: gains, losses and sweeps, as plain JSON values.

Intervals are Student's, over the means of repetitions, of paired differences. Repetitions of one
table are independent given the table: each shuffles, splits and draws noise anew. So intervals say
how well the accuracy *on this table* is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simulations.reproduce.engine.claims import Interval
from simulations.reproduce.engine.seeds import tried
from simulations.reproduce.engine.store import Cell
from simulations.reproduce.engine.study import Study, data_dir_here
from simulations.reproduce.engine.tuning import Outcome, Way, grid, tune_then_evaluate
from simulations.reproduce.fedsel.arms import (
    HONEST,
    Arm,
    baseline,
    flat,
    other_arms,
    staged,
    table3_arms,
)
from simulations.reproduce.fedsel.claims import claims
from simulations.reproduce.fedsel.plan import PAPER_TABLE3, SWEPT, Plan
from simulations.reproduce.fedsel.tables import Examples, load
from simulations.reproduce.fedsel.training import Model, Task, cross_validated

OWN: Final = "own"
"""Every arm at its own best rate."""

Tuned = tuple[str, Model, Arm]


@dataclass(frozen=True, slots=True)
class Result:
    """What a cell came to: float64[repeats, folds] each."""

    accuracy: NDArray[np.float64]
    balanced: NDArray[np.float64]


@dataclass(slots=True)
class Bench:
    """Results of a study, in one of the ways to choose learning rates.

    Figures are put together twice: first to learn which cells they need, with chances of one half
    in the place of results, and again when all of these have been trained.
    """

    study: Study[Plan]
    tables: dict[str, Examples]
    tuned: dict[Tuned, Outcome[float]]
    wanted: list[Cell] = field(default_factory=list)
    results: dict[str, Result] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        """Return what is trained."""
        return self.study.plan

    def rate(self, mode: str, table: str, model: Model, arm: Arm) -> float:
        """Return the common rate, or the arm's own at this epsilon."""
        return self.tuned[table, model, arm].chosen if mode == OWN else float(mode)

    def result(
        self, table: str, model: Model, arm: Arm, rate: float, repeats: int, **task: Any
    ) -> Result:
        """Return the result in the first repetitions."""
        asked = cell(self.study, table, Task(model, rate, **task), arm, tuple(range(repeats)))
        if asked.name in self.results:
            return self.results[asked.name]
        self.wanted.append(asked)
        halves = np.full((repeats, self.plan.folds), 0.5)
        return Result(halves, halves)

    def train(self) -> None:
        """Train what was asked for."""
        for asked, found in zip(self.wanted, self.study.results(self.wanted), strict=True):
            parts = (np.array(found[name]) for name in ("accuracy", "balanced"))
            self.results[asked.name] = Result(*parts)


def cell(study: Study[Plan], table: str, task: Task, arm: Arm, repeats: tuple[int, ...]) -> Cell:
    """Return one arm on one table, in some repetitions of a cross-validation."""
    how = f"{task.model} {task.rate:g} {task.epochs} {'' if task.accumulate else 'forgetful '}"
    epsilons = f"{arm.choice_epsilon:g} {arm.value_epsilon:g}"
    name = f"{table} {how}{arm.name} {epsilons} {repeats[0]}-{repeats[-1]}"
    given = (table, task, arm, repeats, study.plan.folds, study.seed)
    return Cell(name, cross_validated, given)


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Train what is needed, and return all figures as plain JSON values."""
    tables = {name: load(name, data_dir_here()) for name in study.plan.tables}
    bench = Bench(study, tables, _rates(study))
    _parts(bench)
    bench.train()
    parts = _parts(bench)
    return {**parts, "claims": claims(parts)}


def _parts(bench: Bench) -> dict[str, Any]:
    return {
        "tables": {
            name: {
                "rows": len(table.labels),
                "features": table.inputs.shape[1],
                "majority": table.majority,
            }
            for name, table in bench.tables.items()
        },
        "spent": _spent(bench),
        "tuning": _tuning(bench),
        "table3": _table3(bench),
        "figure2f": _sweep(bench, epochs=1),
        "figure2g": _sweep(bench, epochs=2),
        "figure2hi": _others(bench),
    }


def _rates(study: Study[Plan]) -> dict[Tuned, Outcome[float]]:
    """Try all rates for every arm, for one epoch, in repetitions that count for nothing else."""
    plan = study.plan
    everywhere = [*table3_arms(plan.epsilon), baseline()]
    swept = [
        arm
        for epsilon in sorted({*plan.sweep, plan.epsilon})
        for arm in (flat("PM", epsilon), *(staged(s, "PM", epsilon) for s in HONEST))
    ]
    arms = {model: everywhere for model in plan.models}
    arms[SWEPT] = [*arms.get(SWEPT, [baseline()]), *swept, *other_arms(plan.epsilon)]
    tuned: list[Tuned] = list(
        dict.fromkeys(
            (table, model, arm)
            for table in plan.tables
            for model, found in arms.items()
            for arm in found
        )
    )
    ways = [_way(study, *each) for each in tuned]
    outcomes = tune_then_evaluate(study, ways, lambda found: float(np.mean(found["accuracy"])))
    return dict(zip(tuned, outcomes, strict=True))


def _way(study: Study[Plan], table: str, model: Model, arm: Arm) -> Way[float]:
    repeats = tried(0, study.plan.tuning_repeats)
    return Way(
        grid(study.plan.rates),
        lambda rate: [cell(study, table, Task(model, rate), arm, repeats)],
        # What is evaluated depends on the figure.
        lambda rate: [],
        # Of equals the larger rate.
        lambda means: max(means, key=lambda rate: (means[rate], rate)),
    )


def _interval(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return what float64[repeats, folds] say of their mean, by the means of repetitions."""
    found = Interval.of(values.mean(axis=1))
    return {**asdict(found), "half": found.half()}


def modes(rates: Iterable[float]) -> list[str]:
    """Return the names of the ways to choose rates: each common one, and everybody's own."""
    return [*(f"{rate:g}" for rate in rates), OWN]


def _row(result: Result, reference: Result | None, **what: Any) -> dict[str, Any]:
    """Return one arm's figures, and its difference from a reference."""
    row = {
        **what,
        "accuracy": _interval(result.accuracy),
        "balanced": _interval(result.balanced),
        "deviation": float(result.accuracy.std(ddof=1)),
        "runs": result.accuracy.size,
    }
    if reference is not None:
        row["gain"] = _interval(result.accuracy - reference.accuracy)
    return row


def _table3(bench: Bench) -> list[dict[str, Any]]:
    """Return every arm of Table 3, with its difference from PM; of controls also the loss."""
    plan, rows = bench.plan, []
    for table in plan.tables:
        for model in plan.models:
            for mode in modes(plan.common_rates):
                rows += _table3_part(bench, table, model, mode)
    return rows


def _table3_part(bench: Bench, table: str, model: Model, mode: str) -> list[dict[str, Any]]:
    plan, rows, found = bench.plan, [], {}
    for arm in [*table3_arms(plan.epsilon), baseline()]:
        rate = bench.rate(mode, table, model, arm)
        result = bench.result(table, model, arm, rate, plan.repeats)
        found[arm.name] = result
        where = {"table": table, "model": model, "mode": mode, "arm": arm.name, "rate": rate}
        row = _row(result, found["PM"] if arm.name != "PM" else None, **where)
        if arm.name.endswith("-C"):
            plain = found[arm.name.removesuffix("-C")]
            row["loss"] = _interval(result.accuracy - plain.accuracy)
            row |= _printed(table, model, arm)
        rows.append(row)
    honest, printed = found["PE-PM"], found["PE-printed-PM"]
    for row in rows:
        if row["arm"] in [f"{selection}-PM" for selection in HONEST]:
            ahead = found[row["arm"]].accuracy - found["RND-PM"].accuracy
            row["over_blind"] = _interval(ahead)
        if row["arm"] == "PE-printed-PM":
            row["over_honest"] = _interval(printed.accuracy - honest.accuracy)
        if row["arm"] == "PS-PM":
            row["over_encoding"] = _interval(found["PS-PM"].accuracy - honest.accuracy)
    return rows


def _printed(table: str, model: Model, arm: Arm) -> dict[str, float]:
    """Return the paper's gain and loss, if it has any for the arm."""
    figures = PAPER_TABLE3.get((table, model))
    if figures is None or arm.selection not in HONEST:
        return {}
    place = 2 * HONEST.index(arm.selection)
    return {"paper_gain": figures[place] / 100.0, "paper_loss": figures[place + 1] / 100.0}


def _spent(bench: Bench) -> list[dict[str, Any]]:
    """Return what one report of each arm is said to spend, and what it spends."""
    rows = []
    for name, table in bench.tables.items():
        dimension = table.inputs.shape[1]
        for arm in table3_arms(bench.plan.epsilon):
            printed = arm.choice_epsilon + arm.value_epsilon
            selector = arm.selector(dimension)
            rows.append(
                {
                    "table": name,
                    "arm": arm.name,
                    "printed": printed,
                    "choice_printed": arm.choice_epsilon,
                    "choice_exact": 0.0 if selector is None else selector.law.epsilon,
                    "exact": arm.epsilon(dimension),
                }
            )
    return rows


def _tuning(bench: Bench) -> list[dict[str, Any]]:
    """Return accuracy by learning rate, of one epoch."""
    plan, rows = bench.plan, []
    for table in plan.tables:
        for model in plan.models:
            for arm in [*table3_arms(plan.epsilon), baseline()]:
                tuned = bench.tuned[table, model, arm]
                balanced = [
                    float(np.mean(tuned.trials[rate][0]["balanced"])) for rate in plan.rates
                ]
                rows.append(
                    {
                        "table": table,
                        "model": model,
                        "arm": arm.name,
                        "rates": list(plan.rates),
                        "accuracy": [tuned.tried[rate] for rate in plan.rates],
                        "balanced": balanced,
                    }
                )
    return rows


def _sweep(bench: Bench, epochs: int) -> list[dict[str, Any]]:
    """Return PM and FedSel by epsilon, logistic regression."""
    plan, rows = bench.plan, []
    for table in plan.tables:
        for mode in modes([plan.figure_rate]):
            for epsilon in sorted({*plan.sweep, plan.epsilon}):
                rows += _sweep_point(bench, table, mode, epsilon, epochs)
    return rows


def _sweep_point(
    bench: Bench, table: str, mode: str, epsilon: float, epochs: int
) -> list[dict[str, Any]]:
    plan, model, rows = bench.plan, SWEPT, []

    def made(arm: Arm, **task: Any) -> tuple[Result, dict[str, Any]]:
        rate = bench.rate(mode, table, model, arm)
        result = bench.result(table, model, arm, rate, plan.sweep_repeats, epochs=epochs, **task)
        where = {"table": table, "model": model, "mode": mode, "epsilon": epsilon}
        return result, {**where, "arm": arm.name, "rate": rate}

    pm, where = made(flat("PM", epsilon))
    rows.append(_row(pm, None, **where))
    for selection in HONEST:
        arm = staged(selection, "PM", epsilon)
        result, where = made(arm)
        row = _row(result, pm, **where)
        if epochs > 1:
            forgetful, _ = made(arm, accumulate=False)
            row["by_keeping"] = _interval(result.accuracy - forgetful.accuracy)
        rows.append(row)
    if epochs == 1:
        result, where = made(baseline())
        rows.append(_row(result, None, **where))
    return rows


def _others(bench: Bench) -> list[dict[str, Any]]:
    """Return other value mechanisms and random projection, at Table 3's epsilon."""
    plan, model, rows = bench.plan, SWEPT, []
    arms = [flat("PM", plan.epsilon), staged("PS", "PM", plan.epsilon), *other_arms(plan.epsilon)]
    for table in plan.tables:
        for mode in modes([plan.figure_rate]):
            found: dict[str, Result] = {}
            for arm in arms:
                rate = bench.rate(mode, table, model, arm)
                result = bench.result(table, model, arm, rate, plan.repeats)
                found[arm.name] = result
                reference = found.get(arm.values) if arm.selection == "PS" else None
                if arm.selection == "projected":
                    reference = found["PS-PM"]
                where = {"table": table, "model": model, "mode": mode, "arm": arm.name}
                rows.append(_row(result, reference, rate=rate, **where))
    return rows
