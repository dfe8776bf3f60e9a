"""The figures of FedSel's reproduction: gains, losses and sweeps, as plain JSON values."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from simulations.reproduce.fedsel.arms import (
    HONEST,
    Arm,
    baseline,
    flat,
    other_arms,
    staged,
    table3_arms,
)
from simulations.reproduce.fedsel.campaign import PAPER_TABLE3, Campaign, Result
from simulations.reproduce.fedsel.claims import claims
from simulations.reproduce.fedsel.intervals import interval
from simulations.reproduce.fedsel.training import Model, Task

OWN: Final = "own"
"""Every arm at its own best rate."""

SWEPT: Final[Model] = "logistic"
"""The model of Figure 2."""


class Bench:
    """Results of one campaign, in one of the ways to choose learning rates."""

    def __init__(self, campaign: Campaign) -> None:
        self.campaign, self.plan = campaign, campaign.plan

    def rate(self, mode: str, table: str, model: Model, arm: Arm) -> float:
        """Return the common rate, or the arm's own at this epsilon."""
        return self.campaign.own_rate(table, model, arm) if mode == OWN else float(mode)

    def result(
        self,
        table: str,
        model: Model,
        arm: Arm,
        rate: float,
        repeats: int,
        **task: Any,
    ) -> Result:
        """Return the result in the first repetitions."""
        return self.campaign.result(table, Task(model, rate, **task), arm, range(repeats))


def figures_of(campaign: Campaign) -> dict[str, Any]:
    """Train what is needed, and return all figures as plain JSON values."""
    bench = Bench(campaign)
    table3 = _table3(bench)
    parts = {
        "tables": {
            name: {
                "rows": len(table.labels),
                "features": table.inputs.shape[1],
                "majority": table.majority,
            }
            for name, table in campaign.tables.items()
        },
        "spent": _spent(bench),
        "tuning": _tuning(bench),
        "table3": table3,
        "figure2f": _sweep(bench, epochs=1),
        "figure2g": _sweep(bench, epochs=2),
        "figure2hi": _others(bench),
    }
    plan = {"seed": campaign.seed, "plan": asdict(campaign.plan)}
    return {**plan, **parts, "claims": claims(parts)}


def modes(rates: Iterable[float]) -> list[str]:
    """Return the names of the ways to choose rates: each common one, and everybody's own."""
    return [*(f"{rate:g}" for rate in rates), OWN]


def _row(result: Result, reference: Result | None, **what: Any) -> dict[str, Any]:
    """Return one arm's figures, and its difference from a reference."""
    row = {
        **what,
        "accuracy": interval(result.accuracy).figures(),
        "balanced": interval(result.balanced).figures(),
        "deviation": float(result.accuracy.std(ddof=1)),
        "runs": result.accuracy.size,
    }
    if reference is not None:
        row["gain"] = interval(result.accuracy - reference.accuracy).figures()
    return row


def _table3(bench: Bench) -> list[dict[str, Any]]:
    """Every arm of Table 3, with its difference from PM; the controls also with their loss."""
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
            row["loss"] = interval(result.accuracy - plain.accuracy).figures()
            row |= _printed(table, model, arm)
        rows.append(row)
    honest, printed = found["PE-PM"], found["PE-printed-PM"]
    for row in rows:
        if row["arm"] in [f"{selection}-PM" for selection in HONEST]:
            ahead = found[row["arm"]].accuracy - found["RND-PM"].accuracy
            row["over_blind"] = interval(ahead).figures()
        if row["arm"] == "PE-printed-PM":
            row["over_honest"] = interval(printed.accuracy - honest.accuracy).figures()
        if row["arm"] == "PS-PM":
            row["over_encoding"] = interval(found["PS-PM"].accuracy - honest.accuracy).figures()
    return rows


def _printed(table: str, model: Model, arm: Arm) -> dict[str, float]:
    """Return the paper's gain and loss, if it has any for the arm."""
    figures = PAPER_TABLE3.get((table, model))
    if figures is None or arm.selection not in HONEST:
        return {}
    place = 2 * HONEST.index(arm.selection)
    return {"paper_gain": figures[place] / 100.0, "paper_loss": figures[place + 1] / 100.0}


def _spent(bench: Bench) -> list[dict[str, Any]]:
    """What one report of each arm is said to spend, and what it spends."""
    rows = []
    for name, table in bench.campaign.tables.items():
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
    """Accuracy by learning rate."""
    plan = bench.plan
    arms = [*table3_arms(plan.epsilon), baseline()]
    return [
        {"table": table, "model": model, "arm": arm.name} | bench.campaign.tuning(table, model, arm)
        for table in plan.tables
        for model in plan.models
        for arm in arms
    ]


def _sweep(bench: Bench, epochs: int) -> list[dict[str, Any]]:
    """PM and FedSel by epsilon, logistic regression."""
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
            row["by_keeping"] = interval(result.accuracy - forgetful.accuracy).figures()
        rows.append(row)
    if epochs == 1:
        result, where = made(baseline())
        rows.append(_row(result, None, **where))
    return rows


def _others(bench: Bench) -> list[dict[str, Any]]:
    """Other value mechanisms and random projection, at Table 3's epsilon, logistic regression."""
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
