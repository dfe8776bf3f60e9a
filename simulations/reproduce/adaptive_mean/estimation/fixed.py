"""Sizes that do not follow the mean: a fixed rate, and the doubling trick.

A grid of fixed rates, of which the best is picked with hindsight, is the Genie; nobody has that
hindsight. The doubling trick takes one size after the other, until two results agree. It needs a
rule to stop, and the paper notes that there is no good one without knowing the utility of the
uncompressed method. Here two successive results are compared. Noise and hashes of both are
independent, so |U_j - U_(j-1)|^2 has the mean (d - 1)|mu|^2 (1/L_j + 1/L_(j-1)) plus the noise
d (s_j + s_(j-1)), which is known. The sketch is doubled until compression seems to add no more than
the noise. The rule uses released values only and costs no budget.

Source: Chen et al. 2022 (arXiv 2203.03761); arXiv 2307.10999, section 5, for the Genie, section 1
for the doubling trick; the rule is this project's.
"""

from __future__ import annotations

from dataclasses import dataclass

from simulations.reproduce.adaptive_mean.estimation.base import (
    Estimate,
    MeanTask,
    NoisyMeans,
    Released,
)
from sketch import SketchSpec, spec_for_size
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubling:
    """Double the sketch, which starts with two columns, until two results agree."""

    rows: int = DEFAULT_ROWS  # R of the sketches
    gauged = False

    def releases(self, task: MeanTask) -> int:
        """Return the number of sizes, up to no compression."""
        return len(self.specs(task))

    def run(self, means: NoisyMeans) -> Estimate:
        """Run rounds of equal shares; return the last one's mean."""
        specs = self.specs(means.task)
        steps: list[Released] = []
        for spec in specs:
            steps.append(means.mean(spec, 1.0 / len(specs)))
            if len(steps) > 1 and _agree(*steps[-2:]):
                break
        return Estimate(steps[-1].update, steps, means.spent)

    def specs(self, task: MeanTask) -> list[SketchSpec]:
        """Return the sketches of all rounds."""
        size = 2 * self.rows
        specs = [spec_for_size(task.dimension, size, self.rows)]
        while specs[-1].size < task.dimension:
            size *= 2
            specs.append(spec_for_size(task.dimension, size, self.rows))
        return specs


def _agree(before: Released, now: Released) -> bool:
    """Say whether two means are no further apart than twice what their noise explains."""
    gap = now.update - before.update
    noise = gap.size * (now.noise_variance + before.noise_variance)
    return float(gap @ gap) <= 2.0 * noise
