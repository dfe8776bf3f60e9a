"""PowerSGD as two linear maps, so that two secure sums give the factors of a sum of matrices.

A layer of m rows and n columns is a matrix M. For a public Q with r orthonormal columns, known
before the round, P = M Q is linear in M. For P_hat, an orthonormal basis of the columns of the
*summed* P, Q' = M^T P_hat is linear in M as well. So clients send P in a first sum and Q' in a
second one, and P_hat Q'^T = P_hat P_hat^T M is the sum of their matrices, projected to the columns
of P_hat: one step of the power iteration that PowerSGD takes. The next round begins with the basis
of Q'.

Layers for which two factors are not smaller than the layer travel whole in the first sum. Both
maps shorten every vector or leave its length (docs/compression.md has the proof), so the clip of
an update bounds what either sum can see of it; each sum is a release of its own all the same.

Source: PowerSGD, Vogels, Karimireddy and Jaggi 2019 (arXiv 1905.13727), Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from sketch import _checks
from sketch.factors import Factors, FactorShapes, Matrix, multiply


class _FactorMap:
    """What both maps share: their sizes and how many vectors are encoded."""

    __slots__ = ("_shapes", "_size")
    _size: int

    def __init__(self, shapes: FactorShapes) -> None:
        if not isinstance(shapes, FactorShapes):
            raise TypeError(f"shapes must be FactorShapes, not {type(shapes).__name__}")
        if shapes.second_size == 0:
            raise ValueError(f"no layer is large enough to be factored at rank {shapes.rank}")
        self._shapes = shapes

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dimension={self.dimension}, size={self.size})"

    @property
    def dimension(self) -> int:
        """The number d of coordinates of an update."""
        return self._shapes.layers.dimension

    @property
    def size(self) -> int:
        """The number of coordinates that are sent."""
        return self._size

    def encode(self, values: _checks.Floats) -> NDArray[np.float64]:
        """The factors of one update: float32[d] or float64[d] to float64[size]."""
        return self._encoded("values", values, np.empty(self.size))

    def encode_many(self, vectors: Iterable[_checks.Floats]) -> NDArray[np.float64]:
        """The factors of c updates: float64[c, size]; see `LinearSketch`."""
        kept = list(vectors)
        out = np.empty((len(kept), self.size))
        for number, vector in enumerate(kept):
            self._encoded(f"vectors[{number}]", vector, out[number])
        return out

    def _encoded(
        self, name: str, values: _checks.Floats, out: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        checked = _checks.update(name, values, self.dimension)
        self._factor(_checks.copied(name, checked), out)
        return out

    def _factor(self, vector: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        raise NotImplementedError

    def _received(self, sketch: object) -> NDArray[np.float64]:
        return _checks.finite("sketch", _checks.vector("sketch", sketch, self.size))

    def _layers(self, vector: NDArray[np.float64]) -> Iterator[Matrix]:
        for part in self._shapes.parts():
            stop = part.start + part.rows * part.columns
            yield vector[part.start : stop].reshape(part.rows, part.columns)


class LeftFactorMap(_FactorMap):
    """The first sum of a round: M Q of the factored layers, and all other layers.

    Args:
        right: Q, a basis float64[n, r] for each factored layer.
    """

    __slots__ = ("_right",)

    def __init__(self, shapes: FactorShapes, right: Factors) -> None:
        super().__init__(shapes)
        self._size = shapes.first_size
        right.require("right", (part.columns for part in shapes.parts()), shapes.rank)
        self._right = right

    def _factor(self, vector: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        lefts = self._shapes.left_of(out)
        for layer, basis, left in zip(self._layers(vector), self._right.bases, lefts, strict=True):
            multiply(layer, basis, left)
        for place, sent in self._shapes.whole():
            out[sent] = vector[place]

    def decode(self, sketch: NDArray[np.float64]) -> NDArray[np.float64]:
        """The transpose, P Q^T = M Q Q^T: what the first sum tells by itself.

        Args:
            sketch: float64[L1].

        Returns:
            float64[d].
        """
        first = self._received(sketch)
        return self._shapes.product(self._shapes.left_of(first), self._right.bases, first)

    def left(self, total: NDArray[np.float64]) -> Factors:
        """P_hat: bases of the columns of the summed P.

        Args:
            total: float64[L1], the first sum, or a mean of it.
        """
        return Factors.spanning(self._shapes.left_of(self._received(total)))


class RightFactorMap(_FactorMap):
    """The second sum of a round: M^T P_hat of the factored layers.

    Args:
        left: P_hat, a basis float64[m, r] for each factored layer.
    """

    __slots__ = ("_left",)

    def __init__(self, shapes: FactorShapes, left: Factors) -> None:
        super().__init__(shapes)
        self._size = shapes.second_size
        left.require("left", (part.rows for part in shapes.parts()), shapes.rank)
        self._left = left

    def _factor(self, vector: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        rights = self._shapes.right_of(out)
        for layer, basis, right in zip(self._layers(vector), self._left.bases, rights, strict=True):
            multiply(layer.T, basis, right)

    def decode(self, sketch: NDArray[np.float64]) -> NDArray[np.float64]:
        """The transpose: P_hat Q'^T in the factored layers, zeros elsewhere.

        Args:
            sketch: float64[L2].

        Returns:
            float64[d].
        """
        rights = self._shapes.right_of(self._received(sketch))
        return self._shapes.product(self._left.bases, rights, None)

    def reconstruct(
        self, first: NDArray[np.float64], second: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The sum of the updates, as far as both sums tell: float64[d].

        Args:
            first: float64[L1], the first sum, or a mean of it.
            second: float64[L2], the second one.
        """
        whole = _checks.finite("first", _checks.vector("first", first, self._shapes.first_size))
        rights = self._shapes.right_of(self._received(second))
        return self._shapes.product(self._left.bases, rights, whole)

    def right(self, total: NDArray[np.float64]) -> Factors:
        """The bases Q with which the next round begins: those of the columns of the summed Q'.

        Args:
            total: float64[L2], the second sum, or a mean of it.
        """
        return Factors.spanning(self._shapes.right_of(self._received(total)))
