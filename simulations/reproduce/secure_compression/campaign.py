"""All runs of a plan: learning rates are sought with seeds of their own, the best is evaluated.

Every run is one of the federated engine with the ideal sum, which adds the integers of the real
protocol. Finished runs are kept with their configurations, so that an interrupted campaign goes on
where it stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from simulations.common.failures import DivergedError
from simulations.learning.configuration import RunConfig
from simulations.learning.data import Dataset
from simulations.learning.models import DataShape, ModelOptions, build_task
from simulations.learning.run.experiment import Record, run_experiment
from simulations.learning.run.folder import RunFolder
from simulations.reproduce import origin
from simulations.reproduce.autotune.campaign import final_accuracy
from simulations.reproduce.kept import Kept
from simulations.reproduce.secure_compression.bytes import matched_sketches, round_bytes
from simulations.reproduce.secure_compression.claims import conclusions
from simulations.reproduce.secure_compression.plan import (
    ALONE,
    UNCOMPRESSED,
    Arm,
    Family,
    Plan,
    Point,
)
from sketch.layers import LayerShapes

Row = dict[str, Any]

DENOISED_STEP = 1
"""Powers of two by which Denoise's first rate is above that of the release alone: its second clip
shortens means that are mostly noise."""


def reproduce(
    campaign: Campaign, progress: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Run what is not yet kept; return all figures as plain JSON values.

    Args:
        campaign: what to run.
        progress: told the name of every step when it is done, `campaign.steps` times.

    Raises:
        ConfigurationError: a run cannot be, before any is.
    """
    for point in campaign.points:
        campaign.plan.config(point, 1.0, campaign.seed).check()
    rows = []
    for point in campaign.points:
        rows.append(campaign.row(point))
        progress(point.name)
    common = campaign.at_common_rate()
    progress("one learning rate for all clips")
    figures = campaign.facts() | {"rows": rows, "common": common}
    return figures | {"conclusions": conclusions(figures), "seconds": campaign.seconds}


def layers_of(plan: Plan, data: Dataset) -> LayerShapes:
    """Return the layers of the plan's model."""
    task = plan.config(Point(UNCOMPRESSED), 1.0, 0).task
    options = ModelOptions(hidden=task.hidden, l2=task.l2)
    return LayerShapes(build_task(task.model, DataShape.of(data), options).layout.shapes)


class Campaign:
    """A plan with its data and the runs that are finished.

    Args:
        plan: what is run.
        data: that the plan names.
        seed: the first of those evaluated; trials have seeds of their own.
        out: folder, made if need be, of finished runs.
    """

    def __init__(self, plan: Plan, data: Dataset, seed: int, out: Path) -> None:
        self.plan, self.data, self.seed = plan, data, seed
        self.layers = layers_of(plan, data)
        self.matched = matched_sketches(plan, self.layers, seed)
        self.points = list(plan.points(self.matched))
        self._out, self._kept = out, Kept(out / "runs")
        self._used: dict[str, float] = {}
        self._best: dict[Arm, int] = {}

    @property
    def steps(self) -> int:
        """Return how often `reproduce` tells its progress."""
        return len(self.points) + 1

    @property
    def seconds(self) -> float:
        """Return the processor time of all runs that were asked for, whenever they ran."""
        return sum(self._used.values())

    def facts(self) -> dict[str, Any]:
        """Return what is true before anything runs."""
        return {
            "plan": json.loads(json.dumps(asdict(self.plan))),
            "seed": self.seed,
            **origin.facts(),
            "parameters": self.layers.dimension,
            "layers": [[name, list(shape)] for name, shape in self.layers.shapes],
            "tested": len(self.data.test),
            "matched": {arm.role: arm.name for arm in self.matched},
        }

    def row(self, point: Point) -> Row:
        """Return what a point comes to, at the learning rate that was best in the trials."""
        start = self._start(point)
        tried = climb(lambda k: self._tried(point, k), start, self.plan.climb)
        # Ties go to the smaller rate, so that the choice does not depend on the order of trials.
        best = max(sorted(tried), key=lambda exponent: tried[exponent])
        if point.average == ALONE:
            self._best[point.arm] = best
        trials = [[2.0**k, tried[k]] for k in sorted(tried)]
        edge = abs(best - start) == self.plan.climb
        return {**self._evaluated(point, best), "tried": trials, "at_edge": edge}

    def at_common_rate(self) -> list[Row]:
        """Return all clips at the learning rate of the right one: nobody sought theirs."""
        step = self._best[UNCOMPRESSED]
        clips = [a for a in self.plan.arms() if a.family in (Family.CLIP, Family.FOLLOWING)]
        return [self._evaluated(Point(arm), step) for arm in clips]

    def _start(self, point: Point) -> int:
        """Return the exponent that is tried first; what follows a release begins at its best."""
        if point.average == ALONE:
            return self.plan.first_exponent(point.arm)
        more = DENOISED_STEP if point.average.kind == "denoise" else 0
        return self._best[point.arm] + more

    def _tried(self, point: Point, exponent: int) -> float:
        seeds = self.plan.tried_seeds(self.seed)
        return fmean(self.run(point, exponent, seed)["accuracy"] for seed in seeds)

    def _evaluated(self, point: Point, exponent: int) -> Row:
        seeds = range(self.seed, self.seed + self.plan.seeds)
        runs = [self.run(point, exponent, seed) for seed in seeds]
        config = self.plan.config(point, 1.0, self.seed)
        accuracies = [run["accuracy"] for run in runs]
        return {
            "name": point.name,
            "arm": point.arm.name,
            "title": point.arm.title,
            "family": point.arm.family.value,
            "value": point.arm.value,
            "average": point.average.kind,
            "momentum": point.average.momentum,
            "rate": 2.0**exponent,
            "accuracy": fmean(accuracies),
            "accuracies": accuracies,
            "diverged": sum(run["diverged"] for run in runs),
            "bytes": round_bytes(config, self.layers).figures(),
            "recorded_bytes": runs[0]["bytes"],
            "epsilon": runs[0]["epsilon"],
            "last_clips": [run["last_clip"] for run in runs],
        }

    def run(self, point: Point, exponent: int, seed: int) -> Mapping[str, Any]:
        """Return the result of one run, which is made if it is not kept."""
        config = self.plan.config(point, 2.0**exponent, seed)
        name = f"{point.name}-{exponent}-{seed}"
        key = config.model_dump(exclude_none=True)
        result: Mapping[str, Any] = self._kept.get(name, key, lambda: self._made(config))
        self._used[name] = result["seconds"]
        return result

    def _made(self, config: RunConfig) -> dict[str, Any]:
        start, records, diverged = time.process_time(), list[Record](), False
        with (
            TemporaryDirectory(dir=self._out, prefix="run-") as folder,
            RunFolder(Path(folder) / "run", config) as opened,
        ):
            try:
                run_experiment(config, self.data, opened, records.append)
            except DivergedError:
                diverged = True
        last = records[-1] if records else {}
        spent = last.get("epsilons", {})
        return {
            # A model that is lost answers nothing.
            "accuracy": 0.0 if diverged else final_accuracy(records),
            "diverged": diverged,
            "bytes": last.get("bytes_per_client"),
            # Where a run ends depends on what it released, if only by diverging: its goal, then.
            "epsilon": spent.get("guaranteed", spent.get("server")),
            "last_clip": last.get("clip_of_an_update"),
            "seconds": time.process_time() - start,
        }


def climb(height: Callable[[int], float], start: int, most: int) -> dict[int, float]:
    """Return heights at a start and beside it, and on as long as they get higher.

    Args:
        height: of an integer.
        start: tried first.
        most: steps from the start in either direction.
    """
    found = {start: height(start)}
    for direction in (1, -1):
        for place in range(start + direction, start + direction * (most + 1), direction):
            found[place] = height(place)
            if found[place] <= found[place - direction]:
                break
        if found[start] < max(found.values()):
            break  # The top is on this side.
    return found
