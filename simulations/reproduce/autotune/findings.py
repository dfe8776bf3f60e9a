"""What runs of all arms say: means with intervals, the Genie's choice, and verdicts.

Runs of one seed share clients, data, first model, cohorts and batches, so arms are compared seed by
seed.

Figures in, figures and claims out: must not know models, data or protocols.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, Final

import numpy as np
from scipy.interpolate import PchipInterpolator

from simulations.campaigns.claims import (
    OURS,
    Claim,
    Interval,
    above,
    every,
    fact,
    gain,
    gains,
    half_width,
    within,
)
from simulations.campaigns.federated import LAST_SHARE
from simulations.campaigns.render import points
from simulations.campaigns.rows import Figures, Row
from simulations.reproduce.autotune.plan import (
    ARRIVING,
    GENIE,
    PAPER_GAMMA,
    PUBLISHED,
    TAIL,
    TWO_STAGE,
    Arm,
    Plan,
)

# Accuracy that the Genie may lose against no compression at the same noise; a difference in
# accuracy that is surely smaller is none
SLACK: Final = 0.01

FREE: Final = f"{GENIE} 1"  # the arm without compression
PAPER_ARM: Final = f"{ARRIVING} {PAPER_GAMMA:g}"

TABLES: Final = "tables of section 5"

HALF: Final = 0.5  # share of the Genie's rate that a controller without hindsight should reach
LINEAR: Final = 0.1  # how far from 1 the slope of log rate over log gamma may be
EARLY_SHARE: Final = 0.1  # of the rounds: the first ones, in which a controller is on its way
ALL: Final = "all noise multipliers"


def cell_of(runs: Sequence[Row], free: Sequence[Row], wire: Mapping[str, float]) -> dict[str, Any]:
    """Return what the runs of one arm come to, one for each seed; rates are harmonic means.

    `free` are runs without compression of the same seeds, `wire` bytes of a client and round.
    """
    accuracies = [run["accuracy"] for run in runs]
    lost = gain([run["accuracy"] for run in free], accuracies)
    return {
        "accuracy": float(np.mean(accuracies)),
        "accuracy_half_width": half_width(accuracies),
        "lost": lost.mean,
        "lost_half_width": lost.width(),
        "lost_midway": _lost_midway(runs, free),
        "rate": harmonic([run["rate"] for run in runs]),
        "early_rate": harmonic([_early_rate(run) for run in runs]),
        "late_rate": harmonic([run["late_rate"] for run in runs]),
        "share": float(np.mean([share for run in runs for share in run["shares"]])),
        "wire": dict(wire),
        "accuracies": accuracies,
        "rates": [run["rate"] for run in runs],
        "late_rates": [run["late_rate"] for run in runs],
        "round_seconds": sum(r["seconds"] for r in runs) / sum(len(r["sizes"]) for r in runs),
    }


def _early_rate(run: Row) -> float:
    """The rate of the first rounds; that of all rounds tells the dimension."""
    sizes = run["sizes"]
    first = sizes[: max(1, round(EARLY_SHARE * len(sizes)))]
    return float(run["rate"]) * fmean(sizes) / fmean(first)


def _lost_midway(runs: Sequence[Row], free: Sequence[Row]) -> float | None:
    """What was lost after half of the rounds, over as many tests as at their end; None for none."""
    rounds = len(free[0]["sizes"])
    first, last = (0.5 - LAST_SHARE) * rounds, 0.5 * rounds
    found = [[a for at, a in run["tests"] if first < at <= last] for run in (*runs, *free)]
    if not all(found):
        return None
    means = [fmean(tests) for tests in found]
    return fmean(means[len(runs) :]) - fmean(means[: len(runs)])


def harmonic(rates: Sequence[float]) -> float:
    """The rate over several runs of equal length."""
    return len(rates) / sum(1.0 / rate for rate in rates)


def compared(plan: Plan, noise: float, cells: Mapping[str, Row]) -> dict[str, Any]:
    """Return what the arms at one noise say together."""
    arms = plan.arms()
    fixed = [cells[arm.name] for arm in arms if arm.family == GENIE]
    rates = [arm.value or 1.0 for arm in arms if arm.family == GENIE]
    genie = _genie(rates, [cell["lost"] for cell in fixed])
    rate = cells[f"{GENIE} {genie:g}"]["rate"]
    tuned = [arm.name for arm in arms if arm.family != GENIE]
    return {
        "noise_multiplier": noise,
        "arms": dict(cells),
        "genie": genie,
        "genie_by_seed": _genie_by_seed(rates, fixed, [SLACK] * len(fixed[0]["accuracies"])),
        "genie_between": _between(fixed, rate),
        "gamma_slope": _slope([arm for arm in arms if arm.family == ARRIVING], cells),
        "shares": {name: cells[name]["rate"] / rate for name in tuned},
        "beside_fixed": {name: beside_fixed(cells[name], fixed) for name in tuned},
    }


def _genie(rates: Sequence[float], lost: Sequence[float], slack: float = SLACK) -> float:
    """The largest fixed rate that loses no more than it may; no compression loses nothing."""
    return max(rate for rate, loss in zip(rates, lost, strict=True) if loss <= slack)


def _genie_by_seed(
    rates: Sequence[float], fixed: Sequence[Row], slacks: Sequence[float]
) -> list[float]:
    """What each seed by itself would choose, if it may lose its slack; no compression first."""
    lost = [gains(fixed[0]["accuracies"], cell["accuracies"]) for cell in fixed]
    each = zip(zip(*lost, strict=True), slacks, strict=True)
    return [_genie(rates, losses, slack) for losses, slack in each]


def _between(fixed: Sequence[Row], rate: float) -> float:
    """From the Genie's rate on, where `SLACK` is lost on average, between rates that were run."""
    lost = {math.log(cell["rate"]): cell["lost"] for cell in fixed}
    if len(lost) < 2:
        return rate
    places = np.linspace(math.log(rate), max(lost), 1000)
    too_much = PchipInterpolator(list(lost), list(lost.values()))(places) > SLACK
    return math.exp(places[np.argmax(too_much)] if too_much.any() else places[-1])


def beside_fixed(tuned: Row, fixed: Sequence[Row]) -> list[float]:
    """Accuracies of one arm less those of a fixed rate that sends as much, seed by seed.

    Between the fixed rates that were run, lowest first, accuracy is interpolated over the logarithm
    of the rate by cubics that keep its shape; above the largest rate it is that of the largest.

    Source: Fritsch and Butland 1984, "A method for constructing local monotone piecewise cubic
    interpolants".
    """
    found = []
    for seed, (accuracy, rate) in enumerate(zip(tuned["accuracies"], tuned["rates"], strict=True)):
        # Rates that come to the same number of whole rows count once.
        known = {math.log(cell["rate"]): cell["accuracies"][seed] for cell in fixed}
        rates, accuracies = list(known), list(known.values())
        if len(known) > 1:
            between = PchipInterpolator(rates, accuracies)
            found.append(accuracy - float(between(min(math.log(rate), rates[-1]))))
        else:
            found.append(accuracy - accuracies[0])
    return found


def _slope(arms: Sequence[Arm], found: Mapping[str, Row]) -> float | None:
    """Of log rate against log gamma: 1 if the rate is proportional to gamma."""
    rates = [(arm.value or 0.0, found[arm.name]["late_rate"]) for arm in arms]
    # An uncompressed run says nothing about the law.
    used = [(math.log(gamma), math.log(rate)) for gamma, rate in rates if rate > 1.0]
    if len(used) < 2:
        return None
    xs, ys = zip(*used, strict=True)
    return float(np.polyfit(xs, ys, 1)[0])


def claims(figures: Figures) -> Iterator[Claim]:
    """Yield the verdicts on the paper's tables and on this project's own questions."""
    plan, results = figures["plan"], figures["results"]
    for row in results:
        at = f"z = {row['noise_multiplier']:g}"
        if PAPER_ARM in row["arms"]:
            yield _as_accurate([row], at)
            if plan["rates"]:
                yield _genie_is_ahead(row["genie_by_seed"], row["arms"], at)
                for share in plan.get("tolerances", ()):  # figures of before have no such field
                    yield _genie_within(share, row["arms"], at)
            yield from _of_two_stage(row["arms"], at)
            yield from _of_tail(row["arms"], at)
        yield from _of_arrival(plan["published"], row["arms"], at)
        if row["gamma_slope"] is not None:
            yield _linear(row["gamma_slope"], at)
    if len(results) > 1 and all(PAPER_ARM in row["arms"] for row in results):
        yield _as_accurate(results, ALL)
        if plan["published_loss"] is not None:
            yield _as_in_the_tables(results, plan["published_loss"])
    for gamma in plan["gammas"]:
        if plan["rates"] and gamma < 1.0:
            yield _half_of_the_genie(results, gamma)
            yield _as_fixed_rates(results, gamma)


def _over_noise(differences: Sequence[Sequence[float]]) -> Interval:
    """Of the mean over noise multipliers, one for each seed.

    Runs of one seed share clients, first model and cohorts: they do not count by themselves.
    """
    return Interval.of(np.mean(np.array(differences), axis=0))


def _gained(rows: Sequence[Row], one: str, other: str | None = None) -> Interval:
    """Of what one arm has more accuracy than another; than each noise's Genie if left out."""
    found = []
    for row in rows:
        cells = row["arms"]
        beside = cells[other or f"{GENIE} {row['genie']:g}"]
        found.append(gains(cells[one]["accuracies"], beside["accuracies"]))
    return _over_noise(found)


def _linear(slope: float, where: str) -> Claim:
    return Claim(
        f"{where}: the rate is proportional to gamma",
        "Appendix A",
        fact(abs(slope - 1.0) <= LINEAR),
        "slope of log rate over log gamma",
        published=1.0,
        measured=slope,
        tolerance=LINEAR,
    )


def log_ratios(above: Sequence[float], below: Sequence[float]) -> Interval:
    """Return the interval of the logarithm of one rate over the other, seed by seed."""
    return Interval.of([math.log(a / b) for a, b in zip(above, below, strict=True)])


def _genie_within(share: float, cells: Mapping[str, Row], where: str) -> Claim:
    """As the next, if the Genie may lose a share of the accuracy without compression."""
    fixed = {name: cell for name, cell in cells.items() if name.startswith(GENIE)}
    rates = [float(name.removeprefix(GENIE)) for name in fixed]
    slacks = [share * accuracy for accuracy in cells[FREE]["accuracies"]]
    by_seed = _genie_by_seed(rates, list(fixed.values()), slacks)
    return _genie_is_ahead(by_seed, cells, f"{where}, if {100 * share:g} % may be lost")


def _genie_is_ahead(by_seed: Sequence[float], cells: Mapping[str, Row], where: str) -> Claim:
    """By the fixed rate that each seed by itself would choose, so that the choice is in doubt."""
    cell = cells[PAPER_ARM]
    chosen = ", ".join(f"{rate:g}" for rate in by_seed)
    return Claim.more(
        f"{where}: the Genie's rate is above that of Adapt Norm at gamma = {PAPER_GAMMA:g}",
        TABLES,
        log_ratios(by_seed, cell["rates"]),
        f"{chosen}, seed by seed, and {cell['rate']:.1f}; log of the ratio",
    )


def _of_two_stage(cells: Mapping[str, Row], where: str) -> Iterator[Claim]:
    """Whether Two Stage has the lower rate that the paper found, beside Adapt Norm's."""
    if TWO_STAGE in cells:
        usual, cell = cells[PAPER_ARM], cells[TWO_STAGE]
        lost = gain(usual["accuracies"], cell["accuracies"])
        yield Claim.more(
            f"{where}: Two Stage has a lower rate than Adapt Norm at gamma = {PAPER_GAMMA:g}",
            "section 5",
            log_ratios(usual["rates"], cell["rates"]),
            f"{cell['rate']:.1f} beside {usual['rate']:.1f}, and {points(lost.mean, lost.width())} "
            "points less accurate; log of the ratio",
        )


def _of_tail(cells: Mapping[str, Row], where: str) -> Iterator[Claim]:
    """Whether Adapt Tail compresses so hard that it costs accuracy, as Appendix H says."""
    if TAIL in cells:
        usual, cell = cells[PAPER_ARM], cells[TAIL]
        yield Claim.more(
            f"{where}: Adapt Tail compresses too hard, and is less accurate than Adapt Norm",
            "Appendix H",
            gain(usual["accuracies"], cell["accuracies"]),
            f"sketch's error {cell['share']:.3f} of the noise's, beside {usual['share']:.3f}",
            margin=SLACK,
        )


def _as_accurate(rows: Sequence[Row], where: str) -> Claim:
    """Whether Adapt Norm loses nothing."""
    gained = _gained(rows, PAPER_ARM, FREE)
    means = [
        np.mean(np.array([row["arms"][name]["accuracies"] for row in rows]), axis=0)
        for name in (PAPER_ARM, FREE)
    ]
    ours, theirs = (points(float(np.mean(mean)), half_width(mean)) for mean in means)
    text = f"{where}: Adapt Norm at gamma = {PAPER_GAMMA:g} is as accurate as no compression"
    return Claim.more(text, TABLES, gained, f"{ours} %, without {theirs} %", margin=-SLACK)


def _as_in_the_tables(rows: Sequence[Row], published: float) -> Claim:
    """Whether the loss is the printed one, on other data and after fewer rounds."""
    lost = _gained(rows, FREE, PAPER_ARM)
    return Claim.about(
        f"{ALL}: Adapt Norm at gamma = {PAPER_GAMMA:g} loses what it does in the tables",
        TABLES,
        lost,
        within(replace(lost, mean=lost.mean - published), SLACK),
        "there beside gamma = 0.01, mean over their noise multipliers",
        published=published,
        tolerance=SLACK,
    )


def _half_of_the_genie(rows: Sequence[Row], gamma: float) -> Claim:
    """Whether one gamma has half of the Genie's rate everywhere, and loses no more than that."""
    name = f"{ARRIVING} {gamma:g}"
    gained, shares = _gained(rows, name), [row["shares"][name] for row in rows]
    return Claim.about(
        f"{ALL}: gamma = {gamma:g} has half of the Genie's rate and loses no more than it does",
        OURS,
        gained,
        every([fact(min(shares) >= HALF), above(gained, -SLACK)]),
        f"shares of {', '.join(f'{share:.2f}' for share in shares)}; accuracy beside its own",
        tolerance=SLACK,
    )


def _as_fixed_rates(rows: Sequence[Row], gamma: float) -> Claim:
    """Whether tuning costs accuracy at equal bytes."""
    found = _over_noise([row["beside_fixed"][f"{ARRIVING} {gamma:g}"] for row in rows])
    text = f"{ALL}: gamma = {gamma:g} is as accurate as a fixed rate that sends as much"
    seen = "accuracy beside that rate's, interpolated"
    return Claim.more(text, OURS, found, seen, margin=-SLACK)


def _of_arrival(gammas: Sequence[float], cells: Mapping[str, Row], where: str) -> Iterator[Claim]:
    """Whether arriving pays: rates over whole runs, beside the published rule and second halves."""
    for gamma in gammas:
        new, old = (cells.get(f"{family} {gamma:g}") for family in (ARRIVING, PUBLISHED))
        if new is None or old is None:
            continue
        yield Claim.more(
            f"{where}, gamma = {gamma:g}: to begin at the plan's size, and arrive, raises the "
            "rate over the whole run",
            OURS,
            log_ratios(new["rates"], old["rates"]),
            f"{old['rate']:.1f} by the published rule, {new['rate']:.1f} now; second half "
            f"{old['late_rate']:.1f} and {new['late_rate']:.1f}; log of the ratio",
        )
