"""Adapt Norm by steps: the mean of the last norms decides, and a size moves by a factor at most.

The rule of version 0.1.0 of this project, kept for comparison: the published algorithm on noisy
norms. The paper's server sees norms without noise and needs neither window nor limit: window = 1
and a large step_factor are its rule to the letter. `AdaptNorm` is the one to use.

Source: arXiv 2307.10999, Algorithm 3; Mode B and the variance of its estimate are in
docs/sketching.md.
"""

from __future__ import annotations

import math
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
from sketch.controllers.sizing import (
    average,
    clamp_size,
    clamp_words,
    first_decision,
    next_decision,
)
from sketch.error import norm_estimate_variance, size_for_error_ratio
from sketch.spec import DEFAULT_ROWS, spec_for_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """L_next = clamp(mean of the last norm estimates / (gamma sigma^2), by step, rows and d).

    Args:
        gamma: largest squared error of compression, as a share of that of the noise.
        window: number of rounds whose norm estimates are averaged, at least 1.
        step_factor: largest factor by which the size may grow or shrink in one round, above 1.
        first_rate: compression rate of the first round; 1 sends it uncompressed.
        rows: number R of rows of the sketch.

    Source: arXiv 2307.10999, Algorithm 3; gamma = 0.1 and 15 rows as in its section 5.
    """

    gamma: float = 0.1
    window: int = 3
    step_factor: float = 2.0
    first_rate: float = 1.0
    rows: int = DEFAULT_ROWS

    def __post_init__(self) -> None:
        check_options(self)

    def initial(self, dimension: int, prior: Prior | None = None) -> Decision:
        """The first shape, at the first rate, whatever a plan says."""
        return first_decision(dimension, self.first_rate, self.rows, prior)

    def step(self, state: ControllerState, released: ReleasedStats) -> Decision:
        """The next shape from one more release. Memory: the last norm estimates.

        Raises:
            TypeError: `state` or `released` is of another type.
            ValueError: the release is not that of the round `state` decided on.
        """
        check_step(state, released)
        estimate = norm_estimate(released)
        memory = (*state.memory, estimate)[-self.window :]
        norm_squared = average(memory)
        wanted = size_for_error_ratio(norm_squared, released.noise_variance, self.gamma)
        size = clamp_size(wanted, state, self.rows, self.step_factor)
        spec = spec_for_size(state.dimension, size, self.rows)
        variance = norm_estimate_variance(released.size, norm_squared, 0.0, released.noise_variance)
        numbers = {
            "estimate": estimate,
            "estimate_std": math.sqrt(variance),
            "norm_squared": norm_squared,
            "noise_variance": float(released.noise_variance),
            "wanted_size": wanted,
        }
        words = clamp_words("The estimated norm", wanted, size)
        return next_decision(released, spec, words, numbers, memory)
