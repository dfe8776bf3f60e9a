"""Compression against accuracy in federated learning: `veilsum reproduce autotune`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulations.common.figures import BLUE, GREEN, GREY, ORANGE
from simulations.learning.configuration import RunConfig
from simulations.reproduce.autotune.findings import (
    FREE,
    PAPER_ARM,
    SLACK,
    cell_of,
    claims,
    compared,
)
from simulations.reproduce.autotune.plan import (
    ARRIVING,
    BUDGET,
    EMBEDDED,
    GENIE,
    PUBLISHED,
    SHAKESPEARE,
    WRITERS,
    Arm,
    Plan,
    base_of,
    paper_arm_of,
    point_config,
)
from simulations.reproduce.autotune.training import run
from simulations.reproduce.engine.campaign import Campaign
from simulations.reproduce.engine.claims import half_width
from simulations.reproduce.engine.federated import data_of
from simulations.reproduce.engine.plots import Style, curve, dress, panels
from simulations.reproduce.engine.render import Column, Figures, Part, Row, Text, percent, table
from simulations.reproduce.engine.store import Cell
from simulations.reproduce.engine.study import Study
from simulations.reproduce.engine.wire import deployed, mean_bytes, speaking
from sketch import SketchSpec

STYLES = {
    GENIE: (GREY, "o", "-"),
    PUBLISHED: (ORANGE, "v", ":"),
    ARRIVING: (BLUE, "s", "--"),
    BUDGET: (GREEN, "^", ""),
}

PROTOCOLS: Final = ("pairwise", "one-shot")

SHOWN: Final = 0.15
"""Accuracies further below the best one are not drawn."""


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Run every arm at every noise and seed; all are checked before the first is run."""
    plan, base = study.plan, base_of(study.plan)
    data_of(base)
    at = [(z, arm, seed) for seed in study.seeds for z in plan.noise for arm in plan.arms()]
    cells = []
    for noise, arm, seed in at:
        name = f"{noise:g}-{arm.name}-{seed}".replace(" ", "-")
        config = point_config(plan, base, noise, arm, seed)
        for protocol in PROTOCOLS:
            # What the real protocol could not do is refused now, not after the last run.
            deployed(speaking(config, protocol), SketchSpec.identity(config.sketch.rows))
        cells.append(Cell(name, run, (name, config)))
    found: dict[tuple[float, str], list[Row]] = {}
    for (noise, arm, _), result in zip(at, study.results(cells), strict=True):
        found.setdefault((noise, arm.name), []).append(result)
    return summarise(base, plan, {**found}) | {"seeds": list(study.seeds)}


def summarise(
    base: RunConfig, plan: Plan, runs: Mapping[tuple[float, str], Sequence[Row]]
) -> dict[str, Any]:
    """Every arm at every noise, the Genie's choice, the law that rates follow gamma, verdicts."""
    arms, rows = plan.arms(), []
    for noise in plan.noise:
        free = runs[noise, FREE]
        cells = {
            arm.name: cell_of(runs[noise, arm.name], free, _wire(plan, base, noise, arm, runs))
            for arm in arms
        }
        more = {"sizes": _sizes(plan, noise, runs), "curves": _curves(plan, noise, runs)}
        rows.append(compared(plan, noise, cells) | more)
    return {
        "task": base.task.model_dump(exclude_none=True),
        "rounds": plan.rounds or base.rounds,
        "cohort": base.cohort.size,
        "dimension": runs[plan.noise[0], FREE][0]["sizes"][0],
        "rows_of_sketch": base.sketch.rows,
        "aggregator": base.engine.aggregator,
        "slack": SLACK,
        "results": rows,
        "claims": claims(plan, rows),
    }


def _wire(
    plan: Plan,
    base: RunConfig,
    noise: float,
    arm: Arm,
    runs: Mapping[tuple[float, str], Sequence[Row]],
) -> dict[str, float]:
    """Bytes of a client and round over all runs of an arm, in both protocols."""
    config = point_config(plan, base, noise, arm, 1)
    dimension = runs[noise, FREE][0]["sizes"][0]
    sizes = [size for each in runs[noise, arm.name] for size in each["sizes"]]
    return {name: mean_bytes(config, name, dimension, sizes) for name in PROTOCOLS}


def _sizes(
    plan: Plan, noise: float, runs: Mapping[tuple[float, str], Sequence[Row]]
) -> dict[str, list[int]]:
    """Sizes of the first seed's rounds, where a controller chose them."""
    tuned = [arm.name for arm in plan.arms() if arm.family != GENIE]
    return {name: runs[noise, name][0]["sizes"] for name in tuned}


def _curves(
    plan: Plan, noise: float, runs: Mapping[tuple[float, str], Sequence[Row]]
) -> dict[str, list[dict[str, float]]]:
    """Accuracy of every arm after the rounds that were tested, where all seeds got there."""
    found = {}
    for arm in plan.arms():
        tests = [dict(run["tests"]) for run in runs[noise, arm.name]]
        shared = set.intersection(*map(set, tests))
        found[arm.name] = [
            {"round": at, "accuracy": fmean(test[at] for test in tests)} for at in sorted(shared)
        ]
    return found


def _parts(figures: Figures) -> Iterator[Part]:
    for result in figures["results"]:
        rows = [{"way": name, **arm} for name, arm in result["arms"].items()]
        title = f"Noise multiplier {result['noise_multiplier']:g}"
        yield table(title, COLUMNS, rows, brief=True)
        tuned = [
            {
                "way": name,
                "share": share,
                "beside_fixed": fmean(result["beside_fixed"][name]),
                "beside_fixed_half_width": half_width(result["beside_fixed"][name]),
                **{key: result["arms"][name][key] for key in ("early_rate", "lost_midway")},
            }
            for name, share in result["shares"].items()
        ]
        yield table("", TUNED, tuned)
        slope = Column("", "gamma_slope", ".2f").cell(result)
        seeds = ", ".join(f"{rate:g}" for rate in result["genie_by_seed"])
        yield Text(
            f"The Genie takes a rate of {result['genie']:g}, the largest that loses no more than "
            f"{figures['slack']:.0%} on average ({seeds} seed by seed). Between the rates that "
            f"were run, as much is lost at about {result['genie_between']:.0f}. Slope of log rate "
            f"over log gamma, in the second half: {slope}.",
            brief=True,
        )


COLUMNS = (
    Column("", "way"),
    percent("accuracy, %", "accuracy", "accuracy_half_width"),
    percent("lost, points", "lost", "lost_half_width", ".2f"),
    Column("rate", "rate", ".1f"),
    Column("second half", "late_rate", ".1f"),
    Column("sketch/noise", "share", ".3f"),
    Column("kB, pairwise", "wire.pairwise", ".1f", 1e-3),
    Column("kB, one-shot", "wire.one-shot", ".1f", 1e-3),
    Column("seconds a round", "round_seconds", ".2f"),
)

TUNED = (
    Column("", "way"),
    Column("share of the Genie's rate", "share", ".2f"),
    percent("beside a fixed rate, points", "beside_fixed", "beside_fixed_half_width", "+.2f"),
    Column("rate, first tenth", "early_rate", ".1f"),
    percent("lost midway, points", "lost_midway", form=".2f"),
)
"""Of the arms with a controller. The fixed rate is one that sends as much."""


def _panels(figures: Figures) -> tuple[Figure, Iterator[tuple[Axes, Row, str]]]:
    """A figure with a panel for each noise multiplier, their results, and their titles."""
    results = figures["results"]
    figure, [axes] = panels(1, len(results), 4.8 * len(results), 4.2)
    titles = [f"noise multiplier {row['noise_multiplier']:g}" for row in results]
    return figure, zip(axes, results, titles, strict=True)


def plot(figures: Figures) -> Figure:
    """Plot accuracy against rate, a panel for each noise multiplier."""
    figure, found = _panels(figures)
    for panel, row, title in found:
        families: dict[str, list[Row]] = {}
        for name, arm in row["arms"].items():
            families.setdefault(name.split(" ")[0], []).append(arm)
        for family, arms in families.items():
            look = Style(family, *STYLES.get(family, (ORANGE, "D", "")))
            curve(panel, arms, "rate", "accuracy", look, "accuracy_half_width")
        means = [arm["accuracy"] for arm in row["arms"].values()]
        # Rates that are far too high, and their intervals, would leave no room for all others.
        panel.set_ylim(max(min(means), max(means) - SHOWN) - 0.02, max(means) + 0.04)
        dress(panel, "compression rate", "test accuracy", title, log="x", percents=True)
    return figure


def plot_sizes(figures: Figures) -> Figure:
    """Plot the rate of every round of the first seed, a panel for each noise multiplier.

    Of each family of controllers, the largest gamma that asks for less error than the noise has,
    and the smallest.
    """
    dimension = figures["dimension"]
    figure, found = _panels(figures)
    for panel, row, title in found:
        for name, line_style in _shown(row["sizes"]).items():
            colour, _, _ = STYLES.get(name.split(" ")[0], (ORANGE, "D", ""))
            line = [
                {"round": n + 1, "rate": dimension / s} for n, s in enumerate(row["sizes"][name])
            ]
            curve(panel, line, "round", "rate", Style(name, colour, "", line_style))
        dress(panel, "round", "compression rate", title, log="y")
    return figure


def plot_curves(figures: Figures) -> Figure:
    """Plot accuracy over the rounds, a panel for each noise multiplier.

    Without compression, at the Genie's rate, and by Adapt Norm at the paper's gamma and at the
    largest that asks for less error than the noise has.
    """
    figure, found = _panels(figures)
    for panel, row, title in found:
        looks = {FREE: ("black", "-"), f"{GENIE} {row['genie']:g}": (GREY, "--")}
        for _, name in sorted(_below_one(row["curves"]).get(ARRIVING, []))[-1:]:
            looks[name] = (ORANGE, "-")
        looks[PAPER_ARM] = (BLUE, "-")
        for name, (colour, line) in looks.items():
            if name in row["curves"]:
                look = Style(name, colour, "", line)
                curve(panel, row["curves"][name], "round", "accuracy", look)
        dress(panel, "round", "test accuracy", title, percents=True)
    return figure


def _shown(names: Iterable[str]) -> dict[str, str]:
    """The arms whose sizes are drawn, with the styles of their lines."""
    families = _below_one(names).values()
    return {**{min(arms)[1]: ":" for arms in families}, **{max(arms)[1]: "-" for arms in families}}


def _below_one(names: Iterable[str]) -> dict[str, list[tuple[float, str]]]:
    """Of each family of controllers, the arms whose gamma is below 1, with it."""
    families: dict[str, list[tuple[float, str]]] = {}
    for name in names:
        family, _, value = name.partition(" ")
        if family != GENIE and value and float(value) < 1.0:
            families.setdefault(family, []).append((float(value), name))
    return families


def check(plan: Plan) -> None:
    """Refuse a plan without a task."""
    base_of(plan)


CAMPAIGN = Campaign(
    name="autotune",
    title="Autotuned sketches beside fixed rates",
    presets={
        "usual": Plan(),
        "writers": WRITERS,
        "shakespeare": SHAKESPEARE,
        "writers-paper": paper_arm_of(WRITERS, 4),
        "shakespeare-paper": paper_arm_of(SHAKESPEARE, 5),
        "quick": Plan(config=EMBEDDED, noise=(0.5,), rates=(8.0,), gammas=(0.1, 0.05)),
    },
    figures=figures_of,
    parts=_parts,
    plots={"rates": plot, "sizes": plot_sizes, "curves": plot_curves},
    check=check,
)
