"""Compression against accuracy in federated learning, by controller, noise and seed.

Every point is a run of its own, in a folder of its own, so that an interrupted campaign goes on
where it stopped. "Genie" is the published baseline: fixed rates on a grid, of which the largest
that costs no more than a stated slack of accuracy is picked afterwards, with all runs in hand.

Source: arXiv 2307.10999, section 5 and Appendix A.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from simulations.learning.configuration import RunConfig
from simulations.learning.data import Dataset
from simulations.learning.run.experiment import Record, run_experiment
from simulations.learning.run.folder import RunFolder
from simulations.learning.run.overrides import changed
from simulations.reproduce.intervals import half_width

SLACK = 0.01
"""Accuracy that the Genie may lose against no compression at the same noise."""

LAST_SHARE = 0.2
"""Tests in this last share of the rounds are averaged: one test alone is noisy."""

Changes = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to choose sizes.

    Attributes:
        family: arms of one family differ in one number, `value`.
        value: the rate of the Genie, or the controller's own figure.
        changes: to the base configuration.
    """

    family: str
    value: float | None
    changes: Changes

    @property
    def name(self) -> str:
        """Of its folder and its row."""
        return self.family if self.value is None else f"{self.family} {self.value:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is varied; every combination is run.

    Attributes:
        noise: noise multipliers.
        rates: of the Genie; 1, which is no compression, is always among them.
        gammas: of Adapt Norm.
        budgets: gammas of Adapt Budget.
        others: further controllers, with their defaults.
        first_rate: at which all tuning controllers begin: from no compression, in steps of a
            factor of two, a short run would spend most of its bytes on the way.
        seeds: of data split, model, batches, hashes and noise.
        rounds: of each run; the configuration's if None.
    """

    noise: Sequence[float] = (0.1, 0.3, 0.5)
    rates: Sequence[float] = (4.0, 16.0, 64.0, 256.0)
    gammas: Sequence[float] = (0.25, 0.1, 0.05, 0.01)
    budgets: Sequence[float] = ()
    others: Sequence[str] = ()
    first_rate: float = 8.0
    seeds: Sequence[int] = (1,)
    rounds: int | None = None

    def arms(self) -> list[Arm]:
        """All ways, no compression first."""
        sketch, start = "sketch.controller", (("sketch.first_rate", float(self.first_rate)),)
        fixed = [
            Arm("genie", rate, ((sketch, "fixed"), ("sketch.rate", float(rate))))
            for rate in sorted({1.0, *self.rates})
        ]
        tuned = [
            Arm(name, gamma, ((sketch, name), ("sketch.gamma", gamma), *start))
            for name, gammas in (("adapt_norm", self.gammas), ("adapt_budget", self.budgets))
            for gamma in gammas
        ]
        others = [
            # Two stages begin uncompressed by their nature.
            Arm(name, None, ((sketch, name), *(start if name != "two_stage" else ())))
            for name in self.others
        ]
        return [*fixed, *tuned, *others]

    def points(self) -> Iterator[tuple[float, Arm, int]]:
        """Noise, arm and seed of every run; all of the first seed come first."""
        for seed in self.seeds:
            for noise in self.noise:
                for arm in self.arms():
                    yield noise, arm, seed


@dataclass(slots=True)
class Cell:
    """What the runs of one arm at one noise came to.

    Attributes:
        accuracies, rates, late_rates: one for each seed; rates are harmonic means over the rounds,
            late ones over the second half of them.
        seconds: of all rounds.
    """

    accuracies: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    late_rates: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Means and half-widths of their intervals; None with one seed only."""
        return {
            "accuracy": float(np.mean(self.accuracies)),
            "accuracy_half_width": half_width(self.accuracies),
            "rate": harmonic(self.rates),
            "late_rate": harmonic(self.late_rates),
            "accuracies": self.accuracies,
            "rates": self.rates,
            "seconds": self.seconds,
        }


def point_config(base: RunConfig, plan: Plan, noise: float, arm: Arm, seed: int) -> RunConfig:
    """The configuration of one run.

    Raises:
        ConfigurationError: the base does not go together with it.
    """
    raw = base.model_copy(update={"sketch": type(base.sketch)(rows=base.sketch.rows)})
    changes: list[tuple[str, Any]] = [("seed", seed), *arm.changes]
    if plan.rounds is not None:
        changes.append(("rounds", plan.rounds))
    privacy = base.privacy.model_copy(update={"epsilon": None, "noise_multiplier": float(noise)})
    return changed(raw.model_copy(update={"privacy": privacy}), changes)


def reproduce(
    base: RunConfig,
    plan: Plan,
    data: Dataset,
    out: Path,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run all points, or what is left of them.

    Args:
        base: task, cohort and local training.
        out: folder of the runs; finished ones are read, not run again.
        progress: told the name of every run as it ends.

    Returns:
        Plain JSON values; see `summarise`.
    """
    # All of them are checked before the first is run.
    runs = [(*point, point_config(base, plan, *point)) for point in plan.points()]
    cells: dict[tuple[float, str], Cell] = {}
    for noise, arm, seed, config in runs:
        folder = out / "runs" / f"{noise:g}" / arm.name.replace(" ", "-") / str(seed)
        with RunFolder(folder, config) as opened:
            records = run_experiment(config, data, opened).records
        cell = cells.setdefault((noise, arm.name), Cell())
        cell.accuracies.append(final_accuracy(records))
        cell.rates.append(average_rate(records))
        cell.late_rates.append(average_rate(records[len(records) // 2 :]))
        cell.seconds += sum(float(record["seconds"]) for record in records)
        progress(f"noise {noise:g}, {arm.name}, seed {seed}")
    return summarise(base, plan, cells)


def final_accuracy(records: Sequence[Record]) -> float:
    """Mean over the tests in the last part of a run."""
    first = math.floor(len(records) * (1.0 - LAST_SHARE))
    return float(
        np.mean(
            [r["accuracy"] for r in records if r["round"] > first and r["accuracy"] is not None]
        )
    )


def average_rate(records: Sequence[Record]) -> float:
    """Coordinates of all updates over coordinates sent, both sketches counted."""
    return sum(int(r["dimension"]) for r in records) / sum(int(r["sketch_size"]) for r in records)


def harmonic(rates: Sequence[float]) -> float:
    """The rate over several runs of equal length."""
    return len(rates) / sum(1.0 / rate for rate in rates)


def summarise(
    base: RunConfig, plan: Plan, cells: Mapping[tuple[float, str], Cell]
) -> dict[str, Any]:
    """Every arm at every noise, the Genie's choice, and the law that rates follow gamma."""
    arms = plan.arms()
    rows = []
    for noise in plan.noise:
        at_noise = {arm.name: cells[noise, arm.name].as_json() for arm in arms}
        free = at_noise["genie 1"]["accuracy"]
        feasible = [
            arm
            for arm in arms
            if arm.family == "genie" and at_noise[arm.name]["accuracy"] >= free - SLACK
        ]
        rows.append(
            {
                "noise_multiplier": noise,
                "arms": at_noise,
                "genie": feasible[-1].value,
                "gamma_slope": _slope(
                    [
                        (arm.value or 0.0, at_noise[arm.name]["late_rate"])
                        for arm in arms
                        if arm.family == "adapt_norm"
                    ]
                ),
            }
        )
    return {
        "task": base.task.model_dump(exclude_none=True),
        "rounds": plan.rounds or base.rounds,
        "cohort": base.cohort.size,
        "rows_of_sketch": base.sketch.rows,
        "aggregator": base.engine.aggregator,
        "seeds": list(plan.seeds),
        "slack": SLACK,
        "results": rows,
    }


def _slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Of log rate against log gamma: 1 if the rate is proportional to gamma."""
    # An uncompressed run says nothing about the law.
    used = [(math.log(gamma), math.log(rate)) for gamma, rate in points if rate > 1.0]
    if len(used) < 2:
        return None
    xs, ys = zip(*used, strict=True)
    return float(np.polyfit(xs, ys, 1)[0])
