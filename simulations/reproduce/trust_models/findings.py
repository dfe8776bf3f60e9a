"""What the rows say: who wins at each epsilon, by how much, and what would make up for it.

A trust model is as good as its best method at the epsilon in question. That favours local privacy,
which has the most methods to choose from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from simulations.reproduce.engine.claims import OURS, Claim, Interval, above, half_width
from simulations.reproduce.trust_models.methods import Trust

Row = Mapping[str, Any]
Figures = Mapping[str, Any]


def findings(figures: Figures) -> dict[str, Any]:
    """Return the verdicts by epsilon and by bytes, from the plan and the rows of `reproduce`."""
    return {
        "by_epsilon": [at_epsilon(figures, e) for e in figures["plan"]["epsilons"]],
        "by_bytes": by_bytes(figures),
    }


def by_epsilon(figures: Figures, trust: Trust) -> list[Row]:
    """Return the rows of one trust model with all clients and one report of each, by epsilon."""
    rows = [row for row in figures["rows"] if row["trust"] == trust.value and row["by_epsilon"]]
    return sorted(rows, key=lambda row: row["epsilon"] or 0.0)


def best(rows: Sequence[Row]) -> Row:
    """Return the row of the highest mean accuracy."""
    return max(rows, key=lambda row: float(row["accuracy"]))


def best_at(figures: Figures, epsilon: float) -> tuple[Row, Row, Row]:
    """Return the best rows at one epsilon: central, distributed and local."""
    central, distributed, local = (
        best([row for row in by_epsilon(figures, trust) if row["epsilon"] == epsilon])
        for trust in (Trust.SERVER, Trust.COHORT, Trust.NOBODY)
    )
    return central, distributed, local


def at_epsilon(figures: Figures, epsilon: float) -> dict[str, Any]:
    """Return the verdict at one epsilon."""
    central, distributed, local = best_at(figures, epsilon)
    ahead = paired(distributed, local)
    return {
        "epsilon": epsilon,
        "central": central["accuracy"],
        "distributed": distributed["accuracy"],
        "local": local["accuracy"],
        "best_local": local["method"],
        "ahead": fmean(ahead),
        "ahead_half_width": half_width(ahead),
        "below_central": fmean(paired(central, distributed)),
        "epsilon_factor": _epsilon_factor(figures, epsilon, distributed["accuracy"]),
        "clients_factor": _clients_factor(figures, epsilon, local["accuracy"]),
    }


def paired(one: Row, other: Row) -> list[float]:
    """Return one accuracy less the other, seed by seed, as many as both rows have.

    Runs of one seed have the same clients in the same order.
    """
    return [a - b for a, b in zip(one["accuracies"], other["accuracies"], strict=False)]


def claims(figures: Figures) -> list[dict[str, Any]]:
    """Return, for every epsilon, whether the distributed sum beats the best local method."""
    found = []
    for epsilon in figures["plan"]["epsilons"]:
        _, distributed, local = best_at(figures, epsilon)
        ahead = Interval.of(paired(distributed, local))
        said = f"at epsilon = {epsilon:g} the distributed sum beats the best local method"
        seen = f"{100 * distributed['accuracy']:.1f} % against {100 * local['accuracy']:.1f} %"
        claim = Claim.about(said, OURS, ahead, above(ahead, 0.0), seen=f"{seen}, {local['method']}")
        found.append(claim.figures())
    return found


def crossing(xs: Sequence[float], ys: Sequence[float], target: float) -> dict[str, Any]:
    """Return where a curve first reaches a target, between two points by the logarithm of x.

    A point counts for all larger x as well: whoever may spend more need not. The relation is ``=``,
    or ``<=`` if the first point is enough, or ``>`` if the last is not.
    """
    if ys[0] >= target:
        return {"value": xs[0], "relation": "<="}
    top, at = ys[0], xs[0]
    for x, y in zip(xs[1:], ys[1:], strict=True):
        if y >= target:
            weight = (target - top) / (y - top)
            return {"value": at * (x / at) ** weight, "relation": "="}
        top, at = max(top, y), x
    return {"value": xs[-1], "relation": ">"}


def _epsilon_factor(figures: Figures, epsilon: float, target: float) -> dict[str, Any]:
    """How many times the epsilon local privacy needs to be as good as the distributed sum."""
    rows = by_epsilon(figures, Trust.NOBODY)
    epsilons = sorted({row["epsilon"] for row in rows})
    tops = [best([row for row in rows if row["epsilon"] == e])["accuracy"] for e in epsilons]
    found = crossing(epsilons, tops, target)
    return {"value": found["value"] / epsilon, "relation": found["relation"]}


def _clients_factor(figures: Figures, epsilon: float, target: float) -> dict[str, Any]:
    """How many times the clients local privacy has when the distributed sum is just as good."""
    rows = sorted(
        (
            row
            for row in figures["rows"]
            if row["trust"] == Trust.COHORT.value
            and row["epsilon"] == epsilon
            and row["by_clients"]
        ),
        key=lambda row: float(row["share"]),
    )
    found = crossing([r["share"] for r in rows], [r["accuracy"] for r in rows], target)
    opposite = {"=": "=", "<=": ">=", ">": "<"}
    return {"value": 1.0 / found["value"], "relation": opposite[found["relation"]]}


def by_bytes(figures: Figures) -> dict[str, Any]:
    """Return the verdict on bytes: each trust model's cheapest and best, at one epsilon."""
    at = figures["plan"]["byte_epsilon"]
    rows = [row for row in figures["rows"] if row["by_bytes"] and row["epsilon"] == at]
    models = {"central": Trust.SERVER, "distributed": Trust.COHORT, "local": Trust.NOBODY}
    parts = {
        name: _extremes([row for row in rows if row["trust"] == trust.value])
        for name, trust in models.items()
    }
    return {
        "epsilon": at,
        **parts,
        "overlap": parts["local"]["most_bytes"] >= parts["distributed"]["fewest_bytes"],
        "bytes_factor": parts["distributed"]["fewest_bytes"] / parts["local"]["best"]["bytes"],
    }


def _extremes(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the fewest and the most bytes of rows, and their best row in short."""
    sizes, top = [float(row["bytes"]) for row in rows], best(rows)
    names = ("method", "knob", "bytes", "accuracy", "half_width")
    return {
        "fewest_bytes": min(sizes),
        "most_bytes": max(sizes),
        "best": {name: top[name] for name in names},
    }
