"""The report of an audit: one HTML page that needs nothing but itself.

No script, no network: styles and plots are in the page, pictures are data URIs. Everything that
comes from checks is escaped.
"""

from __future__ import annotations

import base64
import re
from itertools import count
from typing import Final

from simulations.audits.base import Check, Exhibit
from simulations.common.pages import render
from simulations.common.tables import readable
from simulations.reports.audit import readings
from simulations.reports.audit.charts import charts
from simulations.reports.audit.promises import NOT_PROMISED, by_promise, records
from simulations.reports.audit.results import AuditReport

COUNTED: Final = {
    "schedules": "schedules explored",
    "samples": "samples of noise",
    "canaries": "canary clients",
    "trials": "trials of attacks",
    "runs": "runs in two worlds",
}
"""What the counts of an audit are, in words."""
SHOWN: Final = 14
"""Figures of one side that are in sight; the others unfold, and are printed."""


def render_page(report: AuditReport) -> str:
    """Return the page as HTML."""
    numbers = count(1)
    sections = [
        {
            "promise": promise,
            "checks": [(_anchor(check, next(numbers)), check) for check in checks],
            "held": all(check.held for check in checks),
        }
        for promise, checks in by_promise(report.checks)
    ]
    return render(
        "simulations.reports.audit",
        report=report,
        sections=sections,
        facts=_facts(report),
        charts=charts(report.checks),
        shown=SHOWN,
        attacks={id: attack.name for id, attack in records().items()},
        not_promised=NOT_PROMISED,
        readings=readings,
        uri_of=_uri,
    )


def _anchor(check: Check, number: int) -> str:
    """Its place on the page."""
    slug = re.sub(r"[^a-z0-9]+", "-", check.id.lower()).strip("-")
    return f"check-{number}-{slug}"


def _uri(exhibit: Exhibit) -> str:
    """The picture itself."""
    return f"data:{exhibit.media_type};base64,{base64.b64encode(exhibit.data).decode()}"


def _facts(report: AuditReport) -> list[tuple[str, str]]:
    """What was run, on what, for how long."""
    made = report.provenance
    taken_up = sum(outcome.kept for outcome in report.outcomes)
    took = f"{readable(round(report.seconds, 1))} s"
    if taken_up:
        took += f", {taken_up} of {len(report.outcomes)} parts from an earlier run"
    facts: dict[str, object] = {
        "effort": report.effort,
        "seed": report.seed,
        "time": took,
        "finished": report.finished,
        "commit": made.commit or "not a checkout",
        "source hash": made.source,
        **made.machine,
        "versions": ", ".join(f"{name} {number}" for name, number in made.versions.items()),
    }
    tried = {COUNTED[name]: f"{many:,}" for name, many in report.counts().items() if many}
    return [(name, str(value)) for name, value in {**facts, **tried}.items()]
