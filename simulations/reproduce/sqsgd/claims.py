"""The paper's claims, each with a verdict that follows from the figures.

A difference of two ways to train is taken seed by seed, as runs of one seed share data and first
parameters, with a 95 % interval by Student's law. A claim is *reproduced* if the whole interval
supports it, *not reproduced* if none of it does, and else *not decidable* from so many runs. With a
single seed nothing about accuracy is decidable.

Figures in, words out: must not know torch, models or data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Final

from dp.local import ReconstructionProtection
from simulations.reproduce.intervals import half_width

REPRODUCED: Final = "reproduced"
NOT_REPRODUCED: Final = "not reproduced"
UNDECIDED: Final = "not decidable"

SIGNIFICANT: Final = 0.01
"""What "significant" and "significantly" shall mean of an accuracy: a point."""

COMPARABLE: Final = 0.02
"""And "comparable": no more than two points apart."""

RARE: Final = 1e-6
"""Probability of a reconstruction that counts as protection."""

Figures = Mapping[str, Any]
Row = Mapping[str, Any]
Measure = Callable[[Row], list[float]]


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim.

    Attributes:
        source: where the paper makes it.
        claim: in words.
        verdict: one of the three.
        seen: what the verdict follows from.
    """

    source: str
    claim: str
    verdict: str
    seen: str


@dataclass(frozen=True, slots=True)
class Interval:
    """Of a mean difference; infinite where one seed says nothing."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return points, as "+1.2 (0.8 to 1.6)"."""
        if math.isinf(self.low):
            return f"{100 * self.mean:+.1f} (one seed)"
        return f"{100 * self.mean:+.1f} ({100 * self.low:+.1f} to {100 * self.high:+.1f})"


def interval(values: Sequence[float]) -> Interval:
    """Return mean and interval of independent values, one for each seed."""
    mean, width = fmean(values), half_width(values)
    if width is None:
        return Interval(mean, -math.inf, math.inf)
    return Interval(mean, mean - width, mean + width)


def final_accuracies(row: Row) -> list[float]:
    """Accuracy after the last epoch, by seed."""
    return [result["curve"][-1]["accuracy"] for result in row["results"]]


def mean_accuracies(row: Row) -> list[float]:
    """Accuracy averaged over the epochs, by seed: how fast a run gets there."""
    return [fmean(point["accuracy"] for point in result["curve"]) for result in row["results"]]


def claims(figures: Figures) -> list[dict[str, Any]]:
    """Return every claim that these figures have something to say of."""
    found = [*_levels(figures), *_epsilons(figures), *_baselines(figures), *_theory(figures)]
    if figures["model"] != "resnet110":
        text = "Figures 1 to 3 on ResNet-110"
        why = "not run: `--model resnet110` needs a GPU"
        found.append(Claim("Section 4", text, UNDECIDED, why))
    return [asdict(claim) for claim in found]


def _levels(figures: Figures) -> Iterator[Claim]:
    """Figure 1."""
    rows = {row["levels"]: row for row in _of(figures, 1) if row["levels"]}
    if 2 not in rows or len(rows) < 2:
        return
    others = [row for levels, row in rows.items() if levels > 2]
    for name, measure in (("accuracy", final_accuracies), ("speed", mean_accuracies)):
        gains = [_difference(row, rows[2], measure) for row in others]
        verdicts = {_above(gain, SIGNIFICANT) for gain in gains}
        verdict = next(v for v in (NOT_REPRODUCED, UNDECIDED, REPRODUCED) if v in verdicts)
        text = f"K = 2 is significantly worse than more levels: {name}"
        seen = "; ".join(
            f"K = {row['levels']} over K = 2: {gain}"
            for row, gain in zip(others, gains, strict=True)
        )
        yield Claim("Figure 1", text, verdict, seen)
    errors = ", ".join(f"K = {levels}: {row['error']:,.0f}" for levels, row in rows.items())
    least = min(rows.values(), key=lambda row: float(row["error"]))
    largest = max(rows.values(), key=lambda row: float(row["error"]))
    verdict = REPRODUCED if largest["levels"] == 2 else NOT_REPRODUCED
    text = "K = 2 has the largest error of a report (of a zero vector, exact)"
    yield Claim("Figure 1", text, verdict, f"{errors}; least at K = {least['levels']}")


def _epsilons(figures: Figures) -> Iterator[Claim]:
    """Figure 2."""
    rows = sorted((r for r in _of(figures, 2) if r["epsilon"]), key=lambda row: row["epsilon"])
    if len(rows) < 2:
        return
    gain = _difference(rows[-1], rows[0], final_accuracies)
    pair = f"epsilon = {rows[-1]['epsilon']:g} over {rows[0]['epsilon']:g}"
    text = "a larger epsilon is needed to train well"
    yield Claim("Figure 2", text, _above(gain, SIGNIFICANT), f"{pair}: {gain}")


def _baselines(figures: Figures) -> Iterator[Claim]:
    """Figure 3, and what the paper leaves out of it."""
    rows = {(row["way"], row["epsilon"]): row for row in figures["runs"]}
    ours = {epsilon: row for (way, epsilon), row in rows.items() if way == "equal-sqsgd"}
    for epsilon, own in ours.items():
        at = f"at epsilon = {epsilon:g}"
        piecewise = rows.get(("piecewise", epsilon))
        if piecewise:
            gain = _difference(own, piecewise, final_accuracies)
            text = f"sqSGD beats the Piecewise Mechanism significantly, {at}, equal bits"
            seen = f"{gain}; the same residual, and no scaling, for both"
            yield Claim("Figure 3", text, _above(gain, SIGNIFICANT), seen)
        scaled = rows.get(("piecewise-scaled", epsilon))
        if scaled:
            gain = _difference(own, scaled, final_accuracies)
            text = f"the same against the Piecewise Mechanism as published, {at}"
            yield Claim("Figure 3", text, _above(gain, SIGNIFICANT), f"{gain}{_end(scaled)}")
        vertices = rows.get(("equal-vqsgd", epsilon))
        if vertices:
            gain = _difference(own, vertices, final_accuracies)
            text = f"vqSGD is comparable on the smaller model, {at}, its repeats not paid for"
            seen = f"sqSGD over vqSGD: {gain}; vqSGD spends {vertices['epsilon_report']:,.0f}"
            yield Claim("Figure 3", text, _within(gain, COMPARABLE), seen)
        paid = rows.get(("vqsgd-paid", epsilon))
        if paid:
            gain = _difference(own, paid, final_accuracies)
            text = f"sqSGD beats vqSGD at the same true epsilon, {at} (our question)"
            seen = f"{gain}, at {own['bits']:,} and {paid['bits']:,} bits"
            yield Claim("ours", text, _above(gain, 0.0), seen)
    narrow = next((r for r in figures["runs"] if r["way"] == "sqsgd-narrow"), None)
    usual = narrow and rows.get(("sqsgd", narrow["epsilon"]))
    if narrow and usual:
        gain = _difference(narrow, usual, final_accuracies)
        text = f"a tenth of U = 10 and the best division of epsilon at K = {narrow['levels']}"
        text += f" beat the paper's choice at K = {usual['levels']} (our question)"
        yield Claim("ours", text, _above(gain, 0.0), str(gain))


def _theory(figures: Figures) -> Iterator[Claim]:
    """What needs no training."""
    settings = figures["theory"]
    shortest = min(setting["kept"] for setting in settings)
    outside = [
        f"K = {setting['levels']}, epsilon = {setting['epsilon']:g}: "
        f"kappa = {setting['printed']['kappa']}"
        for setting in settings
        if setting["kept"] == shortest and not setting["kappa_in_printed_range"]
    ]
    text = "kappa in 0 .. d - 1 can be chosen as described, for all of these settings"
    seen = "; ".join(outside) or "all in range"
    yield Claim("Section 3.1", text, NOT_REPRODUCED if outside else REPRODUCED, seen)
    epsilon = max(figures["plan"]["epsilons"])
    for targets, what in ((shortest, "what is sent"), (figures["parameters"], "the gradient")):
        found = ReconstructionProtection(targets, epsilon).closeness_for(RARE)
        if found is None:
            verdict, seen = NOT_REPRODUCED, "the bound is above 1 even for a = 1"
        else:
            verdict, seen = REPRODUCED, f"from a = {found:.3f} on, for one report"
        text = f"one report at epsilon = {epsilon:g} protects {what} ({targets:,} numbers)"
        yield Claim("Theorem 1", f"{text} from reconstruction", verdict, seen)
    rounds = figures["rounds_of_epoch"]
    whole = ReconstructionProtection(figures["parameters"], rounds * epsilon)
    verdict = NOT_REPRODUCED if whole.closeness_for(RARE) is None else REPRODUCED
    text = f"an epoch of {rounds} reports protects the gradient from reconstruction"
    seen = f"epsilon = {rounds * epsilon:,.0f}"
    yield Claim("Theorem 1", text, verdict, seen)


def _of(figures: Figures, number: int) -> list[Row]:
    """The rows of one of the paper's figures."""
    return [row for row in figures["runs"] if number in row["figures"]]


def _difference(first: Row, second: Row, measure: Measure) -> Interval:
    """First minus second, seed by seed."""
    return interval([a - b for a, b in zip(measure(first), measure(second), strict=True)])


def _above(gain: Interval, margin: float) -> str:
    """Verdict on "greater by more than the margin"."""
    if gain.low > margin:
        return REPRODUCED
    return NOT_REPRODUCED if gain.high < margin else UNDECIDED


def _within(gain: Interval, margin: float) -> str:
    """Verdict on "no more than the margin apart"."""
    if -margin < gain.low and gain.high < margin:
        return REPRODUCED
    return NOT_REPRODUCED if gain.high < -margin or gain.low > margin else UNDECIDED


def _end(row: Row) -> str:
    """Say so if runs diverged."""
    gone = [result["rounds"] for result in row["results"] if result["diverged"]]
    return f"; {len(gone)} runs diverged, within {max(gone)} rounds" if gone else ""
