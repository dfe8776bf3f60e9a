"""Surveys beside other ways to the same numbers: `veilsum reproduce statistics`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any, Final

from matplotlib.figure import Figure

from simulations.campaigns.campaign import Campaign
from simulations.campaigns.claims import (
    OURS,
    Claim,
    Interval,
    above,
    below,
    every,
    fact,
    gain,
    half_width,
)
from simulations.campaigns.plots import Style, curves, dress, panels
from simulations.campaigns.render import Column, Part, pivot, table
from simulations.campaigns.rows import Figures, Row, distinct, where
from simulations.campaigns.store import Cell
from simulations.campaigns.study import Study
from simulations.common.figures import BLUE, GREEN, GREY, ORANGE
from simulations.studies.statistics import measured
from simulations.studies.statistics.sources import COLUMNS, MADE

WAYS: Final = {
    "survey": BLUE,
    "central Gaussian": GREY,
    "central Laplace": ORANGE,
    "local OUE": GREEN,
}
COVERED: Final = (0.93, 0.97)  # shares of intervals of 95 % that are right


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured."""

    source: str = "adult age"  # of histograms and intervals
    sources: tuple[str, ...] = tuple(COLUMNS)  # of medians
    spoken: str = "shakespeare"  # of items
    clients: tuple[int, ...] = (200, 1000, 32500)
    epsilons: tuple[float, ...] = (0.5, 1.0, 2.0)
    repeats: int = 200  # of noise, for each seed
    votes: int = 32  # of a client, for items
    seeds: int = 3

    def __post_init__(self) -> None:
        """Raise ``ValueError`` unless intervals can be made."""
        if self.seeds < 2 or self.repeats < 2:
            got = f"{self.seeds} and {self.repeats}"
            raise ValueError(f"seeds and repeats must be at least 2, got {got}")


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Measure errors, medians, items and intervals, seed by seed."""
    plan = study.plan
    middle = plan.clients[min(1, len(plan.clients) - 1)]

    def gathered(kind: str, make: Any, given: list[tuple[Any, ...]]) -> list[Any]:
        def cell(each: tuple[Any, ...], seed: int) -> Cell:
            return Cell(f"{kind} {' '.join(map(str, each))} {seed}", make, (*each, seed))

        return [row for runs in study.by_arm(given, cell) for rows in runs for row in rows]

    sized = [(plan.source, n, e, plan.repeats) for n, e in product(plan.clients, plan.epsilons)]
    covered = [each for each in sized if each[1] <= middle]
    halved = [(source, middle, 0.5, plan.repeats) for source in plan.sources]
    voted = [(plan.spoken, e, plan.votes) for e in plan.epsilons]
    found = {
        "histograms": gathered("histogram", measured.histograms, sized),
        "medians": gathered("median", measured.ranks, halved),
        "items": gathered("items", measured.items, voted),
        "coverage": gathered("coverage", measured.coverage, covered),
    }
    return {
        "seeds": list(study.seeds),
        "delta": measured.DELTA,
        "adjacency": "a client answers otherwise, or is left out",
        **{name: _together(rows) for name, rows in found.items()},
    }


_KEYS: Final = ("way", "source", "clients", "epsilon", "k", "number")


def _together(rows: list[Any]) -> list[dict[str, Any]]:
    """Put the seeds of each arm together: means of each seed, and counts added up."""
    arms: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        arms.setdefault(tuple(row.get(key) for key in _KEYS), []).append(row)
    together = []
    for key, found in arms.items():
        row = {name: value for name, value in zip(_KEYS, key, strict=True) if value is not None}
        for name in ("held", "told", "of"):
            if name in found[0]:
                row[name] = sum(each[name] for each in found)
        for name in ("recall", "precision"):
            if name in found[0]:
                values = [each[name] for each in found if each[name] == each[name]]
                row |= {name: fmean(values) if values else None}
                row |= {f"{name}_half_width": half_width(values) if values else None}
        if "errors" in found[0]:
            values = [fmean(each["errors"]) for each in found]
            row |= {"error": fmean(values), "half_width": half_width(values), "of_seeds": values}
        if "told" in row:
            row["share"] = row["held"] / row["told"] if row["told"] else None
        together.append(row)
    return together


ERROR: Final = Column("", "error", ".2f", width="half_width", width_form=".2f")


def _parts(figures: Figures) -> Iterator[Part]:
    rows = figures["histograms"]
    labels, head = (Column("clients", "way"),), "{:,}".format
    for epsilon in distinct(rows, "epsilon"):
        title = f"Error of a count in one of {measured.BINS} bins, epsilon {epsilon:g}"
        found = where(rows, epsilon=epsilon)
        yield pivot(title, labels, "clients", ERROR, found, head=head, brief=True)
    title, labels = "Ranks that a median is off, over sigma, epsilon 0.5", (Column("", "way"),)
    yield pivot(title, labels, "source", ERROR, figures["medians"], head=str, brief=True)
    yield table("The most frequent words", ITEMS, figures["items"], brief=True)
    yield table("Intervals of 95 %", INTERVALS, figures["coverage"], brief=True)


ITEMS: Final = (
    Column("", "way"),
    Column("asked for", "k"),
    Column("epsilon", "epsilon", "g"),
    Column("recall", "recall", ".2f", width="recall_half_width"),
    Column("precision", "precision", ".2f", width="precision_half_width"),
)
INTERVALS: Final = (
    Column("", "number"),
    Column("clients", "clients", ","),
    Column("epsilon", "epsilon", "g"),
    Column("hold the truth, %", "share", ".1f", 100),
    Column("told", lambda row: f"{row['told']:,} of {row['of']:,}"),
)


def claims(figures: Figures) -> Iterator[Claim]:
    """Yield what surveys cost beside a trusted server and local privacy."""
    rows = figures["histograms"]

    def ratio(way: str) -> Interval:
        """Return that of the errors, over all sizes, epsilons and seeds."""
        found = []
        for row in where(rows, way="survey"):
            (other,) = where(rows, way=way, clients=row["clients"], epsilon=row["epsilon"])
            pairs = zip(row["of_seeds"], other["of_seeds"], strict=True)
            found += [ours / theirs for ours, theirs in pairs]
        return Interval.of(found)

    gaussian, laplace, unary = map(ratio, ("central Gaussian", "central Laplace", "local OUE"))
    seen = "ratio of errors, all sizes and epsilons"
    said = "a histogram's error is within 15 % of a trusted server's Gaussian noise"
    yield Claim.about(said, OURS, gaussian, below(gaussian, 1.15), seen, tolerance=0.15)
    said = "one small histogram alone is better served by a trusted server's Laplace noise"
    yield Claim.about(said, OURS, laplace, above(laplace, 1.0), seen)
    said = "a histogram's error is smaller than with local privacy (OUE)"
    yield Claim.about(said, OURS, unary, below(unary, 1.0), seen)
    medians = figures["medians"]
    for way in ("equal bins", "search"):
        verdicts = []
        for source in distinct(medians, "source"):
            ours, theirs = (where(medians, way=each, source=source)[0] for each in ("tree", way))
            verdicts.append(above(gain(theirs["of_seeds"], ours["of_seeds"]), 0.0))
        yield Claim(f"a median from a tree is closer than by {way}", OURS, every(verdicts))
    shares = [row for row in figures["coverage"] if row["told"]]
    exact = [row for row in shares if row["number"] not in ("median", "evaluation")]
    low, high = (pick(row["share"] for row in exact) for pick in (min, max))
    yield Claim(
        "93 to 97 % of the intervals hold the truth",
        OURS,
        every(fact(_near(row)) for row in exact),
        f"{100 * low:.1f} to {100 * high:.1f} %",
        measured=low,
    )
    wide = [row["share"] for row in shares if row not in exact]
    yield Claim(
        "at least 93 % of the intervals of medians and areas hold it, whose bounds cover bins",
        OURS,
        every(fact(share >= COVERED[0]) for share in wide),
        f"{100 * min(wide):.1f} to {100 * max(wide):.1f} %",
        measured=min(wide),
    )


def _near(row: Row) -> bool:
    """Say whether a share of intervals may be in the range, for all that chance does to it."""
    spread = 3.0 * (0.95 * 0.05 / row["told"]) ** 0.5
    return bool(COVERED[0] - spread <= row["share"] <= COVERED[1] + spread)


def plot(figures: Figures) -> Figure:
    """Plot the error of a count against the number of clients, a panel for each epsilon."""
    rows = figures["histograms"]
    epsilons = distinct(rows, "epsilon")
    figure, [panes] = panels(1, len(epsilons), 4.8 * len(epsilons), 4.2)
    looks = {way: Style(way, colour, "o", "-") for way, colour in WAYS.items()}
    for axes, epsilon in zip(panes, epsilons, strict=True):
        curves(axes, where(rows, epsilon=epsilon), "way", looks, "clients", "error", "half_width")
        axes.set_yscale("log")
        dress(axes, "clients", "error of a count", f"epsilon {epsilon:g}", log="x")
    return figure


PRESETS: Final = {
    "usual": Plan(),
    "quick": Plan(
        source=MADE,
        sources=(MADE,),
        spoken=MADE,
        clients=(200, 500),
        epsilons=(1.0,),
        repeats=20,
        votes=8,
        seeds=2,
    ),
}

CAMPAIGN = Campaign(
    name="statistics",
    title="Private statistics beside other ways to the same numbers",
    presets=PRESETS,
    figures=figures_of,
    claims=claims,
    parts=_parts,
    plots={"histograms": plot},
)
