"""Low-rank factors of a model's layers: which layers have them, where they lie, and their bases.

Source: PowerSGD, Vogels, Karimireddy and Jaggi 2019 (arXiv 1905.13727), section 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketch import _checks
from sketch.hashing import PublicSeed, Usage, signs
from sketch.layers import LayerShapes

Matrix = NDArray[np.float64]

ORTHONORMAL_TOLERANCE = 1e-9
"""Largest entry of Q^T Q - I that is taken for rounding. What passes lengthens no vector by more
than r times half of it."""


_BLOCK = 1 << 18
"""Multiplications of one call of BLAS. Thin products wait for memory, not for arithmetic: blocks
that stay in cache are faster than whole matrices, and so small that BLAS wakes no other threads,
for which a busy machine would have to wait."""


def multiply(left: Matrix, right: Matrix, out: Matrix) -> None:
    """Write a product of matrices, some rows at a time.

    Args:
        left: float64[m, k].
        right: float64[k, n].
        out: float64[m, n], overwritten.
    """
    step = max(1, _BLOCK // right.size)
    for start in range(0, len(left), step):
        np.matmul(left[start : start + step], right, out=out[start : start + step])


def orthonormal(matrix: Matrix) -> Matrix:
    """An orthonormal basis whose span holds the columns of a matrix, by Householder reflections.

    Args:
        matrix: float64[m, r], r <= m, of any rank: what the columns leave open is filled up, so
            even of zeros there is a basis.

    Returns:
        float64[m, r], read-only.
    """
    basis = np.ascontiguousarray(np.linalg.qr(matrix)[0])
    basis.flags.writeable = False
    return basis


class _Part(NamedTuple):
    """Where a factored layer lies: in the vector, among its left factors, among its right ones."""

    start: int
    rows: int
    columns: int
    left: int
    right: int


@dataclass(frozen=True, slots=True)
class FactorShapes:
    """Which layers are factored, and where everything lies in the two vectors that are sent.

    The first vector has, layer after layer, M Q or the layer itself; the second has M^T P_hat of
    the factored layers.
    """

    layers: LayerShapes
    rank: int

    def __post_init__(self) -> None:
        if not isinstance(self.layers, LayerShapes):
            raise TypeError(f"layers must be LayerShapes, not {type(self.layers).__name__}")
        _checks.integer("rank", self.rank, 1)

    @property
    def factored(self) -> tuple[tuple[int, int] | None, ...]:
        """Rows and columns of each layer that is factored, None for one that is sent whole."""
        return tuple(
            shape if shape is not None and self.rank * sum(shape) < math.prod(shape) else None
            for shape in self.layers.matrices
        )

    @property
    def first_size(self) -> int:
        """L1, the length of the first vector."""
        sizes = zip(self.factored, self.layers.sizes, strict=True)
        return sum(shape[0] * self.rank if shape else size for shape, size in sizes)

    @property
    def second_size(self) -> int:
        """L2, the length of the second vector; 0 if no layer is factored."""
        return sum(shape[1] * self.rank for shape in self.factored if shape)

    def initial_right(self, seed: PublicSeed) -> Factors:
        """Bases of the first round, from columns of random signs.

        The sign of entry (i, j) of factored layer number l is bit i r + j of the stream of usage 7
        and row l.
        """
        shapes = [shape for shape in self.factored if shape]
        return Factors.spanning(
            signs(seed, number, 0, columns * self.rank, Usage.FACTOR).reshape(columns, self.rank)
            for number, (_, columns) in enumerate(shapes)
        )

    def parts(self) -> Iterator[_Part]:
        """The factored layers in order, each with its places."""
        left = right = 0
        for (start, stop), shape in zip(self.layers.bounds, self.factored, strict=True):
            if shape is None:
                left += stop - start
                continue
            yield _Part(start, *shape, left, right)
            left += shape[0] * self.rank
            right += shape[1] * self.rank

    def whole(self) -> Iterator[tuple[slice, slice]]:
        """Place in the vector, and in the first vector sent, of each layer that is sent whole."""
        left = 0
        for (start, stop), shape in zip(self.layers.bounds, self.factored, strict=True):
            if shape is None:
                yield slice(start, stop), slice(left, left + stop - start)
            left += stop - start if shape is None else shape[0] * self.rank

    def left_of(self, first: NDArray[np.float64]) -> list[Matrix]:
        """The matrices P in a first vector: views float64[m, r], one for each factored layer."""
        return [
            first[part.left : part.left + part.rows * self.rank].reshape(part.rows, self.rank)
            for part in self.parts()
        ]

    def right_of(self, second: NDArray[np.float64]) -> list[Matrix]:
        """The matrices Q' in a second vector: views float64[n, r]."""
        return [
            second[part.right : part.right + part.columns * self.rank].reshape(-1, self.rank)
            for part in self.parts()
        ]

    def product(
        self, left: Sequence[Matrix], right: Sequence[Matrix], first: NDArray[np.float64] | None
    ) -> NDArray[np.float64]:
        """The vector float64[d] of left times right transposed, layer by layer.

        Args:
            left: float64[m, r] for each factored layer.
            right: float64[n, r] for each factored layer.
            first: float64[L1] to take the other layers from; None leaves zeros.
        """
        out = np.zeros(self.layers.dimension)
        for part, tall, wide in zip(self.parts(), left, right, strict=True):
            stop = part.start + part.rows * part.columns
            multiply(tall, wide.T, out[part.start : stop].reshape(part.rows, part.columns))
        if first is not None:
            for place, sent in self.whole():
                out[place] = first[sent]
        return out


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """An orthonormal basis for each factored layer: Q on the right, or P_hat on the left.

    Whoever gets bases from a server checks them by building this: that no vector grows rests on
    them.

    Args:
        bases: float64[length, r], each; kept as they are, so read-only arrays are best.
    """

    bases: tuple[Matrix, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.bases, tuple):
            raise TypeError(f"bases must be a tuple, not {type(self.bases).__name__}")
        for number, basis in enumerate(self.bases):
            _check_orthonormal(f"bases[{number}]", basis)

    @classmethod
    def spanning(cls, matrices: Iterable[NDArray[np.generic]]) -> Factors:
        """Orthonormal bases of the columns of some matrices."""
        return cls(tuple(orthonormal(matrix.astype(np.float64)) for matrix in matrices))

    def require(self, name: str, lengths: Iterable[int], rank: int) -> None:
        """Refuse bases of other shapes than wanted."""
        wanted = [(length, rank) for length in lengths]
        found = [basis.shape for basis in self.bases]
        if found != wanted:
            raise ValueError(f"{name} must have bases of shapes {wanted}, not {found}")


def _check_orthonormal(name: str, basis: object) -> None:
    if not isinstance(basis, np.ndarray) or basis.dtype != np.float64 or basis.ndim != 2:
        raise TypeError(f"{name} must be a matrix of float64")
    gap = np.abs(basis.T @ basis - np.eye(basis.shape[1])).max()
    # A comparison with an undefined number is false, so this refuses it as well.
    if not gap <= ORTHONORMAL_TOLERANCE:
        raise ValueError(f"{name} must have orthonormal columns, but is off by {gap}")
