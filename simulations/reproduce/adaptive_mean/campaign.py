"""Mean estimation with sketches that tune themselves: `veilsum reproduce adaptive-mean`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from dp.checks import require_at_least
from simulations.campaigns.campaign import Campaign
from simulations.campaigns.claims import half_width
from simulations.campaigns.plots import Legend, Style, curves, dress, panels
from simulations.campaigns.render import Column, Part, pivot, table
from simulations.campaigns.rows import Figures, Row, distinct, where
from simulations.campaigns.store import Cell
from simulations.campaigns.study import Study
from simulations.common.figures import AMBER, BLUE, GREEN, GREY, ORANGE, PINK
from simulations.reproduce.adaptive_mean import growth
from simulations.reproduce.adaptive_mean.means import FORMS, Point, Setting, estimated, grown

# The Genie accepts a rate whose error is at most this many times that of no compression: at equal
# errors of compression and noise, which is what the adaptive methods aim at, it is 2
GENIE_TOLERANCE: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Setting):
    """What is computed."""

    norms: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.8)  # of the first family
    clients: int = 128  # of the first family
    cohorts: tuple[int, ...] = (64, 128, 256)  # numbers of clients of the second family
    tail_norm: float = 0.9  # of the second family's mean
    seeds: int = 5  # data sets of every kind
    # In which Adapt Tail is compared with no compression, `clients` clients and both families; none
    # if empty
    dimensions: tuple[int, ...] = ()
    # Of the means of that comparison, which seeds take in turn: spread over an octave of squared
    # lengths, as sizes double, so that no power of two is favoured
    lengths: tuple[float, ...] = (0.8, 0.734, 0.673, 0.617)

    def __post_init__(self) -> None:
        """Raise ``ValueError`` unless intervals can be made."""
        require_at_least("seeds", self.seeds, 2)
        if self.dimensions and len(set(self.dimensions)) < 3:
            raise ValueError(f"dimensions must be at least 3 or none, got {self.dimensions}")

    @property
    def points(self) -> list[Point]:
        """All kinds of data sets."""
        low = [Point(family="norm", clients=self.clients, norm=norm) for norm in self.norms]
        tail = [Point(family="tail", clients=n, norm=self.tail_norm) for n in self.cohorts]
        return low + tail

    @property
    def setting(self) -> Setting:
        """Return what is the same for all data sets."""
        return Setting(**{each.name: getattr(self, each.name) for each in fields(Setting)})


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Run every method on every data set."""
    plan = study.plan

    def estimation(point: tuple[int, Point], seed: int) -> Cell:
        number, p = point
        name = f"{p.family} {p.clients} {p.norm:g} {seed}"
        return Cell(name, estimated, (plan.setting, p, number, seed))

    found = study.by_arm(enumerate(plan.points), estimation)
    runs = grown_runs(study)
    points = [_summary(point, each) for point, each in zip(plan.points, found, strict=True)]
    return {
        **asdict(plan),
        "adjacency": "zero-out",
        "stem": "adaptive-mean" if points else "adaptive-mean-growth",
        "points": points,
        "runs": runs,
        "growth": growth.points(runs),
        "fits": [fit for what in growth.AGAINST for fit in growth.slopes(runs, what)],
    }


def grown_runs(study: Study[Plan]) -> list[dict[str, Any]]:
    """Return a row for each form, family, dimension and seed of the comparison."""
    plan, given = study.plan, []
    for dimension, family, seed in product(plan.dimensions, ("norm", "tail"), study.seeds):
        length = plan.lengths[seed % len(plan.lengths)]
        point = Point(family=family, clients=plan.clients, norm=length)
        given.append((replace(plan.setting, dimension=dimension), point, seed))
    cells = [Cell(f"growth {s.dimension} {p.family} {n}", grown, (s, p, n)) for s, p, n in given]
    return [
        {"dimension": setting.dimension, **asdict(point), "seed": seed, **row}
        for (setting, point, seed), found in zip(given, study.results(cells), strict=True)
        for row in found
    ]


def _summary(point: Point, runs: Sequence[Sequence[Row]]) -> dict[str, Any]:
    """Means and 95 % intervals of every method, and what the Genie picks."""
    rows: dict[str, list[dict[str, Any]]] = {form: [] for form in FORMS}
    for same in zip(*runs, strict=True):
        row: dict[str, Any] = {"method": same[0]["method"]}
        for name in ("error", "sent", "rounds"):
            values = [float(r[name]) for r in same]
            row |= {name: float(np.mean(values)), f"{name}_half_width": half_width(values)}
        row["most_spent"] = max(r["spent"] for r in same)
        rows[same[0]["form"]].append(row)
    forms = {form: [*found, genie(found)] for form, found in rows.items()}
    return {**asdict(point), "forms": forms}


def genie(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the cheapest fixed rate whose mean error is acceptable, picked with hindsight."""
    fixed = [row for row in rows if row["method"].startswith("fixed")]
    plain = next(row for row in fixed if row["method"] == "fixed 1")
    good = [row for row in fixed if row["error"] <= GENIE_TOLERANCE * plain["error"]]
    best = min(good, key=lambda row: float(row["sent"]))
    return {**best, "method": "genie", "picked": best["method"]}


SHOWN: Final = {
    "fixed 1": Style("no compression", GREY, "o", ":"),
    "genie": Style("genie", "black", "s", "--"),
    "doubling": Style("doubling", AMBER, "v", "-."),
    "adapt norm": Style("Adapt Norm", BLUE, "^", "-"),
    "adapt tail": Style("Adapt Tail", ORANGE, "D", "-"),
    "adapt tail, fresh": Style("Adapt Tail, fresh last round", PINK, "X", "--"),
    "adapt tail, top-k": Style("Adapt Tail, top-k", GREEN, "P", "-"),
}

FAMILIES: Final = {
    "norm": ("norm", "length of the mean, in units of the clip"),
    "tail": ("clients", "clients; the mean is a power law"),
}

POINT: Final = (Column("mean", "family"), Column("n", "clients"), Column("norm", "norm", "g"))
RATIOS: Final = (
    Column("method", "method"),
    *(Column(f"{form} form", form) for form in FORMS),
)


def _rows(figures: Figures, form: str) -> list[dict[str, Any]]:
    return [{**point, **row} for point in figures["points"] for row in point["forms"][form]]


def _cell(row: Row) -> str:
    """Squared error, its interval, and coordinates that a client sends."""
    picked = f" ({row['picked']})" if "picked" in row else ""
    return f"{row['error']:.3g} ± {row['error_half_width']:.1g} / {row['sent']:.0f}{picked}"


def _ratios(figures: Figures) -> Iterator[Row]:
    """Yield the range of the error over that of no compression, and of what is sent."""
    for method, look in SHOWN.items():
        row: dict[str, Any] = {"method": look.label}
        for form in FORMS:
            rows = _rows(figures, form)
            mine, plain = (where(rows, method=each) for each in (method, "fixed 1"))
            errors = [a["error"] / b["error"] for a, b in zip(mine, plain, strict=True)]
            sent = [each["sent"] for each in mine]
            text = f"{min(errors):.3g} to {max(errors):.3g} / {min(sent):,.0f} to {max(sent):,.0f}"
            row[form] = text
        yield row


def _parts(figures: Figures) -> Iterator[Part]:
    if figures["runs"]:
        yield table("Growth with d", growth.POINTS, figures["growth"], brief=True)
        yield table("Slopes over d", growth.FITS, figures["fits"], brief=True)
    if not figures["points"]:
        return
    yield table("Error over that of no compression / sent", RATIOS, _ratios(figures), brief=True)
    for form in FORMS:
        rows = [row for row in _rows(figures, form) if row["method"] in SHOWN]
        title = f"Squared error / sent, {form} form"
        heads = {name: look.label for name, look in SHOWN.items()}
        yield pivot(title, POINT, "method", Column("", _cell), rows, head=heads.__getitem__)


def plot(figures: Figures) -> Figure:
    """Plot error and coordinates of both forms against each family; without any, the growth."""
    if not figures["points"]:
        return growth.plot(figures["growth"])
    figure, axes = panels(4, 2, 16, 14)
    for column, (family, (x, label)) in enumerate(FAMILIES.items()):
        for line, form in enumerate(FORMS):
            rows = where(_rows(figures, form), family=family)
            ticks = sorted(distinct(rows, x))
            names = (("error", "squared error"), ("sent", "coordinates per client"))
            for place, (y, name) in enumerate(names):
                panel = axes[2 * line + place][column]
                for row in rows:
                    # An interval that reaches zero has no place on a logarithmic axis.
                    row["width"] = min(row[f"{y}_half_width"], 0.9 * row[y])
                curves(panel, rows, "method", SHOWN, x, y, "width")
                legend: Legend = "best" if panel is axes[0][0] else None
                better = f"{name}, lower is better"
                dress(panel, label, better, f"{form} form", log="xy", ticks=ticks, legend=legend)
    return figure


CAMPAIGN = Campaign(
    name="adaptive-mean",
    title="Mean estimation with sketches that tune themselves",
    presets={
        "usual": Plan(),
        "growth": Plan(
            norms=(),
            cohorts=(),
            clients=64,
            exponent=1.0,
            seeds=24,
            dimensions=tuple(4**power for power in range(5, 11)),
        ),
        "quick": Plan(
            dimension=256, norms=(0.1, 0.8), clients=32, cohorts=(32,), rates=(1.0, 8.0), seeds=2
        ),
    },
    figures=figures_of,
    claims=growth.claims,
    parts=_parts,
    plots={"errors": plot},
    stem="{stem}",
)
