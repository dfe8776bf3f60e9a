"""Compression under example-level privacy: `veilsum reproduce compression`.

Every network is a run of its own, in a file of its own. At one seed all arms see the same first
parameters, batches and noise, so that their accuracies differ by what is done with the gradient.

Source: "On the Interaction between Differential Privacy and Gradient Compression in Deep Learning",
a thesis, chapters 2 and 3.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dp.accounting.report import json_number
from simulations.common.threads import one_thread
from simulations.learning.example_level.breakdown import break_down, noise_error, share_kept
from simulations.learning.example_level.clipped import gradients_of
from simulations.learning.example_level.training import Examples, Setting, train
from simulations.reproduce.compression.claims import claims
from simulations.reproduce.compression.plan import (
    MOMENTUM,
    RESIDUAL_DECAY,
    Arm,
    Plan,
    Point,
    load,
)
from simulations.reproduce.kept import Kept
from sketch import LayerShapes

Advance = Callable[[int], None]
"""Told how many epochs, or gradient errors, are done now."""

PUBLISHED_EPOCHS = 100


def reproduce(
    plan: Plan,
    data_dir: Path | None,
    folder: Path,
    workers: int = 1,
    advance: Advance = lambda _: None,
) -> dict[str, Any]:
    """Train what is not yet in the folder; return all figures.

    Args:
        data_dir: folder of data sets; None for what the environment says.
        folder: made if need be; holds one file for every finished run.
        workers: processes, at least 1.
        advance: told of `progress_steps` steps in all.

    Raises:
        DataError: a file is missing, of another version or broken.
    """
    campaign = Campaign(plan, data_dir)
    kept = Kept(folder / "runs")
    with one_thread():
        runs = list(_runs(campaign, kept, workers, advance))
        errors = campaign.errors(kept, advance)
    figures = {**campaign.facts(kept), "runs": runs, "results": summarise(plan, runs, errors)}
    return {**figures, "claims": claims(figures)}


def progress_steps(plan: Plan) -> int:
    """Return how many steps `reproduce` reports."""
    points = list(plan.points())
    return len(points) * plan.epochs + sum(point.seed == plan.seeds[0] for point in points)


class Campaign:
    """A plan with its model and data.

    Args:
        plan: what is trained.
        data_dir: folder of data sets.
    """

    def __init__(self, plan: Plan, data_dir: Path | None) -> None:
        self.plan, self.data_dir = plan, data_dir
        self.task, self.data = load(plan.task, data_dir)
        self.shapes = LayerShapes(self.task.layout.shapes)

    def facts(self, kept: Kept) -> dict[str, Any]:
        """Return what is true before anything runs."""
        plan, examples = self.plan, len(self.data.train)
        return {
            "task": plan.task,
            "plan": asdict(plan),
            "parameters": self.task.dimension,
            "examples": examples,
            "tested": len(self.data.test),
            "adjacency": "one example more or less; against whoever sees every message",
            "sampling": "Poisson",
            "epsilon": {f"{noise:g}": self._epsilons(noise, kept) for noise in plan.noise},
        }

    def _epsilons(self, noise: float, kept: Kept) -> dict[str, Any]:
        """Return epsilon of these runs and of the published length, ours and the thesis's."""
        key = {**self.key(Point(noise, Arm("none"), 0)), "delta": self.plan.delta}
        name = f"epsilon-{noise:g}"
        found: dict[str, Any] = kept.get(name, key, lambda: self._new_epsilons(noise))
        return found

    def _new_epsilons(self, noise: float) -> dict[str, Any]:
        setting = self.setting(Point(noise, Arm("none"), 0))
        examples, delta = len(self.data.train), self.plan.delta
        ours = setting.account(examples, delta)
        whole = replace(setting, epochs=PUBLISHED_EPOCHS).account(examples, delta)
        return {
            "ours": json_number(ours.epsilon()),
            "published": json_number(ours.published_epsilon()),
            "ours_100_epochs": json_number(whole.epsilon()),
            "published_100_epochs": json_number(whole.published_epsilon()),
        }

    def setting(self, point: Point) -> Setting:
        """Return how a network is trained."""
        return self.plan.setting(point, self.task.dimension)

    def key(self, point: Point) -> dict[str, Any]:
        """Return all that the result of a run depends on."""
        setting = asdict(self.setting(point))
        setting["sampling"] = self.setting(point).sampling.value
        return {
            "task": self.plan.task,
            "parameters": self.task.dimension,
            "examples": len(self.data.train),
            "shape": self.data.shape,
            "setting": setting,
            "arm": asdict(point.arm),
            "denoise": (MOMENTUM, RESIDUAL_DECAY),
            "seed": point.seed,
        }

    def run(self, point: Point, advance: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Train one network."""
        opening, start = self.plan.opening(point.arm, self.shapes), time.process_time()
        records = train(self.task, self.data, self.setting(point), opening, point.seed, advance)
        last = records[-self.plan.averaged :]
        return {
            "noise_multiplier": point.noise,
            "arm": point.arm.name,
            "seed": point.seed,
            "accuracy": float(np.mean([record.accuracy for record in last])),
            "best": max(record.accuracy for record in records),
            "bytes": records[-1].bytes_per_worker,
            "seconds": time.process_time() - start,
            "curve": [asdict(record) for record in records],
        }

    def errors(self, kept: Kept, advance: Advance) -> dict[tuple[float, str], Any]:
        """Measure the gradient errors of every arm at the first parameters of the first seed."""
        seed, examples = self.plan.seeds[0], Examples(self.data)
        gradients = gradients_of(self.task)
        model = self.task.initial(torch.Generator().manual_seed(seed))
        order = np.random.default_rng([seed, 3]).permutation(len(examples))
        places, found = order[: self.plan.batch], {}
        for point in self.plan.points():
            if point.seed != seed:
                continue
            key = {**self.key(point), "repeats": self.plan.repeats}
            name = f"error-{point.name}"
            row = kept.find(name, key)
            if row is None:
                measured = break_down(
                    gradients,
                    model,
                    examples,
                    places,
                    clip=self.plan.clip,
                    noise_multiplier=point.noise,
                    opening=self.plan.opening(point.arm, self.shapes),
                    seed=seed,
                    repeats=self.plan.repeats,
                )
                row = kept.keep(name, key, asdict(measured))
            found[point.noise, point.arm.name] = row | self._predicted(point)
            advance(1)
        return found

    def _predicted(self, point: Point) -> dict[str, float]:
        """Return closed forms: what noise adds, and what of it top-k keeps."""
        plan = self.plan
        noise = noise_error(self.task.dimension, plan.clip, point.noise, plan.batch)
        sparse = point.arm.kind == "dgc"
        kept = {"predicted_kept": noise * share_kept(point.arm.value)} if sparse else {}
        return {"predicted_noise": noise, **kept}


def _runs(
    campaign: Campaign, kept: Kept, workers: int, advance: Advance
) -> Iterator[dict[str, Any]]:
    """Yield the results of all points in order, training those that are not kept."""
    points = list(campaign.plan.points())
    found: dict[Point, dict[str, Any]] = {}
    for point in points:
        result = kept.find(point.name, campaign.key(point))
        if result is not None:
            found[point] = result
    missing = [point for point in points if point not in found]
    advance(campaign.plan.epochs * len(found))
    for point, result in _train(campaign, missing, workers, advance):
        found[point] = kept.keep(point.name, campaign.key(point), result)
    for point in points:
        yield found[point]


def _train(
    campaign: Campaign, points: Sequence[Point], workers: int, advance: Advance
) -> Iterator[tuple[Point, dict[str, Any]]]:
    """Train networks, here or in processes of their own, and yield them as they are ready."""
    if workers == 1 or len(points) < 2:
        for point in points:
            yield point, campaign.run(point, lambda: advance(1))
        return
    # Torch's threads do not survive a fork.
    context, start = get_context("spawn"), (campaign.plan, campaign.data_dir)
    with ProcessPoolExecutor(workers, context, _begin, start) as pool:
        futures = {pool.submit(_run_there, point): point for point in points}
        for future in as_completed(futures):
            yield futures[future], future.result()
            advance(campaign.plan.epochs)


_THERE: dict[str, Campaign] = {}
"""The campaign of a process that trains, loaded once."""


def _begin(plan: Plan, data_dir: Path | None) -> None:
    torch.set_num_threads(1)
    _THERE["campaign"] = Campaign(plan, data_dir)


def _run_there(point: Point) -> dict[str, Any]:
    return _THERE["campaign"].run(point)


def summarise(
    plan: Plan, runs: Sequence[Mapping[str, Any]], errors: Mapping[tuple[float, str], Any]
) -> list[dict[str, Any]]:
    """Return one row for every noise and arm: its runs over all seeds, and its gradient error."""
    rows = []
    for (noise, name), error in errors.items():
        mine = [r for r in runs if r["noise_multiplier"] == noise and r["arm"] == name]
        accuracies = [run["accuracy"] for run in mine]
        rows.append(
            {
                "noise_multiplier": noise,
                "arm": name,
                "accuracy": float(np.mean(accuracies)),
                "accuracies": accuracies,
                "best": float(np.mean([run["best"] for run in mine])),
                "bytes": float(np.mean([run["bytes"] for run in mine])),
                "error": error,
            }
        )
    return rows
