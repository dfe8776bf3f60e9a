"""A random rotation of any length without padding, which spreads every vector evenly.

Let K be the largest power of two up to the length L. Random signs on all coordinates, a normalised
Walsh-Hadamard transform of the first K, then, if K < L, fresh random signs and a transform of the
last K. The two blocks overlap because K > L / 2, so every output coordinate has passed through a
block of K entries, and each is a random signed sum with weights of total squared size at most
|x|^2 / K. Every step is orthogonal, hence so is the whole: norms and sensitivities are unchanged.

The seed is public and the rotation hides nothing; it only makes the largest entry small, so that
few bits per coordinate suffice. docs/sketching.md proves both statements.

Source: randomised Hadamard transform, Ailon and Chazelle 2009; its use before rounding, Suresh et
al. 2017 (arXiv 1611.00429). The overlapping blocks in place of padding are this project's.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sketch import _checks, _hadamard_kernels
from sketch.hashing import PublicSeed, Usage, apply_signs, with_signs


def block_length(length: int) -> int:
    """The largest power of two up to `length`: K, with length / 2 < K <= length."""
    return 1 << (_checks.integer("length", length, 1).bit_length() - 1)


def flat_bound(l2: float, length: int, failure_probability: float) -> float:
    """The magnitude that a rotated vector exceeds somewhere with at most the given probability.

    min(l2, l2 * sqrt(2 * ln(2 * length / failure_probability) / K)): each output coordinate is
    sub-Gaussian with variance proxy at most l2^2 / K, and the union is over `length` of them.

    Args:
        l2: the l2 norm of the vector, which must not depend on the seed.
        length: number L of coordinates.
        failure_probability: in (0, 1], over the seed.

    Returns:
        The bound, in the units of `l2`.

    Source: Hoeffding 1963, Theorem 2; docs/sketching.md, "The flat bound".
    """
    l2 = _checks.real("l2", l2, 0.0)
    failure = _checks.real("failure_probability", failure_probability, 0.0, 1.0, open_low=True)
    block = block_length(length)
    return l2 * min(1.0, math.sqrt(2.0 * math.log(2.0 * length / failure) / block))


def _transform(block: NDArray[np.float64]) -> None:
    """The normalised Walsh-Hadamard transform, its own inverse, in place; float64[K]."""
    # H_1 is the number one.
    if block.size > 1:
        _hadamard_kernels.walsh_hadamard(block, 1.0 / math.sqrt(block.size))


class Rotation:
    """An orthogonal map of `length` coordinates onto themselves, fixed by a public seed.

    Args:
        length: number L of coordinates, at least 1.
        seed: the round's public seed.
    """

    __slots__ = ("_block", "_length", "_seed")

    def __init__(self, length: int, seed: PublicSeed) -> None:
        self._block = block_length(length)
        self._length = int(length)
        if not isinstance(seed, PublicSeed):
            raise TypeError(f"seed must be a PublicSeed, not {type(seed).__name__}")
        self._seed = seed

    def __repr__(self) -> str:
        return f"Rotation(length={self._length}, seed={self._seed})"

    @property
    def length(self) -> int:
        """The number L of coordinates, before and after."""
        return self._length

    @property
    def block(self) -> int:
        """The length K of the Walsh-Hadamard blocks."""
        return self._block

    def forward(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Rotate a vector.

        Args:
            values: float64[L], finite; left unchanged.

        Returns:
            float64[L] with the same l2 norm, up to rounding errors.
        """
        checked = _checks.vector("values", values, self._length)
        out = with_signs("values", checked, self._seed, Usage.ROTATION_FIRST)
        _transform(out[: self._block])
        if self._block < self._length:
            apply_signs(out, self._seed, Usage.ROTATION_LAST)
            _transform(out[-self._block :])
        return out

    def inverse(self, rotated: NDArray[np.float64]) -> NDArray[np.float64]:
        """Undo `forward`: the transpose, every step reversed.

        Args:
            rotated: float64[L], finite; left unchanged.

        Returns:
            float64[L] with the same l2 norm, up to rounding errors.
        """
        out = _checks.copied("rotated", _checks.vector("rotated", rotated, self._length))
        if self._block < self._length:
            _transform(out[-self._block :])
            apply_signs(out, self._seed, Usage.ROTATION_LAST)
        _transform(out[: self._block])
        apply_signs(out, self._seed, Usage.ROTATION_FIRST)
        return out
