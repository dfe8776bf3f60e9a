"""Two Stage: some rounds without compression, then one size for all others.

The warm-up measures the norm, in Mode B as Adapt Norm does. It is dear: with W warm-up rounds of T,
the harmonic average rate stays below T / W whatever comes after.

Source: arXiv 2307.10999, Algorithm 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from sketch.controllers.base import ControllerState, Decision, ReleasedStats, check_step
from sketch.controllers.options import check_options
from sketch.controllers.sizing import average, clamp_size, decision, next_decision, norm_estimate
from sketch.error import size_for_error_ratio
from sketch.spec import DEFAULT_ROWS, SketchSpec, spec_for_size

_WARM_UP = "Warm-up: uncompressed."


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoStage:
    """Uncompressed for `warmup` rounds, then L = mean of their norm estimates / (gamma sigma^2).

    Args:
        warmup: number W of finished rounds without compression, at least 1.
        gamma: largest squared error of compression, as a share of that of the noise.
        rows: number R of rows of the sketch.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: an argument out of range.

    Source: arXiv 2307.10999, Algorithm 4.
    """

    warmup: int = 10
    gamma: float = 0.1
    rows: int = DEFAULT_ROWS

    def __post_init__(self) -> None:
        check_options(self)

    def initial(self, dimension: int) -> Decision:
        """The first rounds are sent without compression."""
        spec = SketchSpec.identity(dimension)
        return decision(ControllerState(dimension, dimension), spec, _WARM_UP, {})

    def step(self, state: ControllerState, released: ReleasedStats) -> Decision:
        """Another warm-up round, or the fixed size. Memory: the norm estimates of the warm-up.

        Raises:
            TypeError: `state` or `released` is of another type.
            ValueError: the release is not that of the round `state` decided on.
        """
        check_step(state, released)
        if len(state.memory) == self.warmup:
            return self._decide(state, released, state.size, state.memory, "The size is fixed.", {})
        memory = (*state.memory, norm_estimate(released))
        if len(memory) < self.warmup:
            return self._decide(state, released, state.dimension, memory, _WARM_UP, {})
        norm_squared = average(memory)
        wanted = size_for_error_ratio(norm_squared, released.noise_variance, self.gamma)
        size = clamp_size(wanted, state, self.rows, float(state.dimension))
        numbers = {
            "norm_squared": norm_squared,
            "noise_variance": float(released.noise_variance),
            "wanted_size": wanted,
        }
        words = "The norm over the warm-up fixes the size."
        return self._decide(state, released, size, memory, words, numbers)

    def _decide(
        self,
        state: ControllerState,
        released: ReleasedStats,
        size: int,
        memory: tuple[float, ...],
        words: str,
        numbers: dict[str, float],
    ) -> Decision:
        spec = spec_for_size(state.dimension, size, self.rows)
        numbers = {**numbers, "warmup_rounds": float(len(memory))}
        return next_decision(released, spec, words, numbers, memory)
