"""Tasks, both forms of noisy means for them, and one without any noise."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats

from dp import Ledger, NonPrivateRelease
from protocol.exchange.aggregators import IdealAggregator
from protocol.goal import PrivacyGoal
from simulations.reproduce.adaptive_mean.estimation.base import (
    Algorithm,
    Bar,
    Estimate,
    MeanTask,
    NormReading,
    Released,
)
from simulations.reproduce.adaptive_mean.estimation.central import CentralMeans
from simulations.reproduce.adaptive_mean.estimation.distributed import DistributedMeans
from sketch import Probe, PublicSeed, SketchSpec, spec_for_size

ALPHA = 1e-6
DELTA = 1e-5
FORMS = ("central", "untrusted")


def table(clients: int, dimension: int, mean: np.ndarray, seed: int = 1) -> np.ndarray:
    """float64[n, d]: the mean plus own directions, no vector longer than the mean plus 0.3."""
    own = np.random.default_rng(seed).standard_normal((clients, dimension))
    own -= own.mean(axis=0)
    return mean + 0.3 * own / np.linalg.norm(own, axis=1, keepdims=True).max()


def task_of(vectors: np.ndarray, clip: float = 1.0) -> MeanTask:
    clients, dimension = vectors.shape
    return MeanTask(
        dimension=dimension, clients=clients, clip_l2=clip, updates=lambda index: vectors[index]
    )


def goal_for(task: MeanTask, algorithm: Algorithm, epsilon: float) -> PrivacyGoal:
    return PrivacyGoal(epsilon, DELTA, algorithm.releases(task))


def keys(count: int) -> list[bytes]:
    return [hashlib.sha256(b"client %d" % i).digest() for i in range(count)]


def central(task: MeanTask, algorithm: Algorithm, epsilon: float) -> CentralMeans:
    return CentralMeans(task, epsilon, DELTA, gauged=algorithm.gauged)


_NAMES = itertools.count()


def estimate(
    form: str, algorithm: Algorithm, task: MeanTask, epsilon: float, folder: Path
) -> Estimate:
    """One estimation in one form, with a ledger of its own."""
    if form == "central":
        return algorithm.run(central(task, algorithm, epsilon))
    with Ledger.open(folder / f"ledger-{next(_NAMES)}") as ledger:
        goal, cohort = goal_for(task, algorithm, epsilon), keys(task.clients)
        means = DistributedMeans(task, goal, cohort, IdealAggregator(), ledger)
        return algorithm.run(means)


class ExactMeans:
    """No noise and exact gauges: what is left is the compression, and the algorithm."""

    spent = float("inf")

    def __init__(self, mean: np.ndarray, rng: np.random.Generator, variance: float = 1.0) -> None:
        self._mean, self._rng, self._variance = mean, rng, variance
        self.task = task_of(np.tile(mean, (2, 1)), clip=1e3)

    def share_left(self, spent: float) -> float:
        return 1.0

    def noise_variance(self, spec: SketchSpec, share: float) -> float:
        return self._variance

    def mean(self, spec: SketchSpec, share: float) -> Released:
        sketch = spec.build(PublicSeed(self._rng.bytes(32)))
        return Released(
            update=sketch.decode(sketch.encode(self._mean)),
            spec=spec,
            noise_variance=self._variance,
            event=NonPrivateRelease(),
        )

    def norm(self, size: int, share: float, failure: float) -> NormReading:
        spec = spec_for_size(self._mean.size, size, rows=1)
        value = float(np.linalg.norm(self._mean))
        return NormReading(value=value, slack=0.0, spec=spec, event=NonPrivateRelease())

    def trial(
        self, spec: SketchSpec, probe: Probe, share: float, bar: Bar, top: int | None
    ) -> tuple[Released, bool]:
        released = self.mean(spec, share)
        error = float(np.linalg.norm(released.update - self._mean))
        return replace(released, spec=replace(spec, probe=probe)), error <= bar.height


def is_biased(errors: np.ndarray) -> bool:
    """Whether errors (one number a run) have a mean that is not zero, at level ALPHA."""
    return float(stats.ttest_1samp(errors, 0.0).pvalue) < ALPHA
