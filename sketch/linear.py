"""What every compressing map of a round offers, and the one that compresses nothing.

A round without compression runs through `NoSketch`, so callers never branch on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sketch import _checks


@runtime_checkable
class LinearSketch(Protocol):
    """A linear map S from d coordinates to L, and a decoder.

    Encoding is linear, so the sum of the clients' sketches is the sketch of their sum. Decoding
    what was encoded gives the vector on average over the seed. It is the transpose of encoding,
    except for a median of copies, which is not linear.

    Encoding takes float32 or float64, as a NumPy array or as anything with DLPack, such as a torch
    tensor on any device; float16 and bfloat16 are refused.
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

    def encode_many(self, vectors: Iterable[_checks.Floats]) -> NDArray[np.float64]:
        """S x of c vectors, each as `encode` takes it, for one expansion of the hashes.

        Returns:
            float64[c, L]; row i equals `encode` of vector i, bit for bit.
        """
        ...

    def decode(self, sketch: NDArray[np.float64]) -> NDArray[np.float64]:
        """Estimate of x: float64[L] to float64[d]; ValueError if anything is not finite."""
        ...


class NoSketch:
    """The map that leaves a vector as it is, for rounds without compression.

    Args:
        dimension: number d of coordinates, at least 1.
    """

    __slots__ = ("_dimension",)

    def __init__(self, dimension: int) -> None:
        self._dimension = _checks.integer("dimension", dimension, 1)

    def __repr__(self) -> str:
        return f"NoSketch(dimension={self._dimension})"

    @property
    def dimension(self) -> int:
        """The number d of coordinates of an update."""
        return self._dimension

    @property
    def size(self) -> int:
        """The number of coordinates of a sketch: d."""
        return self._dimension

    def encode(self, values: _checks.Floats) -> NDArray[np.float64]:
        """Copy float32[d] or float64[d] to float64[d]."""
        checked = _checks.update("values", values, self._dimension)
        return _checks.copied("values", checked)

    def encode_many(self, vectors: Iterable[_checks.Floats]) -> NDArray[np.float64]:
        """Copy c vectors to float64[c, d]; see `LinearSketch`."""
        kept = list(vectors)
        out = np.empty((len(kept), self._dimension))
        for i, vector in enumerate(kept):
            name = f"vectors[{i}]"
            _checks.copied(name, _checks.update(name, vector, self._dimension), out[i])
        return out

    def decode(self, sketch: NDArray[np.float64]) -> NDArray[np.float64]:
        """Copy float64[d] to float64[d]."""
        return _checks.copied("sketch", _checks.vector("sketch", sketch, self._dimension))
