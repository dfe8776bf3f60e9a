"""Whole runs of the federated engine as cells of a campaign."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, Final

from simulations.campaigns.study import data_dir_here, folder_here
from simulations.campaigns.tuning import held_out
from simulations.common.failures import DivergedError
from simulations.common.provenance import source_of
from simulations.learning.configuration import RunConfig
from simulations.learning.data import Dataset
from simulations.learning.federated import load_data
from simulations.learning.models import DataShape, ModelOptions, Task, build_task
from simulations.learning.run.experiment import Record, run_experiment
from simulations.learning.run.folder import RunFolder

# Tests in this last share of the rounds are averaged: one test alone is noisy
LAST_SHARE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Ran:
    """A run: the records of its rounds, and whether its model left the range of numbers."""

    records: list[Record]
    diverged: bool

    @property
    def last(self) -> Mapping[str, Any]:
        """Return the record of the last round; empty if there is none."""
        return self.records[-1] if self.records else {}

    @property
    def accuracy(self) -> float:
        """Return the final accuracy; a model that is lost answers nothing."""
        return 0.0 if self.diverged else final_accuracy(self.records)


def run_of(config: RunConfig, data: Dataset, name: str | None = None) -> Ran:
    """Run an experiment; with a name it is kept among the campaign's runs.

    An interrupted run goes on there, unless the configuration or the source is another. Where the
    campaign's folder cannot be seen, on a machine of its own perhaps, nothing is kept.
    """
    with run_folder(config, name) as folder, RunFolder(folder, config) as opened:
        try:
            return Ran(run_experiment(config, data, opened).records, False)
        except DivergedError:
            return Ran(opened.records(), True)


def data_of(config: RunConfig, validation: float = 0.0) -> Dataset:
    """Return the data set of a configuration, read once by each process.

    A share for validation is a part of the training examples, which takes the place of the test
    examples.
    """
    key = (config.task.model_dump_json(), data_dir_here())
    if key not in _DATA:
        _DATA[key] = load_data(config, data_dir_here())
    return held_out(_DATA[key], validation) if validation else _DATA[key]


_DATA: dict[tuple[str, Path | None], Dataset] = {}


def model_of(config: RunConfig, data: Dataset) -> Task:
    """Return the model of a configuration."""
    options = ModelOptions(hidden=config.task.hidden, l2=config.task.l2)
    return build_task(config.task.model, DataShape.of(data), options)


@contextmanager
def run_folder(config: RunConfig, name: str | None) -> Iterator[Path]:
    """Yield where a run is kept: among the campaign's runs if it has a name, else nowhere."""
    campaign = folder_here()
    if name is None or campaign is None or not campaign.is_dir():
        with TemporaryDirectory() as folder:
            yield Path(folder) / "run"
        return
    key = config.model_dump_json() + source_of(__name__)
    yield campaign / "runs" / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def outcome(config: RunConfig, validation: float = 0.0) -> dict[str, Any]:
    """Run a configuration; return what campaigns compare. A cell of those that keep no runs."""
    ran = run_of(config, data_of(config, validation))
    spent: dict[str, Any] = ran.last.get("epsilons", {})
    return {
        "accuracy": ran.accuracy,
        "diverged": ran.diverged,
        "bytes": ran.last.get("bytes_per_client"),
        # Where a run ends depends on what it released, if only by diverging: its goal, then.
        "epsilon": spent.get("guaranteed", spent.get("server")),
        "last_clip": ran.last.get("clip_of_an_update"),
    }


def final_accuracy(records: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean over the tests in the last part of a run."""
    first = math.floor(len(records) * (1.0 - LAST_SHARE))
    tested: list[Any] = [r["accuracy"] for r in records if r["round"] > first]
    return fmean(accuracy for accuracy in tested if accuracy is not None)
