"""Whole runs handed to others: every point of a sweep is one task."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from pathlib import Path
from typing import Self

from protocol.errors import ConfigurationError
from simulations.learning.configuration import RunConfig
from simulations.learning.federated import load_data
from simulations.learning.records import RunSummary
from simulations.learning.run.experiment import run_experiment
from simulations.learning.run.folder import RunFolder, finished
from simulations.learning.run.trackers import tracker


class Sweep:
    """The points of a sweep, on others' processors."""

    def __init__(
        self,
        folder: Path,  # of all points, on a file system that all of them share; made if need be
        data_dir: Path | None,  # folder of data sets, where they run
        executor: Executor,  # runs the points
        log: Sequence[str] = (),
    ) -> None:
        self._folder, self._data_dir, self._executor = folder.resolve(), data_dir, executor
        self._log = tuple(log)
        self._token = self._folder / f".shared-{secrets.token_hex(8)}"
        self.summaries: list[RunSummary] = []

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._token.touch()
        return self

    def __exit__(self, *details: object) -> None:
        self._token.unlink(missing_ok=True)

    def run(self, points: Mapping[str, RunConfig]) -> Iterator[str]:
        """Run what is missing, and yield the names of points as they are done.

        Post: `summaries` are those of all points, in their order.
        """
        futures = {
            self._executor.submit(
                run_point, config, self._folder / name, self._token, self._data_dir, self._log
            ): name
            for name, config in points.items()
        }
        found: dict[str, RunSummary] = {}
        failed: list[BaseException] = []
        for future in as_completed(futures):
            error, name = future.exception(), futures[future]
            if error is None:
                found[name] = future.result()
                yield name
            else:
                error.add_note(f"this was {name}")
                failed.append(error)
        if failed:
            raise failed[0]
        self.summaries = [found[name] for name in points]


def run_point(
    config: RunConfig, path: Path, token: Path, data_dir: Path | None, log: Sequence[str] = ()
) -> RunSummary:
    """Run one point, or what is left of it."""
    if not token.exists():
        problem = f"not to be seen on {socket.gethostname()}"
        valid = "a folder on a file system that all who run points share"
        raise ConfigurationError(str(token.parent), problem, valid)
    summary = finished(path, config)
    if summary is None:
        data = load_data(config, data_dir)
        with RunFolder(path, config) as folder:
            callbacks = [tracker(name) for name in log]
            summary = run_experiment(config, data, folder, callbacks).summary()
    return summary
