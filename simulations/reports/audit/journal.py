"""Finished units on disk, one line each: an audit that was killed can be continued.

A line counts only for an audit of the same seed and effort by the same version and source. Units
that ended with an error are not kept: they run again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import msgspec

from simulations.audits.base import Check
from simulations.common.failures import kept_so_far
from simulations.common.files import append_durably, write_whole
from simulations.reports.audit.results import UnitOutcome


class _Line(TypedDict):
    """A finished unit as it is stored; the data of pictures in base 64."""

    key: dict[str, object]
    unit: str
    seconds: float
    checks: tuple[Check, ...]


class Journal:
    """A file of finished units, made if it does not exist; without a path nothing is remembered.

    Lines of other audits stay; a line that was cut off when the machine stopped is dropped.
    """

    def __init__(self, path: Path | None, key: Mapping[str, object]) -> None:
        self._path = path
        self._key = dict(key)  # what a line must have been written with to count
        self._found: dict[str, UnitOutcome] = {}
        if path is None:
            return
        whole = _whole_lines(path)
        for line, entry in whole.items():
            if entry.get("key") == self._key:
                kept = msgspec.json.decode(line, type=_Line)
                unit = kept["unit"]
                self._found[unit] = UnitOutcome(unit, kept["checks"], kept["seconds"], kept=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, b"".join(line + b"\n" for line in whole))

    def find(self, unit: str) -> UnitOutcome | None:
        """Return what a unit came to in an earlier run of this audit; None if it has to run."""
        return self._found.get(unit)

    def keep(self, outcome: UnitOutcome) -> None:
        """Add a finished unit, durably; one that failed, or found nothing to try, is left out."""
        if self._path is None or outcome.error is not None or not outcome.checks:
            return
        line = {
            "key": self._key,
            "unit": outcome.unit,
            "seconds": outcome.seconds,
            "checks": [{**each.as_json(), "exhibits": each.exhibits} for each in outcome.checks],
        }
        with kept_so_far():
            append_durably(self._path, msgspec.json.encode(line) + b"\n")


def _whole_lines(path: Path) -> dict[bytes, dict[str, object]]:
    """All lines that end and can be read, with what they hold."""
    found = {}
    for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else ():
        try:
            entry = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(entry, dict):
            found[line] = entry
    return found
