"""Checks of figures that a caller gives: a wrong type is told before arithmetic meets it."""

from __future__ import annotations

from typing import TypeVar

from secagg import ParameterError

T = TypeVar("T")


def require_int(name: str, value: object, smallest: int) -> None:
    """Raise `ParameterError` unless `value` is an int of at least `smallest`; bools are none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
        raise ParameterError(name, value, f"an int of at least {smallest}")


def require_number(name: str, value: object) -> None:
    """Raise `ParameterError` unless `value` is an int or a float, of any size; bools are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParameterError(name, value, "a number")


def require_between(name: str, value: object, low: int, high: int) -> None:
    """Raise `ParameterError` unless `value` is an int in `low` .. `high`; bools are none."""
    if type(value) is not int or not low <= value <= high:
        raise ParameterError(name, value, f"an int in {low} .. {high}")


def of_kind(name: str, value: object, kind: type[T]) -> T:
    """The value, which must be of a kind."""
    if not isinstance(value, kind):
        raise ParameterError(name, type(value).__name__, f"a {kind.__name__}")
    return value
