"""Adapt Progress: compress as far as it costs a stated share of the progress of training.

Adapt Norm compares the error of compression with that of the noise, and so asks for long sketches
wherever noise is small, even if neither hurts. What hurts is the curvature c = eta tr(H) that a
step meets along random directions. It shows in released values: a step along g_t = U(nu_t) turns
the next mean update against g_t,

    D_t = |mu_t|^2 - <g_(t+1), g_t>,    E D_t = eta mu_t^T H mu_t + c s_t^2,
    s_t^2 = sigma^2 + |mu_t|^2 / L_t,   the error per coordinate of g_t.

A round's loss falls by eta (|mu|^2 - D_t / 2). Of that, compression costs eta c |mu|^2 / (2 L):
the share c / (2 L) of the gain eta |mu|^2, whatever the noise and the gradient are. So

    L_next = c / (2 kappa),    c at most sum of D_t / sum of s_t^2 over a window

costs at most the share kappa. The ratio overestimates c, by the curvature along mu and by that part
of |mu|^2 which is the sampling error of a cohort: too careful, not too bold. As c is a slow
property of the problem, windows may be long and sizes may differ in them.

Source: this project; derivation, limits and measurements in docs/sketching.md.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import astuple, dataclass

from sketch import _checks
from sketch.controllers.base import ControllerState, ReleasedStats
from sketch.controllers.norm_belief import NormBelief, believed_measured, norm_estimate
from sketch.controllers.options import check_options
from sketch.controllers.rule import Following, Rule
from sketch.controllers.sizing import whole_rows
from sketch.error import size_for_error_ratio
from sketch.spec import DEFAULT_ROWS


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is remembered of a release."""

    norm_squared: float
    spread: float
    size: float
    update_norm_squared: float
    inner: float

    @property
    def noise_variance(self) -> float:
        """sigma^2, by s^2 = sigma^2 + |mu|^2 / L, which held for the estimate."""
        return max(self.spread - self.norm_squared / self.size, 0.0)

    @property
    def norm_variance(self) -> float:
        """Variance of the norm estimate: `norm_estimate_variance` without |mu|_4 is 2 L s^4."""
        return 2.0 * self.size * self.spread * self.spread

    @classmethod
    def of(cls, released: ReleasedStats) -> _Kept:
        spread = released.sketch_norm_squared / released.size
        inner = 0.0 if released.previous_inner is None else released.previous_inner
        size, update = float(released.size), released.update_norm_squared
        return cls(norm_estimate(released), spread, size, update, inner)


_FIGURES = 5


@dataclass(frozen=True, slots=True)
class _Curvature:
    """c from a window of rounds.

    Args:
        std: its standard deviation.
    """

    value: float
    std: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptProgress(Rule):
    """L_next = upper bound of c / (2 kappa), between two sizes of Adapt Norm.

    Its memory is, of each of the last `window` + 1 releases, the norm estimate, |nu|^2 / L, L,
    |g|^2 and the inner product with the release before.

    Args:
        kappa: share of the progress of a round without errors that compression may cost.
        gamma_low: the sketch is never longer than that of Adapt Norm at this gamma; the rule also
            where nothing was measured yet.
        gamma_high: never shorter than at this one, however flat the problem seems. It bounds the
            harm where the derivation does not hold: total error at most 1 + gamma_high times that
            of the noise. Not below gamma_low.
        window: number of pairs of rounds that c is taken from, at least 1.
        caution: standard deviations added to c before it is used.
        momentum: beta of the server's momentum, which multiplies the way that an error goes by
            1 / (1 - beta), of which a pair of rounds sees the first step only.
    """

    kappa: float = 0.1
    gamma_low: float = 0.1
    gamma_high: float = 2.0
    window: int = 30
    caution: float = 2.0
    momentum: float = 0.0
    first_rate: float | None = None
    rows: int = DEFAULT_ROWS

    def __post_init__(self) -> None:
        check_options(self)
        _checks.real("gamma_high", self.gamma_high, self.gamma_low)

    def _first_gamma(self) -> float:
        return self.gamma_low

    def _following(self, state: ControllerState, released: ReleasedStats) -> Following:
        kept = (*_unpack(state.memory), _Kept.of(released))[-self.window - 1 :]
        belief, noise = _belief(kept), float(released.noise_variance)
        longest = size_for_error_ratio(belief.upper(self.caution), noise, self.gamma_low)
        shortest = size_for_error_ratio(belief.likely, noise, self.gamma_high)
        numbers = {
            **belief.numbers(),
            "noise_variance": noise,
            "longest": longest,
            "shortest": shortest,
        }
        wanted = longest
        if len(kept) > 1:
            curvature = _curvature(kept)
            upper = max(curvature.value + self.caution * curvature.std, 0.0)
            wanted = upper / (2.0 * self.kappa * (1.0 - self.momentum))
            numbers |= {"curvature": curvature.value, "curvature_std": curvature.std}
        bounded = min(max(wanted, shortest), longest)
        size = whole_rows(bounded, self.rows, state.dimension)
        numbers["wanted_size"] = wanted
        memory = tuple(figure for one in kept for figure in astuple(one))
        words = "Nothing measured yet: the norm decides."
        if len(kept) > 1:
            words = _words(wanted, shortest, longest, bounded, size)
        return Following(size, words, numbers, memory)


def _unpack(memory: tuple[float, ...]) -> tuple[_Kept, ...]:
    starts = range(0, len(memory), _FIGURES)
    return tuple(_Kept(*memory[start : start + _FIGURES]) for start in starts)


def _belief(kept: tuple[_Kept, ...]) -> NormBelief:
    """What is believed of |mu|^2 after these releases."""
    first, *later = kept
    belief = believed_measured(None, first.norm_squared, int(first.size), first.noise_variance)
    for one in later:
        belief = believed_measured(belief, one.norm_squared, int(one.size), one.noise_variance)
    return belief


def _curvature(kept: tuple[_Kept, ...]) -> _Curvature:
    """Estimate c, and its standard deviation, from releases that follow one another.

    Given g_t, the inner product <g_(t+1), g_t> has the variance s_(t+1)^2 |g_t|^2, and the norm
    estimate of round t has 2 L_t s_t^4; different rounds are uncorrelated.
    """
    pairs = list(itertools.pairwise(kept))
    cost = math.fsum(first.norm_squared - second.inner for first, second in pairs)
    variance = math.fsum(
        second.spread * first.update_norm_squared + first.norm_variance for first, second in pairs
    )
    spread = math.fsum(first.spread for first, _ in pairs)
    if spread == 0.0:
        return _Curvature(0.0, 0.0)
    return _Curvature(cost / spread, math.sqrt(variance) / spread)


def _words(wanted: float, shortest: float, longest: float, bounded: float, size: int) -> str:
    if wanted > longest:
        words = "Errors cost much, or too little is known: as long as Adapt Norm at gamma_low"
    elif wanted < shortest:
        words = "Compression seems to cost nothing: as short as Adapt Norm at gamma_high"
    else:
        words = "The curvature met by errors asks for this size"
    held = "" if size - 1 <= bounded <= size else ", within the clamps"
    return f"{words}{held}."
