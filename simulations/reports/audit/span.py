"""The exhaustive Span check as a check with its control: every client without a rule is caught."""

from __future__ import annotations

from secagg import Mode
from simulations.audits.base import Check, Figures
from simulations.threats.span import Mutant, SpanReport, span_check


def span_id(size: int, mode: Mode) -> str:
    """Return "span 4 active"."""
    return f"span {size} {mode.value}"


def check_span(size: int, mode: Mode) -> Check:
    """Go through all schedules of a round, of the product's clients and of every mutant.

    Args:
        size: clients of the round, 2 to 5.
        mode: what the server may do.
    """
    mutants = [m for m in Mutant if m.applies(mode) and m.smallest_size <= size]
    return Check.of(
        span_id(size, mode),
        f"No schedule of a round of {size} clients, server {mode.value}, yields more than the one "
        "promised sum (twins: clients that lack one rule each)",
        product_figures(span_check(size, mode)),
        mutant_figures([span_check(size, mode, mutant) for mutant in mutants]),
    )


def product_figures(report: SpanReport) -> Figures:
    """Return what was explored, and the first broken schedule in words if there is one."""
    figures: Figures = {
        "schedules": report.schedules,
        "parameters": report.parameters,
        "systems_solved": report.systems,
        "sums_opened": report.opened,
        "broken_schedules": int(not report.held),
        "rejected": not report.held,
    }
    if report.broken is not None:
        figures["first_broken_schedule"] = str(report.broken)
    return figures


def mutant_figures(reports: list[SpanReport]) -> Figures:
    """Return how many mutants were caught, and how; rejected only if all of them were."""
    caught = sum(not report.held for report in reports)
    figures: Figures = {
        "schedules": sum(report.schedules for report in reports),
        "mutants": len(reports),
        "caught": caught,
    }
    for report in reports:
        name = "none" if report.mutant is None else report.mutant.value
        figures[name.replace(",", "").replace(" ", "_")] = _ending(report)
    figures["rejected"] = bool(reports) and caught == len(reports)
    return figures


def _ending(report: SpanReport) -> str:
    if report.broken is None:
        return f"not caught in {report.schedules:,} schedules"
    learned = "; ".join(report.broken.learned)
    return f"caught: the server computes {learned}"
