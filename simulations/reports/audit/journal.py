"""Finished units on disk, one line each: an audit that was killed can be continued.

A line counts only for an audit of the same seed and effort by the same version and source. Units
that ended with an error are not kept: they run again.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TypedDict, cast

from simulations.audits.base import Check, CheckAsJson, Exhibit
from simulations.common.failures import kept_so_far
from simulations.common.files import append_durably, write_whole
from simulations.reports.audit.results import UnitOutcome


class Memory(Protocol):
    """Remembers finished units."""

    def find(self, unit: str) -> UnitOutcome | None:
        """Return what a unit came to before; None if it has to run."""
        ...

    def keep(self, outcome: UnitOutcome) -> None:
        """Remember a finished unit."""
        ...


class NoMemory:
    """Of an audit without a folder."""

    def find(self, unit: str) -> UnitOutcome | None:
        """Return None: nothing is remembered."""
        return None

    def keep(self, outcome: UnitOutcome) -> None:
        """Forget the finished unit."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a line must have been written with to count."""

    seed: int  # of the audit
    effort: str  # of the audit
    version: str | None  # of this project, if it is installed
    source: str  # hash of all its modules


class StoredExhibit(TypedDict):
    """A picture; its data in base 64."""

    title: str
    text: str
    media_type: str
    data: str


class StoredCheck(CheckAsJson):
    """A check with its pictures."""

    exhibits: list[StoredExhibit]


class StoredUnit(TypedDict):
    """A finished unit."""

    key: dict[str, object]
    unit: str
    seconds: float
    checks: list[StoredCheck]


class Journal:
    """A file of finished units.

    Args:
        path: made if it does not exist. Lines of other audits stay; a line that was cut off when
            the machine stopped is dropped.
    """

    def __init__(self, path: Path, key: Key) -> None:
        self._path = path
        self._key = asdict(key)
        self._found: dict[str, UnitOutcome] = {}
        whole = _whole_lines(path)
        for line in whole:
            entry = _entry(line)
            if entry is not None and entry.get("key") == self._key:
                outcome = _outcome(entry)
                self._found[outcome.unit] = outcome
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, b"".join(line + b"\n" for line in whole))

    def find(self, unit: str) -> UnitOutcome | None:
        """Return what a unit came to in an earlier run of this audit; None if it has to run."""
        return self._found.get(unit)

    def keep(self, outcome: UnitOutcome) -> None:
        """Add a finished unit, durably; one that failed, or found nothing to try, is left out."""
        if outcome.error is not None or not outcome.checks:
            return
        line = json.dumps(_line(self._key, outcome), allow_nan=False).encode() + b"\n"
        with kept_so_far():
            append_durably(self._path, line)


def _whole_lines(path: Path) -> list[bytes]:
    """All lines that end and can be read."""
    if not path.exists():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    return [line for line in lines if _entry(line) is not None]


def _entry(line: bytes) -> StoredUnit | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return cast(StoredUnit, entry) if isinstance(entry, dict) else None


def _line(key: dict[str, object], outcome: UnitOutcome) -> StoredUnit:
    return {
        "key": key,
        "unit": outcome.unit,
        "seconds": outcome.seconds,
        "checks": [
            {**check.as_json(), "exhibits": [_packed(e) for e in check.exhibits]}
            for check in outcome.checks
        ],
    }


def _packed(exhibit: Exhibit) -> StoredExhibit:
    return {
        "title": exhibit.title,
        "text": exhibit.text,
        "media_type": exhibit.media_type,
        "data": base64.b64encode(exhibit.data).decode(),
    }


def _outcome(entry: StoredUnit) -> UnitOutcome:
    checks = tuple(_check(found) for found in entry["checks"])
    return UnitOutcome(entry["unit"], checks, entry["seconds"], kept=True)


def _check(found: StoredCheck) -> Check:
    exhibits = tuple(
        Exhibit(e["title"], e["text"], e["media_type"], base64.b64decode(e["data"]))
        for e in found["exhibits"]
    )
    return Check(
        found["id"],
        found["title"],
        found["with_defence"],
        found["without_defence"],
        found["held"],
        exhibits,
    )
