"""The figures of FedSel's reproduction: gains, losses and sweeps, as plain JSON values.

Intervals are Student's, over the means of repetitions, of paired differences. Repetitions of one
table are independent given the table: each shuffles, splits and draws noise anew. So intervals say
how well the accuracy *on this table* is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simulations.campaigns.claims import Interval
from simulations.campaigns.seeds import tried
from simulations.campaigns.store import Cell
from simulations.campaigns.study import Study, data_dir_here
from simulations.campaigns.tuning import Outcome, Way, grid, largest_best, tune_then_evaluate
from simulations.reproduce.fedsel import theory
from simulations.reproduce.fedsel.plan import (
    HONEST,
    PAPER_TABLE3,
    SWEPT,
    Arm,
    Model,
    Plan,
    baseline,
    by_rule,
    choosing,
    flat,
    other_arms,
    staged,
    table3_arms,
)
from simulations.reproduce.fedsel.tables import Examples, load
from simulations.reproduce.fedsel.training import Task, cross_validated

OWN: Final = "own"  # every arm at its own best rate
EARLY: Final = 20  # steps, of about 100, after which Figure 2 (a) and (b) are read once
# A table, what is trained there, at any rate, and an arm
Tuned = tuple[str, Task, Arm]


@dataclass(frozen=True, slots=True)
class Result:
    """What a cell came to: float64[repeats, folds] each, and its learning rate."""

    accuracy: NDArray[np.float64]
    balanced: NDArray[np.float64]
    rate: float


@dataclass(slots=True)
class Bench:
    """Results of a study, in one of the ways to choose learning rates.

    Figures are put together three times: to learn whose rates they need, then which cells, with
    chances of one half in the place of results, and again when all of these have been trained.
    """

    study: Study[Plan]
    tables: dict[str, Examples]
    tuned: dict[Tuned, Outcome[float]] = field(default_factory=dict)
    wanted: list[Cell] = field(default_factory=list)
    results: dict[str, Result] = field(default_factory=dict)
    asked: dict[Tuned, None] = field(default_factory=dict)  # in their order

    @property
    def plan(self) -> Plan:
        """Return what is trained."""
        return self.study.plan

    def result(
        self, table: str, model: Model, mode: str, repeats: int, arm: Arm, **task: Any
    ) -> Result:
        """Return the result at the common rate, or at the arm's own.

        Own rates are those of one epoch, and of its end.
        """
        rate = math.nan
        if mode != OWN:
            rate = float(mode)
        else:
            whole = None if task.get("steps") == EARLY else task.get("steps")
            once = Task(model, 0.0, **{**task, "epochs": 1, "accumulate": True, "steps": whole})
            self.asked[table, once, arm] = None
            if (table, once, arm) in self.tuned:
                rate = self.tuned[table, once, arm].chosen
        asked = cell(self.study, table, Task(model, rate, **task), arm, tuple(range(repeats)))
        if asked.name in self.results:
            return self.results[asked.name]
        if not math.isnan(rate):
            self.wanted.append(asked)
        halves = np.full((repeats, self.plan.folds), 0.5)
        return Result(halves, halves, rate)

    def swept(self, table: str, mode: str, **task: Any) -> Callable[..., Result]:
        """Return the results of arms, with more of the task, at the repetitions of the figures."""
        return partial(self.result, table, SWEPT, mode, self.plan.sweep_repeats, **task)

    def tune(self) -> None:
        """Try all rates for every arm, in repetitions that count for nothing else."""
        plan, repeats = self.plan, tried(0, self.plan.tuning_repeats)

        def way(table: str, task: Task, arm: Arm) -> Way[float]:
            def cells(rate: float, trial: bool) -> list[Cell]:
                # What is evaluated depends on the figure.
                at = replace(task, rate=rate)
                return [cell(self.study, table, at, arm, repeats)] if trial else []

            return Way(grid(plan.rates), cells, largest_best)

        ways = {key: way(*key) for key in self.asked}
        self.tuned = tune_then_evaluate(
            self.study, ways, lambda found: float(np.mean(found["accuracy"]))
        )

    def train(self) -> None:
        """Train what was asked for."""
        for asked, found in zip(self.wanted, self.study.results(self.wanted), strict=True):
            accuracy, balanced = (np.array(found[name]) for name in ("accuracy", "balanced"))
            self.results[asked.name] = Result(accuracy, balanced, asked.given[1].rate)


def cell(study: Study[Plan], table: str, task: Task, arm: Arm, repeats: tuple[int, ...]) -> Cell:
    """Return one arm on one table, in some repetitions of a cross-validation."""
    how = f"{task.model} {task.rate:g} {task.epochs} {'' if task.accumulate else 'forgetful '}"
    how += f"{'scaled ' if task.scaled else ''}{task.batch:g} {task.steps or ''} "
    epsilons = f"{arm.choice_epsilon:g} {arm.value_epsilon:g}"
    name = f"{table} {how}{arm.name} {epsilons} {repeats[0]}-{repeats[-1]}"
    return Cell(name, cross_validated, (table, task, arm, repeats, study.plan.folds, study.seed))


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Train what is needed, and return all figures as plain JSON values."""
    bench = Bench(study, {name: load(name, data_dir_here()) for name in study.plan.tables})
    _parts(bench)
    bench.tune()
    _parts(bench)
    bench.train()
    return {
        **_parts(bench),
        "times": theory.times(study),
        "noise": theory.noises(study.plan),
        "theorem2": theory.theorem2(),
    }


def _parts(bench: Bench) -> dict[str, Any]:
    tables = {
        name: {
            "rows": len(table.labels),
            "features": table.inputs.shape[1],
            "majority": table.majority,
        }
        for name, table in bench.tables.items()
    }
    return {
        "tables": tables,
        "spent": list(_spent(bench)),
        "tuning": list(_tuning(bench)) if bench.tuned else [],
        "table3": list(_table3(bench)),
        "figure2f": list(_sweep(bench, epochs=1)),
        "figure2g": list(_sweep(bench, epochs=2)),
        "figure2hi": list(_others(bench)),
        "figure2ad": list(_choices(bench)),
        "figure3a": list(_kept(bench)),
        "figure3b": list(_shares(bench)),
        "figure3c": list(_batches(bench)),
    }


def _interval(values: NDArray[np.float64]) -> dict[str, Any]:
    """Return what float64[repeats, folds] say of their mean, by the means of repetitions."""
    found = Interval.of(values.mean(axis=1))
    return {**asdict(found), "half": found.half()}


def modes(rates: Iterable[float]) -> list[str]:
    """Return the names of the ways to choose rates: each common one, and everybody's own."""
    return [*(f"{rate:g}" for rate in rates), OWN]


def _difference(one: Result, other: Result) -> dict[str, Any]:
    return _interval(one.accuracy - other.accuracy)


def _row(result: Result, reference: Result | None, **what: Any) -> dict[str, Any]:
    row = {
        **what,
        "accuracy": _interval(result.accuracy),
        "balanced": _interval(result.balanced),
        "deviation": float(result.accuracy.std(ddof=1)),
        "runs": result.accuracy.size,
    }
    return row if reference is None else {**row, "gain": _difference(result, reference)}


Rows = Iterator[dict[str, Any]]


def _table3(bench: Bench) -> Rows:
    """Yield every arm of Table 3, with its difference from PM; of controls also the loss."""
    plan = bench.plan
    everywhere = product(plan.tables, plan.models, modes(plan.common_rates))
    for table, model, mode in everywhere:
        rows, found = [], {}
        for arm in [*table3_arms(plan.epsilon), baseline()]:
            result = found[arm.name] = bench.result(table, model, mode, plan.repeats, arm)
            where = {"table": table, "model": model, "mode": mode, "arm": arm.name}
            reference = found["PM"] if arm.name != "PM" else None
            row = _row(result, reference, **where, rate=result.rate)
            if arm.name.endswith("-C"):
                row["loss"] = _difference(result, found[arm.name.removesuffix("-C")])
                row |= _printed(table, model, arm)
            rows.append(row)
        for row in rows:
            mine = found[row["arm"]]
            if row["arm"] in [f"{selection}-PM" for selection in HONEST]:
                row["over_blind"] = _difference(mine, found["RND-PM"])
            if row["arm"] == "PE-printed-PM":
                row["over_honest"] = _difference(mine, found["PE-PM"])
            if row["arm"] == "PS-PM":
                row["over_encoding"] = _difference(mine, found["PE-PM"])
        yield from rows


def _printed(table: str, model: Model, arm: Arm) -> dict[str, float]:
    """Return the paper's gain and loss, if it has any for the arm."""
    figures = PAPER_TABLE3.get((table, model))
    if figures is None or arm.selection not in HONEST:
        return {}
    place = 2 * HONEST.index(arm.selection)
    return {"paper_gain": figures[place] / 100.0, "paper_loss": figures[place + 1] / 100.0}


def _spent(bench: Bench) -> Rows:
    """Yield what one report of each arm is said to spend, and what it spends."""
    for name, table in bench.tables.items():
        dimension = table.inputs.shape[1]
        for arm in table3_arms(bench.plan.epsilon):
            selector = arm.selector(dimension)
            yield {
                "table": name,
                "arm": arm.name,
                "printed": arm.choice_epsilon + arm.value_epsilon,
                "choice_printed": arm.choice_epsilon,
                "choice_exact": 0.0 if selector is None else selector.law.epsilon,
                "exact": arm.epsilon(dimension),
            }


def _tuning(bench: Bench) -> Rows:
    """Yield accuracy by learning rate, of one epoch."""
    plan = bench.plan
    arms = [*table3_arms(plan.epsilon), baseline()]
    for table, model, arm in product(plan.tables, plan.models, arms):
        tuned = bench.tuned[table, Task(model, 0.0), arm]
        trials = [tuned.trials[rate][0] for rate in plan.rates]
        yield {
            "table": table,
            "model": model,
            "arm": arm.name,
            "rates": list(plan.rates),
            "accuracy": [tuned.tried[rate] for rate in plan.rates],
            "balanced": [float(np.mean(trial["balanced"])) for trial in trials],
        }


def _sweep(bench: Bench, epochs: int) -> Rows:
    """Yield PM and FedSel by epsilon, logistic regression."""
    plan = bench.plan
    points = product(plan.tables, modes([plan.figure_rate]), sorted({*plan.sweep, plan.epsilon}))
    for table, mode, epsilon in points:
        result = bench.swept(table, mode, epochs=epochs)
        known = {"table": table, "model": SWEPT, "mode": mode, "epsilon": epsilon}
        pm = result(flat("PM", epsilon))
        yield _row(pm, None, **known, arm="PM", rate=pm.rate)
        for selection in HONEST:
            arm = staged(selection, "PM", epsilon)
            mine = result(arm)
            row = _row(mine, pm, **known, arm=arm.name, rate=mine.rate)
            if epochs > 1:
                row["by_keeping"] = _difference(mine, result(arm, accumulate=False))
            yield row
        if epochs == 1:
            plain = result(baseline())
            yield _row(plain, None, **known, arm="NP", rate=plain.rate)


def _others(bench: Bench) -> Rows:
    """Yield other value mechanisms and random projection, at Table 3's epsilon."""
    plan = bench.plan
    arms = [flat("PM", plan.epsilon), staged("PS", "PM", plan.epsilon), *other_arms(plan.epsilon)]
    for table, mode in product(plan.tables, modes([plan.figure_rate])):
        found: dict[str, Result] = {}
        for arm in arms:
            result = found[arm.name] = bench.result(table, SWEPT, mode, plan.repeats, arm)
            reference = found.get(arm.values) if arm.selection == "PS" else None
            if arm.selection == "projected":
                reference = found["PS-PM"]
            where = {"table": table, "model": SWEPT, "mode": mode, "arm": arm.name}
            yield _row(result, reference, **where, rate=result.rate)


def _choices(bench: Bench) -> Rows:
    """Yield choices whose values are exact, early and at the end, beside a random coordinate."""
    plan = bench.plan
    random, top = Arm("NP-RS", "random"), Arm("NP-K", "top")
    for table, mode, steps in product(plan.tables, modes([plan.figure_rate]), (EARLY, None)):
        result = bench.swept(table, mode, steps=steps)
        known = {"table": table, "mode": mode, "steps": steps}
        reference = result(random)
        for arm in (baseline(), random, top):
            yield _row(result(arm), reference, **known, arm=arm.name, epsilon=None)
        for selection in range(len(HONEST)):
            arms = [choosing(epsilon)[selection] for epsilon in sorted(plan.choices)]
            found = [result(arm) for arm in arms]
            for arm, mine in zip(arms, found, strict=True):
                row = _row(mine, reference, **known, arm=arm.name, epsilon=arm.choice_epsilon)
                row["over_least"] = _difference(mine, found[0])
                if arm.name != "EXP":
                    exponential = result(choosing(arm.choice_epsilon)[0])
                    row["over_exponential"] = _difference(mine, exponential)
                yield row


def _kept(bench: Bench) -> Rows:
    """Yield two epochs with what is kept times the rate, "-O", and what keeping it plain gains."""
    plan = bench.plan
    for table, mode in product(plan.tables, modes([min(plan.common_rates)])):
        for selection in HONEST:
            arm = staged(selection, "PM", plan.epsilon)
            result = bench.swept(table, mode, epochs=2)
            plain, scaled = result(arm), result(arm, scaled=True)
            known = {"table": table, "mode": mode, "arm": f"{arm.name}-O", "rate": scaled.rate}
            yield {**_row(scaled, None, **known), "by_plain": _difference(plain, scaled)}


def _shares(bench: Bench) -> Rows:
    """Yield FedSel by the share of epsilon for the choice, on the last table, at own rates."""
    plan = bench.plan
    table = plan.tables[-1]
    result = bench.swept(table, OWN)
    for epsilon in (min((*plan.sweep, plan.epsilon)), plan.epsilon):
        pm = result(flat("PM", epsilon))
        for selection in HONEST:
            arms = [staged(selection, "PM", epsilon, share=share) for share in plan.shares]
            found = [result(arm) for arm in arms]
            for share, arm, mine in zip(plan.shares, arms, found, strict=True):
                known = {"table": table, "epsilon": epsilon, "arm": arm.name, "share": share}
                yield {**_row(mine, pm, **known), "under_first": _difference(found[0], mine)}


def _batches(bench: Bench) -> Rows:
    """Yield FedSel with its rule for mu, by users of a step, on the last table, at own rates."""
    plan = bench.plan
    table = plan.tables[-1]
    examples = bench.tables[table]
    training = len(examples.labels) * (plan.folds - 1) // plan.folds
    for batch in plan.batches:
        result = bench.swept(table, OWN, batch=batch, steps=plan.batch_steps)
        clients = round(batch * training)
        known = {"table": table, "batch": batch, "clients": clients}
        pm = result(flat("PM", plan.epsilon))
        yield _row(pm, None, **known, arm="PM", share=None)
        for selection in HONEST:
            arm = by_rule(selection, plan.epsilon, examples.inputs.shape[1], clients)
            share = arm.choice_epsilon / plan.epsilon
            yield _row(result(arm), pm, **known, arm=arm.name, share=share)
