"""Whether anything helps: differences seed by seed, and verdicts that follow from their intervals.

Runs of one seed share clients, data, first model, cohorts and batches, so ways are compared in
pairs. That a way is better is *reproduced* if the whole interval of its gain is above zero, *not
reproduced* if all of it is below what anybody would care for, and else *not decided*.

Figures in, claims out: must not know models, data or protocols.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, Final

from simulations.campaigns.claims import OURS, Claim, agreed, compared, gains
from simulations.campaigns.render import points
from simulations.campaigns.rows import Figures, Row, distinct, where

NEGLIGIBLE: Final = 0.005  # a gain in accuracy that is surely below half a point is none
NAMES: Final = {"none": "no average", "momentum": "the server's momentum", "denoise": "Denoise"}


def comparison(question: str, what: str, against: str, found: Sequence[float]) -> dict[str, Any]:
    """Return one way against another: what differences, one for each seed, come to."""
    named = {"question": question, "what": what, "against": against}
    return {**named, **compared(found, NEGLIGIBLE)}


def _of_rows(question: str, one: Row, other: Row) -> dict[str, Any]:
    return comparison(question, one["title"], other["title"], _gains(one, other))


def comparisons(figures: Figures) -> list[dict[str, Any]]:
    """Return every comparison that decides a question."""
    parts = (power, sketches, following, averages)
    return [each for part in parts for each in part(figures)]


def verdicts(found: Sequence[Row]) -> dict[str, str]:
    """Return the verdict on every question; its comparisons have to agree."""
    return {
        question: agreed(each["verdict"] for each in where(found, question=question))
        for question in distinct(found, "question")
    }


def claims(figures: Figures) -> Iterator[Claim]:
    """Yield a claim for every question."""
    found = figures["conclusions"]["comparisons"]
    for question, verdict in verdicts(found).items():
        mine = where(found, question=question)
        seen = ", ".join(points(each["mean"], each["half_width"], "+.1f") for each in mine)
        yield Claim(f"better: {question}", OURS, verdict, f"{seen} points", tolerance=NEGLIGIBLE)


def power(figures: Figures) -> Iterator[dict[str, Any]]:
    """Compare secure PowerSGD with the sketches that are as dear."""
    rows = alone(figures)
    for role, sketch in figures["matched"].items():
        measure, rank = role.rsplit(", rank ", 1)
        question = f"secure PowerSGD, against sketches of as many bytes in {measure}"
        yield _of_rows(question, rows[f"powersgd-{rank}"], rows[sketch])


def sketches(figures: Figures) -> Iterator[dict[str, Any]]:
    """Compare sketches of fixed rates with no compression, at the same epsilon."""
    rows, question = alone(figures), "sketches, against no compression"
    for rate in figures["plan"]["rates"]:
        if rate > 1.0:
            yield _of_rows(question, rows[f"sketch-{rate:.6g}"], rows["sketch-1"])


def following(figures: Figures) -> Iterator[dict[str, Any]]:
    """Compare clips that follow with the right one, and with the one at which they began."""
    own = alone(figures)
    common = {row["arm"]: row for row in figures["common"]} | {"sketch-1": own["sketch-1"]}
    for rates, rows in (("its own learning rate", own), ("the right clip's rate", common)):
        about = f"a following clip at {rates}, against"
        for start in figures["plan"]["starts"]:
            one, wrong = rows[f"following-{start:.6g}"], rows.get(f"clip-{start:.6g}")
            yield _of_rows(f"{about} the right one", one, rows["sketch-1"])
            if wrong is not None:
                yield _of_rows(f"{about} staying at a wrong one", one, wrong)


def averages(figures: Figures) -> Iterator[dict[str, Any]]:
    """Compare Denoise and momentum with nothing, and with one another, over all ways at once.

    The difference of a seed is the mean over all ways to release: what is asked is whether an
    average helps whatever it follows. `by_arm` has the ways one by one.
    """
    for momentum in figures["plan"]["momenta"]:
        for one, other in (("denoise", "none"), ("denoise", "momentum"), ("momentum", "none")):
            pairs = _pairs(figures, momentum, one, other)
            by_seed = zip(*(_gains(*pair) for pair in pairs), strict=True)
            yield comparison(
                f"{NAMES[one]}, against {NAMES[other]}",
                f"{NAMES[one]}, {momentum:g}",
                NAMES[other] + ("" if other == "none" else f", {momentum:g}"),
                [fmean(values) for values in by_seed],
            )


def by_arm(figures: Figures, one: str, other: str) -> list[dict[str, Any]]:
    """Compare two averages behind every way to release, at every momentum."""
    return [
        comparison(left["title"], f"{NAMES[one]}, {momentum:g}", NAMES[other], _gains(left, right))
        for momentum in figures["plan"]["momenta"]
        for left, right in _pairs(figures, momentum, one, other)
    ]


def _gains(one: Row, other: Row) -> list[float]:
    return gains(one["accuracies"], other["accuracies"])


def _pairs(figures: Figures, momentum: float, one: str, other: str) -> list[tuple[Row, Row]]:
    """Return the rows of all ways to release with two averages; "none" has no momentum."""
    rows = {(r["arm"], r["average"], r["momentum"]): r for r in figures["rows"]}
    second = 0.0 if other == "none" else momentum
    arms = dict.fromkeys(row["arm"] for row in figures["rows"] if row["average"] != "none")
    return [(rows[arm, one, momentum], rows[arm, other, second]) for arm in arms]


def alone(figures: Figures) -> dict[str, Row]:
    """Return the rows without an average, by way to release."""
    return {row["arm"]: row for row in where(figures["rows"], average="none")}
