"""Between pfl's named tensors and one flat update."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pfl.internal.ops.selector import get_default_framework_module as get_ops
from pfl.stats import ElementWeightedMappedVectorStatistics, MappedVectorStatistics

from protocol.adapters.named_arrays import require_weights
from secagg import ParameterError


@dataclass(frozen=True, slots=True)
class Layout:
    """Names and shapes of a model update, in the order in which they are laid end to end."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, stats: MappedVectorStatistics) -> Self:
        """The layout of one user's statistics."""
        for name in stats.keys():
            require_weights(name)
        return cls(tuple(stats.keys()), tuple(tuple(value.shape) for value in stats.values()))

    def join(self, mean: NDArray[np.float64]) -> MappedVectorStatistics:
        """A mean update as statistics of weight 1, in pfl's own float32.

        Args:
            mean: float64[d].
        """
        return MappedVectorStatistics.from_vector(mean, 1.0, list(self.names), list(self.shapes))


def require_uniform(stats: Any) -> MappedVectorStatistics:
    """Statistics that count their user once, like everybody's.

    pfl passes weights on as public metadata. A data count is private, and a weight would multiply
    what one user can change, so there is no weight but 1.
    """
    weighted_by_element = isinstance(stats, ElementWeightedMappedVectorStatistics)
    if not isinstance(stats, MappedVectorStatistics) or weighted_by_element:
        raise ParameterError(
            "stats", type(stats).__name__, "MappedVectorStatistics, straight from the training"
        )
    # Written so that NaN fails the test. The weight itself is not printed: it may be a data count.
    if not stats.weight == 1:
        raise ParameterError(
            "stats.weight", "another number", "1 for every user; leave WeightByDatapoints out"
        )
    return stats


def flatten(stats: MappedVectorStatistics) -> NDArray[Any]:
    """One user's update as one fresh vector, of the tensors' own float type."""
    return np.concatenate([np.empty(0, np.float32), *(_numpy(v).ravel() for v in stats.values())])


def _numpy(tensor: Any) -> NDArray[Any]:
    # pfl's own conversion brings tensors home from a device, but rounds NumPy arrays to float32.
    return tensor if isinstance(tensor, np.ndarray) else np.asarray(get_ops().to_numpy(tensor))
