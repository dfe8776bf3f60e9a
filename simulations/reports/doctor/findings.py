"""One line of the report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was seen."""

    level: Level  # how bad it is
    subject: str  # what it is about
    found: str  # in words
    remedy: str | None = None  # what to do about it; None if nothing has to be done

    def __str__(self) -> str:
        line = f"{self.level:<8} {self.subject}: {self.found}"
        return " ".join((line if self.remedy is None else f"{line}; {self.remedy}").splitlines())


def exit_status(findings: Iterable[Finding]) -> int:
    """0 if all is well, 1 after warnings, 2 if something is wrong."""
    levels = {finding.level for finding in findings}
    return 2 if Level.WRONG in levels else int(Level.WARNING in levels)
