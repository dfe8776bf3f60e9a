"""Error feedback: what a message loses is added to the next vector.

Source: Seide, Fu, Droppo, Li and Yu 2014; Karimireddy, Rebjock, Stich and Jaggi 2019
(arXiv 1901.09847), Algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

import numpy as np
from numpy.typing import NDArray

from sketch import _checks
from sketch.compressors.base import Compressor, Message, ReadThrough, State, owned


@dataclass(frozen=True, slots=True, eq=False)
class FeedbackState(Generic[State]):
    """What a sender keeps between vectors.

    Args:
        residual: float64[d], what the messages so far have lost.
    """

    inner: State
    residual: NDArray[np.float64]


class ErrorFeedback(ReadThrough[State]):
    """A compressor whose losses are made up for later.

    The message stands for some C(x + g r), and the residual r becomes x + g r - C(x + g r). With
    g = 1 the residual and all that was sent add up to the sum of the vectors.

    Args:
        inner: any compressor without a residual of its own.
        decay: g, the share of the residual that is added, in [0, 1].

    Raises:
        TypeError, ValueError: a compressor that keeps a residual, or a decay out of range.
    """

    __slots__ = ("_decay",)
    keeps_residual = True

    def __init__(self, inner: Compressor[State], decay: float = 1.0) -> None:
        super().__init__(without_residual(inner))
        self._decay = _checks.real("decay", decay, 0.0, 1.0)

    def __repr__(self) -> str:
        return f"ErrorFeedback({self._inner!r}, decay={self._decay})"

    def initial(self) -> FeedbackState[State]:
        """No losses yet."""
        return FeedbackState(self._inner.initial(), owned(np.zeros(self.dimension)))

    def compress(
        self, values: _checks.Floats, state: FeedbackState[State]
    ) -> tuple[Message, FeedbackState[State]]:
        """Send the vector with what is owed; see `Compressor`."""
        checked = _checks.update("values", values, self.dimension)
        owed = self._decay * _checks.vector("state.residual", state.residual, self.dimension)
        owed += checked
        message, inner = self._inner.compress(owed, state.inner)
        self._inner.add(message, owed, -1.0)
        return message, FeedbackState(inner, owned(owed))


def without_residual(inner: Compressor[State]) -> Compressor[State]:
    """The same compressor, if it keeps no residual: what two of them owe would be paid twice."""
    if inner.keeps_residual:
        raise ValueError(f"inner must keep no residual of its own, as {inner!r} does")
    return inner
