"""Checks of arguments that many modules make alike. Messages name the argument and its value."""

from __future__ import annotations

import sys


def require_integer(name: str, value: object, smallest: int, largest: int | None = None) -> None:
    """Raise unless ``value`` is an int, at least ``smallest`` and at most ``largest`` if given."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, got {type(value).__name__}")
    if largest is None:
        require_at_least(name, value, smallest)
    else:
        require_within(name, value, smallest, largest)


def require_at_least(name: str, value: float, smallest: int) -> None:
    """Raise ``ValueError`` unless ``value`` is at least ``smallest``."""
    if value < smallest:
        raise ValueError(f"{name} must be at least {smallest}, got {value}")


def require_within(name: str, value: float, smallest: float, largest: float) -> None:
    """Raise ``ValueError`` unless ``smallest <= value <= largest``."""
    if not smallest <= value <= largest:
        raise ValueError(f"{name} must lie in {smallest}..{largest}, got {value}")


def require_in(name: str, value: float, low: float, high: float, ends: str = "[]") -> None:
    """Raise ``ValueError`` unless ``value`` lies in an interval, which NaN never does."""
    above = value >= low if ends[0] == "[" else value > low
    below = value <= high if ends[1] == "]" else value < high
    if not (above and below):
        interval = f"{ends[0]}{low:g}, {high:g}{ends[1]}"
        raise ValueError(f"{name} must lie in {interval}, got {value!r}")


def require_float(name: str, value: object) -> None:
    """Raise ``TypeError`` unless ``value`` is a float."""
    if not isinstance(value, float):
        raise TypeError(f"{name} must be a float, got {type(value).__name__}")


def require_number(name: str, value: object) -> None:
    """Raise ``TypeError`` unless ``value`` is an int or a float, of any size."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a float, got {type(value).__name__}")


def require_positive(name: str, value: float) -> None:
    """Raise ``ValueError`` unless ``value`` is positive and finite, so no NaN and no huge int."""
    if not 0.0 < value <= sys.float_info.max:
        raise ValueError(f"{name} must be positive and finite, got {value!r}")


def require_not_negative(name: str, value: float) -> None:
    """Raise ``ValueError`` unless ``value`` is finite and at least 0."""
    if not 0.0 <= value <= sys.float_info.max:
        raise ValueError(f"{name} must be finite and not negative, got {value!r}")


def require_between_0_and_1(name: str, value: float) -> None:
    """Raise ``ValueError`` unless ``value`` lies strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must lie strictly between 0 and 1, got {value!r}")
