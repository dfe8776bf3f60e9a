"""Sums of floats that do not depend on the order in which they are added.

Every number is cut into three pieces, each a whole multiple of a unit of its own, and pieces of one
unit are added to one another. As long as the sums have fewer than 2^53 units, every addition is
exact; so any number of processes that add up parts of the same vectors get the same bits.

Source: error-free vector transformation, Rump, Ogita and Oishi 2008, section 3; with units fixed
beforehand, Demmel and Nguyen 2015, section 5.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simulations.common._kernels import PIECES, add_pieces

MOST_VECTORS: Final = 1 << 20
"""More could not be added exactly."""


class OrderFreeSum:
    """A sum of vectors, the same bit for bit in whatever order, and by however many processes.

    What is below 2^-65 of a coordinate is lost to rounding, once for each vector.

    Attributes:
        pieces: float64[3, length]; the sums of two parts are added as they stand.
    """

    def __init__(self, length: int) -> None:
        self.pieces: NDArray[np.float64] = np.zeros((PIECES, length))

    def add(self, values: NDArray[Any], weight: float = 1.0) -> None:
        """Add a vector, float32[length] or float64[length], times a weight.

        At most `MOST_VECTORS` in all. Coordinates that are not finite make their sum NaN.
        """
        add_pieces(values, weight, self.pieces)

    def merge(self, other: OrderFreeSum) -> None:
        """Add what another sum has."""
        self.pieces += other.pieces

    @property
    def total(self) -> NDArray[np.float64]:
        """The sum, float64[length]."""
        return np.asarray((self.pieces[2] + self.pieces[1]) + self.pieces[0])
