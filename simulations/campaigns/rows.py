"""Rows of figures: plain values by key, and what is looked up in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]
Figures = Mapping[str, Any]
# A key of a row, with dots for keys within, or a function of the row
Value = str | Callable[[Row], Any]


def value_of(row: Row, value: Value) -> Any:
    """Return a value of a row; None where a key is missing on the way."""
    if callable(value):
        return value(row)
    found: Any = row
    for key in value.split("."):
        found = None if found is None else found.get(key)
    return found


def distinct(rows: Iterable[Row], value: Value) -> list[Any]:
    """Return the different values of rows, in order of appearance."""
    return list(dict.fromkeys(value_of(row, value) for row in rows))


def where(rows: Iterable[Row], **wanted: Any) -> list[Any]:
    """Return the rows that have all these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def first(rows: Iterable[Row], **wanted: Any) -> Any:
    """Return the first row that has all these values; None if there is none."""
    return next(iter(where(rows, **wanted)), None)
