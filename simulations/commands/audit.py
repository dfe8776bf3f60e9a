"""The options of `veilsum audit`; its body is `simulations.reports.audit`, loaded when it runs."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from simulations.common.failures import kept_so_far
from simulations.common.files import write_whole
from simulations.common.tables import JsonFlag
from veilsum.extras import install_command

if TYPE_CHECKING:
    from simulations.reports.audit import AuditReport, Unit, UnitOutcome
    from simulations.reports.audit.journal import Journal

PAGE: Final = "index.html"
CHECKS: Final = "checks.jsonl"
RESULT: Final = "audit.json"
NO_FLOWER: Final = (
    f"Flower is not installed, so its secure aggregation was not tried: {install_command('flower')}"
)


def audit_command(
    full: Annotated[
        bool,
        typer.Option("--full", help="More trials of everything; takes minutes instead of seconds."),
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Fixes all randomness except the secrets of real rounds.", min=0)
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the report. An interrupted audit resumes from it."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            help="Id of a check, such as A1; repeat the option, or separate ids with commas."
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print neither progress nor the table.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Attack the protocol and measure its privacy; exit status 1 if a check does not hold."""
    from simulations.audits.base import Effort
    from simulations.reports.audit.units import all_units, chosen_units

    effort = Effort.FULL if full else Effort.QUICK
    planned = all_units(effort, seed)
    units = chosen_units(planned, only or [])
    console = Console(stderr=True, quiet=quiet)
    journal = _journal(out, seed, effort.value)
    # Standard output is for the result: whatever a check prints goes where progress goes.
    with contextlib.redirect_stdout(sys.stderr):
        outcomes = _run(units, journal, console)
    report = _report(units, outcomes, seed, effort.value, left_out=len(planned) - len(units))
    if as_json:
        typer.echo(json.dumps(report.as_json()))
    elif not quiet:
        _show(report)
    if out is not None:
        _write(report, out, console)
    if not report.held:
        raise typer.Exit(1)


def _journal(out: Path | None, seed: int, effort: str) -> Journal:
    from simulations.common.provenance import provenance
    from simulations.reports.audit.journal import Journal

    made = provenance()
    version = made.versions.get("veilsum")
    key = {"seed": seed, "effort": effort, "version": version, "source": made.source}
    return Journal(None if out is None else out / CHECKS, key)


def _run(units: Sequence[Unit], journal: Journal, console: Console) -> list[UnitOutcome]:
    from simulations.reports.audit.runner import run_units
    from simulations.reports.audit.view import ProgressView

    kept = sum(journal.find(unit.id) is not None for unit in units)
    if kept:
        console.print(f"{kept} of {len(units)} parts are already finished and are not run again.")
    outcomes: list[UnitOutcome] = []
    with ProgressView(len(units), console) as view:
        for outcome in run_units(units, journal, view.begin):
            view.end(outcome)
            outcomes.append(outcome)
    return outcomes


def _report(
    units: Sequence[Unit], outcomes: Sequence[UnitOutcome], seed: int, effort: str, left_out: int
) -> AuditReport:
    from simulations.common.provenance import provenance
    from simulations.reports.audit.results import AuditReport
    from simulations.reports.audit.units import FLOWER

    absent = any(outcome.unit == FLOWER and not outcome.checks for outcome in outcomes)
    notes: tuple[str, ...] = (NO_FLOWER,) if absent else ()
    if left_out:
        notes += (f"Only part of the audit: {left_out} parts were left out.",)
    return AuditReport(
        seed=seed,
        effort=effort,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        outcomes=tuple(outcomes),
        defences={unit.id: unit.defence for unit in units if unit.defence},
        provenance=provenance(),
        notes=notes,
    )


def _write(report: AuditReport, out: Path, console: Console) -> None:
    from simulations.reports.audit.page import render_page

    with kept_so_far():
        write_whole(out / PAGE, render_page(report))
        write_whole(out / RESULT, json.dumps(report.as_json(), indent=1) + "\n")
    console.print(Text(f"Report: {out / PAGE}"), soft_wrap=True)


def _show(report: AuditReport) -> None:
    from simulations.reports.audit.view import results_table

    console = Console()
    console.print(results_table(report, console.width))
    for note in report.notes:
        console.print(Text(note), soft_wrap=True)
