"""Vectors that carry a proven Euclidean bound.

``Bounded`` is the only float type that the rest of the private path accepts, and it cannot be
built around a vector that breaks its own bound: a step left out or put in the wrong order
fails when the object is made, not when privacy is already lost.

NaN deserves its own line. ``norm > bound`` is false for NaN, so an ordinary clip lets it
through; here no norm is computed of a vector that is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dp._kernels import scale_into, sum_of_squares
from dp.checks import require_in
from dp.errors import NonFiniteUpdateError, SensitivityExceededError

NORM_SLACK: Final = 1e-9
"""Relative room for the rounding errors of a norm, a clip or an orthogonal transform. The
quantiser adds the same room to its own bound, so the slack is paid for, not ignored."""

MIN_L2_BOUND: Final = 1e-100
MAX_L2_BOUND: Final = 1e100
"""Bounds outside this range are refused: their squares would leave the normal doubles."""

_SMALLEST_PLAIN_SQUARE: Final = 1e-270
"""Below this, squares of single coordinates may have been subnormal and lost digits."""

_FLOATS: Final = (np.dtype(np.float32), np.dtype(np.float64))


def require_vector(values: NDArray[Any], dtypes: tuple[np.dtype[Any], ...], name: str) -> None:
    """Raise unless ``values`` is a one-dimensional array of one of ``dtypes``."""
    if not isinstance(values, np.ndarray):
        raise TypeError(f"{name} must be a NumPy array, got {type(values).__name__}")
    if values.dtype not in dtypes:
        wanted = " or ".join(str(dtype) for dtype in dtypes)
        raise TypeError(f"{name} must have dtype {wanted}, got {values.dtype}")
    if values.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {values.shape}")


def require_l2_bound(l2_bound: float) -> None:
    """Raise ``ValueError`` unless ``MIN_L2_BOUND <= l2_bound <= MAX_L2_BOUND``."""
    require_in("l2_bound", l2_bound, MIN_L2_BOUND, MAX_L2_BOUND)


def require_finite(values: NDArray[Any]) -> None:
    """Raise ``NonFiniteUpdateError`` if any coordinate is NaN or infinite.

    The message gives the number of such coordinates and no value: the vector is private.
    """
    finite = np.isfinite(values)
    if not finite.all():
        bad = int(values.size - np.count_nonzero(finite))
        raise NonFiniteUpdateError(f"{bad} of {values.size} coordinates are NaN or infinite")


def _split_norm(values: NDArray[np.floating[Any]]) -> tuple[float, float]:
    """Return (unit, length) with ``norm == unit * length``; the product itself may overflow.

    The plain sum of squares is used where it is safe; otherwise the vector is first divided by
    its largest coordinate.
    """
    # Not np.dot, which hands long vectors to several threads of the BLAS: waking them takes a
    # hundred times as long as the sum where other processes want the cores too.
    square = float(sum_of_squares(values))
    # One NaN or infinity makes the sum NaN or infinite: a safe sum vouches for every coordinate.
    if _SMALLEST_PLAIN_SQUARE < square < math.inf:
        return 1.0, math.sqrt(square)
    require_finite(values)
    unit = float(np.max(np.abs(values), initial=0.0))
    if unit == 0.0:
        return 1.0, 0.0
    reduced = np.empty(values.size)
    scale_into(values, unit, 1.0, reduced)
    return unit, math.sqrt(sum_of_squares(reduced))


def l2_norm(values: NDArray[np.float64]) -> float:
    """Return the Euclidean norm; ``inf`` only where the norm itself exceeds the doubles.

    Args:
        values: float64[d].
    """
    unit, length = _split_norm(values)
    return unit * length


@dataclass(frozen=True, slots=True, eq=False)
class Bounded:
    """A finite vector whose Euclidean norm is known to be within a bound.

    The object takes the array over: it is marked read-only, and its maker must not write to it
    through another name.

    Attributes:
        values: float64[d].
        l2_bound: ``norm(values) <= l2_bound (1 + NORM_SLACK)``.
    """

    values: NDArray[np.float64]
    l2_bound: float

    def __post_init__(self) -> None:
        """Check dtype, finiteness and norm."""
        require_vector(self.values, (np.dtype(np.float64),), "values")
        require_l2_bound(self.l2_bound)
        if not l2_norm(self.values) <= self.l2_bound * (1.0 + NORM_SLACK):
            raise SensitivityExceededError(
                f"the vector is longer than its l2_bound {self.l2_bound!r}"
            )
        self.values.flags.writeable = False

    def map_isometry(
        self, function: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    ) -> Bounded:
        """Apply a norm-preserving linear map (rotation, zero padding) and keep the bound.

        The claim is not taken on trust: the norm of the result is measured again.

        Raises:
            SensitivityExceededError: the map made the vector longer than the bound.
        """
        return Bounded(function(self.values), self.l2_bound)


def clip_l2(values: NDArray[Any], l2_bound: float, *, take: bool = False) -> Bounded:
    """Shorten a vector to norm ``l2_bound`` if it is longer; never lengthen it.

    Args:
        values: float32[d] or float64[d]. The argument is not modified, unless it is handed over.
        l2_bound: the bound C, in the units of ``values``.
        take: the array is handed over: it may be changed, and becomes read-only. Saves a copy of
            float64[d].

    Post: ``result.l2_bound == l2_bound``; the direction is kept.

    Raises:
        NonFiniteUpdateError: a coordinate is NaN or infinite.
    """
    require_vector(values, _FLOATS, "values")
    require_l2_bound(l2_bound)
    if not values.flags.carray:  # for any other layout the kernels would be compiled once more
        values = values.copy()
    unit, length = _split_norm(values)
    if length <= l2_bound / unit:
        return Bounded(values.astype(np.float64, copy=not take), l2_bound)
    clipped = values if take and values.dtype == np.float64 else np.empty(values.size)
    # Divide by the unit first: the quotient of bound and full norm could underflow.
    scale_into(values, unit, l2_bound / length, clipped)
    return Bounded(clipped, l2_bound)
