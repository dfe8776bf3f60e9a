"""Whether anything helps: differences seed by seed, and verdicts that follow from their intervals.

Runs of one seed share clients, data, first model, cohorts and batches, so ways are compared in
pairs. That a way is better is *reproduced* if the whole interval of its gain is above zero, *not
reproduced* if all of it is below what anybody would care for, and else *not decided*.

Figures in, claims out: must not know models, data or protocols.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from simulations.reproduce.engine.claims import OURS, Claim, Interval, above, agreed, gains
from simulations.reproduce.engine.render import points

NEGLIGIBLE: Final = 0.005
"""A gain in accuracy that is surely below half a point is none."""

NAMES: Final = {"none": "no average", "momentum": "the server's momentum", "denoise": "Denoise"}

Row = Mapping[str, Any]
Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Comparison:
    """One way against another."""

    question: str  # that it helps to decide
    what: str  # the one
    against: str  # the other
    mean: float  # of the differences in accuracy
    half_width: float | None  # of their interval; None with one seed
    verdict: str  # on "it is better"


def compared(question: str, what: str, against: str, found: Sequence[float]) -> Comparison:
    """Return the comparison that differences, one for each seed, come to."""
    seen = Interval.of(found)
    width = None if len(found) < 2 else seen.half()
    return Comparison(question, what, against, seen.mean, width, above(seen, 0.0, NEGLIGIBLE))


def comparisons(figures: Figures) -> list[Comparison]:
    """Return every comparison that decides a question."""
    return [*power(figures), *sketches(figures), *following(figures), *averages(figures)]


def verdicts(found: Sequence[Comparison]) -> dict[str, str]:
    """Return the verdict on every question; its comparisons have to agree."""
    questions = dict.fromkeys(each.question for each in found)
    return {q: agreed(each.verdict for each in found if each.question == q) for q in questions}


def claims(found: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Return a claim for every question."""
    rows = []
    for question, verdict in verdicts(found).items():
        mine = [each for each in found if each.question == question]
        seen = ", ".join(points(each.mean, each.half_width, "+.1f") for each in mine)
        claim = Claim(
            statement=f"better: {question}",
            source=OURS,
            tolerance=NEGLIGIBLE,
            verdict=verdict,
            seen=f"{seen} points",
        )
        rows.append(claim.figures())
    return rows


def power(figures: Figures) -> list[Comparison]:
    """Compare secure PowerSGD with the sketches that are as dear."""
    rows, found = alone(figures), []
    for role, sketch in figures["matched"].items():
        measure, rank = role.rsplit(", rank ", 1)
        one, other = rows[f"powersgd-{rank}"], rows[sketch]
        question = f"secure PowerSGD, against sketches of as many bytes in {measure}"
        found.append(compared(question, one["title"], other["title"], _gains(one, other)))
    return found


def sketches(figures: Figures) -> list[Comparison]:
    """Compare sketches of fixed rates with no compression, at the same epsilon."""
    rows, found = alone(figures), []
    for rate in figures["plan"]["rates"]:
        if rate > 1.0:
            one, other = rows[f"sketch-{rate:.6g}"], rows["sketch-1"]
            question = "sketches, against no compression"
            found.append(compared(question, one["title"], other["title"], _gains(one, other)))
    return found


def following(figures: Figures) -> list[Comparison]:
    """Compare clips that follow with the right one, and with the one at which they began."""
    found = []
    own = alone(figures)
    common = {row["arm"]: row for row in figures["common"]} | {"sketch-1": own["sketch-1"]}
    for rates, rows in (("its own learning rate", own), ("the right clip's rate", common)):
        for start in figures["plan"]["starts"]:
            one, right = rows[f"following-{start:.6g}"], rows["sketch-1"]
            question = f"a following clip at {rates}, against the right one"
            found.append(compared(question, one["title"], right["title"], _gains(one, right)))
            first = rows.get(f"clip-{start:.6g}")
            if first is not None:
                question = f"a following clip at {rates}, against staying at a wrong one"
                found.append(compared(question, one["title"], first["title"], _gains(one, first)))
    return found


def averages(figures: Figures) -> list[Comparison]:
    """Compare Denoise and momentum with nothing, and with one another, over all ways at once.

    The difference of a seed is the mean over all ways to release: what is asked is whether an
    average helps whatever it follows. `by_arm` has the ways one by one.
    """
    found = []
    for momentum in figures["plan"]["momenta"]:
        for one, other in (("denoise", "none"), ("denoise", "momentum"), ("momentum", "none")):
            pairs = _pairs(figures, momentum, one, other)
            by_seed = zip(*(_gains(*pair) for pair in pairs), strict=True)
            question = f"{NAMES[one]}, against {NAMES[other]}"
            found.append(
                compared(
                    question,
                    f"{NAMES[one]}, {momentum:g}",
                    NAMES[other] + ("" if other == "none" else f", {momentum:g}"),
                    [fmean(values) for values in by_seed],
                )
            )
    return found


def by_arm(figures: Figures, one: str, other: str) -> list[Comparison]:
    """Compare two averages behind every way to release, at every momentum."""
    found = []
    for momentum in figures["plan"]["momenta"]:
        for first, second in _pairs(figures, momentum, one, other):
            what = f"{NAMES[one]}, {momentum:g}"
            found.append(compared(first["title"], what, NAMES[other], _gains(first, second)))
    return found


def _gains(one: Row, other: Row) -> list[float]:
    """Return the differences in accuracy, seed by seed."""
    return gains(one["accuracies"], other["accuracies"])


def _pairs(figures: Figures, momentum: float, one: str, other: str) -> list[tuple[Row, Row]]:
    """Return the rows of all ways to release with two averages; "none" has no momentum."""
    rows = {(r["arm"], r["average"], r["momentum"]): r for r in figures["rows"]}
    second = 0.0 if other == "none" else momentum
    arms = dict.fromkeys(row["arm"] for row in figures["rows"] if row["average"] != "none")
    return [(rows[arm, one, momentum], rows[arm, other, second]) for arm in arms]


def alone(figures: Figures) -> dict[str, Row]:
    """Return the rows without an average, by way to release."""
    return {row["arm"]: row for row in figures["rows"] if row["average"] == "none"}
