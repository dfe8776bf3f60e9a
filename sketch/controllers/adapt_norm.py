"""Adapt Norm for federated learning: the size follows the norm of the released mean.

By Lemma 6 compression adds (d - 1) |mu|^2 / L to the squared error and noise adds d sigma^2.
The smallest size that keeps the first within gamma of the second is L = |mu|^2 / (gamma sigma^2).
Nobody knows |mu|^2. In Mode B, here, the released sketch nu = S mu + xi tells: |nu|^2 - L sigma^2
has that mean. It is post-processing of a value released anyway: no second sketch and no budget.
Mode A, with a second sketch, is in `two_sketches`.

The estimate is stale by one round, and sigma is taken to stay what it was: calibration fixes the
noise of the mean, whatever the size. It moves a little with the number of survivors, and with a
clip that adapts (docs/sketching.md, "Known limits").

The published rule goes to the estimate itself, which its server sees without noise. Here estimates
are noisy, but their variance is known. So all of them make up one belief (`norm_belief`), and the
size moves as far in one round as that is sure (`sizing.Arrival`), from where the plan's clip and
noise put it. `published` has the rule without all this.

Source: arXiv 2307.10999, Algorithm 3; Mode B and the variance of its estimate are in
docs/sketching.md.
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
from sketch.controllers.norm_belief import NormBelief, believed_after, norm_estimate
from sketch.controllers.options import check_options
from sketch.controllers.sizing import arrive, first_decision, next_decision
from sketch.spec import DEFAULT_ROWS, spec_for_size


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptNorm:
    """L_next is the size nearest to L within |mu|^2 / (gamma sigma^2), for |mu|^2 in an interval.

    Args:
        gamma: largest squared error of compression, as a share of that of the noise.
        caution: standard deviations of the norm by which a size may be longer than it need be.
        first_rate: compression rate of the first round; as the plan predicts if left out.
        rows: number R of rows of the sketch.

    Source: arXiv 2307.10999, Algorithm 3; gamma = 0.1 and 15 rows as in its section 5.
    """

    gamma: float = 0.1
    caution: float = 1.0
    first_rate: float | None = None
    rows: int = DEFAULT_ROWS

    def __post_init__(self) -> None:
        check_options(self)

    def initial(self, dimension: int, prior: Prior | None = None) -> Decision:
        """The first shape, at the first rate or as the plan predicts."""
        return first_decision(dimension, self.first_rate, self.rows, prior, self.gamma)

    def step(self, state: ControllerState, released: ReleasedStats) -> Decision:
        """The next shape from one more release. Memory: the belief.

        Raises:
            TypeError: `state` or `released` is of another type.
            ValueError: the release is not that of the round `state` decided on.
        """
        check_step(state, released)
        belief = believed_after(NormBelief.of(state.memory), released)
        noise = released.noise_variance
        move = arrive(belief, noise, self.gamma, self.caution, state, self.rows)
        spec = spec_for_size(state.dimension, move.size, self.rows)
        numbers = {"estimate": norm_estimate(released), **move.numbers}
        return next_decision(released, spec, move.words, numbers, belief.memory)
