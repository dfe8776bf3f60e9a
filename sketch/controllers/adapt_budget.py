"""Adapt Budget: the compression error of a whole run is a budget, spent where it does least harm.

Adapt Norm holds the error of compression at gamma times that of the noise in every round. But the
error of an early round has mostly been trained away by the end, and that of the last one stays. Let
w_t be the weight with which an error of round t shows in the final model, and a_t =
|mu_t|^2 / sigma_t^2, so that a sketch of size L_t has the error share gamma_t = a_t / L_t. Of all
sizes with

    sum of w_t gamma_t <= gamma * sum of w_t,

the total size is least for gamma_t proportional to 1 / sqrt(w_t), where a_t is steady. Each round
takes its part of what is left of the budget, so estimates that were off are made up for later:

    gamma_t = (what is left) / (sqrt(w_t) * sum of sqrt(w_s) over the rounds s >= t)

An error along an eigenvector of curvature h fades by (1 - eta h)^2 a round; over the wide spectra
of real models that makes w fall as a power of the time left: w = (1 + left / tau)^-2.

Source: this project; proof, limits and measurements in docs/sketching.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sketch import _checks
from sketch.controllers.base import (
    ControllerState,
    Decision,
    Prior,
    ReleasedStats,
    check_step,
)
from sketch.controllers.norm_belief import NormBelief, believed_after
from sketch.controllers.options import check_options
from sketch.controllers.sizing import arrive, first_decision, next_decision
from sketch.spec import DEFAULT_ROWS, spec_for_size


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptBudget:
    """L_next = |mu|^2 / (gamma_t sigma^2), with gamma_t from what is left of the run's budget.

    Args:
        gamma: mean over the run, weighted by w, of the squared error of compression as a share of
            that of the noise.
        horizon: rounds of the run, at least 1; rounds beyond it are treated as the last one.
        memory: tau over the horizon, in (0, 1]: how late an error still shows in the end.
        gamma_low: no round asks for less error than this, or than the last round of a run that
            goes as planned, if that is less: a floor above it would break the budget.
        gamma_high: nor for more: learning has to begin too.
        caution: standard deviations of the norm by which a size may be longer than it need be.
        first_rate: compression rate of the first round; as the plan predicts if left out.
        rows: number R of rows of the sketch.

    Raises:
        ValueError: an argument out of range, or gamma or gamma_low above gamma_high.
    """

    horizon: int
    gamma: float = 0.1
    memory: float = 0.05
    gamma_low: float = 0.02
    gamma_high: float = 1.0
    caution: float = 1.0
    first_rate: float | None = None
    rows: int = DEFAULT_ROWS

    def __post_init__(self) -> None:
        check_options(self)
        _checks.real("gamma_high", self.gamma_high, max(self.gamma_low, self.gamma))

    def weight(self, number: int) -> float:
        """Weight w of a round: 1 for the last, less for those before."""
        left = max(self.horizon - 1 - number, 0)
        return (1.0 + left / (self.memory * self.horizon)) ** -2

    def share(self, number: int, spent: float) -> float:
        """Compression gamma of round `number`, if the rounds before it spent so much of the budget.

        Args:
            number: from 0.
            spent: sum of w_s gamma_s over the rounds before.
        """
        whole = self.gamma * math.fsum(map(self.weight, range(self.horizon)))
        due = (whole - spent) / (math.sqrt(self.weight(number)) * self._roots(number))
        return min(max(due, min(self.gamma_low, whole / self._roots(0))), self.gamma_high)

    def _roots(self, number: int) -> float:
        """Sum of sqrt(w) over the rounds from this one on."""
        ahead = range(number, max(self.horizon, number + 1))
        return math.fsum(math.sqrt(self.weight(later)) for later in ahead)

    def initial(self, dimension: int, prior: Prior | None = None) -> Decision:
        """The first shape, at the first rate or as the plan predicts."""
        return first_decision(
            dimension, self.first_rate, self.rows, prior, self.share(0, 0.0), memory=(0.0,)
        )

    def step(self, state: ControllerState, released: ReleasedStats) -> Decision:
        """The next shape from one more release. Memory: the budget spent, then the belief.

        Raises:
            TypeError: `state` or `released` is of another type.
            ValueError: the release is not that of the round `state` decided on.
        """
        check_step(state, released)
        spent, *before = state.memory
        belief, noise = (
            believed_after(NormBelief.of(tuple(before)), released),
            released.noise_variance,
        )
        if released.size < state.dimension:
            here = belief.likely / (noise * released.size)
            # An estimate that is far off must not cost the whole run's budget.
            spent += self.weight(released.round_number) * min(here, self.gamma_high)
        share = self.share(released.round_number + 1, spent)
        move = arrive(belief, noise, share, self.caution, state, self.rows)
        spec = spec_for_size(state.dimension, move.size, self.rows)
        numbers = {"share": share, "spent": spent, **move.numbers}
        return next_decision(released, spec, move.words, numbers, (spent, *belief.memory))
