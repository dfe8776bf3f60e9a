"""Small runs: the configuration that their tests share, and how one is run, alone or on ranks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from rank_doubles import on_ranks

from protocol.exchange.ranks import Ranks
from protocol.planning.configuration import parse
from simulations.learning.configuration import RunConfig, demo_config
from simulations.learning.data import Dataset
from simulations.learning.run.callbacks import RunCallback
from simulations.learning.run.experiment import RunResult, assist, run_experiment
from simulations.learning.run.folder import RunFolder
from simulations.learning.run.overrides import changed

BARE: Final[Mapping[str, Any]] = {
    "seed": 3,
    "rounds": 4,
    "task": {"population": 30, "hidden": 6, "minimum_examples": 3},
    "local": {"learning_rate": 0.3, "steps": 2, "batch_size": 8},
    "server": {"learning_rate": 2.0},
    "privacy": {"epsilon": 30.0, "delta": 1e-5, "clip_l2": 0.25},
    "cohort": {"size": 10, "tolerated_dropouts": 2, "tolerated_colluders": 1},
}
SMALL: Final[Mapping[str, Any]] = {**BARE, "sketch": {"gamma": 0.1}, "faults": {"dropout": 0.1}}
CHUNKED: Final[Mapping[str, Any]] = {**SMALL, "rounds": 3, "engine": {"chunk": 2}}


def config_of(raw: Mapping[str, Any], *kinds: Mapping[str, Any], **changes: Any) -> RunConfig:
    """A configuration with other values, by dotted keys, or by names with "__" for dots."""
    named = {key.replace("__", "."): value for key, value in changes.items()}
    pairs = [pair for each in (*kinds, named) for pair in each.items()]
    return changed(parse(raw, RunConfig), pairs)


def small_demo(**changes: Any) -> RunConfig:
    """The demo's configuration with a cohort and a network that take a second."""
    cohort = {"size": 12, "tolerated_dropouts": 3, "tolerated_colluders": 1}
    smaller = {f"cohort.{name}": value for name, value in cohort.items()}
    smaller |= {"task.population": 24, "task.hidden": 4}
    return config_of(demo_config().model_dump(), smaller, **changes)


def run(config: RunConfig, data: Dataset, path: Path, *callbacks: RunCallback) -> RunResult:
    """Run in a folder, or go on."""
    with RunFolder(path, config) as folder:
        return run_experiment(config, data, folder, callbacks)


def run_on_ranks(
    config: RunConfig, data: Dataset, path: Path, size: int, *callbacks: RunCallback
) -> None:
    """The same with so many ranks."""

    def work(ranks: Ranks) -> None:
        if ranks.rank:
            assist(config, data, ranks)
            return
        with RunFolder(path, config) as folder:
            run_experiment(config, data, folder, callbacks, ranks)

    on_ranks(size, work)


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file with one on each line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def timeless(records: Iterable[Mapping[str, Any]], *others: str) -> list[dict[str, Any]]:
    """Records without what differs from run to run, and without other entries."""
    return [{**each, **dict.fromkeys(("seconds", "stages", *others))} for each in records]
