"""Laplace noise by a trusted server, exact, on a grid: for one number, and for AboveThreshold.

A float can not stand for a continuous Laplace variable without leaking through its last bits. The
number is rounded down to the multiples of a grid that has ``steps`` steps to its sensitivity, and
discrete Laplace noise is added. Two numbers at most ``steps`` steps apart stay at most that far
apart when rounded down, and one more step covers what floats lost before: the sensitivity in
integers is ``steps + 1``, and the noise is scaled to that.

AboveThreshold tells how many of a stream of questions are answered "no", at the price of one. The
server asks of number after number whether it is *below* a threshold, and stops at the first that
is. Threshold and numbers carry discrete Laplace noise on one grid. Whatever the number of
questions, the answers are (epsilon, 0)-private (proof in docs/mean-estimation.md).

Source: Mironov 2012 for why floats will not do; Canonne, Kamath, Steinke 2020 (arXiv 2004.00010)
for the discrete law; Dwork, Roth 2014, Algorithm 1 and Theorem 3.23, with "above" turned into
"below"; arXiv 2307.10999, Algorithm 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from dp.checks import require_at_least, require_between_0_and_1, require_positive
from dp.errors import PrivacyError
from dp.events import AboveThresholdRelease, LaplaceRelease
from dp.keystream import NoiseSeed, Usage
from dp.sampling import sample_law
from dp.sampling.laplace import DiscreteLaplaceLaw

MOST_STEPS: Final = 1024  # the extra step then costs one part in a thousand
_WANTED_SCALE: Final = 4096.0
# Integers in grid steps; beyond it a float's own error nears the step that is meant for it
_LARGEST: Final = 1 << 40


def steps_for(epsilon: float, factor: float = 1.0) -> int:
    """Return the finest grid whose noise, of scale factor (steps + 1) / epsilon, has a table."""
    require_positive("epsilon", epsilon)
    steps = math.floor(_WANTED_SCALE * epsilon / factor) - 1
    if steps < 1:
        raise ValueError(
            f"epsilon must be at least {2.0 * factor / _WANTED_SCALE:g}, got {epsilon!r}"
        )
    return min(steps, MOST_STEPS)


def grid_point(value: float, grid: float) -> int:
    """Return the number of whole grid steps in a value."""
    if not abs(value) <= _LARGEST * grid:
        raise ValueError(f"value must be within {_LARGEST * grid:g}, got {value!r}")
    return math.floor(value / grid)


def draw(scale: float, seed: NoiseSeed, index: int) -> int:
    """Draw one discrete Laplace number; a seed gives one number for each index."""
    law = DiscreteLaplaceLaw(scale)
    return int(sample_law(law, seed.derive(Usage.SERVER_NOISE, index), 1)[0])


@dataclass(frozen=True, slots=True)
class LaplaceMechanism:
    """One number plus discrete Laplace noise on a grid: (epsilon, 0)-private."""

    sensitivity: float  # how far the number can move between neighbours, > 0
    epsilon: float  # > 0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for an attribute out of range."""
        require_positive("sensitivity", self.sensitivity)
        steps_for(self.epsilon)

    @property
    def grid(self) -> float:
        """Distance of two possible results."""
        return self.sensitivity / steps_for(self.epsilon)

    @property
    def scale(self) -> float:
        """Of the noise, in the units of the number; a little above sensitivity / epsilon."""
        return self.event.scale * self.grid

    @property
    def event(self) -> LaplaceRelease:
        """What a release has to be accounted as, in grid steps."""
        steps = steps_for(self.epsilon) + 1
        return LaplaceRelease(steps / self.epsilon, steps)

    def release(self, value: float, seed: NoiseSeed) -> float:
        """Add noise to a finite value; the seed is fresh and secret, never used before."""
        return (grid_point(value, self.grid) + draw(self.event.scale, seed, 0)) * self.grid


_QUERY_FACTOR = 4.0
_THRESHOLD_FACTOR = 2.0


class HaltedError(PrivacyError):
    """A stream that has been told "yes" is asked again, which would have to be paid for again."""


class AboveThreshold:
    """One stream of questions, for a single use; `event` is what it costs, however long it gets.

    A number, less its threshold, moves by at most the sensitivity between neighbours; epsilon is
    that of all answers together. The seed is fresh and secret.
    """

    def __init__(self, sensitivity: float, epsilon: float, seed: NoiseSeed | None = None) -> None:
        require_positive("sensitivity", sensitivity)
        steps = steps_for(epsilon, _QUERY_FACTOR)
        self._grid = sensitivity / steps
        self.event = AboveThresholdRelease(
            threshold_scale=_THRESHOLD_FACTOR * (steps + 1) / epsilon,
            query_scale=_QUERY_FACTOR * (steps + 1) / epsilon,
            sensitivity=steps + 1,
        )
        self._seed = NoiseSeed.fresh() if seed is None else seed
        self._threshold = draw(self.event.threshold_scale, self._seed, 0)
        self._asked = 0
        self.halted = False

    def below(self, value: float, threshold: float) -> bool:
        """Say whether a number is below its public threshold, both noisy; "yes" ends the stream."""
        if self.halted:
            raise HaltedError("the stream has been answered: a new one must be paid for")
        self._asked += 1
        noise = draw(self.event.query_scale, self._seed, self._asked)
        self.halted = grid_point(value - threshold, self._grid) + noise <= self._threshold
        return self.halted

    def slack(self, questions: int, failure: float) -> float:
        """Return alpha: numbers below threshold - alpha end the stream, those above + alpha do not.

        8 s (ln questions + ln(2 / failure)) / epsilon, but for the probability ``failure``.

        Source: Dwork, Roth 2014, Theorem 3.24.
        """
        require_at_least("questions", questions, 1)
        require_between_0_and_1("failure", failure)
        scale = self.event.query_scale * self._grid
        return 2.0 * scale * (math.log(questions) + math.log(2.0 / failure))
