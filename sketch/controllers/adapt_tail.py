"""Adapt Tail for federated learning: the size follows the error that a second sketch sees.

    e^2 = max(|S2 U(nu) - nu2|^2 - L2 sigma2^2, 0),   an estimate of |U(nu) - mu|^2
    target^2 = (1 + gamma) d sigma^2
    L_next = L f(e - target)

Kept for reproduction: its authors found that it compresses far too much and hurts the model, and
that the error of a mean is no good proxy for training.

The paper lets a constant determine "the fraction of error relative to DP error" that is tolerated.
Our reading: e contains the error d sigma^2 of the noise itself, so the target is that plus the
share gamma, on squared errors, as for Adapt Norm; e and target are then compared as norms, as in
Algorithm 2. In this reading the size comes to rest near Adapt Norm's (docs/sketching.md).

Source: arXiv 2307.10999, Algorithm 5 and Appendix H, whose formulas of the updates are rebuilt from
prose.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from sketch.controllers.base import ControllerState, ReleasedStats
from sketch.controllers.rule import Following, Rule
from sketch.controllers.sizing import clamp_size, probe_of
from sketch.probed import PROBE_SHARE, Probe
from sketch.spec import DEFAULT_ROWS

_MOST_EXPONENT = 700.0
"""exp of more is no float; the step clamp makes any such factor the same."""


class TailUpdate(enum.Enum):
    """How the size answers to x = e - target; eta is the learning rate.

    SIGN: 1 + eta sign(x). POWER: 2^(eta sign(x)), which doubles and halves at eta = 1.
    EXPONENTIAL: exp(eta x). LINEAR: 1 + eta x.
    """

    SIGN = "sign"
    POWER = "power"
    EXPONENTIAL = "exponential"
    LINEAR = "linear"

    def factor(self, gap: float, eta: float) -> float:
        """The factor on the size, never below 0."""
        sign = math.copysign(1.0, gap) if gap else 0.0
        if self is TailUpdate.SIGN:
            return max(1.0 + eta * sign, 0.0)
        if self is TailUpdate.POWER:
            return math.exp(_bounded(math.log(2.0) * eta * sign))
        if self is TailUpdate.EXPONENTIAL:
            return math.exp(_bounded(eta * gap))
        return max(1.0 + eta * gap, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptTail(Rule):
    """Grows the sketch while the seen error is above its target, shrinks it while below.

    It has no memory but the size.

    Args:
        eta: learning rate of the size.
        update: how the size answers to the error; see `TailUpdate`.
        relative: let x be (e - target) / target, which has no unit; e - target has that of an
            update. Changes nothing for the two updates by sign.
        probe_size: size L2 of the second sketch, 64 .. 2048.

    Source: arXiv 2307.10999, Algorithm 5.
    """

    gamma: float = 0.1
    eta: float = 0.2
    update: TailUpdate = TailUpdate.SIGN
    relative: bool = False
    step_factor: float = 2.0
    first_rate: float | None = None
    probe_size: int = 2048
    probe_share: float = PROBE_SHARE
    rows: int = DEFAULT_ROWS

    def _first_probe(self, dimension: int) -> Probe:
        return Probe(min(self.probe_size, dimension), self.probe_share)

    def _following(self, state: ControllerState, released: ReleasedStats) -> Following:
        seen = probe_of(released)
        estimate = seen.error_squared - seen.size * seen.noise_variance
        error = math.sqrt(max(estimate, 0.0))
        target = math.sqrt((1.0 + self.gamma) * released.dimension * released.noise_variance)
        gap = (error - target) / (target if self.relative else 1.0)
        factor = self.update.factor(gap, self.eta)
        wanted = state.size * min(factor, self.step_factor)
        size = clamp_size(wanted, state, self.rows, self.step_factor)
        if factor > 1.0:
            # Sketches have whole rows: a step up that is shorter than one would be cut off again.
            size = max(size, min(state.size + self.rows, state.dimension))
        numbers = {
            "error_squared": estimate,
            # The second sketch keeps a squared norm within sqrt(2 / L2), beside its noise.
            "error_squared_std": math.sqrt(2.0 / seen.size) * seen.error_squared,
            "target_squared": target**2,
            "factor": min(factor, self.step_factor),
        }
        side = "above" if gap > 0.0 else "at or below"
        words, probe = f"The seen error is {side} its target.", self._first_probe(state.dimension)
        return Following(size, words, numbers, probe=probe)


def _bounded(exponent: float) -> float:
    return min(max(exponent, -_MOST_EXPONENT), _MOST_EXPONENT)
