"""The layers of a model as a flat vector sees them: names, shapes, where each begins.

Compression that treats layers apart needs no more of a model than this.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from sketch import _checks


@dataclass(frozen=True, slots=True)
class LayerShapes:
    """Names and shapes of a model's layers, in the order in which they are flattened.

    Args:
        shapes: (name, shape) pairs; a shape is a tuple of sizes, each at least 1, and () is a
            single number. Names differ.

    Raises:
        ValueError: no layer, a name twice, or a size below 1.
    """

    shapes: tuple[tuple[str, tuple[int, ...]], ...]

    def __post_init__(self) -> None:
        if not isinstance(self.shapes, tuple) or not all(map(_is_pair, self.shapes)):
            raise TypeError("shapes must be a tuple of (name, tuple of sizes) pairs")
        names = self.names
        if not names or len(set(names)) < len(names):
            raise ValueError(f"names must be different and at least one, got {names}")
        for name, shape in self.shapes:
            for size in shape:
                _checks.integer(f"size of layer {name!r}", size, 1)

    @classmethod
    def flat(cls, dimension: int) -> LayerShapes:
        """A single layer of `dimension` numbers, for compression that sees no layers."""
        return cls((("all", (_checks.integer("dimension", dimension, 1),)),))

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(name for name, _ in self.shapes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of entries of each layer, in order."""
        return tuple(math.prod(shape) for _, shape in self.shapes)

    @property
    def dimension(self) -> int:
        """The number d of entries of all layers."""
        return sum(self.sizes)

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """First entry of each layer in the flat vector, and one past its last."""
        return tuple(itertools.pairwise(itertools.accumulate(self.sizes, initial=0)))

    @property
    def matrices(self) -> tuple[tuple[int, int] | None, ...]:
        """Rows and columns of each layer read as a matrix, None for those that are none.

        Rows are the first axis, and all other axes together the columns: a convolution of shape
        (outputs, inputs, height, width) has a row for every output.
        """
        return tuple(
            (shape[0], math.prod(shape[1:])) if len(shape) > 1 else None for _, shape in self.shapes
        )


def _is_pair(pair: object) -> bool:
    """Whether it is a name with a tuple of integers."""
    return (
        isinstance(pair, tuple)
        and len(pair) == 2
        and isinstance(pair[0], str)
        and isinstance(pair[1], tuple)
        and all(isinstance(size, int | np.integer) for size in pair[1])
    )
