"""Compression against accuracy in federated learning: `veilsum reproduce autotune`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
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
    GENIE,
    PRESETS,
    PUBLISHED,
    Plan,
    base_of,
    point_config,
)
from simulations.reproduce.autotune.training import run
from simulations.reproduce.engine.campaign import Campaign
from simulations.reproduce.engine.claims import half_width
from simulations.reproduce.engine.federated import data_of
from simulations.reproduce.engine.plots import Style, curve, curves, dress, panels
from simulations.reproduce.engine.render import Column, Part, Text, percent, table
from simulations.reproduce.engine.rows import Figures, Row, distinct
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

Runs = Mapping[tuple[float, str], Sequence[Row]]  # one for each seed, by noise and arm
PROTOCOLS: Final = ("pairwise", "one-shot")

SHOWN: Final = 0.15  # accuracies further below the best one are not drawn


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Run every arm at every noise and seed; all are checked before the first is run."""
    plan, base = study.plan, base_of(study.plan)
    data_of(base)
    cells = {}
    points = [(noise, arm) for noise in plan.noise for arm in plan.arms()]
    for seed, (noise, arm) in product(study.seeds, points):
        name = f"{noise:g}-{arm.name}-{seed}".replace(" ", "-")
        config = point_config(plan, base, noise, arm, seed)
        for protocol in PROTOCOLS:
            # What the real protocol could not do is refused now, not after the last run.
            deployed(speaking(config, protocol), SketchSpec.identity(config.sketch.rows))
        cells[noise, arm, seed] = Cell(name, run, (name, config))
    results = study.by_arm(points, lambda point, seed: cells[*point, seed])
    runs = {(noise, arm.name): r for (noise, arm), r in zip(points, results, strict=True)}
    return summarise(base, plan, runs) | {"seeds": list(study.seeds)}


def summarise(base: RunConfig, plan: Plan, runs: Runs) -> dict[str, Any]:
    """Every arm at every noise, the Genie's choice, the law that rates follow gamma."""
    arms, rows = plan.arms(), []
    for noise in plan.noise:
        free = runs[noise, FREE]
        mine = {arm: runs[noise, arm.name] for arm in arms}
        cells = {
            arm.name: cell_of(
                found, free, _wire(point_config(plan, base, noise, arm, 1), found, free)
            )
            for arm, found in mine.items()
        }
        # Of the first seed's rounds, where a controller chose them.
        sizes = {arm.name: each[0]["sizes"] for arm, each in mine.items() if arm.family != GENIE}
        curves = {arm.name: _curve(found) for arm, found in mine.items()}
        rows.append(compared(plan, noise, cells) | {"sizes": sizes, "curves": curves})
    return {
        "task": base.task.model_dump(exclude_none=True),
        "rounds": plan.rounds or base.rounds,
        "cohort": base.cohort.size,
        "dimension": runs[plan.noise[0], FREE][0]["sizes"][0],
        "rows_of_sketch": base.sketch.rows,
        "aggregator": base.engine.aggregator,
        "slack": SLACK,
        "results": rows,
    }


def _wire(config: RunConfig, runs: Sequence[Row], free: Sequence[Row]) -> dict[str, float]:
    """Bytes of a client and round over all runs of an arm, in both protocols."""
    sizes = [size for each in runs for size in each["sizes"]]
    return {name: mean_bytes(config, name, free[0]["sizes"][0], sizes) for name in PROTOCOLS}


def _curve(runs: Sequence[Row]) -> list[dict[str, float]]:
    """Accuracy after the rounds that were tested, where all seeds got there."""
    tests = [dict(run["tests"]) for run in runs]
    shared = sorted(set.intersection(*map(set, tests)))
    return [{"round": at, "accuracy": fmean(test[at] for test in tests)} for at in shared]


def _parts(figures: Figures) -> Iterator[Part]:
    for result in figures["results"]:
        free = result["arms"][FREE]["wire"]
        rows = [
            {
                "way": way,
                **arm,
                "byte_rate": {name: free[name] / arm["wire"][name] for name in free},
            }
            for way, arm in result["arms"].items()
        ]
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
    # All messages without compression over all messages, where "rate" is of the vectors alone
    Column("rate of the bytes, pairwise", "byte_rate.pairwise", ".1f"),
    Column("rate of the bytes, one-shot", "byte_rate.one-shot", ".1f"),
    Column("seconds a round", "round_seconds", ".2f"),
)

# Of the arms with a controller. The fixed rate is one that sends as much.
TUNED = (
    Column("", "way"),
    Column("share of the Genie's rate", "share", ".2f"),
    percent("beside a fixed rate, points", "beside_fixed", "beside_fixed_half_width", "+.2f"),
    Column("rate, first tenth", "early_rate", ".1f"),
    percent("lost midway, points", "lost_midway", form=".2f"),
)


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
        arms = [{"family": name.split(" ")[0], **arm} for name, arm in row["arms"].items()]
        looks = {
            family: Style(family, *STYLES.get(family, (ORANGE, "D", "")))
            for family in distinct(arms, "family")
        }
        curves(panel, arms, "family", looks, "rate", "accuracy", "accuracy_half_width")
        means = [arm["accuracy"] for arm in arms]
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
            sizes = enumerate(row["sizes"][name], 1)
            line = [{"round": number, "rate": dimension / size} for number, size in sizes]
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


CAMPAIGN = Campaign(
    name="autotune",
    title="Autotuned sketches beside fixed rates",
    presets=PRESETS,
    figures=figures_of,
    claims=claims,
    parts=_parts,
    plots={"rates": plot, "sizes": plot_sizes, "curves": plot_curves},
    check=Plan.check,
)
