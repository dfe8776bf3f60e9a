"""Adapt Norm in Mode A: a second, small sketch in the same sum measures the norm.

    n_hat^2 = max(|nu2|^2 - L2 sigma2^2, 0),   L_next = n_hat^2 / (gamma sigma^2)

The paper's server sees the second sketch without noise; here both carry noise and share one budget
(`sketch.probed`). The variance of the estimate, 2 |mu|^4 / L2 + 4 sigma2^2 |mu|^2 + 2 L2 sigma2^4,
is least at L2 = |mu|^2 / sigma2^2, where it is 8 |mu|^4 / L2.

Source: arXiv 2307.10999, Algorithm 3; the derivation is in docs/sketching.md.
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
from sketch.controllers.norm_belief import NormBelief, believed_measured
from sketch.controllers.options import LARGEST_PROBE, SMALLEST_PROBE, check_options
from sketch.controllers.sizing import arrive, first_decision, next_decision, probe_of
from sketch.error import size_for_error_ratio
from sketch.probed import PROBE_SHARE, Probe
from sketch.spec import DEFAULT_ROWS, spec_for_size


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptNormTwoSketches:
    """Adapt Norm whose norm estimates come from a second sketch, sized for their precision.

    Args:
        gamma: largest squared error of compression, as a share of that of the noise.
        caution: standard deviations of the norm by which a size may be longer than it need be.
        first_rate: compression rate of the first sketch in the first round; as the plan predicts if
            left out.
        probe_size: size L2 of the second sketch in the first round, 64 .. 2048.
        probe_share: share of the budget that the second sketch takes, strictly between 0 and 1.
        rows: number R of rows of the first sketch.

    Source: arXiv 2307.10999, Algorithm 3; budgets 0.9 : 0.1 as its tables imply.
    """

    gamma: float = 0.1
    caution: float = 1.0
    first_rate: float | None = None
    probe_size: int = 1024
    probe_share: float = PROBE_SHARE
    rows: int = DEFAULT_ROWS

    def __post_init__(self) -> None:
        check_options(self)

    def initial(self, dimension: int, prior: Prior | None = None) -> Decision:
        """The first shape: both sketches at their first sizes."""
        probe = Probe(min(self.probe_size, dimension), self.probe_share)
        return first_decision(dimension, self.first_rate, self.rows, prior, self.gamma, probe=probe)

    def step(self, state: ControllerState, released: ReleasedStats) -> Decision:
        """The next shape from one more release. Memory: the belief.

        Raises:
            TypeError: `state` or `released` is of another type.
            ValueError: the release is not that of the round `state` decided on, or had no second
                sketch.
        """
        check_step(state, released)
        seen = probe_of(released)
        estimate = seen.norm_squared - seen.size * seen.noise_variance
        before = NormBelief.of(state.memory)
        belief = believed_measured(before, estimate, seen.size, seen.noise_variance)
        noise = released.noise_variance
        move = arrive(belief, noise, self.gamma, self.caution, state, self.rows)
        best = best_probe_size(belief.likely, seen.noise_variance)
        probe = Probe(min(best, state.dimension), self.probe_share)
        spec = spec_for_size(state.dimension, move.size, self.rows, probe)
        numbers = {
            "estimate": estimate,
            "probe_noise_variance": float(seen.noise_variance),
            **move.numbers,
        }
        return next_decision(released, spec, move.words, numbers, belief.memory)


def best_probe_size(norm_squared: float, noise_variance: float) -> int:
    """The size L2 of least variance, |mu|^2 / sigma2^2, within 64 .. 2048.

    Args:
        norm_squared: |mu|^2, at least 0.
        noise_variance: sigma2^2 per coordinate of the second sketch, above 0.
    """
    best = size_for_error_ratio(norm_squared, noise_variance, 1.0)
    return round(min(max(best, SMALLEST_PROBE), LARGEST_PROBE))
