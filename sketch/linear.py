"""What every compressing map of a round offers, and the one that compresses nothing.

A round without compression runs through `Identity`, so callers never branch on it.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sketch import _checks


@runtime_checkable
class LinearSketch(Protocol):
    """A linear map S from d coordinates to L, with its transpose as decoder.

    Both directions are linear, so the sum of the clients' sketches is the sketch of their sum, and
    E[S^T S] = I over the seed: decoding is unbiased.
    """

    @property
    def dimension(self) -> int:
        """The number d of coordinates of an update."""
        ...

    @property
    def size(self) -> int:
        """The number L of coordinates of a sketch."""
        ...

    def encode(self, values: _checks.Floats) -> NDArray[np.float64]:
        """S x: float32[d] or float64[d] to float64[L]; ValueError if anything is not finite."""
        ...

    def decode(self, sketch: NDArray[np.float64]) -> NDArray[np.float64]:
        """S^T y: float64[L] to float64[d]; ValueError if anything is not finite."""
        ...


class Identity:
    """The map that leaves a vector as it is, for rounds without compression.

    Args:
        dimension: number d of coordinates, at least 1.
    """

    __slots__ = ("_dimension",)

    def __init__(self, dimension: int) -> None:
        self._dimension = _checks.integer("dimension", dimension, 1)

    def __repr__(self) -> str:
        return f"Identity(dimension={self._dimension})"

    @property
    def dimension(self) -> int:
        """The number d of coordinates of an update."""
        return self._dimension

    @property
    def size(self) -> int:
        """The number of coordinates of a sketch: d."""
        return self._dimension

    def encode(self, values: _checks.Floats) -> NDArray[np.float64]:
        """Copy float32[d] or float64[d] to float64[d].

        Raises:
            TypeError: not an array of these dtypes.
            ValueError: wrong shape, or an entry is not finite.
        """
        checked = _checks.vector("values", values, self._dimension, single=True)
        _checks.finite("values", checked)
        return checked.astype(np.float64)

    def decode(self, sketch: NDArray[np.float64]) -> NDArray[np.float64]:
        """Copy float64[d] to float64[d].

        Raises:
            TypeError: not an array of float64.
            ValueError: wrong shape, or an entry is not finite.
        """
        checked = _checks.vector("sketch", sketch, self._dimension)
        _checks.finite("sketch", checked)
        return checked.copy()
