"""The paper's claims, each with a verdict that follows from the figures.

A difference of two ways to train is taken seed by seed, as runs of one seed share data and first
parameters. With a single seed nothing about accuracy is decided.

Figures in, claims out: must not know torch, models or data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import fmean
from typing import Final

from dp.local import ReconstructionProtection
from simulations.campaigns.claims import (
    OURS,
    UNDECIDED,
    Claim,
    Interval,
    above,
    decided,
    every,
    fact,
    gain,
    within,
)
from simulations.campaigns.rows import Figures, Row, first

# What "significant" and "significantly" shall mean of an accuracy: a point
SIGNIFICANT: Final = 0.01

COMPARABLE: Final = 0.02  # and "comparable": no more than two points apart
RARE: Final = 1e-6  # probability of a reconstruction that counts as protection
Measure = Callable[[Row], list[float]]


def final_accuracies(row: Row) -> list[float]:
    """Return accuracy after the last epoch, by seed."""
    return [result["curve"][-1]["accuracy"] for result in row["results"]]


def mean_accuracies(row: Row) -> list[float]:
    """Return accuracy averaged over the epochs, by seed: how fast a run gets there."""
    return [fmean(point["accuracy"] for point in result["curve"]) for result in row["results"]]


def claims(figures: Figures) -> Iterator[Claim]:
    """Yield every claim that these figures have something to say of."""
    for part in (_levels, _epsilons, _baselines, _trade, _theory):
        yield from part(figures)
    if figures["model"] != "resnet110":
        text = "Figures 1 to 3, and 4, on ResNet-110"
        why = "not run: `--preset resnet110` takes hours of a GPU"
        yield Claim(text, "Section 4", UNDECIDED, why)


def _levels(figures: Figures) -> Iterator[Claim]:
    """Yield what Figure 1 says."""
    rows = {row["levels"]: row for row in _of(figures, 1) if row["levels"]}
    if 2 not in rows or len(rows) < 2:
        return
    others = [row for levels, row in rows.items() if levels > 2]
    for name, measure in (("accuracy", final_accuracies), ("speed", mean_accuracies)):
        found = [_gain(row, rows[2], measure) for row in others]
        gained = zip(others, found, strict=True)
        yield Claim(
            f"K = 2 is significantly worse than more levels: {name}",
            "Figure 1",
            every(above(each, SIGNIFICANT) for each in found),
            "; ".join(f"K = {row['levels']} over K = 2: {shown(each)}" for row, each in gained),
            tolerance=SIGNIFICANT,
        )
    errors = ", ".join(f"K = {levels}: {row['error']:,.0f}" for levels, row in rows.items())
    least = min(rows.values(), key=lambda row: float(row["error"]))
    largest = max(rows.values(), key=lambda row: float(row["error"]))
    text = "K = 2 has the largest error of a report (of a zero vector, exact)"
    seen = f"{errors}; least at K = {least['levels']}"
    yield Claim(text, "Figure 1", fact(largest["levels"] == 2), seen)


def _epsilons(figures: Figures) -> Iterator[Claim]:
    """Yield what Figure 2 says."""
    rows = sorted((r for r in _of(figures, 2) if r["epsilon"]), key=lambda row: row["epsilon"])
    if len(rows) < 2:
        return
    found = _gain(rows[-1], rows[0])
    pair = f"epsilon = {rows[-1]['epsilon']:g} over {rows[0]['epsilon']:g}"
    text = "a larger epsilon is needed to train well"
    yield Claim.more(text, "Figure 2", found, f"{pair}: {shown(found)}", margin=SIGNIFICANT)


def _trade(figures: Figures) -> Iterator[Claim]:
    """Yield what Figure 5 says."""
    rows = sorted(_of(figures, 5), key=lambda row: int(row["levels"]))
    pairs = list(pairwise(row for row in rows if row["levels"]))
    found = [_gain(more, fewer) for fewer, more in pairs]
    if not found:
        return
    falls, rises = any(each.below(0.0) for each in found), all(each.above(0.0) for each in found)
    yield Claim(
        "more levels and fewer coordinates, at equal bits, do not always raise accuracy",
        "Figure 5",
        decided(falls, rises),
        "; ".join(
            f"K = {more['levels']} over {fewer['levels']}: {shown(each)}"
            for (fewer, more), each in zip(pairs, found, strict=True)
        ),
    )


def _baselines(figures: Figures) -> Iterator[Claim]:
    """Yield what Figure 3 says, and what the paper leaves out of it."""
    rows = {(row["way"], row["epsilon"]): row for row in figures["runs"]}
    ours = {epsilon: row for (way, epsilon), row in rows.items() if way == "equal-sqsgd"}
    for epsilon, own in ours.items():
        at = f"at epsilon = {epsilon:g}"
        if piecewise := rows.get(("piecewise", epsilon)):
            found = _gain(own, piecewise)
            text = f"sqSGD beats the Piecewise Mechanism significantly, {at}, equal bits, own rates"
            seen = f"{shown(found)}; the same residual, and no scaling, for both"
            yield Claim.more(text, "Figure 3", found, seen, margin=SIGNIFICANT)
        if scaled := rows.get(("piecewise-scaled", epsilon)):
            found = _gain(own, scaled)
            text = f"the same against the Piecewise Mechanism as published, {at}"
            seen = f"{shown(found)}{_end(scaled)}"
            yield Claim.more(text, "Figure 3", found, seen, margin=SIGNIFICANT)
        if vertices := rows.get(("equal-vqsgd", epsilon)):
            found, spent = _gain(own, vertices), vertices["epsilon_report"]
            text = f"vqSGD is comparable on the smaller model, {at}, its repeats not paid for"
            seen = f"sqSGD over vqSGD: {shown(found)}; vqSGD spends {spent:,.0f}"
            verdict = within(found, COMPARABLE)
            yield Claim.about(text, "Figure 3", found, verdict, seen, tolerance=COMPARABLE)
        if paid := rows.get(("vqsgd-paid", epsilon)):
            found = _gain(own, paid)
            text = f"sqSGD beats vqSGD at the same true epsilon, {at}"
            seen = f"{shown(found)}, at {own['bits']:,} and {paid['bits']:,} bits"
            yield Claim.more(text, OURS, found, seen)
    narrow = first(figures["runs"], way="sqsgd-narrow")
    usual = narrow and rows.get(("sqsgd", narrow["epsilon"]))
    if usual:
        found = _gain(narrow, usual)
        text = f"a tenth of U = 10 and the best division of epsilon at K = {narrow['levels']}"
        text += f" beat the paper's choice at K = {usual['levels']}"
        yield Claim.more(text, OURS, found, shown(found))


def _theory(figures: Figures) -> Iterator[Claim]:
    """Yield what needs no training."""
    settings = figures["theory"]
    shortest = min(setting["kept"] for setting in settings)
    outside = [
        f"K = {setting['levels']}, epsilon = {setting['epsilon']:g}: "
        f"kappa = {setting['printed']['kappa']}"
        for setting in settings
        if setting["kept"] == shortest and not setting["kappa_in_printed_range"]
    ]
    text = "kappa in 0 .. d - 1 can be chosen as described, for all of these settings"
    yield Claim(text, "Section 3.1", fact(not outside), "; ".join(outside) or "all in range")
    epsilon, parameters = max(figures["plan"]["epsilons"]), figures["parameters"]
    for targets, what in ((shortest, "what is sent"), (parameters, "the gradient")):
        found = ReconstructionProtection(targets, epsilon).closeness_for(RARE)
        text = f"one report at epsilon = {epsilon:g} protects {what} ({targets:,} numbers)"
        above_one = "the bound is above 1 even for a = 1"
        seen = above_one if found is None else f"from a = {found:.3f} on, for one report"
        yield _protects(f"{text} from reconstruction", found, seen)
    rounds = figures["rounds_of_epoch"]
    whole = ReconstructionProtection(parameters, rounds * epsilon).closeness_for(RARE)
    text = f"an epoch of {rounds} reports protects the gradient from reconstruction"
    yield _protects(text, whole, f"epsilon = {rounds * epsilon:,.0f}")


def _protects(statement: str, closeness: float | None, seen: str) -> Claim:
    return Claim(statement, "Theorem 1", fact(closeness is not None), seen)


def _of(figures: Figures, number: int) -> list[Row]:
    return [row for row in figures["runs"] if number in row["figures"]]


def _gain(one: Row, other: Row, measure: Measure = final_accuracies) -> Interval:
    return gain(measure(one), measure(other))


def shown(found: Interval) -> str:
    """Return points, as "+1.2 (0.8 to 1.6)"."""
    width = found.half()
    if math.isinf(width):
        return f"{100 * found.mean:+.1f} (one seed)"
    low, high = found.mean - width, found.mean + width
    return f"{100 * found.mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def _end(row: Row) -> str:
    """Say so if runs diverged."""
    gone = [result["rounds"] for result in row["results"] if result["diverged"]]
    return f"; {len(gone)} runs diverged, within {max(gone)} rounds" if gone else ""
