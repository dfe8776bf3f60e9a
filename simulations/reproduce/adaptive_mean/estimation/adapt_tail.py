"""Adapt Tail: double the sketch until its own error is small.

A round sends two sketches. The first is decoded; the second tells how far the decoded mean is from
the truth. Few large entries are found by a small sketch with a median, so the size follows the tail
of the mean rather than its length. What the paper adds to the threshold for drawing clients from a
population is left out: the mean of just these clients is wanted.

Whether a round is the last depends on that round's own error. So the published result is *not*
exactly unbiased, though Theorem 3 says so: Lemma 8 needs a size that the round's hashes have no
part in. docs/mean-estimation.md has an example that can be worked out by hand. `fresh` asks for one
more round at the size that was found, with all of the budget that is left; its result is unbiased.

Source: arXiv 2307.10999, Algorithm 2, Theorems 3 and 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from simulations.reproduce.adaptive_mean.estimation.base import (
    FAILURE,
    Bar,
    Estimate,
    MeanTask,
    NoisyMeans,
    Released,
)
from simulations.reproduce.adaptive_mean.estimation.bounds import jl_size, median_factor
from sketch import Probe, SketchKind, SketchSpec
from sketch.probed import PROBE_SHARE

THRESHOLD: Final = 1.5  # how many times the expected noise an error may be


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptTailMean:
    """At most ceil(log2 d) rounds."""

    # M, odd. A copy is a single row: all rows are one sketch whose clip bounds the sensitivity,
    # however many there are.
    copies: int = 5
    # P of the first round. With P = 4 k a row leaves an entry alone with probability 3/4; Lemma 2.
    first_columns: int = 4
    # Spend what is left of the budget on one more round at the last size, so that the result is
    # unbiased
    fresh: bool = False
    # None for Theorem 3. A number asks for the variant of Theorem 6: round j keeps the 2^j largest
    # entries only, and is held against `tail` G plus the noise in that many entries. It must be
    # known beforehand how large a tail is acceptable, and the result is biased.
    tail: float | None = None
    gauged = True

    def releases(self, task: MeanTask) -> int:
        """Return the number of sizes there are, and one more with `fresh`."""
        return len(self.specs(task)) + self.fresh

    def specs(self, task: MeanTask) -> list[SketchSpec]:
        """Return the first sketches: columns double until nothing is left to compress."""
        specs: list[SketchSpec] = []
        d = task.dimension
        kind = SketchKind.COUNT_MEAN if self.copies == 1 else SketchKind.COUNT_MEDIAN
        for j in range(_most(task)):
            columns = self.first_columns << j
            if self.copies * columns >= d:
                return [*specs, SketchSpec.identity(d)]
            specs.append(SketchSpec(kind, d, 1, columns, self.copies))
        return specs

    def probe(self, task: MeanTask) -> Probe:
        """Return the second sketch: it keeps the lengths of all clients and of all errors."""
        return Probe(min(jl_size(task.clients * _most(task), FAILURE), task.dimension), PROBE_SHARE)

    def run(self, means: NoisyMeans) -> Estimate:
        """Double until the error is small, or nothing is left to compress."""
        task = means.task
        specs, most = self.specs(task), self.releases(task)
        steps: list[Released] = []
        for j, spec in enumerate(specs):
            if spec.kind is SketchKind.IDENTITY:
                # No question is asked, and another round would find nothing new.
                steps.append(means.mean(spec, 1.0 / most))
                return Estimate(steps[-1].update, steps, means.spent)
            top = None if self.tail is None else min(1 << j, task.dimension)
            probe = self.probe(task)
            variance = means.noise_variance(replace(spec, probe=probe), 1.0 / most)
            bar = Bar(self._height(task, variance, top), FAILURE / len(specs), len(specs))
            released, small = means.trial(spec, probe, 1.0 / most, bar, top)
            steps.append(released)
            if small:
                break
        if self.fresh:
            steps.append(means.mean(spec, 1.0 - len(steps) / most))
        return Estimate(steps[-1].update, steps, means.spent)

    def _height(self, task: MeanTask, variance: float, top: int | None) -> float:
        """Return THRESHOLD sqrt(d) sigma, sigma that of a decoded entry.

        With a tail, sqrt(d) sigma becomes tail G + sqrt(2 k ln(2 d / beta)) sigma: the largest of d
        noisy entries are picked.
        """
        sigma = math.sqrt(variance * median_factor(self.copies))
        if top is None or self.tail is None:
            return THRESHOLD * math.sqrt(task.dimension) * sigma
        picked = math.sqrt(2.0 * top * math.log(2 * task.dimension / FAILURE)) * sigma
        return THRESHOLD * (self.tail * task.clip_l2 + picked)


def _most(task: MeanTask) -> int:
    """Return K = ceil(log2 d), at least 1."""
    return max(1, (task.dimension - 1).bit_length())
