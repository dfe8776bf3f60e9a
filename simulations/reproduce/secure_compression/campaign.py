"""Do secure PowerSGD, clips that follow norms, and Denoise help, at equal epsilon?

`veilsum reproduce secure-compression`. Learning rates are sought with seeds of their own, and the
best is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any, Final

from simulations.learning.data import Dataset
from simulations.learning.models import DataShape, ModelOptions, build_task
from simulations.reproduce.engine.campaign import Campaign
from simulations.reproduce.engine.claims import half_width
from simulations.reproduce.engine.federated import data_of
from simulations.reproduce.engine.render import (
    Column,
    Figures,
    Grid,
    Part,
    Row,
    percent,
    pivot,
    points,
    table,
)
from simulations.reproduce.engine.seeds import tried
from simulations.reproduce.engine.store import Cell
from simulations.reproduce.engine.study import Study
from simulations.reproduce.engine.tuning import Outcome, Way, climb, tune_then_evaluate
from simulations.reproduce.secure_compression.bytes import matched_sketches, round_bytes
from simulations.reproduce.secure_compression.claims import (
    alone,
    by_arm,
    claims,
    comparisons,
    verdicts,
)
from simulations.reproduce.secure_compression.plan import (
    ALONE,
    PRESETS,
    UNCOMPRESSED,
    Family,
    Plan,
    Point,
)
from simulations.reproduce.secure_compression.plot import plot
from simulations.reproduce.secure_compression.training import run
from sketch.layers import LayerShapes

DENOISED_STEP: Final = 1
"""Powers of two by which Denoise's first rate is above that of the release alone: its second clip
shortens means that are mostly noise."""


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Seek a learning rate for every way, evaluate all of them, and compare."""
    plan = study.plan
    data = data_of(plan.config(Point(UNCOMPRESSED), 1.0, study.seed))
    layers = layers_of(plan, data)
    matched = matched_sketches(plan, layers, study.seed)
    listed = list(plan.points(matched))
    for point in listed:
        plan.config(point, 1.0, study.seed).check()
    releases = [point for point in listed if point.average == ALONE]
    starts = {point: plan.first_exponent(point.arm) for point in releases}
    found = _tuned(study, starts)
    # What follows a release begins at its best rate.
    starts |= {
        point: found[Point(point.arm)].chosen + DENOISED_STEP * (point.average.kind == "denoise")
        for point in listed
        if point.average != ALONE
    }
    found |= _tuned(study, {point: start for point, start in starts.items() if point not in found})
    rows = [_row(plan, layers, point, starts[point], found[point]) for point in listed]
    figures = {
        "parameters": layers.dimension,
        "layers": [[name, list(shape)] for name, shape in layers.shapes],
        "tested": len(data.test),
        "matched": {arm.role: arm.name for arm in matched},
        "rows": rows,
        "common": _common(study, layers, found[Point(UNCOMPRESSED)].chosen),
    }
    facts = {**study.facts(), **figures}
    compared = comparisons(facts)
    concluded = {"comparisons": [asdict(each) for each in compared], "verdicts": verdicts(compared)}
    return facts | {"conclusions": concluded, "claims": claims(compared)}


def layers_of(plan: Plan, data: Dataset) -> LayerShapes:
    """Return the layers of the plan's model."""
    task = plan.config(Point(UNCOMPRESSED), 1.0, 0).task
    options = ModelOptions(hidden=task.hidden, l2=task.l2)
    return LayerShapes(build_task(task.model, DataShape.of(data), options).layout.shapes)


def _cells(study: Study[Plan], point: Point, exponent: int, seeds: Sequence[int]) -> list[Cell]:
    """Return the runs of a point at a learning rate of two to a power."""
    return [
        Cell(
            f"{point.name} {exponent} {seed}", run, (study.plan.config(point, 2.0**exponent, seed),)
        )
        for seed in seeds
    ]


def _tuned(study: Study[Plan], starts: dict[Point, int]) -> dict[Point, Outcome[int]]:
    """Seek the learning rates of points, each from its start, and evaluate the best."""
    trials = tried(study.seed, study.plan.tuning_seeds)

    def way(point: Point, start: int) -> Way[int]:
        return Way(
            climb(start, study.plan.climb),
            lambda exponent: _cells(study, point, exponent, trials),
            lambda exponent: _cells(study, point, exponent, study.seeds),
            # Ties go to the smaller rate, so that the order of trials decides nothing.
            lambda means: max(sorted(means), key=lambda exponent: means[exponent]),
        )

    ways = [way(point, start) for point, start in starts.items()]
    return dict(zip(starts, tune_then_evaluate(study, ways), strict=True))


def _row(
    plan: Plan, layers: LayerShapes, point: Point, start: int, outcome: Outcome[int]
) -> dict[str, Any]:
    best = outcome.chosen
    return {
        **_evaluated(plan, layers, point, best, outcome.runs),
        "tried": [[2.0**k, outcome.tried[k]] for k in sorted(outcome.tried)],
        "at_edge": abs(best - start) == plan.climb,
    }


def _common(study: Study[Plan], layers: LayerShapes, exponent: int) -> list[dict[str, Any]]:
    """Return all clips at the learning rate of the right one: nobody sought theirs."""
    clips = [
        Point(arm) for arm in study.plan.arms() if arm.family in (Family.CLIP, Family.FOLLOWING)
    ]
    cells = [_cells(study, point, exponent, study.seeds) for point in clips]
    results = iter(study.results(cell for group in cells for cell in group))
    return [
        _evaluated(study.plan, layers, point, exponent, [next(results) for _ in group])
        for point, group in zip(clips, cells, strict=True)
    ]


def _evaluated(
    plan: Plan, layers: LayerShapes, point: Point, exponent: int, runs: Sequence[Row]
) -> dict[str, Any]:
    """Return what the runs of a point come to."""
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


def _accuracy(row: Row) -> str:
    lost = f", {row['diverged']} lost" if row["diverged"] else ""
    return points(row["accuracy"], half_width(row["accuracies"])) + lost


def _clips(row: Row) -> str | None:
    """Return the range of the clips at which runs ended, of those that follow."""
    clips = [clip for clip in row["last_clips"] if clip is not None]
    return f"{min(clips):.3g} to {max(clips):.3g}" if clips else None


def _average(row: Row) -> str:
    kind = row["average"]
    return "no average" if kind == "none" else f"{kind} {row['momentum']:g}"


def _trials(row: Row) -> str:
    return ", ".join(f"{rate:g}: {100 * mean:.1f}" for rate, mean in row["tried"])


WAY = Column("way", "title")
ACCURACY = Column("accuracy, %", _accuracy)
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
    Column("tried", _trials),
)


def _parts(figures: Figures) -> Iterator[Part]:
    yield table("Comparisons", COMPARED, figures["conclusions"]["comparisons"])
    released = alone(figures)
    title = "Ways to release a mean, nothing behind"
    yield table(title, RELEASED, released.values(), brief=True)
    clips = (WAY, Column("rate", "rate", "g"), ACCURACY, CLIPS)
    same_rate = [released["sketch-1"], *figures["common"]]
    yield table("Clips at the right clip's learning rate", clips, same_rate)
    yield _by_average(figures["rows"])
    for other, name in (("none", "no average"), ("momentum", "momentum")):
        one_by_one = [asdict(each) for each in by_arm(figures, "denoise", other)]
        yield table(f"Denoise against {name}, way by way", COMPARED, one_by_one)
    yield table("Learning rates: chosen, and accuracy in the trials, %", RATED, figures["rows"])


def _by_average(rows: Sequence[Row]) -> Grid:
    """Return accuracies of the ways that are followed by every average."""
    followed = {row["arm"] for row in rows if row["average"] != "none"}
    return pivot(
        "Accuracy behind every average, %",
        (WAY,),
        _average,
        Column("", _accuracy),
        [row for row in rows if row["arm"] in followed],
        head=str,
        brief=True,
    )


CAMPAIGN = Campaign(
    name="secure-compression",
    title="Secure PowerSGD, clips that follow, Denoise: do they help?",
    presets=PRESETS,
    figures=figures_of,
    parts=_parts,
    plots={"accuracy by bytes, by clip, and what averages gain": plot},
)
