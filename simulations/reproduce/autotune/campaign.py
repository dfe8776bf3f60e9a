"""Compression against accuracy in federated learning: `veilsum reproduce autotune`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulations.campaigns.campaign import Campaign
from simulations.campaigns.federated import data_of
from simulations.campaigns.plots import Style, curve, curves, dress, panels
from simulations.campaigns.render import Column, Part, pivot, points, spread, table
from simulations.campaigns.rows import Figures, Row, distinct
from simulations.campaigns.store import Cell
from simulations.campaigns.study import Study
from simulations.campaigns.wire import deployed, mean_bytes, speaking
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
    TAIL,
    TWO_STAGE,
    Plan,
    base_of,
    point_config,
)
from simulations.reproduce.autotune.training import run
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
    rows = [row for result in figures["results"] for row in _rows(result)]
    for title, cell, brief in TABLES:
        found = [{**row, "shown": cell(row)} for row in rows]
        found = [row for row in found if row["shown"]]
        if found:
            shown = Column("", "shown")
            yield pivot(title, (WAY,), "z", shown, found, head="z = {:g}".format, brief=brief)
    if figures["plan"]["rates"]:
        yield table("The Genie, and the law of gamma", NOISES, figures["results"], brief=True)


def _rows(result: Row) -> Iterator[dict[str, Any]]:
    """Yield every arm at one noise multiplier, with what it is beside the fixed rates."""
    free = result["arms"][FREE]["wire"]
    for name, arm in result["arms"].items():
        row = {"z": result["noise_multiplier"], "name": name, **arm}
        row["byte_rate"] = {way: free[way] / arm["wire"][way] for way in free}
        if name in result["shares"]:
            row["share_of_genie"] = result["shares"][name]
            row["beside"] = spread(result["beside_fixed"][name], "+.2f")
        yield row


def _way(row: Row) -> str:
    family, _, value = row["name"].partition(" ")
    titled = f"{TITLES.get(family, family)} {value}".rstrip()
    return "no compression" if row["name"] == FREE else titled


def _accuracy(row: Row) -> str:
    accuracy = points(row["accuracy"], row["accuracy_half_width"])
    late = "" if row["name"].startswith(GENIE) else f" ({row['late_rate']:,.1f})"
    return f"{accuracy} / {row['rate']:,.1f}{late}"


def _bytes(row: Row) -> str:
    kilo = " / ".join(f"{row['wire'][way] / 1e3:,.1f}" for way in PROTOCOLS)
    rates = " / ".join(f"{row['byte_rate'][way]:.1f}" for way in PROTOCOLS)
    return f"{kilo} ({rates})"


def _beside(row: Row) -> str:
    return f"{row['share_of_genie']:.2f}, {row['beside']}" if "beside" in row else ""


def _on_the_way(row: Row) -> str:
    midway = "-" if row["lost_midway"] is None else f"{100 * row['lost_midway']:.2f}"
    return f"{row['early_rate']:,.1f} / {midway} / {row['share']:.3f} / {row['round_seconds']:.2f}"


TITLES = {
    GENIE: "fixed rate",
    PUBLISHED: "published, gamma",
    ARRIVING: "Adapt Norm, gamma",
    BUDGET: "Adapt Budget, gamma",
    TWO_STAGE: "Two Stage",
    TAIL: "Adapt Tail",
}
WAY = Column("", _way)
# Of the second: all messages without compression over all messages, where the rate of the first
# is of the vectors alone
TABLES = (
    ("Accuracy, % / rate (second half)", _accuracy, True),
    ("kB of all messages, pairwise / one-shot (rates of the bytes)", _bytes, False),
    ("Rate over the Genie's, and accuracy beside a fixed rate of as many bytes", _beside, False),
    ("First tenth's rate / lost midway / sketch over noise / seconds", _on_the_way, False),
)
NOISES = (
    Column("z", "noise_multiplier", "g"),
    Column("the Genie's rate", "genie", "g"),
    Column("seed by seed", lambda row: ", ".join(f"{rate:g}" for rate in row["genie_by_seed"])),
    Column("as much is lost between the rates at", "genie_between", ".0f"),
    Column("slope of log rate over log gamma, second half", "gamma_slope", ".2f"),
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
