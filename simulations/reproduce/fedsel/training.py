"""Linear models trained by FedSel, its competitors and its baselines: one NumPy pass a step.

A user has one example; a step averages the reports of m users, and an epoch asks everybody once.
The gradient of a linear model is of rank one, c_i x_i + lambda w, so the gradients of all users of
a step are one outer product. Selectors draw places by the exact laws of ``dp.local.selection`` and
find them with the same code; values are randomised by the continuous laws, drawn with NumPy's
generator: this is a simulation, and what a client would send comes from ``dp.local``.

The learning rate is that of the paper's update w <- w - alpha/m sum: reports are averaged as they
come. Flat mechanisms scale a sampled coordinate by d, two-stage ones do not.

Source: Liu et al. 2020 (arXiv 2003.10637), Algorithm 1 and Section 5.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dp.local.sampled import sampled_count
from dp.local.scalars import DUCHI_BELOW
from dp.local.selection import NOTHING, RankLaw, indices_at
from simulations.campaigns.seeds import rng_of, seed_of
from simulations.campaigns.study import data_dir_here
from simulations.reproduce.fedsel.plan import Arm, Model, Values
from simulations.reproduce.fedsel.tables import Examples, load

Floats = NDArray[np.float64]

REGULARISATION: Final = 1e-4  # lambda, the weight of half the squared norm
PROJECTED_SHARE: Final = 0.1  # dimensions left by a random projection, of all
BATCH_SHARE: Final = 0.01  # users of a step, of all that train


@dataclass(frozen=True, slots=True)
class Task:
    """What is trained, the same for all arms."""

    model: Model  # which loss
    rate: float  # alpha
    epochs: int = 1  # how often everybody reports
    accumulate: bool = True  # whether clients keep what was not chosen for their next report
    momentum: float = 0.5  # eta, of what was kept
    scaled: bool = False  # "-O" of Figure 3 (a): clients scale by alpha before they keep and clip
    batch: float = BATCH_SHARE  # users of a step, of all that train
    steps: int | None = None  # at which to end; at the end of the epochs by default


def slopes(model: Model, margins: Floats, labels: Floats) -> Floats:
    """Return c_i, the loss's derivative by the margin: logistic, or hinge."""
    if model == "logistic":
        shares: Floats = special.expit(-labels * margins)
        return -labels * shares
    return np.where(labels * margins < 1.0, -labels, 0.0)


def randomised(values: Floats, kind: Values, epsilon: float, rng: np.random.Generator) -> Floats:
    """Clip to [-1, 1] and randomise each value with epsilon, by a continuous law."""
    if kind == "exact":
        return values
    clipped = np.clip(values, -1.0, 1.0)
    if kind == "PM":
        return piecewise(clipped, epsilon, rng)
    if kind == "Duchi":
        return duchi(clipped, epsilon, rng)
    share = -math.expm1(-epsilon / 2.0) if epsilon > DUCHI_BELOW else 0.0
    chosen = rng.random(values.shape) < share
    return np.where(chosen, piecewise(clipped, epsilon, rng), duchi(clipped, epsilon, rng))


def duchi(values: Floats, epsilon: float, rng: np.random.Generator) -> Floats:
    """Draw +-c with c = 1/tanh(epsilon/2)."""
    gain = math.tanh(epsilon / 2.0)
    return np.where(rng.random(values.shape) < 0.5 + 0.5 * gain * values, 1.0, -1.0) / gain


def piecewise(values: Floats, epsilon: float, rng: np.random.Generator) -> Floats:
    """Draw from the Piecewise Mechanism: [-C, C], more densely in a window around the value."""
    largest = 1.0 / math.tanh(epsilon / 4.0)
    left = 0.5 * (largest + 1.0) * values - 0.5 * (largest - 1.0)
    width = largest - 1.0
    inside = rng.random(values.shape) < special.expit(epsilon / 2.0)
    place = rng.random(values.shape)
    # Outside the window: a place in [-C, C] without it, moved over it if it lies behind its start.
    outside = place * (largest + 1.0) - largest
    outside = np.where(outside < left, outside, outside + width)
    return np.where(inside, left + place * width, outside)


class Run:
    """One model, trained by some of the users of a table, who have one example each.

    A step asks a share of the users, int64[n]. Arms of one seed ask them in the same
    order.
    """

    def __init__(
        self, task: Task, arm: Arm, table: Examples, users: NDArray[np.int64], seed: Sequence[int]
    ) -> None:
        self._task, self._arm, self._table, self._users = task, arm, table, users
        self._order = np.random.default_rng([*seed, 0])
        self._rng = rng_of(seed[0], *seed[1:], 1, arm.name)
        self._dimension = table.inputs.shape[1]
        self._selector = arm.selector(self._dimension)
        keeps = self._selector is not None and task.accumulate and task.epochs > 1
        self._kept = np.zeros(table.inputs.shape, np.float32) if keeps else None
        if arm.selection == "projected":
            width = max(1, round(PROJECTED_SHARE * self._dimension))
            normal = self._rng.standard_normal((self._dimension, width))
            self._projection = normal / math.sqrt(width)
            self._recovery = np.linalg.pinv(self._projection)

    @property
    def batch(self) -> int:
        """Return m, the users of a step."""
        return max(1, round(self._task.batch * len(self._users)))

    def trained(self) -> Floats:
        """Return float64[d], the weights after the last step."""
        weights = np.zeros(self._dimension)
        for asked in itertools.islice(self._asked(), self._task.steps):
            mean = self._mean(weights, asked)
            weights -= mean if self._task.scaled else self._task.rate * mean
        return weights

    def _asked(self) -> Iterator[NDArray[np.int64]]:
        """Yield the users of every step."""
        for _ in range(self._task.epochs):
            order = self._order.permutation(self._users)
            for start in range(0, len(order) - self.batch + 1, self.batch):
                yield order[start : start + self.batch]

    def _mean(self, weights: Floats, users: NDArray[np.int64]) -> Floats:
        """Return float64[d], the mean of the reports of some users."""
        inputs = self._table.inputs[users].astype(np.float64)
        labels = self._table.labels[users].astype(np.float64)
        factors = slopes(self._task.model, inputs @ weights, labels)
        shrink = REGULARISATION * weights
        if self._arm.selection == "all":
            return np.asarray(factors @ inputs / len(users) + shrink)
        if self._selector is not None:
            gradients = factors[:, None] * inputs + shrink
            if self._task.scaled:
                gradients *= self._task.rate
            return self._selected(gradients, users, self._selector.law)
        if self._arm.selection == "projected":
            short = self._sampled(inputs @ self._projection, factors, shrink @ self._projection)
            return np.asarray(short @ self._recovery)
        return self._sampled(inputs, factors, shrink)

    def _sampled(self, inputs: Floats, factors: Floats, shrink: Floats) -> Floats:
        """Sample coordinates without looking, randomise, scale up, average."""
        rows, dimension = inputs.shape
        private = self._arm.values != "exact"
        count = sampled_count(dimension, self._arm.value_epsilon) if private else 1
        if count == 1:
            places = self._rng.integers(0, dimension, (rows, 1))
        else:
            keys = self._rng.random((rows, dimension))
            places = np.argpartition(keys, count - 1, axis=1)[:, :count]
        values = factors[:, None] * np.take_along_axis(inputs, places, axis=1) + shrink[places]
        each = self._arm.value_epsilon / count
        sent = randomised(values, self._arm.values, each, self._rng) * (dimension / count)
        return np.asarray(np.bincount(places.ravel(), sent.ravel(), dimension) / rows)

    def _selected(self, gradients: Floats, users: NDArray[np.int64], law: RankLaw) -> Floats:
        """Add what waited, choose by magnitude, randomise the value, keep the rest."""
        rows = np.arange(len(users))
        momentum: Floats | None = None
        if self._kept is not None:
            before = self._kept[users].astype(np.float64)
            gradients, momentum = gradients + before, self._task.momentum * before
        words = self._rng.integers(0, law.total, len(users), dtype=np.uint64)
        indices = indices_at(np.abs(gradients), law.places(words))
        chosen = indices != NOTHING
        columns = np.maximum(indices, 0)
        values = gradients[rows, columns]
        if momentum is not None:
            values = values + momentum[rows, columns]
        sent = randomised(values, self._arm.values, self._arm.value_epsilon, self._rng) * chosen
        if self._kept is not None:
            gradients[rows[chosen], columns[chosen]] = 0.0
            self._kept[users] = gradients
        return np.asarray(np.bincount(columns, sent, self._dimension) / len(users))


@dataclass(frozen=True, slots=True)
class Score:
    """How well a model does on the test part."""

    accuracy: float  # share of right answers
    # Mean of the shares of right answers among either label; a constant answer has one half,
    # however unequal labels are
    balanced: float


def score(weights: Floats, table: Examples, users: NDArray[np.int64]) -> Score:
    """Test a model on some users; a margin of 0 counts as the label -1."""
    # All margins at once: rows of single users would first have to be copied.
    margins = (table.inputs @ weights.astype(np.float32))[users]
    positive = table.labels[users] > 0
    right = (margins > 0.0) == positive
    parts = [float(right[mask].mean()) for mask in (positive, ~positive) if mask.any()]
    return Score(float(right.mean()), float(np.mean(parts)))


def cross_validated(
    table: str, task: Task, arm: Arm, repeats: tuple[int, ...], folds: int, seed: int
) -> dict[str, Any]:
    """Train and test in some repetitions of a cross-validation; a cell of the campaign.

    Arms of one repetition have the same folds and the same order of users. Returns "accuracy" and
    "balanced", each a list by repetition of lists by fold.
    """
    examples = load(table, data_dir_here())
    scores = [_folds(examples, task, arm, folds, seed_of(seed, table, each)) for each in repeats]
    return {
        name: [[getattr(fold, name) for fold in repeat] for repeat in scores]
        for name in ("accuracy", "balanced")
    }


def _folds(table: Examples, task: Task, arm: Arm, folds: int, seed: tuple[int, ...]) -> list[Score]:
    """Train on all folds but one and test on that, for each of them."""
    order = np.random.default_rng(seed).permutation(len(table.labels))
    parts = np.array_split(order, folds)
    found = []
    for fold, tested in enumerate(parts):
        users = np.concatenate([part for place, part in enumerate(parts) if place != fold])
        found.append(score(Run(task, arm, table, users, (*seed, fold)).trained(), table, tested))
    return found
