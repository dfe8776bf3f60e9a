"""The doubling trick: one size after the other, until two results agree.

The trick needs a rule to stop, and the paper notes that there is no good one without knowing the
utility of the uncompressed method. Here two successive results are compared. Noise and hashes of
both are independent, so |U_j - U_(j-1)|^2 has the mean (d - 1)|mu|^2 (1/L_j + 1/L_(j-1)) plus the
noise d (s_j + s_(j-1)), which is known. The rule uses released values only and costs no budget.

Source: arXiv 2307.10999, section 1, "Doubling-trick"; the rule is this project's.
"""

from __future__ import annotations

from dataclasses import dataclass

from secagg import ParameterError
from simulations.reproduce.adaptive_mean.estimation.base import (
    Estimate,
    Floats,
    MeanTask,
    NoisyMeans,
    Released,
    Step,
    finished,
    require_positive,
    step,
)
from sketch import SketchSpec, spec_for_size
from sketch.spec import DEFAULT_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubling:
    """Double the sketch until compression seems to add at most `gamma` of the noise.

    Args:
        first_size: L of the first round, at least 1; None takes a few rows' length.
        gamma: squared error of compression that is good enough, as a share of that of the noise.
        rows: R of the sketches.

    Raises:
        ParameterError: an argument is out of range.
    """

    first_size: int | None = None
    gamma: float = 1.0
    rows: int = DEFAULT_ROWS

    def __post_init__(self) -> None:
        require_positive("gamma", self.gamma)
        if self.first_size is not None and self.first_size < 1:
            raise ParameterError("first_size", self.first_size, "at least 1")

    def releases(self, task: MeanTask) -> int:
        """From the first size to no compression."""
        return len(self._specs(task))

    @property
    def gauged(self) -> bool:
        """Nothing is measured but what was released."""
        return False

    def run(self, means: NoisyMeans) -> Estimate:
        """Rounds of equal shares; the last one's mean."""
        specs = self._specs(means.task)
        means.require_releases(len(specs), self.gauged)
        steps: list[Step] = []
        before: Released | None = None
        for spec in specs:
            released = means.mean(spec, 1.0 / len(specs))
            words, numbers = "The first size; nothing to compare with.", {}
            agree = False
            if before is not None:
                gap = _squared_distance(released.update, before.update)
                noise = released.update.size * (released.noise_variance + before.noise_variance)
                agree = gap <= (1.0 + self.gamma) * noise
                words = "Agrees with the last." if agree else "Differs from the last: doubled."
                numbers = {"gap_squared": gap, "noise_squared": noise}
            steps.append(step(released, words, {**numbers, "size": float(spec.size)}))
            before = released
            if agree:
                break
        return finished(means, released.update, steps)

    def _specs(self, task: MeanTask) -> list[SketchSpec]:
        size = 2 * self.rows if self.first_size is None else self.first_size
        specs = [spec_for_size(task.dimension, size, self.rows)]
        while specs[-1].size < task.dimension:
            size *= 2
            longer = spec_for_size(task.dimension, size, self.rows)
            # Sizes below that of one bucket a row all give the same sketch.
            if longer != specs[-1]:
                specs.append(longer)
        return specs


def _squared_distance(first: Floats, second: Floats) -> float:
    gap = first - second
    return float(gap @ gap)
