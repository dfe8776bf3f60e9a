"""The networks of cpSGD's Figure 2: who takes part, and how one is trained.

Distributed SGD. A client holds one digit; 10,000 take part in a step. Every pass over MNIST's
60,000 digits deforms them anew, so that 2,500 steps are the paper's one epoch of 25 million clients
and nobody takes part twice. Each sends its clipped gradient, rotated and rounded, with binomial
noise; `estimators` says how the noise of all is drawn at once.

Source: Agarwal et al. 2018 (arXiv 1805.10559), Section 5.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from simulations.campaigns.seeds import rng_of
from simulations.campaigns.study import dataset
from simulations.campaigns.tuning import held_out
from simulations.common.threads import one_thread
from simulations.learning.configuration import Server
from simulations.learning.models.dense import ReluMlpTask
from simulations.learning.server_optimizer import ModelState, optimize
from simulations.reproduce.cpsgd.mean_estimation import Setting
from simulations.reproduce.cpsgd_training.clipped_gradients import Examples, sum_clipped
from simulations.reproduce.cpsgd_training.deformed import deformed
from simulations.reproduce.cpsgd_training.estimators import (
    Estimator,
    FloatArray,
    Gaussian,
    Plain,
    by_scale,
    on_levels,
)

WAYS: Final = ("paper", "coupled", "conditional")  # whose coins are used: see `mean_estimation`
MOMENTUM: Final = 0.9
VALIDATION: Final = 1 / 6  # share of the training digits on which rates are tried
_REPORTS: Final = 10


@dataclass(frozen=True, slots=True)
class Course:
    """What a network depends on, beside its estimator, rate and seed; see `Plan`."""

    data: str
    deformed: bool
    setting: Setting
    steps: int
    clip: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is trained."""

    data: str = "mnist"  # pictures, by name
    deformed: bool = True  # anew in every pass; if not, clients take part once in every pass
    # Clients of a step, padded dimension, delta of a step
    setting: Setting = field(default_factory=Setting)
    levels: tuple[int, ...] = (2, 4, 16)  # k
    epsilons: tuple[float, ...] = (2.0, 4.0)  # of a step
    steps: int = 2500  # of every run
    clip: float = 1.0  # gradient norm D of the private runs
    # Learning rates that are tried first, of private runs and of the baseline, whose gradients are
    # not clipped; the others are twice or half the last one. They fall linearly to a tenth.
    rate: float = 0.5
    plain_rate: float = 0.05
    doublings: int = 3  # of the rate, up or down, at most
    trial_steps: int = 1000  # of the runs that choose a rate
    seeds: int = 3  # of every run at its own rate, which one more seed has chosen

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for what has no noise."""
        if self.steps < 1 or min(self.levels) < 2:
            raise ValueError(f"steps >= 1, levels >= 2: got {self.steps}, {self.levels}")
        if not all(0.01 <= epsilon <= 8.0 for epsilon in self.epsilons):
            raise ValueError(f"epsilons must be in 0.01 .. 8, got {self.epsilons}")

    @property
    def course(self) -> Course:
        """Return what all runs have in common."""
        return Course(self.data, self.deformed, self.setting, self.steps, self.clip)


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
    figures, levels, epsilon = point["ways"][way], point["levels"], point["epsilon"]
    if way == "conditional":
        estimator = by_scale(setting, figures["coins"], figures["scale"])
    else:
        estimator = on_levels(setting, figures["coins"], levels)
    known = {"way": way, **figures, "levels": levels, "epsilon": epsilon}
    return Run(f"{way}-k{levels}-{epsilon:g}", estimator, known)


class Training:
    """The network, its examples and the schedule, the same for every run.

    The data have at least as many pictures as a step has clients. The seed fixes first parameters,
    order of clients, deformations, rotations and noise.
    """

    def __init__(self, course: Course, seed: int, *, validating: bool = False) -> None:
        data = dataset(course.data)
        if validating:
            data = held_out(data, VALIDATION)
        self.course, self._data, self._seed = course, data, seed
        self.task = ReluMlpTask(features=data.features, classes=data.classes, kind=data.kind)
        if len(data.train) < course.setting.clients:
            raise ValueError(f"{len(data.train)} examples for {course.setting.clients} clients")
        if self.task.dimension > course.setting.dimension:
            raise ValueError(f"{self.task.dimension} parameters in {course.setting.dimension}")
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._inputs = torch.tensor(data.train.inputs, device=self._device)
        self._labels = torch.tensor(data.train.labels, device=self._device)
        self._order = lru_cache(1)(self._drawn_order)

    @property
    def steps_of_pass(self) -> int:
        """Steps in which no picture of the data is used twice."""
        return len(self._labels) // self.course.setting.clients

    @property
    def participations(self) -> int:
        """Steps in which the busiest client takes part."""
        return 1 if self.course.deformed else -(-self.course.steps // self.steps_of_pass)

    def initial(self) -> ModelState:
        """Before the first step."""
        return ModelState.initial(self.task.initial(torch.Generator().manual_seed(self._seed)))

    def examples(self, step: int) -> Examples:
        """The clients of a step; every pass has an order of its own."""
        number, place = divmod(step, self.steps_of_pass)
        clients = self.course.setting.clients
        chosen = self._order(number)[place * clients : (place + 1) * clients]
        inputs = self._inputs[chosen]
        if self.course.deformed:
            drawn = int(rng_of(self._seed, 2, step).integers(1 << 62))
            side = math.isqrt(self._data.features)
            pictures = inputs.reshape(clients, side, side)
            inputs = deformed(pictures, torch.Generator(self._device).manual_seed(drawn))
        return Examples(inputs, self._labels[chosen])

    def _drawn_order(self, number: int) -> Tensor:
        order = rng_of(self._seed, 0, number).permutation(len(self._labels))
        return torch.from_numpy(order).to(self._device)

    def train(self, run: Run, rate: float) -> dict[str, Any]:
        """Train one network; return its accuracy, and on the way there."""
        steps, state, curve = self.course.steps, self.initial(), []
        server = Server(learning_rate=rate, final_learning_rate=0.1 * rate, momentum=MOMENTUM)
        every = max(1, steps // _REPORTS)
        for step in range(steps):
            mean = self._mean(run, state, step)
            state = optimize(server, state, -mean, server.private_rate(step, steps))
            if (step + 1) % every == 0 or step + 1 == steps:
                tested = self.task.evaluate(state.model, self._data.test)
                curve.append({"step": step + 1, "accuracy": tested.accuracy})
        return {"curve": curve, "accuracy": curve[-1]["accuracy"]}

    def _mean(self, run: Run, state: ModelState, step: int) -> FloatArray:
        """Estimate the mean gradient of a step, in units of the gradient."""
        clip, rng = self.course.clip, rng_of(self._seed, 1, run.name, step)
        examples = self.examples(step)
        if not run.clipped:
            return run.estimator.mean(sum_clipped(self.task, state.model, examples, None), rng)
        total = sum_clipped(self.task, state.model, examples, clip)
        return clip * run.estimator.mean(total, rng)


@one_thread()
def trained(course: Course, run: Run, rate: float, seed: int, validating: bool) -> dict[str, Any]:
    """Train one network; for the choice of a rate, tested on held-out training digits."""
    return Training(course, seed, validating=validating).train(run, rate)
