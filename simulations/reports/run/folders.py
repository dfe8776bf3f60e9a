"""Runs as their folders tell of them: finished, interrupted, or still going on.

Folders are only read, so a run may be looked at while it goes on.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from protocol.errors import ConfigurationError
from protocol.planning.configuration import load
from simulations.learning.configuration import RunConfig
from simulations.learning.records import Environment, Record
from simulations.reports.guessing import guaranteed

CONFIG: Final = "config.toml"
NEEDED: Final = frozenset(
    "round accuracy loss cohort survivors sketch_size dimension compression bytes_per_client "
    "epsilons lost".split()
)
"""What every record has; the rest depends on the kind of run."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One run, as its folder tells of it."""

    name: str  # short
    path: Path  # its folder
    config: RunConfig  # what was asked for
    environment: Environment  # machine, versions and commit, as far as they were kept
    records: Sequence[Record]  # of all finished rounds

    @property
    def tested(self) -> list[Record]:
        """The rounds after which the model was tested."""
        return [record for record in self.records if record["accuracy"] is not None]

    @property
    def sends_vectors(self) -> bool:
        """Whether a client sends values of a fixed size, and not a report in another form."""
        return all(record.get("bits") is not None for record in self.records)

    @property
    def guaranteed(self) -> float:
        """Epsilon that the run keeps to wherever it stops; infinite if it promises nothing."""
        return guaranteed(self.config, self.records[-1]["epsilons"] if self.records else None)


def find_runs(folders: Iterable[Path]) -> list[Run]:
    """All runs in some folders: each itself, if it is one, and those right below it.

    Raises:
        ConfigurationError: a folder has no run, or one that cannot be read.
    """
    paths: dict[Path, Path] = {}
    for folder in folders:
        below = folder.iterdir() if folder.is_dir() else ()
        candidates = [folder, *sorted(below, key=_natural)]
        found = {path.resolve(): path for path in candidates if (path / CONFIG).is_file()}
        if not found:
            raise ConfigurationError(
                str(folder), "no run in it", "a folder made by veilsum run, sweep or demo"
            )
        paths |= found
    names = short_names(list(paths))
    return [read_run(path, name) for path, name in zip(paths.values(), names, strict=True)]


def read_run(path: Path, name: str | None = None) -> Run:
    """Read the folder of a run.

    Args:
        name: of the run on a page; that of the folder if left out.

    Raises:
        ConfigurationError: it cannot be read.
    """
    config = load(path / CONFIG, RunConfig)
    environment = path / "environment.json"
    found = _parsed(environment, environment.read_bytes()) if environment.exists() else {}
    return Run(
        name or path.resolve().name,
        path,
        config,
        cast(Environment, found),
        _records(path / "rounds.jsonl"),
    )


def short_names(paths: Sequence[Path]) -> list[str]:
    """Names of absolute paths without what all begin with, and without what a sweep did not vary.

    A folder that holds all others is called by its own name.
    """
    top = Path(os.path.commonpath(paths))
    names = [path.name if path == top else str(path.relative_to(top)) for path in paths]
    settings = [name.split(",") for name in names]
    if len(names) == 1 or len({len(parts) for parts in settings}) > 1:
        return names
    varied = [parts for parts in zip(*settings, strict=True) if len(set(parts)) > 1]
    return [",".join(parts) for parts in zip(*varied, strict=True)]


def _records(path: Path) -> list[Record]:
    """All whole lines; the last one of a run that goes on may be half written."""
    if not path.exists():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    records = [_parsed(path, line) for line in lines]
    for number, record in enumerate(records, 1):
        missing = sorted(NEEDED - record.keys())
        if missing:
            raise ConfigurationError(
                str(path), f"line {number} has no {missing[0]}", "records of this version"
            )
    return cast(list[Record], records)


def _parsed(path: Path, text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(str(path), f"not JSON: {error}", "what a run wrote") from None
    if not isinstance(found, dict):
        raise ConfigurationError(str(path), "not a JSON object", "what a run wrote")
    return found


def _natural(path: Path) -> list[tuple[float, str]]:
    """Orders "epsilon=2" before "epsilon=10"."""
    parts = re.split(r"(\d+(?:\.\d+)?)", path.name)
    return [(float(part), "") if index % 2 else (0.0, part) for index, part in enumerate(parts)]
