"""What a person sees of an audit: progress while it runs, a table when it is over."""

from __future__ import annotations

from typing import Final, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from simulations.audits import Check
from simulations.reports.audit.readings import headline, promise_of
from simulations.reports.audit.results import AuditReport, UnitOutcome
from simulations.reports.audit.units import Unit

WIDE: Final = 140
"""Columns of a console in which five cells beside one another can be read."""


class ProgressView:
    """A bar and a line for each finished unit; the lines alone where there is no terminal."""

    def __init__(self, total: int, console: Console) -> None:
        self._console = console
        self._total = total
        self._done = 0
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal or console.quiet,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *details: object) -> None:
        self._bar.stop()

    def begin(self, unit: Unit) -> None:
        """Show what runs now."""
        self._bar.update(self._task, description=unit.id)

    def end(self, outcome: UnitOutcome) -> None:
        """Show what a unit came to."""
        self._done += 1
        self._bar.update(self._task, completed=self._done)
        word = "held" if outcome.held else "NOT HELD"
        if not outcome.checks:
            word = "nothing to test"
        took = "from an earlier run" if outcome.kept else f"{outcome.seconds:.1f} s"
        reason = f": {outcome.error}" if outcome.error else ""
        line = f"{self._done} of {self._total}  {outcome.unit}  {word}  {took}{reason}"
        style = "" if outcome.held else "bold red"
        self._console.print(Text(line, style), soft_wrap=True)


def results_table(report: AuditReport, width: int) -> Table:
    """The checks: a row for each, or a paragraph for each where rows are too narrow to read."""
    return _rows(report) if width >= WIDE else _paragraphs(report)


def _rows(report: AuditReport) -> Table:
    names = ("id", "promise", "with the defence", "without it", "held")
    columns = [Column(name, overflow="fold") for name in names]
    table = Table(*columns, title=_summary(report), title_justify="left", box=SIMPLE_HEAD)
    for check in report.checks:
        texts = (check.id, *_cells(check))
        table.add_row(*(Text(text) for text in texts), _held(check))
    return table


def _paragraphs(report: AuditReport) -> Table:
    table = Table("held", "check", title=_summary(report), title_justify="left", box=SIMPLE_HEAD)
    for check in report.checks:
        promise, with_defence, without = _cells(check)
        lines = (
            (promise, "bold"),
            (f"id: {check.id}", ""),
            (f"with the defence: {with_defence}", ""),
            (f"without it: {without}", ""),
        )
        text = Text("\n").join(Text(line, style) for line, style in lines)
        table.add_row(_held(check), text, end_section=True)
    return table


def _cells(check: Check) -> tuple[str, str, str]:
    return promise_of(check), headline(check.with_defence), headline(check.without_defence)


def _held(check: Check) -> Text:
    return Text("yes", "green") if check.held else Text("NO", "bold red")


def _summary(report: AuditReport) -> Text:
    failed = sum(not check.held for check in report.checks)
    word = (
        f"{failed} of {len(report.checks)} checks do not hold"
        if failed
        else (f"all {len(report.checks)} checks hold" if report.checks else "nothing was tested")
    )
    return Text(f"{report.effort} audit, seed {report.seed}: {word}; {report.seconds:.0f} s")
