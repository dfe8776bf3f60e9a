"""Mean estimation with sketches that tune themselves: `veilsum reproduce adaptive-mean`.

Every client holds the mean and a random direction of its own. Two families of means: of a given
length in a random direction, and a power law, few entries of which are large, with a given number
of clients. Every method runs in both forms on the same vectors; the error is against the mean of
just these clients.

Source: arXiv 2307.10999, section 3; the paper proves its claims and has no experiment on mean
estimation in its text, so that the settings are this project's.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dp import Ledger, PrivacyError
from protocol import IdealAggregator, PrivacyGoal, TrainingPlan
from simulations.reproduce.adaptive_mean.estimation import (
    AdaptNorm,
    AdaptTail,
    Algorithm,
    CentralMeans,
    DistributedMeans,
    Doubling,
    Estimate,
    FixedRate,
    GaussianRule,
    MeanTask,
    Neighbours,
    NoisyMeans,
)
from simulations.reproduce.intervals import half_width

FORMS: Final = ("untrusted", "central")
LENGTH: Final = 0.95
"""Of every client's vector, in units of the clip, so that no vector is clipped."""

GENIE_TOLERANCE: Final = 2.0
"""The Genie accepts a rate whose error is at most this many times that of no compression: at equal
errors of compression and noise, which is what the adaptive methods aim at, it is 2."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One kind of data set.

    Attributes:
        family: `norm` (a random direction) or `tail` (a power law).
        clients: n.
        norm: length of the mean, in units of the clip.
    """

    family: str
    clients: int
    norm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is computed.

    Attributes:
        dimension: d.
        epsilon, delta: of every estimation.
        norms: of the first family, with `clients` clients.
        clients: of the first family.
        cohorts: numbers of clients of the second family.
        tail_norm, exponent: of the second family's mean, whose q-th entry is as q^-exponent.
        rates: of the fixed rates, among them 1; the Genie picks from them.
        rows: R of count-mean sketches; few, to save time: errors do not depend on it (Lemma 6).
        seeds: data sets of every kind.
    """

    dimension: int = 8192
    epsilon: float = 4.0
    delta: float = 1e-6
    norms: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4, 0.8)
    clients: int = 128
    cohorts: tuple[int, ...] = (64, 128, 256)
    tail_norm: float = 0.9
    exponent: float = 2.0
    rates: tuple[float, ...] = (1.0, 4.0, 16.0, 64.0, 256.0)
    rows: int = 5
    seeds: int = 5

    @classmethod
    def chosen(cls, quick: bool) -> Plan:
        """The full plan, or a few seconds' worth of it."""
        if not quick:
            return cls()
        return cls(
            dimension=256, norms=(0.1, 0.8), clients=32, cohorts=(32,), rates=(1.0, 8.0), seeds=2
        )

    @property
    def points(self) -> list[Point]:
        """All kinds of data sets."""
        low = [Point(family="norm", clients=self.clients, norm=norm) for norm in self.norms]
        tail = [Point(family="tail", clients=n, norm=self.tail_norm) for n in self.cohorts]
        return low + tail

    @property
    def steps(self) -> int:
        """How often progress is reported."""
        return len(self.points) * self.seeds

    def methods(self) -> dict[str, Algorithm]:
        """By name. The mean of just these clients is wanted, so nothing is added for sampling."""
        tail = AdaptTail(copies=5, sampling_constant=0.0)
        return {
            **{f"fixed {rate:g}": FixedRate(rate=rate, rows=self.rows) for rate in self.rates},
            "doubling": Doubling(rows=self.rows),
            "adapt norm": AdaptNorm(sampling_constant=0.0, rows=self.rows),
            "adapt tail": tail,
            "adapt tail, fresh": replace(tail, fresh=True),
            "adapt tail, top-k": AdaptTail(copies=5, sampling_constant=0.0, tail=0.1),
        }


def vectors(plan: Plan, point: Point, rng: np.random.Generator) -> Floats:
    """float64[n, d]: the mean plus a random direction each, all of length about ``LENGTH``."""
    if point.family == "norm":
        mean = rng.standard_normal(plan.dimension)
    else:
        magnitudes = np.arange(1.0, plan.dimension + 1.0) ** -plan.exponent
        mean = rng.permutation(magnitudes * rng.choice([-1.0, 1.0], plan.dimension))
    mean *= LENGTH * point.norm / np.linalg.norm(mean)
    own = rng.standard_normal((point.clients, plan.dimension))
    own -= np.outer(own @ mean, mean) / (mean @ mean)
    own *= LENGTH * math.sqrt(1.0 - point.norm**2) / np.linalg.norm(own, axis=1, keepdims=True)
    return np.asarray(mean + own)


def run_seed(plan: Plan, point: Point, seed: int) -> list[dict[str, Any]]:
    """Run every method in both forms on one data set."""
    rng = np.random.default_rng([seed, plan.points.index(point)])
    table = vectors(plan, point, rng)
    truth = table.mean(axis=0)
    task = MeanTask(
        dimension=plan.dimension,
        clients=point.clients,
        clip_l2=1.0,
        updates=lambda index: table[index],
    )
    rows = []
    for form in FORMS:
        for name, algorithm in plan.methods().items():
            estimate = _estimate(plan, task, form, algorithm, rng)
            if not estimate.spent <= estimate.epsilon == plan.epsilon:
                raise PrivacyError(f"{name} spent {estimate.spent}, more than {plan.epsilon}")
            rows.append(
                {
                    "form": form,
                    "method": name,
                    "error": float(np.sum((estimate.update - truth) ** 2)),
                    "sent": estimate.sent,
                    "rounds": len(estimate.steps),
                    "spent": estimate.spent,
                }
            )
    return rows


def _estimate(
    plan: Plan, task: MeanTask, form: str, algorithm: Algorithm, rng: np.random.Generator
) -> Estimate:
    """One estimation; the hashes come from the seed of the run, noise from the system."""
    if form == "central":
        # The same neighbours and the same care for noise as in the other form.
        central: NoisyMeans = CentralMeans(
            task,
            plan.epsilon,
            plan.delta,
            gauged=algorithm.gauged,
            neighbours=Neighbours.ZERO_OUT,
            rule=GaussianRule.ANALYTIC,
        )
        return algorithm.run(central)
    goal = PrivacyGoal(plan.epsilon, plan.delta, algorithm.releases(task))
    training = TrainingPlan(
        goal=goal,
        cohort=task.clients,
        tolerated_dropouts=0,
        tolerated_colluders=0,
        clip_l2=task.clip_l2,
    )
    keys = [rng.bytes(32) for _ in range(task.clients)]
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger") as ledger:
        means = DistributedMeans(task, training, keys, IdealAggregator(), ledger, rand=rng.bytes)
        return algorithm.run(means)


def reproduce(
    plan: Plan, seed: int, workers: int, advance: Callable[[], None] = lambda: None
) -> dict[str, Any]:
    """Run everything.

    Args:
        plan: what.
        seed: fixes vectors and hashes.
        workers: processes.
        advance: called ``plan.steps`` times.
    """
    found: dict[Point, list[list[dict[str, Any]]]] = {point: [] for point in plan.points}
    for point, rows in _all_runs(plan, seed, workers):
        found[point].append(rows)
        advance()
    return {
        "seed": seed,
        **asdict(plan),
        "adjacency": "zero-out",
        "points": [_summary(plan, point, runs) for point, runs in found.items()],
    }


def _all_runs(plan: Plan, seed: int, workers: int) -> Iterator[tuple[Point, list[dict[str, Any]]]]:
    tasks = [(point, seed + i) for point in plan.points for i in range(plan.seeds)]
    if workers == 1:
        for point, one in tasks:
            yield point, run_seed(plan, point, one)
        return
    with ProcessPoolExecutor(workers) as pool:
        jobs = {pool.submit(run_seed, plan, point, one): point for point, one in tasks}
        for job in as_completed(jobs):
            yield jobs[job], job.result()


def _summary(
    plan: Plan, point: Point, runs: Sequence[Sequence[Mapping[str, Any]]]
) -> dict[str, Any]:
    """Means and 95 % intervals of every method, and what the Genie picks."""
    rows: dict[str, list[dict[str, Any]]] = {form: [] for form in FORMS}
    for place, head in enumerate(runs[0]):
        same = [run[place] for run in runs]
        row: dict[str, Any] = {"method": head["method"]}
        for name in ("error", "sent", "rounds"):
            values = [float(r[name]) for r in same]
            width = half_width(values)
            row[name] = float(np.mean(values))
            row[f"{name}_half_width"] = math.inf if width is None else width
        row["most_spent"] = max(r["spent"] for r in same)
        rows[head["form"]].append(row)
    for form in FORMS:
        rows[form].append(genie(plan, rows[form]))
    return {**asdict(point), "forms": rows}


def genie(plan: Plan, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the cheapest fixed rate whose mean error is acceptable, picked with hindsight."""
    fixed = [row for row in rows if row["method"].startswith("fixed")]
    plain = next(row for row in fixed if row["method"] == "fixed 1")
    good = [row for row in fixed if row["error"] <= GENIE_TOLERANCE * plain["error"]]
    best = min(good, key=lambda row: float(row["sent"]))
    return {**best, "method": "genie", "picked": best["method"]}
