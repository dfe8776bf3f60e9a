"""What the rows say: who wins at each epsilon, by how much, and what would make up for it.

A trust model is as good as its best method at the epsilon in question. That favours local privacy,
which has the most methods to choose from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, Final

from simulations.campaigns.claims import OURS, Claim, Interval, half_width
from simulations.campaigns.rows import Figures, Row, distinct, where
from simulations.studies.trust_models.methods import Trust

MODELS: Final = {
    "central": Trust.SERVER.value,
    "distributed": Trust.COHORT.value,
    "local": Trust.NOBODY.value,
}


def findings(figures: Figures) -> dict[str, Any]:
    """Return what follows by epsilon and by bytes, from the plan and the rows of `reproduce`."""
    return {
        "by_epsilon": [at_epsilon(figures, e) for e in figures["plan"]["epsilons"]],
        "by_bytes": by_bytes(figures),
    }


def best(rows: Sequence[Row]) -> Row:
    """Return the row of the highest mean accuracy."""
    return max(rows, key=lambda row: float(row["accuracy"]))


def best_at(figures: Figures, epsilon: float) -> list[Row]:
    """Return the best rows at one epsilon, one report each: central, distributed and local."""
    rows = where(figures["rows"], by_epsilon=True, epsilon=epsilon)
    return [best(where(rows, trust=trust)) for trust in MODELS.values()]


def at_epsilon(figures: Figures, epsilon: float) -> dict[str, Any]:
    """Return what follows at one epsilon."""
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


def claims(figures: Figures) -> Iterator[Claim]:
    """Yield, for every epsilon, whether the distributed sum beats the best local method."""
    for epsilon in figures["plan"]["epsilons"]:
        _, distributed, local = best_at(figures, epsilon)
        ahead = Interval.of(paired(distributed, local))
        said = f"at epsilon = {epsilon:g} the distributed sum beats the best local method"
        seen = f"{100 * distributed['accuracy']:.1f} % against {100 * local['accuracy']:.1f} %"
        yield Claim.more(said, OURS, ahead, f"{seen}, {local['method']}")


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
    rows = where(figures["rows"], trust=MODELS["local"], by_epsilon=True)
    epsilons = sorted(distinct(rows, "epsilon"))
    tops = [best(where(rows, epsilon=each))["accuracy"] for each in epsilons]
    found = crossing(epsilons, tops, target)
    return {"value": found["value"] / epsilon, "relation": found["relation"]}


def _clients_factor(figures: Figures, epsilon: float, target: float) -> dict[str, Any]:
    """How many times the clients local privacy has when the distributed sum is just as good."""
    rows = where(figures["rows"], trust=MODELS["distributed"], epsilon=epsilon, by_clients=True)
    rows.sort(key=lambda row: float(row["share"]))
    found = crossing([r["share"] for r in rows], [r["accuracy"] for r in rows], target)
    opposite = {"=": "=", "<=": ">=", ">": "<"}
    return {"value": 1.0 / found["value"], "relation": opposite[found["relation"]]}


def by_bytes(figures: Figures) -> dict[str, Any]:
    """Return what follows for bytes: each trust model's cheapest and best, at one epsilon."""
    at = figures["plan"]["byte_epsilon"]
    rows = where(figures["rows"], by_bytes=True, epsilon=at)
    parts = {name: _extremes(where(rows, trust=trust)) for name, trust in MODELS.items()}
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
