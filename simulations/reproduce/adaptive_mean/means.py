"""Means that are estimated by every method, in both forms, on the same vectors.

Every client holds the mean and a random direction of its own. Two families of means: of a given
length in a random direction, and a power law, few entries of which are large, with a given number
of clients. The error is against the mean of just these clients.

Source: arXiv 2307.10999, section 3; the paper proves its claims and has no experiment on mean
estimation in its text, so that the settings are this project's.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from dp import Ledger, PrivacyError
from protocol import IdealAggregator, PrivacyGoal
from simulations.campaigns.seeds import rng_of
from simulations.reproduce.adaptive_mean.estimation.adapt_norm import AdaptNormMean
from simulations.reproduce.adaptive_mean.estimation.adapt_tail import AdaptTailMean
from simulations.reproduce.adaptive_mean.estimation.base import (
    Algorithm,
    Estimate,
    Floats,
    MeanTask,
    Released,
)
from simulations.reproduce.adaptive_mean.estimation.central import CentralMeans
from simulations.reproduce.adaptive_mean.estimation.distributed import DistributedMeans
from simulations.reproduce.adaptive_mean.estimation.fixed import Doubling, FixedRateMean

FORMS: Final = ("untrusted", "central")
LENGTH: Final = 0.95  # of every client's vector, in units of the clip, so that no vector is clipped


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One kind of data set."""

    family: str  # `norm` (a random direction) or `tail` (a power law)
    clients: int  # n
    norm: float  # length of the mean, in units of the clip


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is the same for all data sets."""

    dimension: int = 8192  # d
    # epsilon, delta: of every estimation
    epsilon: float = 4.0
    delta: float = 1e-6
    exponent: float = 2.0  # the q-th entry of the second family's mean is as q^-exponent
    # Of the fixed rates, among them 1; the Genie picks from them
    rates: tuple[float, ...] = (1.0, 4.0, 16.0, 64.0, 256.0)
    # R of count-mean sketches; few, to save time: errors do not depend on it (Lemma 6)
    rows: int = 5

    def methods(self) -> dict[str, Algorithm]:
        """Return all methods by name."""
        return {
            **{f"fixed {rate:g}": FixedRateMean(rate=rate, rows=self.rows) for rate in self.rates},
            "doubling": Doubling(rows=self.rows),
            "adapt norm": AdaptNormMean(rows=self.rows),
            "adapt tail": AdaptTailMean(),
            "adapt tail, fresh": AdaptTailMean(fresh=True),
            "adapt tail, top-k": AdaptTailMean(tail=0.1),
        }


def vectors(setting: Setting, point: Point, rng: np.random.Generator) -> Floats:
    """float64[n, d]: the mean plus a random direction each, all of length about ``LENGTH``."""
    if point.family == "norm":
        mean = rng.standard_normal(setting.dimension)
    else:
        magnitudes = np.arange(1.0, setting.dimension + 1.0) ** -setting.exponent
        mean = rng.permutation(magnitudes * rng.choice([-1.0, 1.0], setting.dimension))
    mean *= LENGTH * point.norm / np.linalg.norm(mean)
    own = rng.standard_normal((point.clients, setting.dimension))
    own -= np.outer(own @ mean, mean) / (mean @ mean)
    own *= LENGTH * math.sqrt(1.0 - point.norm**2) / np.linalg.norm(own, axis=1, keepdims=True)
    return np.asarray(mean + own)


def estimated(setting: Setting, point: Point, place: int, seed: int) -> list[dict[str, Any]]:
    """Run every method in both forms on one data set: the ``place``-th kind at a seed."""
    rng = rng_of(seed, place)
    task, truth = _data(setting, point, rng)
    rows = []
    for form in FORMS:
        for name, algorithm in setting.methods().items():
            estimate = _estimate(setting, task, form, algorithm, rng)
            if not estimate.spent <= setting.epsilon:
                raise PrivacyError(f"{name} spent {estimate.spent}, more than {setting.epsilon}")
            row = {"form": form, "method": name, "error": _error(estimate, truth)}
            row |= {"sent": estimate.sent, "rounds": len(estimate.steps), "spent": estimate.spent}
            rows.append(row)
    return rows


def grown(setting: Setting, point: Point, seed: int) -> list[dict[str, Any]]:
    """Compare Adapt Tail with no compression on one data set, a row for each form.

    `needed` is the least k at which the mean without its k largest entries has at most the squared
    length of the noise in k coordinates, sigma^2 that of no compression: the generalised sparsity
    of Theorem 3, with which the size would be chosen if all tails were known.
    """
    rng = rng_of(seed, "growth", point.family, setting.dimension)
    task, truth = _data(setting, point, rng)
    rows = []
    for form in FORMS:
        plain, tail = (
            _estimate(setting, task, form, each, rng)
            for each in (FixedRateMean(rate=1.0, rows=setting.rows), AdaptTailMean())
        )
        (release,) = plain.steps
        assert isinstance(release, Released)  # noqa: S101 - a fixed rate is one release
        rows.append(
            {
                "form": form,
                "plain": _error(plain, truth),
                "error": _error(tail, truth),
                "sent": tail.sent,
                "needed": needed(truth, release.noise_variance),
                "rounds": len(tail.steps),
                "charged": AdaptTailMean().releases(task),
                "spent": max(plain.spent, tail.spent),
            }
        )
    return rows


def needed(mean: Floats, noise_variance: float) -> int:
    """Return the least k, at most d, whose tail is at most the noise in k coordinates.

    Source: arXiv 2307.10999, section 3.2.2, the generalised sparsity.
    """
    squares = np.sort(mean**2)
    tails = np.cumsum(squares)[::-1]  # tails[k] leaves the k largest entries out
    enough = tails <= noise_variance * np.arange(mean.size)
    return int(np.argmax(enough)) if enough.any() else mean.size


def _error(estimate: Estimate, truth: Floats) -> float:
    return float(np.sum((estimate.update - truth) ** 2))


def _data(setting: Setting, point: Point, rng: np.random.Generator) -> tuple[MeanTask, Floats]:
    """Draw the clients' vectors; return the task, and the mean of just these clients."""
    table = vectors(setting, point, rng)
    task = MeanTask(
        dimension=setting.dimension,
        clients=point.clients,
        clip_l2=1.0,
        updates=lambda index: table[index],
    )
    return task, table.mean(axis=0)


def _estimate(
    setting: Setting, task: MeanTask, form: str, algorithm: Algorithm, rng: np.random.Generator
) -> Estimate:
    """Run one estimation; what is public of the first form comes from `rng`, all noise is fresh."""
    epsilon, delta = setting.epsilon, setting.delta
    if form == "central":
        return algorithm.run(CentralMeans(task, epsilon, delta, gauged=algorithm.gauged))
    goal = PrivacyGoal(epsilon, delta, algorithm.releases(task))
    keys = [rng.bytes(32) for _ in range(task.clients)]
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger") as ledger:
        means = DistributedMeans(task, goal, keys, IdealAggregator(), ledger, rand=rng.bytes)
        return algorithm.run(means)
