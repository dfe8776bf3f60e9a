"""Runs units one by one. An error that nobody planned is reported, and the next unit runs."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from simulations.audits.base import Check, Figures
from simulations.common.failures import one_line
from simulations.reports.audit.journal import Journal
from simulations.reports.audit.results import UnitOutcome
from simulations.reports.audit.units import Unit


def run_units(
    units: Sequence[Unit], journal: Journal, begin: Callable[[Unit], None] = lambda _: None
) -> Iterator[UnitOutcome]:
    """Run units and yield what each came to as soon as it is known.

    Args:
        journal: units that it knows are not run; others are given to it when they are done.
        begin: told each unit before it runs.
    """
    for unit in units:
        outcome = journal.find(unit.id)
        if outcome is None:
            begin(unit)
            outcome = run_unit(unit)
            journal.keep(outcome)
        yield outcome


def run_unit(unit: Unit) -> UnitOutcome:
    """Run one unit. An error makes a check that does not hold, whatever its type.

    An attack that fails says so in its figures. An error that comes out of it instead
    means that neither run came to its end, so nothing was shown.
    """
    started = time.perf_counter()
    try:
        checks = tuple(unit.run())
        # Figures that are not plain values would fail later, and take the other checks with them.
        json.dumps([check.as_json() for check in checks], allow_nan=False)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and one_line(error):
            raise
        text = _described(error)
        figures: Figures = {"error": text}
        checks = (Check(unit.id, unit.title, figures, dict(figures), held=False),)
        return UnitOutcome(unit.id, checks, time.perf_counter() - started, error=text)
    return UnitOutcome(unit.id, checks, time.perf_counter() - started)


def _described(error: Exception) -> str:
    """Type, message and place of an error, on one line."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    message = " ".join(str(error).split())
    place = f"{Path(frame.filename).name}, line {frame.lineno}"
    said = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return f"{said} ({place})"
