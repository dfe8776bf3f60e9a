"""Do secure PowerSGD, clips that follow norms, and Denoise help, at equal epsilon?

`veilsum reproduce secure-compression`. Learning rates are sought with seeds of their own, and the
best is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

from simulations.campaigns.campaign import Campaign
from simulations.campaigns.claims import half_width
from simulations.campaigns.federated import data_of, model_of, outcome
from simulations.campaigns.plots import Style, curve, dress, panels
from simulations.campaigns.render import Column, Part, percent, pivot, table, with_lost
from simulations.campaigns.rows import Figures, Row, where
from simulations.campaigns.store import Cell
from simulations.campaigns.study import Study
from simulations.campaigns.tuning import Outcome, by_steps, climb
from simulations.common.figures import BLUE, GREEN, GREY, ORANGE
from simulations.studies.secure_compression.bytes import matched_sketches, round_bytes
from simulations.studies.secure_compression.claims import (
    alone,
    by_arm,
    claims,
    comparisons,
    verdicts,
)
from simulations.studies.secure_compression.plan import (
    ALONE,
    PRESETS,
    UNCOMPRESSED,
    Family,
    Plan,
    Point,
    times,
)
from sketch.layers import LayerShapes

# Powers of two by which Denoise's first rate is above that of the release alone: its second clip
# shortens means that are mostly noise
DENOISED_STEP: Final = 1


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Seek a learning rate for every way, evaluate all of them, and compare."""
    plan = study.plan
    plain = plan.config(Point(UNCOMPRESSED), 1.0, study.seed)
    data = data_of(plain)
    layers = LayerShapes(model_of(plain, data).layout.shapes)
    matched = matched_sketches(plan, layers, study.seed)
    listed = list(plan.points(matched))
    for point in listed:
        plan.config(point, 1.0, study.seed).check()
    starts = {p: plan.first_exponent(p.arm) for p in listed if p.average == ALONE}
    found = _tuned(study, starts)
    # What follows a release begins at its best rate.
    behind = {
        point: found[Point(point.arm)].chosen + DENOISED_STEP * (point.average.kind == "denoise")
        for point in listed
        if point.average != ALONE
    }
    found |= _tuned(study, behind)
    starts |= behind
    rows = [
        {
            **_evaluated(plan, layers, point, ended.chosen, ended.runs),
            "tried": [[2.0**k, ended.tried[k]] for k in sorted(ended.tried)],
            "at_edge": abs(ended.chosen - starts[point]) == plan.climb,
        }
        for point, ended in ((point, found[point]) for point in listed)
    ]
    figures = {
        "parameters": layers.dimension,
        "layers": [[name, list(shape)] for name, shape in layers.shapes],
        "tested": len(data.test),
        "matched": {arm.role: arm.name for arm in matched},
        "rows": rows,
        "common": _common(study, layers, found[Point(UNCOMPRESSED)].chosen),
    }
    compared = comparisons({**study.facts(), **figures})
    return figures | {"conclusions": {"comparisons": compared, "verdicts": verdicts(compared)}}


def _cell(plan: Plan, point: Point, exponent: int, seed: int, trial: bool) -> Cell:
    """Return a run at a rate of two to a power; a trial is tested on training data held out."""
    more = (plan.validation,) if trial else ()
    given = (plan.config(point, 2.0**exponent, seed), *more)
    return Cell(f"{point.name} {exponent} {seed}", outcome, given)


def _tuned(study: Study[Plan], starts: dict[Point, int]) -> dict[Point, Outcome[int]]:
    """Seek the learning rates of points, each from its start, and evaluate the best."""
    plan = study.plan
    search = partial(climb, most=plan.climb)
    return by_steps(study, starts, partial(_cell, plan), search, trials=plan.tuning_seeds)


def _common(study: Study[Plan], layers: LayerShapes, exponent: int) -> list[dict[str, Any]]:
    """Return all clips at the learning rate of the right one: nobody sought theirs."""
    plan, families = study.plan, (Family.CLIP, Family.FOLLOWING)
    clips = [Point(arm) for arm in plan.arms() if arm.family in families]
    runs = study.by_arm(clips, lambda point, seed: _cell(plan, point, exponent, seed, False))
    return [
        _evaluated(plan, layers, point, exponent, found)
        for point, found in zip(clips, runs, strict=True)
    ]


def _evaluated(
    plan: Plan, layers: LayerShapes, point: Point, exponent: int, runs: Sequence[Row]
) -> dict[str, Any]:
    accuracies = [result["accuracy"] for result in runs]
    return {
        "name": point.name,
        "arm": point.arm.name,
        "title": point.arm.title,
        "family": point.arm.family.value,
        "value": point.arm.value,
        "average": point.average.kind,
        "momentum": point.average.momentum,
        "rate": 2.0**exponent,
        "accuracy": fmean(accuracies),
        "accuracies": accuracies,
        "diverged": sum(result["diverged"] for result in runs),
        "bytes": round_bytes(plan.config(point, 1.0, 0), layers).figures(),
        "recorded_bytes": runs[0]["bytes"],
        "epsilon": runs[0]["epsilon"],
        "last_clips": [result["last_clip"] for result in runs],
    }


def _clips(row: Row) -> str | None:
    """Return the range of the clips at which runs ended, of those that follow."""
    clips = [clip for clip in row["last_clips"] if clip is not None]
    return f"{min(clips):.3g} to {max(clips):.3g}" if clips else None


def _average(row: Row) -> str:
    kind = row["average"]
    return "no average" if kind == "none" else f"{kind} {row['momentum']:g}"


WAY = Column("way", "title")
ACCURACY = Column("accuracy, %", with_lost)
CLIPS = Column("last clip", _clips)

COMPARED = (
    Column("question", "question"),
    Column("what", "what"),
    Column("against", "against"),
    percent("points", "mean", "half_width", "+.1f"),
    Column("verdict", "verdict"),
)

RELEASED = (
    WAY,
    Column("numbers", "bytes.numbers", ","),
    Column("vectors", "bytes.vectors", ","),
    Column("all messages", "bytes.total", ","),
    Column("bases", "bytes.bases", ","),
    ACCURACY,
    CLIPS,
)

RATED = (
    WAY,
    Column("average", _average),
    Column("chosen", lambda row: f"{row['rate']:g}" + " (at the edge)" * row["at_edge"]),
    Column("tried", lambda row: ", ".join(f"{x:g}: {100 * mean:.1f}" for x, mean in row["tried"])),
)


def _parts(figures: Figures) -> Iterator[Part]:
    rows = figures["rows"]
    yield table("Comparisons", COMPARED, figures["conclusions"]["comparisons"])
    released = alone(figures)
    title = "Ways to release a mean, nothing behind"
    yield table(title, RELEASED, released.values(), brief=True)
    clips = (WAY, Column("rate", "rate", "g"), ACCURACY, CLIPS)
    same_rate = [released["sketch-1"], *figures["common"]]
    yield table("Clips at the right clip's learning rate", clips, same_rate)
    followed = {row["arm"] for row in rows if row["average"] != "none"}
    shown = [row for row in rows if row["arm"] in followed]
    title, cell = "Accuracy behind every average, %", Column("", with_lost)
    yield pivot(title, (WAY,), _average, cell, shown, head=str, brief=True)
    for other, name in (("none", "no average"), ("momentum", "momentum")):
        one_by_one = by_arm(figures, "denoise", other)
        yield table(f"Denoise against {name}, way by way", COMPARED, one_by_one)
    yield table("Learning rates: chosen, and accuracy in the trials, %", RATED, rows)


def plot(figures: Figures) -> Figure:
    """Draw accuracy by bytes, accuracy by clip, and what averages gain behind every way."""
    figure, [[left, middle, right]] = panels(1, 3, 17, 7)
    rows = list(alone(figures).values())
    _by_bytes(left, rows)
    _by_clip(middle, rows, figures)
    _by_average(right, figures)
    return figure


def _half(row: Row) -> float:
    return half_width(row["accuracies"]) or 0.0


def _by_bytes(axes: Axes, rows: Sequence[Row]) -> None:
    """Filled marks count all messages, open ones the masked vectors alone."""
    for family, label, colour, marker in (
        ("sketch", "sketches", GREY, "o"),
        ("powersgd", "secure PowerSGD", ORANGE, "s"),
    ):
        for measure, name in (("total", "all messages"), ("vectors", "vectors alone")):
            look = Style(f"{label}, {name}", colour, marker, hollow=measure == "vectors")
            found = where(rows, family=family)
            curve(axes, found, f"bytes.{measure}", "accuracy", look, _half)
    x, title = "bytes of a client in a round, both directions", "at equal epsilon, by bytes"
    dress(axes, x, "test accuracy", title, log="x", percents=True, legend="below")
    axes.xaxis.set_minor_formatter(NullFormatter())


def _by_clip(axes: Axes, rows: Sequence[Row], figures: Figures) -> None:
    """Full lines have learning rates of their own, dotted ones that of the right clip."""
    # The right clip is the sketch of rate 1, whose value is 1 as well.
    right = where(rows, arm="sketch-1")
    clips = [*right, *where(rows, family="clip"), *where(rows, family="following")]
    for family, label, colour, marker, beside in (
        ("clip", "fixed", GREY, "o", right),
        ("following", "following, by its first clip", BLUE, "s", []),
    ):
        for source, line, rates in ((rows, "-", "own rate"), (figures["common"], ":", "one rate")):
            look = Style(f"{label}, {rates}", colour, marker, line)
            found = where(source, family=family) + beside
            curve(axes, found, "value", "accuracy", look, _half)
    x, title = "clip over the right one", "fixed clips and those that follow"
    dress(axes, x, "test accuracy", title, log="x", percents=True, legend="below")
    axes.xaxis.set_major_locator(FixedLocator(sorted({row["value"] for row in clips})))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: times(value).split(" ")[0]))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _by_average(axes: Axes, figures: Figures) -> None:
    pairs = (("none", "no average", BLUE), ("momentum", "the server's momentum", GREEN))
    for place, (other, label, colour) in enumerate(pairs):
        found = by_arm(figures, "denoise", other)
        axes.errorbar(
            [100.0 * each["mean"] for each in found],
            [number + 0.3 * place for number in range(len(found))],
            xerr=[100.0 * (each["half_width"] or 0.0) for each in found],
            fmt="o",
            color=colour,
            markersize=4,
            capsize=2.0,
            label=f"against {label}",
        )
        names = [f"{each['question']}, {each['what'].split(', ')[-1]}" for each in found]
        axes.set_yticks(range(len(found)), names, fontsize=7)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.invert_yaxis()
    title = "Denoise behind every way, by momentum"
    dress(axes, "points of accuracy that Denoise gains, 95 %", "", title, legend="below")


CAMPAIGN = Campaign(
    name="secure-compression",
    title="Secure PowerSGD, clips that follow, Denoise: do they help?",
    presets=PRESETS,
    figures=figures_of,
    claims=claims,
    parts=_parts,
    plots={"accuracy by bytes, by clip, and what averages gain": plot},
)
