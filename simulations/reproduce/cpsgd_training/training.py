"""cpSGD's Figure 2 with MNIST for infinite MNIST: `veilsum reproduce cpsgd-mnist`.

Distributed SGD. A client holds one example; 10,000 take part in a step, drawn without repetition,
so an epoch has six steps (the paper: 25 million examples, one epoch, 2,500 steps). Each sends its
clipped gradient, rotated and rounded, with binomial noise. For every k and every epsilon of a step
the noise is solved for under the paper's accountant and under ours, and the network is trained with
each; beside them our own mechanism at the bits of the paper, Gaussian noise by a trusted server,
and the baseline without clip, rounding and noise.

Long runs draw the rounding of all clients at once, see `estimators`; one step of all mechanisms and
an epoch of one are also taken client by client, and compared. Every finished run is kept in the
folder, and not run again.

Source: Agarwal et al. 2018 (arXiv 1805.10559), Section 5.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from dp.accounting import gaussian_epsilon, gaussian_mu
from simulations.common.threads import one_thread
from simulations.learning.configuration import Server
from simulations.learning.data import Dataset
from simulations.learning.models.dense import ReluMlpTask
from simulations.learning.server_optimizer import ModelState, optimize
from simulations.reproduce.cpsgd_training.clipped_gradients import (
    Examples,
    each_clipped,
    sum_clipped,
)
from simulations.reproduce.cpsgd_training.estimators import FloatArray, Rounded
from simulations.reproduce.cpsgd_training.plan import WAYS, Plan, Run, runs
from simulations.reproduce.kept import Kept

Advance = Callable[[], None]

MOMENTUM: Final = 0.9
_REPORTS: Final = 10


class Training:
    """The network, its examples and the schedule, the same for every run.

    Args:
        plan: what is trained.
        data: pictures; at least as many as a step has clients.
        seed: fixes the first parameters, the order of clients, rotations and noise.

    Raises:
        ValueError: too few examples, or a network that the padded dimension does not hold.
    """

    def __init__(self, plan: Plan, data: Dataset, seed: int) -> None:
        self.plan, self._data, self._seed = plan, data, seed
        features = int(np.prod(data.shape))
        self.task = ReluMlpTask(features=features, classes=data.classes, kind=data.kind)
        if len(data.train) < plan.setting.clients:
            raise ValueError(f"{len(data.train)} examples for {plan.setting.clients} clients")
        if self.task.dimension > plan.setting.dimension:
            raise ValueError(f"{self.task.dimension} parameters in {plan.setting.dimension}")
        self._inputs = torch.tensor(data.train.inputs)
        self._labels = torch.tensor(data.train.labels)

    @property
    def steps_of_epoch(self) -> int:
        """Steps in which nobody takes part twice."""
        return len(self._data.train) // self.plan.setting.clients

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
        order = np.random.default_rng([self._seed, 0, epoch]).permutation(len(self._labels))
        clients = self.plan.setting.clients
        chosen = torch.from_numpy(order[place * clients : (place + 1) * clients])
        return Examples(self._inputs[chosen], self._labels[chosen])

    def rng(self, name: str, step: int) -> np.random.Generator:
        """Rotations, rounding and noise of one step of one run."""
        return np.random.default_rng([self._seed, 1, zlib.crc32(name.encode()), step])

    def train(
        self, run: Run, advance: Advance = lambda: None, *, by_client: bool = False
    ) -> dict[str, Any]:
        """Train one network; return its figures and its test accuracy along the way.

        Args:
            by_client: every client rounds for itself.
        """
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
            advance()
        return {"name": run.name, **run.figures, "curve": curve, **curve[-1]}

    def _mean(self, run: Run, state: ModelState, step: int, by_client: bool) -> FloatArray:
        """Estimate the mean gradient of a step, in units of the gradient."""
        plan, rng = self.plan, self.rng(run.name, step)
        examples = self.examples(step)
        if not run.clipped:
            return run.estimator.summed(sum_clipped(self.task, state.model, examples, None), rng)
        if by_client:
            vectors = each_clipped(self.task, state.model, examples, plan.clip)
            return plan.clip * run.estimator.each(vectors, rng)
        total = sum_clipped(self.task, state.model, examples, plan.clip)
        return plan.clip * run.estimator.summed(total, rng)

    def compare(self, run: Run, advance: Advance = lambda: None) -> list[dict[str, Any]]:
        """Train one network for an epoch in both ways."""
        plan = replace(self.plan, steps=self.steps_of_epoch)
        short = Training(plan, self._data, self._seed)
        return [
            {"by_client": by_client, **short.train(run, advance, by_client=by_client)}
            for by_client in (True, False)
        ]

    def check(self, chosen: list[Run], advance: Advance = lambda: None) -> list[dict[str, Any]]:
        """Take the first step client by client: the error of every mechanism that rounds.

        All share one rotation. Errors are in D^2, of all padded coordinates: measured, and
        predicted with the largest variance that rounding can have.
        """
        rounding = [run for run in chosen if isinstance(run.estimator, Rounded)]
        estimators = [run.estimator for run in rounding if isinstance(run.estimator, Rounded)]
        rng = self.rng("check", 0)
        rotation = estimators[0].rotation(rng)
        totals = [np.zeros(self.plan.setting.dimension, np.int64) for _ in estimators]
        truth = np.zeros(self.task.dimension)
        vectors = each_clipped(self.task, self.initial().model, self.examples(0), self.plan.clip)
        for number, vector in enumerate(vectors):
            truth += vector
            rotated = estimators[0].rotated(vector, rotation)
            for estimator, total in zip(estimators, totals, strict=True):
                total += estimator.rounded(rotated, rng)
            if number % max(1, self.plan.setting.clients // 10) == 0:
                advance()
        goal = estimators[0].padded(truth / self.plan.setting.clients)
        found = []
        for run, estimator, total in zip(rounding, estimators, totals, strict=True):
            error = float(np.sum((estimator.release(total, rotation, rng) - goal) ** 2))
            row = {"name": run.name, "measured": error, "predicted": run.figures["error"]}
            found.append({**row, "ratio": error / run.figures["error"]})
        return found


def reproduce(
    plan: Plan, data: Dataset, seed: int, folder: Path, advance: Advance = lambda: None
) -> dict[str, Any]:
    """Train everything that is not yet in the folder; return all figures.

    Args:
        plan: what.
        data: pictures.
        seed: fixes everything.
        folder: made if need be; holds one file for every finished run.
        advance: called `progress_steps` times in all, fewer if runs are found finished.
    """
    training = Training(plan, data, seed)
    chosen = runs(plan, advance)
    key = {"plan": asdict(plan), "data": data.name, "seed": seed}
    results = Kept(folder / "runs")

    def kept(name: str, make: Callable[[], Any]) -> Any:
        return results.get(name, key, make)

    with one_thread():
        check = kept("check", partial(training.check, chosen, advance)) if plan.checked else []
        epoch = kept("epoch", partial(training.compare, _compared(chosen))) if plan.checked else []
        trained = [kept(run.name, partial(training.train, run, advance)) for run in chosen]
    return {
        "seed": seed,
        "data": data.name,
        "parameters": training.task.dimension,
        "examples": len(data.train),
        "epochs": training.epochs,
        "adjacency": "one client's vector replaced by another, as in the paper",
        "plan": asdict(plan),
        "epsilon_of_all_steps": {
            f"{epsilon:g}": all_steps(epsilon, plan.setting.delta, training.epochs)
            for epsilon in plan.epsilons
        },
        "runs": trained,
        "check": check,
        "first_epoch": epoch,
    }


def _compared(chosen: list[Run]) -> Run:
    """Return the run with the fewest coins: there, rounding weighs most."""
    rounding = [run for run in chosen if isinstance(run.estimator, Rounded)]
    return min(rounding, key=lambda run: int(run.figures["coins"]))


def progress_steps(plan: Plan) -> int:
    """Return how often `reproduce` reports progress, if no combination lacks noise."""
    trained = 2 + len(plan.epsilons) + len(WAYS) * plan.points
    return plan.points + 10 * plan.checked + trained * plan.steps


def all_steps(epsilon: float, delta: float, participations: int) -> float:
    """Return Gaussian noise's epsilon after so many steps with the same client, at one delta."""
    return float(gaussian_epsilon(gaussian_mu(epsilon, delta) * participations**0.5, delta))
