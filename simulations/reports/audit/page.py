"""The report of an audit: one HTML page that needs nothing but itself.

No script, no network: styles and plots are in the page, pictures are data URIs. Everything that
comes from checks is escaped.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Final

from simulations.audits.base import Check, Exhibit, Figures
from simulations.common.pages import render
from simulations.common.tables import readable
from simulations.reports.audit.charts import charts
from simulations.reports.audit.promises import ATTACKS, NOT_PROMISED, Promise, by_promise
from simulations.reports.audit.readings import (
    control_of,
    entries,
    headline,
    outcome,
    promise_of,
)
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


@dataclass(frozen=True, slots=True)
class Picture:
    """An exhibit as the page shows it."""

    title: str  # what it shows
    text: str  # the same in words
    uri: str  # the picture itself


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two runs of a check."""

    name: str  # with or without the defence
    outcome: str  # how it ended, in words
    headline: str  # the same with the figure that decides it
    entries: list[tuple[str, str]]  # all figures, those that matter first


@dataclass(frozen=True, slots=True)
class Entry:
    """A check as the page shows it."""

    anchor: str  # its place on the page
    id: str  # of the check
    name: str  # what the attack does, in a few words; empty for other checks
    promise: str  # what is promised
    control: str  # how the victim differs from the product, a sentence; may be empty
    held: bool  # whether both sides ended as they must
    sides: tuple[Side, Side]  # with the defence, and without
    pictures: list[Picture]  # its exhibits


@dataclass(frozen=True, slots=True)
class Section:
    """A promise and what tried to break it."""

    promise: Promise
    entries: list[Entry]

    @property
    def held(self) -> bool:
        """Whether all of its checks held."""
        return all(entry.held for entry in self.entries)


def render_page(report: AuditReport) -> str:
    """Return the page as HTML."""
    sections = _sections(report)
    return render(
        "simulations.reports.audit",
        report=report,
        sections=sections,
        failed=[e for section in sections for e in section.entries if not e.held],
        facts=_facts(report),
        charts=charts(report.checks),
        shown=SHOWN,
        not_promised=NOT_PROMISED,
    )


def _sections(report: AuditReport) -> list[Section]:
    count = 0
    sections = []
    for promise, checks in by_promise(report.checks):
        section = Section(promise, [])
        for check in checks:
            count += 1
            section.entries.append(_entry(check, count, report.defences.get(check.id, "")))
        sections.append(section)
    return sections


def _entry(check: Check, count: int, defence: str) -> Entry:
    slug = re.sub(r"[^a-z0-9]+", "-", check.id.lower()).strip("-")
    return Entry(
        anchor=f"check-{count}-{slug}",
        id=check.id,
        name=ATTACKS.get(check.id, ""),
        promise=promise_of(check),
        control=control_of(check, defence),
        held=check.held,
        sides=(
            _side("With the defence", check.with_defence),
            _side("Without it", check.without_defence),
        ),
        pictures=[_picture(exhibit) for exhibit in check.exhibits],
    )


def _side(name: str, figures: Figures) -> Side:
    return Side(name, outcome(figures), headline(figures), entries(figures))


def _picture(exhibit: Exhibit) -> Picture:
    data = base64.b64encode(exhibit.data).decode()
    return Picture(exhibit.title, exhibit.text, f"data:{exhibit.media_type};base64,{data}")


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
    tried = {COUNTED[name]: f"{count:,}" for name, count in report.counts().items() if count}
    return [(name, str(value)) for name, value in {**facts, **tried}.items()]
