"""Who is told of a run as it goes: the live view, trackers of experiments, or your own code.

What a callback does costs no round: a round is kept in the folder before anybody is told of it, and
a callback that raises is told of no more rounds, with a warning, while the run goes on. Only one
that cannot even start ends the run, before its first round, when nothing is lost. Where ranks share
a run, rank 0 alone tells its callbacks.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from simulations.common.failures import CallbackError
from simulations.learning.configuration import RunConfig
from simulations.learning.records import Record, RunSummary


class RunCallback:
    """Is told of a run. Every method does nothing; override those that you need."""

    def start(self, config: RunConfig, folder: Path, earlier: Sequence[Record]) -> None:
        """Be told that a run begins, or goes on.

        Args:
            config: of the run.
            folder: of the run; a callback may keep files of its own there.
            earlier: records of the rounds before an interruption; empty for a new run.
        """

    def round(self, record: Record) -> None:
        """Be told of a finished round: the record that went to `rounds.jsonl`."""

    def end(self, summary: RunSummary | None) -> None:
        """Be told that the run is over; also told to whoever raised before.

        Args:
            summary: what went to `summary.json`; None if the run ended before its last round.
        """


class CallbackWarning(RuntimeWarning):
    """A callback raised, and the run goes on without it."""


class Telling:
    """Tells callbacks of one run. Use `telling`.

    Attributes:
        summary: of the run, when it is over.
    """

    def __init__(self) -> None:
        self.summary: RunSummary | None = None
        self._started: list[RunCallback] = []
        self._listening: list[RunCallback] = []

    def start(
        self,
        callbacks: Sequence[RunCallback],
        config: RunConfig,
        folder: Path,
        earlier: Sequence[Record],
    ) -> None:
        """Tell all that the run begins."""
        for callback in callbacks:
            try:
                callback.start(config, folder, earlier)
            except Exception as error:
                raise CallbackError(_name(callback), _words(error)) from error
            self._started.append(callback)
        self._listening = list(self._started)

    def round(self, record: Record) -> None:
        """Tell those that have not raised yet."""
        for callback in list(self._listening):
            try:
                callback.round(record)
            except Exception as error:
                self._listening.remove(callback)
                _warn(callback, f"of round {record['round']}", error)

    def end(self) -> None:
        """Tell all that were told of the start."""
        for callback in self._started:
            try:
                callback.end(self.summary)
            except Exception as error:
                _warn(callback, "that the run is over", error)


@contextmanager
def telling(
    callbacks: Sequence[RunCallback], config: RunConfig, folder: Path, earlier: Sequence[Record]
) -> Iterator[Telling]:
    """Tell callbacks of a run from its start to its end, whatever ends it."""
    observers = Telling()
    try:
        observers.start(callbacks, config, folder, earlier)
        yield observers
    finally:
        observers.end()


def _warn(callback: RunCallback, of_what: str, error: Exception) -> None:
    text = (
        f"{_name(callback)} could not be told {of_what} ({_words(error)}); it is told of no more "
        "rounds, and the run goes on"
    )
    warnings.warn(text, CallbackWarning, stacklevel=3)


def _name(callback: RunCallback) -> str:
    return type(callback).__name__


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
