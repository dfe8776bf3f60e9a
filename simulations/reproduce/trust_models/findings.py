"""What the rows say: who wins at each epsilon, by how much, and what would make up for it.

A trust model is as good as its best method at the epsilon in question. That favours local privacy,
which has the most methods to choose from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simulations.reproduce.intervals import half_width
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


def at_epsilon(figures: Figures, epsilon: float) -> dict[str, Any]:
    """Return the verdict at one epsilon."""
    models = (Trust.SERVER, Trust.COHORT, Trust.NOBODY)
    central, distributed, local = (
        best([row for row in by_epsilon(figures, trust) if row["epsilon"] == epsilon])
        for trust in models
    )
    ahead, width = difference(distributed, local)
    return {
        "epsilon": epsilon,
        "central": central["accuracy"],
        "distributed": distributed["accuracy"],
        "local": local["accuracy"],
        "best_local": local["method"],
        "ahead": ahead,
        "ahead_half_width": width,
        "winner": winner(ahead, width),
        "below_central": difference(central, distributed)[0],
        "epsilon_factor": _epsilon_factor(figures, epsilon, distributed["accuracy"]),
        "clients_factor": _clients_factor(figures, epsilon, local["accuracy"]),
    }


def difference(one: Row, other: Row) -> tuple[float, float | None]:
    """Return the mean of one accuracy less the other, and the half-width of its interval.

    Runs of one seed have the same clients in the same order, so that they are compared in pairs,
    as many as both rows have.
    """
    pairs = zip(one["accuracies"], other["accuracies"], strict=False)
    gaps = [first - second for first, second in pairs]
    return sum(gaps) / len(gaps), half_width(gaps)


def winner(ahead: float, width: float | None) -> str:
    """Name the better of distributed and local, or nobody where the interval holds zero."""
    if width is None or abs(ahead) <= width:
        return "undecided"
    return "distributed" if ahead > 0.0 else "local"


def crossing(xs: Sequence[float], ys: Sequence[float], target: float) -> dict[str, Any]:
    """Return where a curve first reaches a target, between two points by the logarithm of x.

    A point counts for all larger x as well: whoever may spend more need not.

    Args:
        xs: ascending and positive.
        ys: of the same length.

    Returns:
        ``value``, and ``relation``: ``=``, or ``<=`` if the first point is enough, or ``>`` if
        the last is not.
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
