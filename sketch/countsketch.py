"""The count-mean sketch: R independent count sketches side by side, scaled by 1 / sqrt(R).

    (S x)[r, p] = (1 / sqrt(R)) * sum of sign_r(q) * x_q over the q with bucket_r(q) = p
    (S^T y)_q   = (1 / sqrt(R)) * sum over r of sign_r(q) * y[r, bucket_r(q)]

Over the seed, E[S^T S x] = x and E|S x|^2 = |x|^2. Hashes are expanded in chunks and forgotten:
memory beyond input and output is a fixed 264 KiB, and no step allocates anything of order R * d.

Source: Charikar, Chen and Farach-Colton 2002; as used by Chen et al. 2022 (arXiv 2203.03761) and
"Private Federated Learning with Autotuned Compression" (arXiv 2307.10999), section 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketch import _checks, _kernels
from sketch.hashing import MAX_COLUMNS, MAX_ROWS, PublicSeed, chunks


class CountMeanSketch:
    """A linear map from d to L = R * P coordinates, fixed by a public seed.

    Args:
        dimension: number d of coordinates, at least 1.
        rows: number R of independent count sketches, at least 1.
        columns: number P of buckets in each, from 1 to 2^32.
        seed: the round's public seed, drawn after the sizes are fixed.

    Source: arXiv 2307.10999, section 2.
    """

    __slots__ = ("_columns", "_dimension", "_rows", "_scale", "_seed")

    def __init__(self, dimension: int, rows: int, columns: int, seed: PublicSeed) -> None:
        self._dimension = _checks.integer("dimension", dimension, 1)
        self._rows = _checks.integer("rows", rows, 1, MAX_ROWS)
        self._columns = _checks.integer("columns", columns, 1, MAX_COLUMNS)
        if not isinstance(seed, PublicSeed):
            raise TypeError(f"seed must be a PublicSeed, not {type(seed).__name__}")
        self._seed = seed
        self._scale = 1.0 / math.sqrt(self._rows)

    def __repr__(self) -> str:
        return (
            f"CountMeanSketch(dimension={self._dimension}, rows={self._rows}, "
            f"columns={self._columns}, seed={self._seed})"
        )

    @property
    def dimension(self) -> int:
        """The number d of coordinates of an update."""
        return self._dimension

    @property
    def rows(self) -> int:
        """The number R of independent count sketches."""
        return self._rows

    @property
    def columns(self) -> int:
        """The number P of buckets of a row."""
        return self._columns

    @property
    def seed(self) -> PublicSeed:
        """The public seed."""
        return self._seed

    @property
    def size(self) -> int:
        """The number L = R * P of coordinates of a sketch."""
        return self._rows * self._columns

    def encode(self, values: _checks.Floats) -> NDArray[np.float64]:
        """Compress a vector: S x, row after row.

        Args:
            values: float32[d] or float64[d], finite; left unchanged. Sums are taken in float64.
                A NumPy array, or a tensor with DLPack on any device.

        Returns:
            float64[L], finite.
        """
        checked = _checks.update("values", values, self._dimension)
        sketch: NDArray[np.float64] = self._encode({"values": checked})[0]
        return sketch

    def encode_many(self, vectors: Iterable[_checks.Floats]) -> NDArray[np.float64]:
        """Compress vectors that share the round's seed, and expand the hashes once for all.

        Args:
            vectors: c vectors, each as `encode` takes it; the rows of one array, or a list.

        Returns:
            float64[c, L]; row i equals `encode` of vector i, bit for bit.
        """
        names = ((f"vectors[{i}]", vector) for i, vector in enumerate(vectors))
        return self._encode({n: _checks.update(n, v, self._dimension) for n, v in names})

    def _encode(self, vectors: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Sketches of checked vectors, by the names that errors call them."""
        tables = np.zeros((len(vectors), self._rows, self._columns))
        for r in range(self._rows):
            for chunk in chunks(self._seed, r, self._dimension):
                for vector, table in zip(vectors.values(), tables, strict=True):
                    part = vector[chunk.start : chunk.stop]
                    _kernels.scatter_add(part, chunk.words, chunk.sign_bytes, table[r])
        # An infinite or undefined entry lands in a bucket of every row and no sum can make it
        # finite again, so the small output tells what a pass over the large input would.
        for name, table in zip(vectors, tables, strict=True):
            _checks.finite(name, table)
        tables *= self._scale
        return tables.reshape(len(vectors), self.size)

    def decode(self, sketch: NDArray[np.float64]) -> NDArray[np.float64]:
        """Estimate the vector from a sketch, or from a noisy mean of sketches: S^T y.

        Args:
            sketch: float64[L], finite; left unchanged.

        Returns:
            float64[d]. Over the seed, its mean is the vector that was encoded.
        """
        checked = _checks.finite("sketch", _checks.vector("sketch", sketch, self.size))
        table = (checked * self._scale).reshape(self._rows, self._columns)
        out = np.zeros(self._dimension)
        for r in range(self._rows):
            for chunk in chunks(self._seed, r, self._dimension):
                part = out[chunk.start : chunk.stop]
                _kernels.gather_add(table[r], chunk.words, chunk.sign_bytes, part)
        return out
