"""All runs of a plan: candidates are tried, the best is evaluated with other seeds.

Every run is one of the federated engine, kept in a file with its configuration, so that an
interrupted campaign goes on where it stopped. The distributed sum is the ideal one: the integers of
the real protocol without its messages, whose bytes are added from the deployment's plan.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from protocol.planning.configuration import build_plan
from protocol.planning.deployment import plan_deployment
from secagg import PrimeField
from simulations.learning.configuration import RunConfig
from simulations.learning.data import Dataset, Split
from simulations.learning.run.experiment import run_experiment
from simulations.learning.run.folder import RunFolder
from simulations.reproduce import origin
from simulations.reproduce.intervals import half_width
from simulations.reproduce.kept import Kept
from simulations.reproduce.trust_models.findings import findings
from simulations.reproduce.trust_models.methods import Candidate, Trust
from simulations.reproduce.trust_models.plan import Plan, Setting

_STREAM = 7
"""Tells the choice of records apart from the engine's own streams of a seed."""

Row = dict[str, Any]


def reproduce(
    plan: Plan,
    data: Dataset,
    seed: int,
    out: Path,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run what is not yet in the folder; return all figures as plain JSON values.

    Args:
        data: that the plan names.
        seed: the first of those evaluated; trials have seeds of their own.
        out: folder, made if need be, of finished runs.
        progress: told the name of every setting when it is done.

    Raises:
        ConfigurationError: a setting cannot be run, before any is.
    """
    campaign = Campaign(plan, data, seed, out)
    for setting in plan.settings():
        for candidate in plan.candidates(setting):
            plan.config(setting, candidate, seed).check()
    rows = []
    for setting in plan.settings():
        rows.append(campaign.row(setting))
        progress(setting.name)
    figures = campaign.facts() | {"rows": rows}
    return figures | {"findings": findings(figures), "seconds": campaign.seconds}


class Campaign:
    """A plan with its data and the runs that are finished.

    Args:
        plan: what is run.
        data: of the task.
        seed: the first of those evaluated.
        out: folder of finished runs.
    """

    def __init__(self, plan: Plan, data: Dataset, seed: int, out: Path) -> None:
        self.plan, self.data, self.seed = plan, data, seed
        self._kept = Kept(out / "runs")
        self._used: dict[str, float] = {}
        self._parts = {
            "by_epsilon": set(plan.by_epsilon()),
            "by_bytes": set(plan.by_bytes()),
            "by_clients": set(plan.by_clients()),
        }

    @property
    def seconds(self) -> float:
        """Return the processor time of all runs that were asked for, whenever they ran."""
        return sum(self._used.values())

    def facts(self) -> dict[str, Any]:
        """Return what is true before anything runs."""
        labels = self.data.test.labels
        return {
            "plan": asdict(self.plan),
            "seed": self.seed,
            **origin.facts(),
            "clients": self.plan.rounds * self.plan.cohort,
            "records": len(self.data.train),
            "tested": len(labels),
            "majority": float(np.bincount(labels).max() / len(labels)),
        }

    def row(self, setting: Setting) -> Row:
        """Return what a setting comes to: its runs, and the candidate that was chosen for it."""
        tried = self._tried(setting)
        # Ties go to the first, so that the choice does not depend on anything else.
        chosen = max(tried, key=lambda candidate: tried[candidate])
        seeds = self.plan.evaluation_seeds(setting, self.seed)
        runs = [self.run(setting, chosen, seed) for seed in seeds]
        accuracies = [run["accuracy"] for run in runs]
        config = self.plan.config(setting, chosen, self.seed)
        overhead = self._overhead(setting, config, runs[0])
        return {
            **asdict(setting),
            **{name: setting in part for name, part in self._parts.items()},
            "title": setting.of.title,
            "trust": setting.of.trust.value,
            "clients": config.task.population,
            "cohort": config.cohort.size,
            "reports": config.participations,
            "parameters": runs[0]["parameters"],
            "accuracy": float(np.mean(accuracies)),
            "half_width": half_width(accuracies),
            "accuracies": accuracies,
            "recorded_bytes": runs[0]["bytes"],
            "overhead_bytes": overhead,
            "bytes": config.participations * (runs[0]["bytes"] + overhead),
            "epsilon_server": runs[0]["epsilon_server"],
            "epsilon_outsider": runs[0]["epsilon_outsider"],
            "bound": chosen.bound,
            "reach": chosen.reach,
            "tried": [[c.bound, c.reach, accuracy] for c, accuracy in tried.items()],
        }

    def _tried(self, setting: Setting) -> dict[Candidate, float]:
        """Return the mean accuracy of every candidate."""
        other, seeds = self.plan.tuned(setting), self.plan.trial_seeds(setting, self.seed)
        return {
            candidate: float(np.mean([self.run(other, candidate, s)["accuracy"] for s in seeds]))
            for candidate in self.plan.candidates(setting)
        }

    def _overhead(self, setting: Setting, config: RunConfig, run: Mapping[str, Any]) -> int:
        """Return the bytes of a round that its record does not have; a plan takes a while."""
        if setting.of.trust is not Trust.COHORT:
            return 0
        name, key = f"bytes-{setting.name}", config.model_dump(exclude_none=True)
        found = self._kept.get(
            name, key, lambda: {"bytes": overhead_bytes(config, run["parameters"])}
        )
        return int(found["bytes"])

    def run(self, setting: Setting, candidate: Candidate, seed: int) -> Mapping[str, Any]:
        """Return the result of one run, which is made if it is not kept."""
        config = self.plan.config(setting, candidate, seed)
        name = f"{setting.name}-{candidate.bound:g}-{candidate.reach:g}-{seed}"
        key = config.model_dump(exclude_none=True)
        result: Mapping[str, Any] = self._kept.get(name, key, lambda: self._made(config))
        self._used[name] = result["seconds"]
        return result

    def _made(self, config: RunConfig) -> dict[str, Any]:
        start = time.process_time()
        data = one_each(self.data, config.task.population, config.seed)
        with (
            TemporaryDirectory() as folder,
            RunFolder(Path(folder) / "run", config) as opened,
        ):
            last = run_experiment(config, data, opened).records[-1]
        return {
            "accuracy": last["accuracy"],
            "loss": last["loss"],
            "parameters": last["dimension"],
            "sketch_size": last["sketch_size"],
            "bytes": last["bytes_per_client"],
            "epsilon_server": last["epsilons"]["server"],
            "epsilon_outsider": last["epsilons"].get("outsider", "inf"),
            "seconds": time.process_time() - start,
        }


def one_each(data: Dataset, clients: int, seed: int) -> Dataset:
    """Return the data with as many training records as there are clients, chosen by the seed.

    Raises:
        ValueError: there are fewer records than clients.
    """
    train = data.train
    if clients > len(train):
        raise ValueError(f"{clients} clients with one record each, but {len(train)} records")
    chosen = np.random.default_rng([seed, _STREAM]).permutation(len(train))[:clients]
    return replace(data, train=Split(train.inputs[chosen], train.labels[chosen]))


def overhead_bytes(config: RunConfig, dimension: int) -> int:
    """Return what a client of the real protocol sends and receives in a round beside its vector.

    The packed vector alone is what the ideal sum records.

    Args:
        dimension: of an update.
    """
    plan = build_plan(config.privacy, config.cohort, config.participations)
    sketch = config.sketch.build(config.rounds).initial(dimension).spec
    deployment = plan_deployment(plan, sketch, 0)
    vector = PrimeField(deployment.bits).packed_bytes(deployment.parameters.length)
    return deployment.bytes_per_client - vector
