"""Deep gradient compression: top-k with momentum correction and error feedback.

Source: Deep Gradient Compression, Lin, Han, Mao, Wang and Dally 2017 (arXiv 1712.01887),
Algorithm 1 and section 3.2. The warm-up of its rate is the caller's: a state goes on with a
compressor of any other rate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketch import _checks
from sketch.compressors.base import ReadThrough, Stateless, owned
from sketch.compressors.sparse import HALF_BITS, SparseFormat, SparseMessage, TopK
from sketch.layers import LayerShapes


@dataclass(frozen=True, slots=True, eq=False)
class MomentumState:
    """What a sender keeps between vectors.

    Args:
        velocity: float64[d], the vectors so far, each with a power of the momentum.
        residual: float64[d], velocities that are not sent yet.
    """

    velocity: NDArray[np.float64]
    residual: NDArray[np.float64]


class DeepGradientCompression(ReadThrough[Stateless]):
    """Send the largest coordinates of what has gathered since each was last sent.

    The velocity u becomes m u + x, and the residual gains it. The largest coordinates of the
    residual are sent as exactly as the bits allow; what they lose stays in the residual. The
    velocity begins anew in the coordinates that were sent, or old vectors would push further where
    they have just arrived. So residual and all that was sent add up to the sum of the velocities,
    which for m = 0 is the sum of the vectors.

    Args:
        layers: the model's layers.
        rate: a layer's size over the number of its coordinates that are sent, at least 1.
        momentum: m, in [0, 1).
        value_bits: bits of a number: 64, or 10 to 32; lower ones of a single are dropped.
    """

    __slots__ = ("_momentum", "_top")
    keeps_residual = True

    def __init__(
        self,
        layers: LayerShapes,
        rate: float,
        *,
        momentum: float = 0.0,
        value_bits: int = HALF_BITS,
    ) -> None:
        self._top = TopK(layers, rate, value_bits=value_bits)
        super().__init__(self._top)
        self._momentum = _checks.real("momentum", momentum, 0.0, 1.0)
        if self._momentum == 1.0:
            raise ValueError("momentum must be below 1: otherwise velocities would never fade")

    def __repr__(self) -> str:
        return f"DeepGradientCompression({self._top!r}, momentum={self._momentum})"

    @property
    def form(self) -> SparseFormat:
        """The format of all messages."""
        return self._top.form

    def initial(self) -> MomentumState:
        """Momentum and residual before the first round: zeros."""
        zeros = owned(np.zeros(self.dimension))
        return MomentumState(zeros, zeros)

    def compress(
        self, values: _checks.Floats, state: MomentumState
    ) -> tuple[SparseMessage, MomentumState]:
        """Send what has gathered most; see `Compressor`."""
        checked = _checks.update("values", values, self.dimension)
        velocity = self._momentum * _checks.vector("state.velocity", state.velocity, self.dimension)
        velocity += checked
        residual = velocity + _checks.vector("state.residual", state.residual, self.dimension)
        message, _ = self._top.compress(residual, Stateless())
        residual[message.indices] -= message.values.read()
        velocity[message.indices] = 0.0
        return message, MomentumState(owned(velocity), owned(residual))
