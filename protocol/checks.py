"""Checks of figures that a caller gives: a wrong type is told before arithmetic meets it."""

from __future__ import annotations

from secagg import ParameterError


def require_int(name: str, value: object, smallest: int) -> None:
    """Raise `ParameterError` unless `value` is an int of at least `smallest`; bools are none."""
    if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
        raise ParameterError(name, value, f"an int of at least {smallest}")


def require_number(name: str, value: object) -> None:
    """Raise `ParameterError` unless `value` is an int or a float, of any size; bools are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ParameterError(name, value, "a number")
