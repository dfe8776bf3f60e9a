"""A fixed rate: one round with a sketch whose size was chosen beforehand.

A grid of these, of which the best is picked with hindsight, is the Genie; nobody has that
hindsight.

Source: Chen et al. 2022 (arXiv 2203.03761); arXiv 2307.10999, section 5, for the Genie.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulations.reproduce.adaptive_mean.estimation.base import Estimate, MeanTask, NoisyMeans
from sketch import spec_for_size
from sketch.spec import DEFAULT_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedRateMean:
    """One mean at a compression rate; unbiased."""

    rate: float  # d / L, at least 1; 1 sends vectors as they are
    rows: int = DEFAULT_ROWS  # R of the sketch
    gauged = False

    def releases(self, task: MeanTask) -> int:
        """Return 1: there is one round, whatever the task."""
        return 1

    def run(self, means: NoisyMeans) -> Estimate:
        """Run one round with the whole budget."""
        dimension = means.task.dimension
        spec = spec_for_size(dimension, max(1, int(dimension / self.rate)), self.rows)
        released = means.mean(spec, 1.0)
        return Estimate(released.update, [released], means.spent)
