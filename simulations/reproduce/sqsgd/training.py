"""Trains the networks of `plan` and gathers all figures; finished runs are not run again.

Ten clients share the examples, all take part in every round with one batch each, and the server
takes a plain step with the mean of what they report. Runs of one seed share first parameters,
partition and batches, so that they can be compared run by run.

Source: sqSGD, Algorithm 2 and Section 4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from dp.keystream import NoiseSeed
from simulations.common.threads import one_thread
from simulations.learning.data import Dataset
from simulations.learning.local_dp import ClientMemory, LocalAlgorithm
from simulations.learning.models import Task
from simulations.learning.training import LocalTraining, local_updates
from simulations.reproduce.kept import Kept
from simulations.reproduce.sqsgd.claims import claims
from simulations.reproduce.sqsgd.plan import Plan, Run, build_model, runs
from simulations.reproduce.sqsgd.settings import theory
from sketch import PublicSeed

Advance = Callable[[], None]
Floats = NDArray[np.float64]

LARGEST_GROWTH: Final = 10.0
"""Parameters this much longer than the first ones are those of a run that diverged."""

EVALUATION_BATCH: Final = 32
"""Half the time of larger ones: feature maps of the first layer fit the cache."""


class Training:
    """One network, its examples and its clients, for one seed.

    Args:
        plan: what is trained.
        data: pictures.
        seed: fixes first parameters, partition, batches and noise.
        device: where gradients are computed, as torch names it.

    Raises:
        ValueError: a client would have no examples.
    """

    def __init__(self, plan: Plan, data: Dataset, seed: int, device: str = "cpu") -> None:
        if len(data.train) < plan.clients:
            raise ValueError(f"{len(data.train)} examples for {plan.clients} clients")
        self.plan, self.task = plan, build_model(plan)
        self._data, self._seed, self._device = data, seed, device
        order = np.random.default_rng([seed, 0]).permutation(len(data.train))
        self._members = np.array_split(order, plan.clients)

    @property
    def rounds_of_epoch(self) -> int:
        """Rounds of an epoch."""
        return self.plan.rounds_of_epoch(len(self._data.train))

    def train(self, run: Run, advance: Advance = lambda: None) -> dict[str, Any]:
        """Train one network; return its accuracy after every epoch.

        A run that diverges ends there; what its parameters do then stands for the later epochs.
        """
        model = self.task.initial(torch.Generator().manual_seed(self._seed))
        limit = LARGEST_GROWTH * float(np.linalg.norm(model))
        memory, curve, rounds = ClientMemory(self.task.dimension), [], 0
        diverged = False
        for epoch in range(1, self.plan.epochs + 1):
            for _ in range(self.rounds_of_epoch):
                if diverged:
                    break
                moved = model + self.plan.rate * self.mean(run, model, memory, rounds)
                rounds += 1
                # False for NaN, too.
                diverged = not float(np.linalg.norm(moved)) <= limit
                model = model if diverged else moved.astype(np.float32)
            tested = self.task.evaluate(model, self._data.test, EVALUATION_BATCH)
            curve.append({"epoch": epoch, "accuracy": tested.accuracy, "loss": tested.loss})
            advance()
        return {"curve": curve, "rounds": rounds, "diverged": diverged}

    def mean(
        self, run: Run, model: NDArray[np.float32], memory: ClientMemory, number: int
    ) -> Floats:
        """Return the mean of what the clients report in a round: float64[d], NaN if one cannot."""
        rng = np.random.default_rng([self._seed, 1, number])
        training = LocalTraining.fed_sgd(self.plan.batch)
        chunks = local_updates(
            self.task, model, self._data.train, self._members, training, rng, device=self._device
        )
        updates = np.concatenate(list(chunks)).astype(np.float64)
        if not np.isfinite(updates).all():
            return np.full(self.task.dimension, np.nan)
        if run.algorithm is None:
            return np.asarray(updates.mean(axis=0))
        return self._reported(run.algorithm, updates, memory, number, run.name) / len(updates)

    def _reported(
        self,
        algorithm: LocalAlgorithm,
        updates: Floats,
        memory: ClientMemory,
        number: int,
        name: str,
    ) -> Floats:
        """The sum of the reports of all clients."""
        public = PublicSeed(self._bytes(f"round {number}"))
        # Reproducible, and so no secret: a simulation has nobody to protect.
        noise = NoiseSeed(self._bytes(f"{name} {number}"))
        return algorithm.reports(range(len(updates)), updates, memory, public, noise).total()

    def _bytes(self, label: str) -> bytes:
        return hashlib.sha256(f"sqsgd {self._seed} {label}".encode()).digest()


def reproduce(
    plan: Plan, data: Dataset, folder: Path, device: str = "cpu", advance: Advance = lambda: None
) -> dict[str, Any]:
    """Train everything that is not yet in the folder; return all figures.

    Args:
        plan: what.
        data: pictures.
        folder: made if need be; holds one file for every finished run.
        device: where gradients are computed.
        advance: called after every epoch of every run, also of those found finished.
    """
    kept, task = Kept(folder / "runs"), build_model(plan)
    chosen = runs(plan, task.dimension)
    curves: dict[str, list[dict[str, Any]]] = {run.name: [] for run in chosen}
    with one_thread():
        for seed in plan.seeds:
            training = Training(plan, data, seed, device)
            for run in chosen:
                curves[run.name].append(_result(kept, training, run, seed, advance))
    figures = {
        "plan": asdict(plan),
        "data": data.name,
        "model": plan.model,
        "parameters": task.dimension,
        "examples": len(data.train),
        "tested": len(data.test),
        "rounds_of_epoch": plan.rounds_of_epoch(len(data.train)),
        "adjacency": "any input of one client replaced by any other, one report",
        "theory": theory(plan, task.dimension),
        "runs": [_row(run, curves[run.name]) for run in chosen],
    }
    return {**figures, "claims": claims(figures)}


def _result(
    kept: Kept, training: Training, run: Run, seed: int, advance: Advance
) -> dict[str, Any]:
    """Find or make the result of one run."""
    key = {"plan": training.plan.training_key(), "facts": run.facts, "seed": seed}
    name = f"{run.name}-{seed}"
    found: dict[str, Any] | None = kept.find(name, key)
    if found is None:
        found = kept.keep(name, key, training.train(run, advance))
    else:
        for _ in range(training.plan.epochs):
            advance()
    return found


def _row(run: Run, results: list[dict[str, Any]]) -> dict[str, Any]:
    """All seeds of one run."""
    return {
        "name": run.name,
        "figures": list(run.figures),
        **run.facts,
        "report_bytes": None if run.algorithm is None else run.algorithm.report_bytes,
        "results": results,
    }


def progress_steps(plan: Plan, task: Task) -> int:
    """Return how often `reproduce` reports progress."""
    return len(runs(plan, task.dimension)) * len(plan.seeds) * plan.epochs
