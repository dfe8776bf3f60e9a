"""Argument checks shared by the maps: one wording, one place.

Bad arguments come from our own caller, so they are TypeError or ValueError that name the argument,
the value and what would have been valid. Vectors are never printed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32] | NDArray[np.float64]


def integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return `value` as a plain int within [low, high].

    Raises:
        TypeError: `value` is not an integer (a bool is not one either).
        ValueError: `value` is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}")
    number = int(value)
    if number < low or (high is not None and number > high):
        limit = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name} must be {limit}, not {number}")
    return number


def real(
    name: str, value: object, low: float, high: float = math.inf, *, open_low: bool = False
) -> float:
    """Return `value` as a finite float within [low, high], or (low, high] if `open_low`.

    Raises:
        TypeError: `value` is not a real number.
        ValueError: `value` is not finite or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise TypeError(f"{name} must be a real number, not {type(value).__name__}")
    number = float(value)
    above = number > low if open_low else number >= low
    if not (math.isfinite(number) and above and number <= high):
        limit = f"{'above' if open_low else 'at least'} {low}"
        limit += "" if high == math.inf else f" and at most {high}"
        raise ValueError(f"{name} must be finite and {limit}, not {number}")
    return number


def vector(name: str, values: object, length: int, *, single: bool = False) -> NDArray[Any]:
    """Return `values` as a contiguous float64 vector of the wanted length (float32 if `single`).

    No copy is made of a contiguous input. Finiteness is the caller's business, because each map
    has a cheaper way to see it than a pass over its input.

    Raises:
        TypeError: not a NumPy array, or of another dtype.
        ValueError: not one-dimensional of length `length`.
    """
    dtypes = (np.float64, np.float32) if single else (np.float64,)
    if not isinstance(values, np.ndarray):
        raise TypeError(f"{name} must be a NumPy array, not {type(values).__name__}")
    if values.dtype not in dtypes:
        allowed = " or ".join(np.dtype(kind).name for kind in dtypes)
        raise TypeError(f"{name} must have dtype {allowed}, not {values.dtype}")
    if values.shape != (length,):
        raise ValueError(f"{name} must have shape ({length},), not {values.shape}")
    return np.ascontiguousarray(values)


def finite(name: str, values: NDArray[np.float64]) -> None:
    """Refuse a vector with an infinite or undefined entry.

    Raises:
        ValueError: some entry is not finite.
    """
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite in every coordinate")


def odd(name: str, value: object, low: int, high: int) -> int:
    """Return an odd integer of low .. high.

    Raises:
        TypeError: `value` is not an integer.
        ValueError: out of range, or even.
    """
    number = integer(name, value, low, high)
    if number % 2 == 0:
        raise ValueError(f"{name} must be odd, not {number}")
    return number
