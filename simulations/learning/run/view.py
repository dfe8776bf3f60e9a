"""The live view of a run: a progress bar and the last rounds, redrawn as they end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from simulations.common.tables import fitted, readable
from simulations.learning.configuration import RunConfig
from simulations.learning.insecure import protects
from simulations.learning.records import Epsilons, Record, RunSummary, spent
from simulations.learning.run.callbacks import RunCallback

SHOWN = 12
"""Rounds of the table that stay in sight."""

SHOWN_SECONDS = 0.05
"""Less compilation than this would be shown as none."""

COLUMNS = ("round", "accuracy", "loss", "sketch", "bits", "kB each", "clients", "spent", "s")


class LiveView(RunCallback):
    """Shows records as they come; on a console that is no terminal, a line for each."""

    def __init__(self, config: RunConfig, console: Console) -> None:
        self._console = console
        seed = config.engine.insecure_seed
        self._warning = None if seed is None else f"this run protects {protects(seed)}"
        self._lines: deque[tuple[str, ...]] = deque(maxlen=SHOWN)
        self._progress = Progress(
            TextColumn("rounds"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task = self._progress.add_task("rounds", total=config.rounds)
        self._live = Live(self._drawn(), console=console, refresh_per_second=4)
        self._animated = console.is_terminal and not console.quiet
        self._start = time.perf_counter()
        self._promise = ""

    def start(self, config: RunConfig, folder: Path, earlier: Sequence[Record]) -> None:
        """Begin to draw, with the rounds of an earlier call."""
        if self._warning:
            self._console.print(self._warning, style="bold", highlight=False, soft_wrap=True)
        if self._animated:
            self._live.start()
        for record in earlier:
            self.round(record)

    def end(self, summary: RunSummary | None) -> None:
        """Draw no more, and say what the run promises."""
        if self._animated:
            self._live.stop()
        if last := self._warning or self._promise:
            self._console.print(last, highlight=False, soft_wrap=True)

    def round(self, record: Record) -> None:
        """Show one more round."""
        cells, epsilons = row(record), record["epsilons"]
        if "guaranteed" in epsilons:
            self._promise = (
                f"epsilon {readable(epsilons['guaranteed'])} at delta {epsilons['delta']:g} is "
                f"guaranteed against {epsilons.get('guaranteed_against', 'the server')}, wherever "
                "the run stops; what is spent is only an estimate"
            )
            self._promise += hidden_words(epsilons)
        self._lines.append(cells)
        self._progress.update(self._task, completed=record["round"])
        if self._animated:
            self._live.update(self._drawn())
        else:
            pairs = zip(COLUMNS, cells, strict=True)
            text = "  ".join(f"{name} {cell}" for name, cell in pairs)
            self._console.print(text, highlight=False, soft_wrap=True)

    def _drawn(self) -> Group:
        warning = [Text(self._warning, style="bold")] if self._warning else []
        table = fitted(COLUMNS, list(self._lines), self._console.width)
        return Group(*warning, table, self._progress)


def hidden_words(epsilons: Epsilons) -> str:
    """What is said of hidden cohorts beside the promise, and apart from it; empty of others."""
    if "hidden_cohorts" not in epsilons:
        return ""
    return (
        f". No part of that: epsilon {readable(epsilons['hidden_cohorts'])} so far for somebody "
        "who sees only the models and is never told who came, or how many; it never holds against "
        "the server, nor against a reader of the run's records"
    )


def row(record: Record) -> tuple[str, ...]:
    """A record as cells."""
    survivors = record["survivors"]
    return (
        str(record["round"]),
        _accuracy(record),
        _number(record["loss"], ".3f"),
        f"{record['sketch_size']} ({record['compression']:.1f}x)",
        _number(record["bits"], ""),
        f"{record['bytes_per_client'] / 1000:.1f}",
        f"{'all' if survivors is None else survivors}/{record['cohort']}",
        _number(spent(record["epsilons"]), ".3f"),
        _seconds(record),
    )


def _accuracy(record: Record) -> str:
    """Of the test; and what clients say, where they do."""
    tested, found = _number(record["accuracy"], ".1%"), record.get("by_clients")
    if found is None:
        return tested
    share, error = (_number(found[key], ".1%") for key in ("accuracy", "accuracy_error"))
    return f"{tested} (clients {share} \u00b1 {error})"


def _seconds(record: Record) -> str:
    """Of a round, and how many of them went into compiling, where that shows."""
    compiling = record["stages"].get("compiling", 0.0)
    note = f" ({compiling:.1f} compiling)" if compiling >= SHOWN_SECONDS else ""
    return f"{record['seconds']:.2f}{note}"


def _number(value: Any, form: str) -> str:
    if value is None:
        return "-"
    return format(value, form) if isinstance(value, float) else str(value)
