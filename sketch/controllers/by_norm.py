"""Sizes that follow the norm of the released mean.

By Lemma 6 compression adds (d - 1) |mu|^2 / L to the squared error and noise adds d sigma^2.
The smallest size that keeps the first within gamma of the second is L = |mu|^2 / (gamma sigma^2).
Nobody knows |mu|^2. In Mode B the released sketch nu = S mu + xi tells: |nu|^2 - L sigma^2 has that
mean. It is post-processing of a value released anyway: no second sketch and no budget. In Mode A a
second, small sketch in the same sum measures it.

The estimate is stale by one round, and sigma is taken to stay what it was: calibration fixes the
noise of the mean, whatever the size. It moves a little with the number of survivors, and with a
clip that adapts (docs/sketching.md, "Known limits").

The published rules go to the estimate itself. Estimates are noisy, but their variance is known. So
all of them make up one belief (`norm_belief`), and the size moves as far in one round as that is
sure (`sizing.Arrival`), from where the plan's clip and noise put it. `Published` and `TwoStage` are
the rules without all this.

What options mean that a class does not explain is said in `sketch.controllers.options`.

Source: arXiv 2307.10999, Algorithms 3 and 4, with gamma = 0.1, 15 rows and budgets of 0.9 : 0.1 as
in its section 5 and its tables; Mode B and the variance of its estimate are in docs/sketching.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from sketch import _checks
from sketch.controllers.base import ControllerState, ReleasedStats
from sketch.controllers.norm_belief import (
    NormBelief,
    believed_after,
    believed_measured,
    norm_estimate,
)
from sketch.controllers.options import LARGEST_PROBE, SMALLEST_PROBE, check_options
from sketch.controllers.rule import Following, Rule
from sketch.controllers.sizing import arrive, average, clamp_size, clamp_words, probe_of
from sketch.error import norm_estimate_variance, size_for_error_ratio
from sketch.probed import PROBE_SHARE, Probe
from sketch.spec import DEFAULT_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptNorm(Rule):
    """L_next is the size nearest to L within |mu|^2 / (gamma sigma^2), for |mu|^2 in an interval.

    Its memory is the belief.

    Source: arXiv 2307.10999, Algorithm 3.
    """

    gamma: float = 0.1
    caution: float = 1.0
    first_rate: float | None = None
    rows: int = DEFAULT_ROWS

    def _following(self, state: ControllerState, released: ReleasedStats) -> Following:
        belief = believed_after(NormBelief.of(state.memory), released)
        noise = released.noise_variance
        move = arrive(belief, noise, self.gamma, self.caution, state, self.rows)
        numbers = {"estimate": norm_estimate(released), **move.numbers}
        return Following(move.size, move.words, numbers, belief.memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptBudget(Rule):
    """L_next = |mu|^2 / (gamma_t sigma^2), with gamma_t from what is left of the run's budget.

    `AdaptNorm` holds the error of compression at gamma times that of the noise in every round. But
    the error of an early round has mostly been trained away by the end, and that of the last one
    stays. Let w_t be the weight with which an error of round t shows in the final model, and
    a_t = |mu_t|^2 / sigma_t^2, so that a sketch of size L_t has the error share
    gamma_t = a_t / L_t. Of all sizes with

        sum of w_t gamma_t <= gamma * sum of w_t,

    the total size is least for gamma_t proportional to 1 / sqrt(w_t), where a_t is steady. Each
    round takes its part of what is left of the budget, so estimates that were off are made up for
    later:

        gamma_t = (what is left) / (sqrt(w_t) * sum of sqrt(w_s) over the rounds s >= t)

    An error along an eigenvector of curvature h fades by (1 - eta h)^2 a round; over the wide
    spectra of real models that makes w fall as a power of the time left: w = (1 + left / tau)^-2.
    Its memory is the budget spent, then the belief.

    Args:
        gamma: mean over the run, weighted by w, of the squared error of compression as a share of
            that of the noise.
        horizon: rounds of the run, at least 1; rounds beyond it are treated as the last one.
        memory: tau over the horizon, in (0, 1]: how late an error still shows in the end.
        gamma_low: no round asks for less error than this, or than the last round of a run that
            goes as planned, if that is less: a floor above it would break the budget.
        gamma_high: nor for more: learning has to begin too. Not below gamma or gamma_low.

    Source: this project; proof, limits and measurements in docs/sketching.md.
    """

    _first_memory: ClassVar[tuple[float, ...]] = (0.0,)

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

    def _first_gamma(self) -> float:
        return self.share(0, 0.0)

    def _following(self, state: ControllerState, released: ReleasedStats) -> Following:
        spent, *before = state.memory
        noise = released.noise_variance
        belief = believed_after(NormBelief.of(tuple(before)), released)
        if released.size < state.dimension:
            here = belief.likely / (noise * released.size)
            # An estimate that is far off must not cost the whole run's budget.
            spent += self.weight(released.round_number) * min(here, self.gamma_high)
        share = self.share(released.round_number + 1, spent)
        move = arrive(belief, noise, share, self.caution, state, self.rows)
        numbers = {"share": share, "spent": spent, **move.numbers}
        return Following(move.size, move.words, numbers, (spent, *belief.memory))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptNormTwoSketches(Rule):
    """Adapt Norm in Mode A, with a second sketch whose size suits the precision of its estimate.

        n_hat^2 = |nu2|^2 - L2 sigma2^2,   L_next = n_hat^2 / (gamma sigma^2)

    The paper's server sees the second sketch without noise; here both carry noise and share one
    budget (`sketch.probed`). The variance of the estimate, 2 |mu|^4 / L2 + 4 sigma2^2 |mu|^2 +
    2 L2 sigma2^4, is least at L2 = |mu|^2 / sigma2^2, where it is 8 |mu|^4 / L2. Its memory is the
    belief.

    Args:
        probe_size: size L2 of the second sketch in the first round, 64 .. 2048.

    Source: arXiv 2307.10999, Algorithm 3.
    """

    gamma: float = 0.1
    caution: float = 1.0
    first_rate: float | None = None
    probe_size: int = 1024
    probe_share: float = PROBE_SHARE
    rows: int = DEFAULT_ROWS

    def _first_probe(self, dimension: int) -> Probe:
        return Probe(min(self.probe_size, dimension), self.probe_share)

    def _following(self, state: ControllerState, released: ReleasedStats) -> Following:
        seen = probe_of(released)
        estimate = seen.norm_squared - seen.size * seen.noise_variance
        before = NormBelief.of(state.memory)
        belief = believed_measured(before, estimate, seen.size, seen.noise_variance)
        noise = released.noise_variance
        move = arrive(belief, noise, self.gamma, self.caution, state, self.rows)
        best = best_probe_size(belief.likely, seen.noise_variance)
        probe = Probe(min(best, state.dimension), self.probe_share)
        numbers = {
            "estimate": estimate,
            "probe_noise_variance": float(seen.noise_variance),
            **move.numbers,
        }
        return Following(move.size, move.words, numbers, belief.memory, probe)


def best_probe_size(norm_squared: float, noise_variance: float) -> int:
    """The size L2 of least variance, |mu|^2 / sigma2^2, within 64 .. 2048.

    Args:
        noise_variance: sigma2^2 per coordinate of the second sketch, above 0.
    """
    best = size_for_error_ratio(norm_squared, noise_variance, 1.0)
    return round(min(max(best, SMALLEST_PROBE), LARGEST_PROBE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Published(Rule):
    """L_next = clamp(mean of the last norm estimates / (gamma sigma^2), by step, rows and d).

    The rule of version 0.1.0 of this project, kept for comparison: the published algorithm, with a
    window and a limit of its own. window = 1 and a large step_factor are its rule to the letter.
    `AdaptNorm` is the one to use. Its memory is the last norm estimates.

    Args:
        window: number of rounds whose norm estimates are averaged, at least 1.
        first_rate: compression rate of the first round, whatever a plan says; 1 sends it
            uncompressed.

    Source: arXiv 2307.10999, Algorithm 3.
    """

    gamma: float = 0.1
    window: int = 3
    step_factor: float = 2.0
    first_rate: float = 1.0
    rows: int = DEFAULT_ROWS

    def _following(self, state: ControllerState, released: ReleasedStats) -> Following:
        estimate = norm_estimate(released)
        memory = (*state.memory, estimate)[-self.window :]
        norm_squared, noise = average(memory), released.noise_variance
        wanted = size_for_error_ratio(norm_squared, noise, self.gamma)
        size = clamp_size(wanted, state, self.rows, self.step_factor)
        variance = norm_estimate_variance(released.size, norm_squared, 0.0, noise)
        numbers = {
            "estimate": estimate,
            "estimate_std": math.sqrt(variance),
            "norm_squared": norm_squared,
            "noise_variance": float(noise),
            "wanted_size": wanted,
        }
        words = clamp_words("The estimated norm", wanted, size)
        return Following(size, words, numbers, memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoStage(Rule):
    """One size for `warmup` rounds, then L = mean of their norm estimates / (gamma sigma^2).

    The warm-up measures in Mode B, as `AdaptNorm` does. In the paper it is not compressed, which is
    dear: with W warm-up rounds of T, the harmonic average rate stays below T / W whatever comes
    after. A sketch of the size that the plan predicts measures the norm as well
    (docs/sketching.md); for the rule of the paper set first_rate to 1. Its memory is the norm
    estimates of the warm-up.

    Args:
        warmup: number W of finished rounds that measure the norm, at least 1.
        first_rate: compression rate of the warm-up; as the plan predicts if left out.

    Source: arXiv 2307.10999, Algorithm 4.
    """

    warmup: int = 10
    gamma: float = 0.1
    first_rate: float | None = None
    rows: int = DEFAULT_ROWS

    def _following(self, state: ControllerState, released: ReleasedStats) -> Following:
        size, memory, numbers = state.size, state.memory, {}
        words = "The size is fixed."
        if len(memory) < self.warmup:
            memory, words = (*memory, norm_estimate(released)), "Warm-up: the size stays."
            if len(memory) == self.warmup:
                norm_squared, noise = average(memory), released.noise_variance
                wanted = size_for_error_ratio(norm_squared, noise, self.gamma)
                size = clamp_size(wanted, state, self.rows, float(state.dimension))
                words = "The norm over the warm-up fixes the size."
                numbers = {
                    "norm_squared": norm_squared,
                    "noise_variance": float(noise),
                    "wanted_size": wanted,
                }
        numbers["warmup_rounds"] = float(len(memory))
        return Following(size, words, numbers, memory)
