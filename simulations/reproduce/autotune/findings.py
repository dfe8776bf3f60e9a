"""What runs of all arms say: means with intervals, the Genie's choice, and verdicts.

Runs of one seed share clients, data, first model, cohorts and batches, so arms are compared seed by
seed.

Figures in, figures and claims out: must not know models, data or protocols.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from simulations.reproduce.autotune.plan import ARRIVING, GENIE, PUBLISHED, Arm, Plan
from simulations.reproduce.engine.claims import (
    OURS,
    Claim,
    Interval,
    above,
    fact,
    gain,
    half_width,
)
from simulations.reproduce.engine.render import Row, points

SLACK: Final = 0.01
"""Accuracy that the Genie may lose against no compression at the same noise; a difference in
accuracy that is surely smaller is none."""

FREE: Final = f"{GENIE} 1"
"""The arm without compression."""

PAPER_GAMMA: Final = 0.1
"""That of the paper's tables."""

PAPER_ARM: Final = f"{ARRIVING} {PAPER_GAMMA:g}"

TABLES: Final = "tables of section 5"

HALF: Final = 0.5
"""Share of the Genie's rate that a controller without hindsight should reach."""

LINEAR: Final = 0.1
"""How far from 1 the slope of log rate over log gamma may be."""


def cell_of(runs: Sequence[Row], free: Sequence[Row], wire: Mapping[str, float]) -> dict[str, Any]:
    """Return what the runs of one arm come to; rates are harmonic means over seeds.

    Args:
        runs: one for each seed.
        free: those without compression, of the same seeds.
        wire: bytes of a client and round, by protocol.
    """
    accuracies = [run["accuracy"] for run in runs]
    lost = gain([run["accuracy"] for run in free], accuracies)
    return {
        "accuracy": float(np.mean(accuracies)),
        "accuracy_half_width": half_width(accuracies),
        "lost": lost.mean,
        "lost_half_width": None if math.isinf(lost.error) else lost.half(),
        "rate": harmonic([run["rate"] for run in runs]),
        "late_rate": harmonic([run["late_rate"] for run in runs]),
        "share": float(np.mean([share for run in runs for share in run["shares"]])),
        "wire": dict(wire),
        "accuracies": accuracies,
        "rates": [run["rate"] for run in runs],
        "late_rates": [run["late_rate"] for run in runs],
        "round_seconds": sum(r["seconds"] for r in runs) / sum(len(r["sizes"]) for r in runs),
    }


def harmonic(rates: Sequence[float]) -> float:
    """The rate over several runs of equal length."""
    return len(rates) / sum(1.0 / rate for rate in rates)


def compared(plan: Plan, noise: float, cells: Mapping[str, Row]) -> dict[str, Any]:
    """Return what the arms at one noise say together."""
    arms = plan.arms()
    genies = [arm for arm in arms if arm.family == GENIE]
    best = [arm for arm in genies if cells[arm.name]["lost"] <= SLACK][-1]
    genie = cells[best.name]
    shares = {
        arm.name: cells[arm.name]["rate"] / genie["rate"] for arm in arms if arm.family != GENIE
    }
    as_accurate = [name for name in shares if cells[name]["accuracy"] >= genie["accuracy"]]
    within = [name for name in shares if cells[name]["lost"] <= SLACK]
    ahead, ahead_within = (
        max(names, key=lambda name: shares[name], default=None) for names in (as_accurate, within)
    )
    return {
        "noise_multiplier": noise,
        "arms": dict(cells),
        "genie": best.value,
        "gamma_slope": _slope([arm for arm in arms if arm.family == ARRIVING], cells),
        "shares": shares,
        "best_arm": ahead,
        "best_share": shares[ahead] if ahead else 0.0,
        "best_arm_within": ahead_within,
        "best_share_within": shares[ahead_within] if ahead_within else 0.0,
    }


def _slope(arms: Sequence[Arm], found: Mapping[str, Row]) -> float | None:
    """Of log rate against log gamma: 1 if the rate is proportional to gamma."""
    rates = [(arm.value or 0.0, found[arm.name]["late_rate"]) for arm in arms]
    # An uncompressed run says nothing about the law.
    used = [(math.log(gamma), math.log(rate)) for gamma, rate in rates if rate > 1.0]
    if len(used) < 2:
        return None
    xs, ys = zip(*used, strict=True)
    return float(np.polyfit(xs, ys, 1)[0])


def claims(plan: Plan, results: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the verdicts on the paper's tables and on this project's own questions."""
    found: list[Claim] = []
    for row in results:
        cells, where = row["arms"], f"z = {row['noise_multiplier']:g}"
        found += _of_tables(cells, where, row["genie"])
        found += _of_arrival(plan, cells, where)
        found += [
            _half_of_the_genie(
                f"{where}: half of the Genie's rate at no more loss than its own",
                row["best_arm"],
                row["best_share"],
            ),
            _half_of_the_genie(
                f"{where}: half of the Genie's rate at no more loss than it may have",
                row["best_arm_within"],
                row["best_share_within"],
            ),
        ]
        if row["gamma_slope"] is not None:
            slope = row["gamma_slope"]
            found.append(
                Claim(
                    statement=f"{where}: the rate is proportional to gamma",
                    source="Appendix A",
                    published=1.0,
                    measured=slope,
                    tolerance=LINEAR,
                    verdict=fact(abs(slope - 1.0) <= LINEAR),
                    seen="slope of log rate over log gamma",
                )
            )
    if len(results) > 1 and all(PAPER_ARM in row["arms"] for row in results):
        found.append(_as_accurate([row["arms"] for row in results], "all noise multipliers"))
    return [claim.figures() for claim in found]


def _of_tables(cells: Mapping[str, Row], where: str, genie: float) -> list[Claim]:
    """What the paper's tables say of Adapt Norm and the Genie, whatever the data."""
    if PAPER_ARM not in cells:
        return []
    cell, best = cells[PAPER_ARM], cells[f"{GENIE} {genie:g}"]
    rates = Interval.of([math.log(best["rate"] / rate) for rate in cell["rates"]])
    return [
        _as_accurate([cells], where),
        Claim.about(
            f"{where}: the Genie's rate is above that of Adapt Norm at gamma = {PAPER_GAMMA:g}",
            TABLES,
            rates,
            above(rates, 0.0),
            seen=f"{best['rate']:.0f} and {cell['rate']:.1f}; log of the ratio",
        ),
    ]


def _as_accurate(rows: Sequence[Mapping[str, Row]], where: str) -> Claim:
    """Whether Adapt Norm loses nothing, over runs whose noise, hashes and seeds are their own."""
    tuned, free = (
        [accuracy for cells in rows for accuracy in cells[name]["accuracies"]]
        for name in (PAPER_ARM, FREE)
    )
    gained = gain(tuned, free)
    return Claim.about(
        f"{where}: Adapt Norm at gamma = {PAPER_GAMMA:g} is as accurate as no compression",
        TABLES,
        gained,
        above(gained, -SLACK),
        tolerance=SLACK,
        seen=f"{points(float(np.mean(tuned)), half_width(tuned))} %, without "
        f"{points(float(np.mean(free)), half_width(free))} %",
    )


def _half_of_the_genie(statement: str, arm: str | None, share: float) -> Claim:
    """Computed from all seeds, and so decided either way."""
    return Claim(
        statement=statement,
        source=OURS,
        published=HALF,
        measured=share,
        verdict=fact(share >= HALF),
        seen=f"{arm}, of all arms" if arm else "no arm loses as little",
    )


def _of_arrival(plan: Plan, cells: Mapping[str, Row], where: str) -> list[Claim]:
    """Whether arriving pays: rates over whole runs, beside the published rule and second halves."""
    found = []
    for gamma in plan.published:
        new, old = (cells.get(f"{family} {gamma:g}") for family in (ARRIVING, PUBLISHED))
        if new is None or old is None:
            continue
        more = Interval.of(
            [math.log(one / two) for one, two in zip(new["rates"], old["rates"], strict=True)]
        )
        found.append(
            Claim.about(
                f"{where}, gamma = {gamma:g}: arriving raises the rate over the whole run",
                OURS,
                more,
                above(more, 0.0),
                seen=f"{old['rate']:.1f} by the published rule, {new['rate']:.1f} now; second half "
                f"{old['late_rate']:.1f} and {new['late_rate']:.1f}; log of the ratio",
            )
        )
    return found
