"""The networks of cpSGD's Figure 2, MNIST in the place of infinite MNIST.

Distributed SGD. A client holds one example; 10,000 take part in a step, drawn without repetition,
so an epoch has six steps (the paper: 25 million examples, one epoch, 2,500 steps). Each sends its
clipped gradient, rotated and rounded, with binomial noise. Long runs draw the rounding of all
clients at once, see `estimators`; one step of all mechanisms and an epoch of one are also taken
client by client, and compared.

Source: Agarwal et al. 2018 (arXiv 1805.10559), Section 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import torch

from dp import NoiseSeed
from simulations.common.threads import one_thread
from simulations.learning.configuration import Server
from simulations.learning.models.dense import ReluMlpTask
from simulations.learning.server_optimizer import ModelState, optimize
from simulations.reproduce.cpsgd.mean_estimation import Setting
from simulations.reproduce.cpsgd_training.clipped_gradients import (
    Examples,
    each_clipped,
    sum_clipped,
)
from simulations.reproduce.cpsgd_training.estimators import (
    ByScale,
    Estimator,
    FloatArray,
    Gaussian,
    OnLevels,
    Plain,
    Rounded,
)
from simulations.reproduce.engine.seeds import rng_of
from simulations.reproduce.engine.study import dataset

WAYS: Final = ("paper", "coupled", "conditional")  # whose coins are used: see `mean_estimation`


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is trained."""

    data: str = "mnist"  # pictures, by name
    # Clients of a step, padded dimension, delta of a step
    setting: Setting = field(default_factory=Setting)
    levels: tuple[int, ...] = (2, 4, 16, 64)  # k
    epsilons: tuple[float, ...] = (2.0, 4.0)  # of a step
    steps: int = 120  # of every run
    clip: float = 1.0  # gradient norm D of the private runs
    rate: float = 1.0  # learning rate of the private runs, falling linearly to a tenth
    plain_rate: float = 0.05  # the same of the baseline, whose gradients are not clipped
    # Whether one step of all mechanisms, and one epoch of one of them, are also taken client by
    # client, and compared
    checked: bool = True

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for what has no noise."""
        if self.steps < 1 or min(self.levels) < 2:
            raise ValueError(f"steps >= 1, levels >= 2: got {self.steps}, {self.levels}")
        if not all(0.01 <= epsilon <= 8.0 for epsilon in self.epsilons):
            raise ValueError(f"epsilons must be in 0.01 .. 8, got {self.epsilons}")

    @property
    def of_a_run(self) -> Plan:
        """Return what a run depends on, beside its estimator and seed; the rest as usual."""
        usual = Plan()
        return replace(self, levels=usual.levels, epsilons=usual.epsilons, checked=usual.checked)


@dataclass(frozen=True, slots=True)
class Run:
    """One network to train."""

    name: str  # of its row and of its noise
    estimator: Estimator  # of the mean gradient
    figures: Mapping[str, Any]  # what is known before: k, epsilon, m, bits, predicted error

    @property
    def clipped(self) -> bool:
        """Whether gradients are clipped."""
        return self.name != "plain"

    @property
    def rounds(self) -> bool:
        """Whether clients round to integers."""
        return isinstance(self.estimator, Rounded)


def runs(plan: Plan, points: Sequence[Mapping[str, Any]]) -> list[Run]:
    """Return all runs, from `mean_estimation.point` at every epsilon and k that has noise."""
    setting = plan.setting
    plain = {"way": "plain", "levels": None, "epsilon": None, "bits": 32.0, "error": 0.0}
    mean = Plain(setting.clients)
    found = [Run("plain", mean, plain), Run("clipped", mean, {**plain, "way": "clipped"})]
    for epsilon in plan.epsilons:
        # Of as many coordinates as the others have: all errors are of the padded vector.
        error = setting.gaussian_error(epsilon)
        known = {**plain, "way": "gaussian", "epsilon": epsilon, "error": error}
        found.append(Run(f"gaussian-{epsilon:g}", Gaussian(setting, epsilon), known))
        mine = [point for point in points if point["epsilon"] == epsilon]
        found += [_run(setting, p, way) for p in mine for way in WAYS if p["ways"].get(way)]
    return found


def _run(setting: Setting, point: Mapping[str, Any], way: str) -> Run:
    figures, levels = point["ways"][way], point["levels"]
    coins, epsilon = figures["coins"], point["epsilon"]
    estimator: Estimator = OnLevels(setting, coins, levels)
    if way == "conditional":
        estimator = ByScale(setting, coins, figures["scale"])
    known = {"way": way, **figures, "levels": levels, "epsilon": epsilon}
    return Run(f"{way}-k{levels}-{epsilon:g}", estimator, known)


MOMENTUM: Final = 0.9
_REPORTS: Final = 10


class Training:
    """The network, its examples and the schedule, the same for every run.

    The data have at least as many pictures as a step has clients. The seed fixes first parameters,
    order of clients, rotations and noise.
    """

    def __init__(self, plan: Plan, seed: int) -> None:
        data = dataset(plan.data)
        self.plan, self._data, self._seed = plan, data, seed
        self.setting = plan.setting
        self.task = ReluMlpTask(features=data.features, classes=data.classes, kind=data.kind)
        if len(data.train) < self.setting.clients:
            raise ValueError(f"{len(data.train)} examples for {self.setting.clients} clients")
        if self.task.dimension > self.setting.dimension:
            raise ValueError(f"{self.task.dimension} parameters in {self.setting.dimension}")
        self._inputs = torch.tensor(data.train.inputs)
        self._labels = torch.tensor(data.train.labels)

    @property
    def steps_of_epoch(self) -> int:
        """Steps in which nobody takes part twice."""
        return len(self._labels) // self.setting.clients

    @property
    def epochs(self) -> int:
        """Steps in which the busiest client takes part."""
        return -(-self.plan.steps // self.steps_of_epoch)

    def initial(self) -> ModelState:
        """Before the first step."""
        return ModelState.initial(self.task.initial(torch.Generator().manual_seed(self._seed)))

    def examples(self, step: int) -> Examples:
        """The clients of a step; every epoch has an order of its own."""
        epoch, place = divmod(step, self.steps_of_epoch)
        order = rng_of(self._seed, 0, epoch).permutation(len(self._labels))
        clients = self.setting.clients
        chosen = torch.from_numpy(order[place * clients : (place + 1) * clients])
        return Examples(self._inputs[chosen], self._labels[chosen])

    def train(self, run: Run, by_client: bool = False) -> dict[str, Any]:
        """Train one network, client by client if asked for; return its figures and accuracies."""
        plan, state, curve = self.plan, self.initial(), []
        rate = plan.rate if run.clipped else plan.plain_rate
        server = Server(learning_rate=rate, final_learning_rate=0.1 * rate, momentum=MOMENTUM)
        every = max(1, plan.steps // _REPORTS)
        for step in range(plan.steps):
            mean = self._mean(run, state, step, by_client)
            state = optimize(server, state, -mean, server.private_rate(step, plan.steps))
            if (step + 1) % every == 0 or step + 1 == plan.steps:
                tested = self.task.evaluate(state.model, self._data.test)
                curve.append({"step": step + 1, "accuracy": tested.accuracy})
        return {"name": run.name, **run.figures, "curve": curve, **curve[-1]}

    def _mean(self, run: Run, state: ModelState, step: int, by_client: bool) -> FloatArray:
        """Estimate the mean gradient of a step, in units of the gradient."""
        clip, rng = self.plan.clip, rng_of(self._seed, 1, run.name, step)
        examples = self.examples(step)
        if not run.clipped:
            return run.estimator.summed(sum_clipped(self.task, state.model, examples, None), rng)
        if by_client and isinstance(run.estimator, Rounded):
            vectors = each_clipped(self.task, state.model, examples, clip)
            return clip * run.estimator.each(vectors, rng)
        total = sum_clipped(self.task, state.model, examples, clip)
        return clip * run.estimator.summed(total, rng)

    def check(self, rounding: tuple[Run, ...]) -> list[dict[str, Any]]:
        """Take the first step client by client: the error of every mechanism that rounds.

        All share one rotation. Errors are in D^2, of all padded coordinates: measured, and
        predicted with the largest variance that rounding can have.
        """
        estimators = [run.estimator for run in rounding if isinstance(run.estimator, Rounded)]
        rng = rng_of(self._seed, 1, "check", 0)
        rotation = estimators[0].rotation(rng)
        totals = [np.zeros(self.setting.dimension, np.int64) for _ in estimators]
        truth = np.zeros(self.task.dimension)
        model, clip = self.initial().model, self.plan.clip
        for vector in each_clipped(self.task, model, self.examples(0), clip):
            truth += vector
            rotated = estimators[0].rotated(vector, rotation)
            for estimator, total in zip(estimators, totals, strict=True):
                total += estimator.integers(rotated, NoiseSeed(rng.bytes(32)))
        goal = estimators[0].padded(truth / self.setting.clients)
        found = []
        for run, estimator, total in zip(rounding, estimators, totals, strict=True):
            error = float(np.sum((estimator.release(total, rotation, rng) - goal) ** 2))
            row = {"name": run.name, "measured": error, "predicted": run.figures["error"]}
            found.append({**row, "ratio": error / run.figures["error"]})
        return found


@one_thread()
def trained(plan: Plan, run: Run, seed: int) -> dict[str, Any]:
    """Train one network."""
    return Training(plan, seed).train(run)


@one_thread()
def checked(plan: Plan, rounding: tuple[Run, ...], seed: int) -> list[dict[str, Any]]:
    """Take the first step client by client."""
    return Training(plan, seed).check(rounding)


@one_thread()
def epoch(plan: Plan, run: Run, by_client: bool, seed: int) -> dict[str, Any]:
    """Train one network for an epoch."""
    steps = Training(plan, seed).steps_of_epoch
    found = Training(replace(plan, steps=steps), seed).train(run, by_client)
    return {"by_client": by_client, **found}
