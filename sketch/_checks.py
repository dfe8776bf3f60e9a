"""Argument checks shared by the maps: one wording, one place.

Bad arguments come from our own caller, so they are TypeError or ValueError that name the argument,
the value and what would have been valid. Vectors are never printed.
"""

from __future__ import annotations

import math
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from sketch import _kernels

_NOT_FINITE = "{name} must be finite in every coordinate"


class Tensor(Protocol):
    """An array of any library that offers DLPack, such as a torch tensor.

    It is known by its shape only, so that no framework is imported here.
    """

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """The data, for whoever asks."""
        ...

    def __dlpack_device__(self) -> Any:
        """Where the data lies."""
        ...


Floats = NDArray[np.float32] | NDArray[np.float64] | Tensor
"""What an update may come as: single or double precision, of NumPy or of a framework."""


def integer(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return `value` as a plain int within [low, high]."""
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
    """Return `value` as a finite float within [low, high], or (low, high] if `open_low`."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating | np.integer):
        raise TypeError(f"{name} must be a real number, not {type(value).__name__}")
    number = float(value)
    above = number > low if open_low else number >= low
    if not (math.isfinite(number) and above and number <= high):
        limit = f"{'above' if open_low else 'at least'} {low}"
        limit += "" if high == math.inf else f" and at most {high}"
        raise ValueError(f"{name} must be finite and {limit}, not {number}")
    return number


def vector(name: str, values: object, length: int) -> NDArray[np.float64]:
    """Return `values` as a contiguous float64 vector of the wanted length.

    No copy is made of a contiguous input. Finiteness is the caller's business, because each map
    has a cheaper way to see it than a pass over its input.
    """
    return _contiguous(name, values, length, (np.float64,))


def update(name: str, values: object, length: int | None) -> NDArray[Any]:
    """Return `values` as a contiguous float32 or float64 vector of the wanted length, None for any.

    A tensor is read where it lies if it lies in main memory; one on another device is copied, and
    one that requires a gradient is detached. Half precision is refused: whoever has it should
    choose the moment of widening, before clipping, and not find it done here. Nothing else is
    copied but what is not contiguous.
    """
    array = values if isinstance(values, np.ndarray) else _from_tensor(name, values)
    return _contiguous(name, array, length, (np.float64, np.float32))


def _from_tensor(name: str, values: object) -> object:
    """The NumPy view of a tensor; other objects are returned for the next check to refuse."""
    if not hasattr(values, "__dlpack__"):
        return values
    # DLPack refuses a tensor that takes part in a gradient, and moves none between devices.
    for step in ("detach", "cpu"):
        method = getattr(values, step, None)
        values = method() if callable(method) else values
    try:
        return np.from_dlpack(cast(Any, values))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        dtype = getattr(values, "dtype", "unknown")
        raise TypeError(f"{name} must have dtype float64 or float32, not {dtype}") from error


def _contiguous(
    name: str, values: object, length: int | None, dtypes: tuple[type[np.floating[Any]], ...]
) -> NDArray[Any]:
    if not isinstance(values, np.ndarray):
        raise TypeError(f"{name} must be a NumPy array, not {type(values).__name__}")
    if values.dtype not in dtypes:
        allowed = " or ".join(np.dtype(kind).name for kind in dtypes)
        raise TypeError(f"{name} must have dtype {allowed}, not {values.dtype}")
    wanted = values.size if length is None else length
    if values.shape != (wanted,):
        raise ValueError(f"{name} must have shape ({wanted},), not {values.shape}")
    return np.ascontiguousarray(values)


def copied(
    name: str, values: NDArray[Any], out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return a float64 copy of a vector that passed the checks above, in `out` if given."""
    out = np.empty(values.size) if out is None else out
    if not _kernels.copy_finite(values, out):
        raise ValueError(_NOT_FINITE.format(name=name))
    return out


def finite(name: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a vector that has no infinite or undefined entry."""
    if not np.isfinite(values).all():
        raise ValueError(_NOT_FINITE.format(name=name))
    return values


def odd(name: str, value: object, low: int, high: int) -> int:
    """Return an odd integer of low .. high."""
    number = integer(name, value, low, high)
    if number % 2 == 0:
        raise ValueError(f"{name} must be odd, not {number}")
    return number
