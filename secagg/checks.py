"""Ranges and types of parameters: a bound is written once, in the check and in what it says."""

from __future__ import annotations

from secagg.errors import ParameterError


def require_within(name: str, value: int, low: int, high: int, of: str = "") -> None:
    """Raise `ParameterError` unless low <= value <= high; `of` says what the bounds are of."""
    if not low <= value <= high:
        raise ParameterError(name, value, f"in {low} .. {high}{of}")


def require_at_least(name: str, value: int, low: int) -> None:
    """Raise `ParameterError` unless value >= low."""
    if value < low:
        raise ParameterError(name, value, f"at least {low}")


def require_ints(terms: object, *names: str) -> None:
    """Raise `ParameterError` unless these attributes are ints, and neither bools nor NumPy's.

    What is hashed has one encoding, so nothing that only equals an int is taken for one.
    """
    for name in names:
        if type(getattr(terms, name)) is not int:
            raise ParameterError(name, getattr(terms, name), "an int")
