"""The order in which a model's parameters become one vector, fixed once for all parties.

May use torch; must not know models, data, clients or the protocol.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sketch import LayerShapes

Vector = NDArray[np.float32]
"""All parameters in layout order: float32[d]."""


@dataclass(frozen=True, slots=True)
class ParameterLayout(LayerShapes):
    """Names and shapes of a model's parameters, in the order in which they are flattened.

    Args:
        shapes: (name, shape) pairs, sorted by name without repetition.

    Raises:
        TypeError: not a tuple of such pairs.
        ValueError: no parameter, names not strictly increasing, or a size below 1.
    """

    def __post_init__(self) -> None:
        """Check the order, and what holds for layers in any order."""
        names = self.names
        if not names or any(a >= b for a, b in itertools.pairwise(names)):
            raise ValueError(f"names must be strictly increasing and not empty, got {names}")
        # Not `super()`: a class with slots is made twice, and that name means the first one.
        LayerShapes.__post_init__(self)

    @classmethod
    def of(cls, parameters: Mapping[str, Tensor]) -> ParameterLayout:
        """Read the layout of named tensors; the order of the mapping does not matter."""
        return cls.sorted({name: tuple(value.shape) for name, value in parameters.items()})

    @classmethod
    def sorted(cls, shapes: Mapping[str, tuple[int, ...]]) -> ParameterLayout:
        """Build the layout of named shapes; the order of the mapping does not matter."""
        return cls(tuple((name, shapes[name]) for name in sorted(shapes)))

    def flatten(self, parameters: Mapping[str, Tensor]) -> Vector:
        """Concatenate named tensors into float32[dimension].

        Raises:
            ValueError: names or shapes are not those of the layout.
        """
        if ParameterLayout.of(parameters) != self:
            raise ValueError("the parameters do not have the names and shapes of this layout")
        parts = [parameters[name].detach().reshape(-1) for name in self.names]
        vector: Vector = torch.cat(parts).to(torch.float32).cpu().numpy()
        return vector

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Cut float32[dimension] into named views of the same memory.

        Raises:
            ValueError: the vector has another shape.
        """
        if vector.shape != (self.dimension,):
            raise ValueError(f"expected a vector of {self.dimension}, got {tuple(vector.shape)}")
        parts = torch.split(vector, list(self.sizes))
        return {
            name: part.reshape(shape)
            for (name, shape), part in zip(self.shapes, parts, strict=True)
        }
