"""Two Stage: some rounds that measure the norm, then one size for all others.

The warm-up measures in Mode B, as Adapt Norm does. In the paper it is not compressed, which is
dear: with W warm-up rounds of T, the harmonic average rate stays below T / W whatever comes after.
A sketch of the size that the plan predicts measures the norm as well (docs/sketching.md); for the
rule of the paper set first_rate to 1.

Source: arXiv 2307.10999, Algorithm 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from sketch.controllers.base import (
    ControllerState,
    Decision,
    Prior,
    ReleasedStats,
    check_step,
)
from sketch.controllers.norm_belief import norm_estimate
from sketch.controllers.options import check_options
from sketch.controllers.sizing import average, clamp_size, first_decision, next_decision
from sketch.error import size_for_error_ratio
from sketch.spec import DEFAULT_ROWS, spec_for_size

_WARM_UP = "Warm-up: the size stays."


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoStage:
    """One size for `warmup` rounds, then L = mean of their norm estimates / (gamma sigma^2).

    Args:
        warmup: number W of finished rounds that measure the norm, at least 1.
        gamma: largest squared error of compression, as a share of that of the noise.
        first_rate: compression rate of the warm-up; as the plan predicts if left out.
        rows: number R of rows of the sketch.

    Source: arXiv 2307.10999, Algorithm 4.
    """

    warmup: int = 10
    gamma: float = 0.1
    first_rate: float | None = None
    rows: int = DEFAULT_ROWS

    def __post_init__(self) -> None:
        check_options(self)

    def initial(self, dimension: int, prior: Prior | None = None) -> Decision:
        """The shape of the warm-up, at the first rate or as the plan predicts."""
        return first_decision(dimension, self.first_rate, self.rows, prior, self.gamma)

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
            return self._decide(state, released, state.size, memory, _WARM_UP, {})
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
