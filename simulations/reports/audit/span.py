"""The exhaustive Span check as a check with its control: every client without a rule is caught."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from secagg import Mode
from simulations.audits.base import Check, Figures
from simulations.threats.span import Mutant, SpanReport, span_check
from simulations.threats.span.one_shot import OneShotReport


def span_id(size: int, mode: Mode) -> str:
    """Return "span 4 active"."""
    return f"span {size} {mode.value}"


def check_span(size: int, mode: Mode) -> Check:
    """Go through all schedules of a round, of the product's clients and of every mutant."""
    mutants = [m for m in Mutant if m.applies(mode) and m.smallest_size <= size]
    found = span_check(size, mode)
    return Check.of(
        span_id(size, mode),
        f"No schedule of a round of {size} clients, server {mode.value}, yields more than the one "
        "promised sum (twins: clients that lack one rule each)",
        product_figures(found, "" if found.broken is None else str(found.broken)),
        mutant_figures([ended(span_check(size, mode, mutant)) for mutant in mutants]),
    )


Explored: TypeAlias = SpanReport | OneShotReport
"""What an exhaustive check of either protocol says of one kind of party."""


def product_figures(report: Explored, broken: str) -> Figures:
    """Return what was explored, and the first broken schedule."""
    figures: Figures = {
        "schedules": report.schedules,
        "parameters": report.parameters,
        "systems_solved": report.systems,
        "sums_opened": report.opened,
        "broken_schedules": int(not report.held),
        "rejected": not report.held,
    }
    if broken:
        figures["first_broken_schedule"] = broken
    return figures


def mutant_figures(reports: Sequence[tuple[Explored, str]]) -> Figures:
    """Return how many mutants were caught, and how; rejected only if all of them were."""
    caught = sum(not report.held for report, _ in reports)
    figures: Figures = {
        "schedules": sum(report.schedules for report, _ in reports),
        "mutants": len(reports),
        "caught": caught,
    }
    for report, ending in reports:
        name = "none" if report.mutant is None else str(report.mutant.value)
        figures[name.replace(",", "").replace(" ", "_")] = ending
    figures["rejected"] = bool(reports) and caught == len(reports)
    return figures


def ended(report: SpanReport) -> tuple[SpanReport, str]:
    """A report, and how it ended in words."""
    if report.broken is None:
        return report, f"not caught in {report.schedules:,} schedules"
    learned = "; ".join(report.broken.learned)
    return report, f"caught: the server computes {learned}"
