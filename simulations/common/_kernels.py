"""The compiled loop of sums that do not depend on their order; see `order_free`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled, sample

LARGEST: Final = float(1 << 32)
"""A coordinate that is not smaller makes its sum NaN: a model with such updates has diverged."""

PIECES = 3
_SHIFT = 32
_UNITS = tuple(2.0 ** (-_SHIFT * piece) for piece in range(PIECES))
# Added and taken off again, it leaves a number rounded to a multiple of the unit.
_ROUNDERS = tuple(1.5 * 2.0**52 * unit for unit in _UNITS)


@compiled(
    lambda kind: (sample(70, low=-1000, below=2001, parts=8, kind=kind), 0.25, np.zeros((3, 70))),
    kinds=(np.float32, np.float64),
    answer=0x4A702109,
)
def add_pieces(
    values: NDArray[np.floating[Any]], weight: float, pieces: NDArray[np.float64]
) -> None:
    """Add the pieces of a vector times a weight."""
    first, second, third = _ROUNDERS
    for i in range(values.size):
        value = np.float64(values[i]) * weight
        if not abs(value) < LARGEST:
            value = np.float64(np.nan)
        high = (value + first) - first
        value -= high
        middle = (value + second) - second
        low = ((value - middle) + third) - third
        pieces[0, i] += high
        pieces[1, i] += middle
        pieces[2, i] += low
