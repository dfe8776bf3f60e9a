"""A fixed rate: one round with a sketch whose size was chosen beforehand.

A grid of these, of which the best is picked with hindsight, is the Genie; nobody has that
hindsight.

Source: Chen et al. 2022 (arXiv 2203.03761); arXiv 2307.10999, section 5, for the Genie.
"""

from __future__ import annotations

from dataclasses import dataclass

from secagg import ParameterError
from simulations.reproduce.adaptive_mean.estimation.base import (
    Estimate,
    MeanTask,
    NoisyMeans,
    finished,
    step,
)
from sketch import spec_for_size
from sketch.spec import DEFAULT_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedRateMean:
    """One mean at a compression rate; unbiased.

    Args:
        rate: d / L, at least 1; 1 sends vectors as they are.
        rows: R of the sketch.

    Raises:
        ParameterError: the rate is below 1 or not finite.
    """

    rate: float
    rows: int = DEFAULT_ROWS

    def __post_init__(self) -> None:
        if not 1.0 <= self.rate < float("inf"):
            raise ParameterError("rate", self.rate, "finite and at least 1")

    def releases(self, task: MeanTask) -> int:
        """A single round."""
        return 1

    @property
    def gauged(self) -> bool:
        """Nothing is measured."""
        return False

    def run(self, means: NoisyMeans) -> Estimate:
        """One round with the whole budget."""
        means.require_releases(1, self.gauged)
        dimension = means.task.dimension
        spec = spec_for_size(dimension, max(1, int(dimension / self.rate)), self.rows)
        released = means.mean(spec, 1.0)
        numbers = {"rate": self.rate, "size": float(spec.size)}
        return finished(means, released.update, [step(released, "A fixed rate.", numbers)])
