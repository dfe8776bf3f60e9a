"""Adapt Norm for federated learning, Mode B: the size follows the norm of the released mean.

By Lemma 6 compression adds (d - 1) |mu|^2 / L to the squared error and noise adds d sigma^2.
The smallest size that keeps the first within gamma of the second is L = |mu|^2 / (gamma sigma^2).
Nobody knows |mu|^2, but the released sketch nu = S mu + xi tells: |nu|^2 - L sigma^2 has that mean.
It is post-processing of a value released anyway: no second sketch and no budget.

The estimate is stale by one round, and sigma is taken to stay what it was: calibration fixes
the noise of the mean, whatever the size.

Source: arXiv 2307.10999, Algorithm 3; Mode B and the variance of its estimate are in
docs/sketching.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sketch import _checks
from sketch.controllers.base import (
    ControllerState,
    Decision,
    Rationale,
    ReleasedStats,
    check_step,
)
from sketch.error import norm_estimate_variance, size_for_error_ratio
from sketch.spec import DEFAULT_ROWS, spec_for_size


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptNorm:
    """L_next = clamp(mean of the last norm estimates / (gamma sigma^2), by step, rows and d).

    Args:
        gamma: largest squared error of compression, as a share of that of the noise.
        window: number of rounds whose norm estimates are averaged, at least 1.
        step_factor: largest factor by which the size may grow or shrink in one round, above 1.
        first_size: size of the first round; None sends it uncompressed.
        rows: number R of rows of the sketch.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: an argument out of range.

    Source: arXiv 2307.10999, Algorithm 3; gamma = 0.1 and 15 rows as in its section 5.
    """

    gamma: float = 0.1
    window: int = 3
    step_factor: float = 2.0
    first_size: int | None = None
    rows: int = DEFAULT_ROWS

    def __post_init__(self) -> None:
        _checks.real("gamma", self.gamma, 0.0, open_low=True)
        _checks.integer("window", self.window, 1)
        _checks.real("step_factor", self.step_factor, 1.0, open_low=True)
        _checks.integer("rows", self.rows, 1)
        if self.first_size is not None:
            _checks.integer("first_size", self.first_size, 1)

    def initial(self, dimension: int) -> Decision:
        """The first shape: the prior size, or no compression without one."""
        size = dimension if self.first_size is None else self.first_size
        spec = spec_for_size(dimension, size, self.rows)
        words = "No prior size: uncompressed." if self.first_size is None else "The prior size."
        state = ControllerState(dimension, spec.main_size)
        return Decision(state, spec, Rationale(words, {"size": float(spec.main_size)}))

    def step(self, state: ControllerState, released: ReleasedStats) -> Decision:
        """The next shape from one more release.

        Raises:
            TypeError: `state` or `released` is of another type.
            ValueError: the release is not that of the round `state` decided on.
        """
        check_step(state, released)
        # Estimates keep their sign here: clamping each at zero before the average would push the
        # average, and with it the size, upward whenever noise dominates.
        estimate = released.sketch_norm_squared - released.size * released.noise_variance
        memory = (*state.memory, estimate)[-self.window :]
        norm_squared = max(math.fsum(memory) / len(memory), 0.0)
        wanted = size_for_error_ratio(norm_squared, released.noise_variance, self.gamma)
        size = self._clamp(wanted, state)
        spec = spec_for_size(state.dimension, size, self.rows)
        numbers = {
            "estimate": estimate,
            "estimate_std": _estimate_std(released, norm_squared),
            "norm_squared": norm_squared,
            "noise_variance": float(released.noise_variance),
            "wanted_size": wanted,
            "size": float(spec.main_size),
        }
        after = ControllerState(state.dimension, spec.main_size, released.round_number, memory)
        return Decision(after, spec, Rationale(_words(wanted, size), numbers))

    def _clamp(self, wanted: float, state: ControllerState) -> int:
        """The wanted size within one step of the last, and within the rows and the dimension."""
        low = state.size / self.step_factor
        high = state.size * self.step_factor
        stepped = min(max(wanted, low), high)
        return math.ceil(min(max(stepped, float(self.rows)), float(state.dimension)))


def _estimate_std(released: ReleasedStats, norm_squared: float) -> float:
    """Standard deviation of one norm estimate, at the estimated norm."""
    return math.sqrt(
        norm_estimate_variance(released.size, norm_squared, 0.0, released.noise_variance)
    )


def _words(wanted: float, size: int) -> str:
    if wanted > size:
        return "The estimated norm asks for a larger sketch than the clamps allow."
    if wanted < size - 1:
        return "The estimated norm asks for a smaller sketch than the clamps allow."
    return "The estimated norm asks for this size."
