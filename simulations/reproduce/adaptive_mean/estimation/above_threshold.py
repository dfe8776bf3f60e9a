"""AboveThreshold: how many of a stream of questions are answered "no", at the price of one.

A trusted server asks of number after number whether it is *below* a threshold, and stops at the
first that is. Threshold and numbers carry discrete Laplace noise on one grid. Whatever the number
of questions, the answers are (epsilon, 0)-private (proof in docs/mean-estimation.md).

Source: Dwork, Roth 2014, Algorithm 1 and Theorem 3.23, with "above" turned into "below"; arXiv
2307.10999, Algorithm 2. The textbook's continuous noise is replaced by an exact discrete one.
"""

from __future__ import annotations

import math

from dp.checks import require_between_0_and_1, require_positive
from dp.errors import PrivacyError
from dp.events import AboveThresholdRelease
from dp.keystream import NoiseSeed
from simulations.reproduce.adaptive_mean.estimation.laplace import draw, grid_point, steps_for

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
        if questions < 1:
            raise ValueError(f"questions must be at least 1, got {questions}")
        require_between_0_and_1("failure", failure)
        scale = self.event.query_scale * self._grid
        return 2.0 * scale * (math.log(questions) + math.log(2.0 / failure))
