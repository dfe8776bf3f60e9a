"""The count-median-of-means sketch: M count-mean sketches, the median of whose decodes is taken.

Encoding is that of a count-mean sketch with M * R rows, so |S x|^2 has the mean |x|^2, whatever M.
Copy c has the rows c R to (c + 1) R - 1. A coordinate that meets a heavy one in fewer than half of
the copies is estimated as if the heavy one were not there; a mean over all rows would show it.

Source: arXiv 2307.10999, section 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sketch import _checks, _kernels
from sketch.countsketch import CountMeanSketch
from sketch.hashing import CHUNK, MAX_ROWS, PublicSeed, chunks_of_rows


class CountMedianSketch:
    """A linear map from d to L = M * R * P coordinates, with a decode that is not linear.

    Args:
        dimension: number d of coordinates, at least 1.
        rows: number R of rows of each copy, at least 1.
        columns: number P of buckets of each row, from 1 to 2^32.
        copies: number M of copies, odd and at least 3.
        seed: the round's public seed, drawn after the sizes are fixed.
    """

    __slots__ = ("_copies", "_stack")

    def __init__(
        self, dimension: int, rows: int, columns: int, copies: int, seed: PublicSeed
    ) -> None:
        rows = _checks.integer("rows", rows, 1, MAX_ROWS // 3)
        self._copies = _checks.odd("copies", copies, 3, MAX_ROWS // rows)
        self._stack = CountMeanSketch(dimension, rows * self._copies, columns, seed)

    def __repr__(self) -> str:
        return (
            f"CountMedianSketch(dimension={self.dimension}, rows={self.rows}, "
            f"columns={self.columns}, copies={self.copies}, seed={self._stack.seed})"
        )

    @property
    def dimension(self) -> int:
        """The number d of coordinates of an update."""
        return self._stack.dimension

    @property
    def rows(self) -> int:
        """The number R of rows of each copy."""
        return self._stack.rows // self._copies

    @property
    def columns(self) -> int:
        """The number P of buckets of a row."""
        return self._stack.columns

    @property
    def copies(self) -> int:
        """The number M of copies."""
        return self._copies

    @property
    def size(self) -> int:
        """The number L of coordinates of a sketch."""
        return self._stack.size

    def encode(self, values: _checks.Floats) -> NDArray[np.float64]:
        """Compress a vector, as `CountMeanSketch.encode` does with all rows."""
        return self._stack.encode(values)

    def encode_many(self, vectors: Iterable[_checks.Floats]) -> NDArray[np.float64]:
        """Compress vectors that share the seed, as `CountMeanSketch.encode_many` does."""
        return self._stack.encode_many(vectors)

    def decode(self, sketch: NDArray[np.float64]) -> NDArray[np.float64]:
        """Estimate the vector: the median over copies of what each alone decodes to.

        Coordinates are decoded 65,536 at a time, all copies of them together: memory beyond input
        and output is 512 KiB for each copy, and neither M * d nor R * d.

        Args:
            sketch: float64[L], finite; left unchanged.

        Returns:
            float64[d]. Over the seed, its mean is the vector that was encoded.
        """
        checked = _checks.finite("sketch", _checks.vector("sketch", sketch, self.size))
        # The stack has divided by sqrt(M R), a copy alone does by sqrt(R), and decoding does again.
        scale = math.sqrt(self._copies / self.rows)
        table = (checked * scale).reshape(self._stack.rows, self.columns)
        estimates = np.empty((self._copies, min(CHUNK, self.dimension)))
        out = np.empty(self.dimension)
        every = range(self._stack.rows)
        for row, chunk in chunks_of_rows(self._stack.seed, every, self.dimension):
            copy, row_of_copy = divmod(row, self.rows)
            estimate = estimates[copy, : chunk.stop - chunk.start]
            if row_of_copy == 0:
                estimate[:] = 0.0
            _kernels.gather_add(table[row], chunk.words, chunk.sign_bytes, estimate)
            if row == every[-1]:
                _kernels.median_columns(estimates, out[chunk.start : chunk.stop])
        return out
