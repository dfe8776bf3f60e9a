"""Tables of numbers and categories, read from delimited text.

May use numpy; must not know the data sets.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations.learning.data.errors import DataError, DataProblem

MISSING = "?"
"""How the UCI tables write an unknown value."""

BOUND = 8.0
"""Default limit of a standardised number: heavy tails would drown everything else."""

_LARGEST = float(np.finfo(np.float32).max)

_CHUNK_ROWS = 8192
"""Rows held as text at a time: as text, a large table would take gigabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The columns of a table."""

    columns: tuple[str, ...]  # all names, in the order of the file
    numeric: frozenset[str]  # names of columns of numbers
    target: str  # name of the column to predict; what is left over is categorical

    def __post_init__(self) -> None:
        """Check the names."""
        if len(set(self.columns)) != len(self.columns):
            raise ValueError("columns must not repeat")
        unknown = (self.numeric | {self.target}) - set(self.columns)
        if unknown or self.target in self.numeric:
            raise ValueError(f"numeric and target must name different columns, got {unknown}")

    @property
    def numbers(self) -> tuple[str, ...]:
        """Return the numeric columns in order."""
        return tuple(name for name in self.columns if name in self.numeric)

    @property
    def categories(self) -> tuple[str, ...]:
        """Return the categorical columns in order."""
        return tuple(n for n in self.columns if n not in self.numeric and n != self.target)

    def without(self, names: Iterable[str]) -> frozenset[str]:
        """Return the feature columns to leave out, checked."""
        left_out = frozenset(names)
        unknown = left_out - {*self.numbers, *self.categories}
        if unknown:
            raise ValueError(f"without must name features, got {', '.join(sorted(unknown))}")
        return left_out


class _Codes(dict[str, int]):
    """Numbers names in the order in which they are first asked for."""

    def __missing__(self, name: str) -> int:
        return self.setdefault(name, len(self))


class _Numbers(dict[str, float]):
    """Parses each different text once: tables repeat themselves."""

    def __init__(self, subject: str) -> None:
        super().__init__()
        self._subject = subject

    def __missing__(self, text: str) -> float:
        return self.setdefault(text, _parse_number(text, self._subject))


@dataclass(frozen=True, slots=True, eq=False)
class Categorical:
    """A column of names."""

    codes: NDArray[np.int32]  # int32[m], place of each row's name in ``values``
    values: tuple[str, ...]  # the different names; rows need not use all of them


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of a file, column by column."""

    schema: Schema  # the columns
    # float32[m] of each numeric column; NaN where the value is missing
    numbers: dict[str, NDArray[np.float32]]
    categories: dict[str, Categorical]  # each categorical column; ``?`` is a category of its own
    target: Categorical  # the column to predict

    def __len__(self) -> int:
        """Return the number of rows m."""
        return len(self.target.codes)

    def incomplete(self) -> NDArray[np.bool_]:
        """Return which rows lack a value: bool[m]."""
        lacking = np.zeros(len(self), dtype=np.bool_)
        for numbers in self.numbers.values():
            lacking |= np.isnan(numbers)
        for column in self.categories.values():
            if MISSING in column.values:
                lacking |= column.codes == column.values.index(MISSING)
        return lacking

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Table:
        """Return the chosen rows, in the order of the index or under the mask."""
        return Table(
            self.schema,
            {name: numbers[rows] for name, numbers in self.numbers.items()},
            {name: Categorical(c.codes[rows], c.values) for name, c in self.categories.items()},
            Categorical(self.target.codes[rows], self.target.values),
        )

    def labels(self, classes: dict[str, int], subject: str) -> NDArray[np.int64]:
        """Return the class of each row's target: int64[m]."""
        strange = set(self.target.values) - set(classes)
        if strange:
            found = ", ".join(sorted(strange)[:5])
            raise DataError(
                subject, DataProblem.FORMAT, f"labels {found}", f"{', '.join(sorted(classes))}"
            )
        class_of = np.array([classes[name] for name in self.target.values], dtype=np.int64)
        labels: NDArray[np.int64] = class_of[self.target.codes]
        return labels


def read_table(lines: Iterable[str], schema: Schema, subject: str, *, delimiter: str) -> Table:
    """Read delimited text without a header; blank lines are skipped.

    Equal lines are parsed once: of network logs, two thirds are repetitions.
    """
    distinct = _Codes()
    rows = np.fromiter(map(distinct.__getitem__, filter(str.strip, lines)), dtype=np.int64)
    table = _read_rows(distinct, schema, subject, delimiter)
    if len(table) != len(distinct):
        raise DataError(
            subject, DataProblem.FORMAT, "a field with a line break", "one row per line"
        )
    return table.take(rows)


def _read_rows(lines: Iterable[str], schema: Schema, subject: str, delimiter: str) -> Table:
    """Read rows chunk by chunk."""
    texts_to: dict[str, _Numbers | _Codes] = {
        name: _Numbers(f"{subject}, column {name}") if name in schema.numeric else _Codes()
        for name in schema.columns
    }
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in schema.columns}
    for fields in _chunks(lines, schema, subject, delimiter):
        for name, texts in zip(schema.columns, fields, strict=True):
            dtype = np.float32 if name in schema.numeric else np.int32
            values = map(texts_to[name].__getitem__, texts)
            parts[name].append(np.fromiter(values, dtype=dtype, count=len(texts)))
    if not parts[schema.target]:
        raise DataError(subject, DataProblem.TRUNCATED, "no rows", "at least one row")
    joined = {name: np.concatenate(parts.pop(name)) for name in schema.columns}
    columns = {
        name: Categorical(joined[name], tuple(texts_to[name]))
        for name in (*schema.categories, schema.target)
    }
    target = columns.pop(schema.target)
    return Table(schema, {name: joined[name] for name in schema.numbers}, columns, target)


def _chunks(
    lines: Iterable[str], schema: Schema, subject: str, delimiter: str
) -> Iterator[list[tuple[str, ...]]]:
    """Yield the columns of so many rows at a time."""
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    rows = filter(None, reader)
    while chunk := list(itertools.islice(rows, _CHUNK_ROWS)):
        wrong = next((row for row in chunk if len(row) != len(schema.columns)), None)
        if wrong is not None:
            raise DataError(
                subject,
                DataProblem.FORMAT,
                f"a row with {len(wrong)} fields: {delimiter.join(wrong)[:80]!r}",
                f"{len(schema.columns)} fields: {', '.join(schema.columns)}",
            )
        yield list(zip(*chunk, strict=True))


def _parse_number(text: str, subject: str) -> float:
    """Return the number, NaN for a missing one."""
    if text == MISSING:
        return math.nan
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not abs(number) <= _LARGEST:
        raise DataError(
            subject, DataProblem.FORMAT, f"value {text!r}", f"a number of float32 or {MISSING}"
        )
    return number
