"""Does Adapt Tail's loss grow like a logarithm of d, as Theorem 3 says, or like a power?

Theorem 3 is the error of no compression times the noise of K rounds of M copies, K = ceil(log2 d),
M = O(log(d K / beta)): two logarithms of d. Here M is a constant and all copies share one clip, so
that the noise is T <= K times that of one round, T the number of sizes: one logarithm.

Every seed gives two slopes over all d of the logarithm of a ratio: its *power* against log log2 d,
and, of the ratio over T, its *rest* against log d. Reproduced: the interval of the power is below
the power of the theorem, and that of the rest below ``RISE``. Not reproduced: the interval of the
power is above that of the theorem. All else is not decided.

Source: arXiv 2307.10999, Theorem 3 and its proof, C.3; docs/results/adaptive-mean.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from simulations.campaigns.claims import Claim, Interval, decided, every
from simulations.campaigns.plots import curves, dress, panels, style
from simulations.campaigns.render import Column
from simulations.campaigns.rows import Figures, Row, distinct, where

# A power of d that is surely below this is none: a factor of 1.41 over a thousandfold d
RISE: Final = 0.05

# Logarithms of d in Theorem 3: K M for the error; what is sent has M in the sizes of first sketches
# and K log(n K / beta) in those of all second ones, less than 2 powers
POWERS: Final = {"error": 2.0, "sent": 2.0}

AGAINST: Final = {"error": "plain", "sent": "needed"}

STATEMENTS: Final = {
    "error": "Adapt Tail has the error of no compression up to logarithms of d",
    "sent": "Adapt Tail sends the generalised sparsity of the mean up to logarithms of d",
}


def slopes(runs: Sequence[Row], what: str) -> list[dict[str, Any]]:
    """Return power and rest of `error` or `sent` for each form and family, and a verdict."""
    found = []
    for form, family in distinct(runs, lambda run: (run["form"], run["family"])):
        mine = where(runs, form=form, family=family)
        pairs = [_slopes(where(mine, seed=seed), what) for seed in sorted(distinct(mine, "seed"))]
        power, rest = (Interval.of(values) for values in zip(*pairs, strict=True))
        slow = power.below(POWERS[what]) and rest.below(RISE)
        row: dict[str, Any] = {"what": what, "form": form, "family": family}
        for name, each in (("power", power), ("rest", rest)):
            row |= {name: each.mean, f"{name}_half_width": each.half()}
        found.append({**row, "verdict": decided(slow, power.above(POWERS[what]))})
    return found


def _slopes(runs: Sequence[Row], what: str) -> tuple[float, float]:
    logs = np.log([run["dimension"] for run in runs])
    ratios = np.log([run[what] / run[AGAINST[what]] for run in runs])
    rest = ratios - np.log([run["charged"] for run in runs])
    power = np.polyfit(np.log(logs / np.log(2.0)), ratios, 1)[0]
    return float(power), float(np.polyfit(logs, rest, 1)[0])


def points(runs: Sequence[Row]) -> list[dict[str, Any]]:
    """Return geometric means over seeds for each form, family and dimension, and the worst loss."""
    keys = ("form", "family", "dimension")
    found = []
    for key in distinct(runs, lambda run: tuple(run[name] for name in keys)):
        at = dict(zip(keys, key, strict=True))
        mine = where(runs, **at)
        row: dict[str, Any] = {**at, "charged": mine[0]["charged"]}
        for what, against in AGAINST.items():
            logs = Interval.of(np.log([run[what] / run[against] for run in mine]))
            row[what] = float(np.exp(logs.mean))
            # Distances to both ends of the interval, which is not symmetric in the ratio.
            row[f"{what}_width"] = [
                row[what] * -float(np.expm1(-logs.half())),
                row[what] * float(np.expm1(logs.half())),
            ]
        ratios = [run["error"] / run["plain"] for run in mine]
        row["per_round"] = row["error"] / row["charged"]
        row["worst_per_round"] = max(ratios) / row["charged"]
        row["coordinates"] = float(np.mean([run["sent"] for run in mine]))
        row["needed"] = float(np.mean([run["needed"] for run in mine]))
        found.append(row)
    return found


def claims(figures: Figures) -> Iterator[Claim]:
    """Yield a claim about the error and one about the size; each must hold in every case."""
    for what, statement in STATEMENTS.items():
        mine = where(figures["fits"], what=what)
        if mine:
            yield Claim(
                statement,
                "Theorem 3",
                every(fit["verdict"] for fit in mine),
                "; ".join(
                    f"{fit['form']}, {fit['family']}: power {fit['power']:.2f} ± "
                    f"{fit['power_half_width']:.2f}, rest {fit['rest']:.3f} ± "
                    f"{fit['rest_half_width']:.3f}"
                    for fit in mine
                ),
                published=POWERS[what],
                measured=max(fit["power"] for fit in mine),
                tolerance=RISE,
            )


POINTS: Final = (
    Column("form", "form"),
    Column("mean", "family"),
    Column("d", "dimension"),
    Column("rounds charged", "charged"),
    Column("error over no compression", "error", ".1f"),
    Column("over the rounds charged", "per_round", ".2f"),
    Column("the worst run's", "worst_per_round", ".2f"),
    Column("coordinates sent", "coordinates", ".0f"),
    Column("needed", "needed", ".0f"),
    Column("sent over needed", "sent", ".2f"),
)

FITS: Final = (
    Column("of", "what"),
    Column("form", "form"),
    Column("mean", "family"),
    Column("power of log d (95 %)", "power", ".2f", 1, "power_half_width", ".2f"),
    Column("rest, power of d (95 %)", "rest", ".3f", 1, "rest_half_width", ".3f"),
    Column("verdict", "verdict"),
)


def plot(rows: Sequence[Row]) -> Figure:
    """Plot the losses of error and size, and the first for each round charged, against d."""
    figure, axes = panels(1, 3, 16, 5)
    named = (
        ("error", "error over that of no compression", "error_width"),
        ("per_round", "the same over the rounds charged", None),
        ("sent", "coordinates sent over those needed", "sent_width"),
    )
    placed = [
        {**r, "of": f"{r['form']}, {r['family']}", "x": math.log2(r["dimension"])} for r in rows
    ]
    looks = {name: style(place, name) for place, name in enumerate(distinct(placed, "of"))}
    for panel, (value, label, width) in zip(axes[0], named, strict=True):
        curves(panel, placed, "of", looks, "x", value, width)
        dress(panel, "log2 of the dimension d", label, "lower is better", log="y")
    return figure
