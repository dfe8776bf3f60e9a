"""Finished results in one file, each with all that it depends on, so that a campaign can go on."""

from __future__ import annotations

import enum
import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, Final, Self

import numpy as np

from protocol.errors import ConfigurationError
from simulations.common.failures import kept_so_far
from simulations.common.files import append_durably
from simulations.common.provenance import source_of

FILE: Final = "results.jsonl"


@dataclass(frozen=True, slots=True)
class Cell:
    """One result of a campaign: a function of plain values."""

    name: str  # tells it apart in the campaign, and is shown to people
    # A function of a module, so that another process finds it; returns JSON values
    make: Callable[..., Any]
    # Its arguments, which are all that its result depends on beside the source: numbers, words,
    # tuples, dataclasses, models of pydantic. No data: they are loaded by name.
    given: tuple[Any, ...] = ()

    @property
    def key(self) -> str:
        """Return the configuration as text."""
        return json.dumps([self.name, self.make, self.given], default=_plain, sort_keys=True)

    @property
    def source(self) -> str:
        """Return the digest of the code that makes it."""
        return source_of(self.make.__module__)


@dataclass(frozen=True, slots=True)
class Result:
    """What a cell came to: JSON values, and the processor time that they took."""

    value: Any
    seconds: float


class Store:
    """The results in a folder, made if need be, for one process at a time."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / FILE
        self._results: dict[tuple[str, str], Result] = {}
        self._keys: set[str] = set()
        self._lock = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            problem = "in use by another process"
            raise ConfigurationError(str(self.path), problem, "wait") from None
        *lines, rest = self.path.read_bytes().split(b"\n")
        if rest:
            # A process that was stopped while it wrote left a part of a line.
            os.truncate(self._lock, sum(len(line) + 1 for line in lines))
        for line in lines:
            entry = json.loads(line)
            self._add(entry["key"], entry["source"], Result(entry["value"], entry["seconds"]))

    def _add(self, key: str, source: str, result: Result) -> None:
        self._results[key, source] = result
        self._keys.add(key)

    def find(self, cell: Cell) -> Result | None:
        """Return the result of this configuration made by this source, if there is one."""
        return self._results.get((cell.key, cell.source))

    def outdated(self, cell: Cell) -> bool:
        """Say whether there are results of this configuration, all of them made by other source."""
        return self.find(cell) is None and cell.key in self._keys

    def keep(self, cell: Cell, result: Result) -> None:
        """Add a result, durably."""
        entry = {"name": cell.name, "key": cell.key, "source": cell.source}
        line = json.dumps({**entry, "seconds": result.seconds, "value": result.value})
        with kept_so_far():
            append_durably(self.path, line.encode() + b"\n")
        self._add(cell.key, cell.source, result)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        os.close(self._lock)


def plain(value: Any) -> Any:
    """Return a value as JSON gives it back; a number of NumPy is one of Python."""
    return json.loads(json.dumps(value, default=_json))


def _json(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_none=True)
    raise TypeError(f"no JSON value: {value!r}")


def _plain(value: Any) -> Any:
    """As JSON, with the type: two ways may have the same fields. A function is its name."""
    if isinstance(value, FunctionType):
        return f"{value.__module__}.{value.__qualname__}"
    found = _json(value)
    return {"type": type(value).__name__, **found} if is_dataclass(value) else found
