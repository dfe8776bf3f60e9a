"""What an audit came to, and the one object that `--json` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from simulations.audits.base import Check
from simulations.common.provenance import Provenance

COUNTED: Final = {
    "schedules": ("schedules", 1),
    "samples": ("samples", 1),
    "canaries": ("canaries", 1),
    "trials": ("trials", 1),
    "runs": ("runs_in_each_world", 2),
}
"""A count of the whole audit: the figure that is added up over both sides of all checks, and its
factor. Figures of parts, as "sum_trials", are counted, too."""


@dataclass(frozen=True, slots=True)
class UnitOutcome:
    """What one unit came to."""

    unit: str  # its id
    checks: tuple[Check, ...]  # what it found; none if what it is about is not installed
    seconds: float  # wall time when it ran
    error: str | None = None  # the error that ended it, if one did; its check does not hold
    kept: bool = False  # taken from an earlier run of the same audit

    @property
    def held(self) -> bool:
        """Whether all of its checks held."""
        return all(check.held for check in self.checks)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """A whole audit."""

    seed: int  # fixes all randomness but the secrets of real rounds
    effort: str  # "quick" or "full"
    finished: str  # date and time, UTC, ISO 8601
    outcomes: tuple[UnitOutcome, ...]  # of all units that were asked for, in order
    defences: Mapping[str, str]  # what the twin of a check lacks, in words, by id
    provenance: Provenance  # what was audited, and where
    notes: tuple[str, ...] = ()  # what the reader must know: what was not run

    @property
    def checks(self) -> tuple[Check, ...]:
        """All checks in order."""
        return tuple(check for outcome in self.outcomes for check in outcome.checks)

    @property
    def held(self) -> bool:
        """Whether something was tried and every check held."""
        return bool(self.checks) and all(check.held for check in self.checks)

    @property
    def seconds(self) -> float:
        """Wall time of all units, when they ran."""
        return sum(outcome.seconds for outcome in self.outcomes)

    def counts(self) -> dict[str, int]:
        """How much was tried, both sides of every check together."""
        return {
            name: factor * sum(_integers(self.checks, figure))
            for name, (figure, factor) in COUNTED.items()
        }

    def as_json(self) -> dict[str, object]:
        """Return plain JSON values."""
        return {
            "passed": self.held,
            "seed": self.seed,
            "effort": self.effort,
            "seconds": round(self.seconds, 2),
            "finished": self.finished,
            "checks": [check.as_json() for check in self.checks],
            "errors": {o.unit: o.error for o in self.outcomes if o.error is not None},
            "seconds_each": {o.unit: round(o.seconds, 2) for o in self.outcomes},
            "taken_up": [o.unit for o in self.outcomes if o.kept],
            "counts": self.counts(),
            "commit": self.provenance.commit,
            "source": self.provenance.source,
            "machine": self.provenance.machine,
            "versions": self.provenance.versions,
            "notes": list(self.notes),
        }


def _integers(checks: tuple[Check, ...], figure: str) -> Iterator[int]:
    for check in checks:
        for side in (check.with_defence, check.without_defence):
            for name, value in side.items():
                if name != figure and not name.endswith(f"_{figure}"):
                    continue
                if isinstance(value, int) and not isinstance(value, bool):
                    yield value
