"""Adapt Tail: double the sketch until its own error is small.

A round sends two sketches. The first is decoded; the second tells how far the decoded mean is from
the truth. Few large entries are found by a small sketch with a median, so the size follows the tail
of the mean rather than its length.

Whether a round is the last depends on that round's own error. So the published result is *not*
exactly unbiased, though Theorem 3 says so: Lemma 8 needs a size that the round's hashes have no
part in. docs/mean-estimation.md has an example that can be worked out by hand. `fresh` asks for one
more round at the size that was found, with all of the budget that is left; its result is unbiased.

Source: arXiv 2307.10999, Algorithm 2, Theorems 3 and 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from secagg import ParameterError
from simulations.reproduce.adaptive_mean.estimation.base import (
    Bar,
    Estimate,
    MeanTask,
    NoisyMeans,
    Step,
    Trial,
    finished,
    require_positive,
    require_probability,
    step,
)
from simulations.reproduce.adaptive_mean.estimation.bounds import jl_size, median_factor
from sketch import Probe, SketchKind, SketchSpec
from sketch.probed import PROBE_SHARE

_COLUMNS_PER_ENTRY = 4
"""P = 4 k: a row then leaves an entry alone with probability 3/4; Lemma 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptTailMean:
    """At most ceil(log2 d) rounds.

    Args:
        failure: beta, probability that the errors are not what the theorem promises.
        copies: M, odd; None takes the odd number next to ln(d K / beta).
        rows: R of a copy. All M R rows are one sketch whose clip bounds the sensitivity, whatever
            R is, so a single row will do here.
        first_columns: P of the first round.
        constant: of the threshold: how many times the expected noise an error may be.
        probe_size: coordinates of the second sketch; None takes O(log(n K / beta)).
        probe_share: of a round's budget, for the second sketch; the central form pays with half of
            epsilon instead.
        sampling_constant: as for `AdaptNormMean`.
        fresh: spend what is left of the budget on one more round at the last size, so that the
            result is unbiased.
        tail: None for Theorem 3. A number asks for the variant of Theorem 6: round j keeps the
            2^j largest entries only, and is held against `tail` G plus the noise in that many
            entries. It must be known beforehand how large a tail is acceptable, and the result is
            biased.

    Raises:
        ParameterError: an argument is out of range.
    """

    failure: float = 0.05
    copies: int | None = None
    rows: int = 1
    first_columns: int = _COLUMNS_PER_ENTRY
    constant: float = 1.5
    probe_size: int | None = None
    probe_share: float = PROBE_SHARE
    sampling_constant: float = 1.0
    fresh: bool = False
    tail: float | None = None

    def __post_init__(self) -> None:
        require_probability("failure", self.failure)
        require_probability("probe_share", self.probe_share)
        require_positive("constant", self.constant)
        if self.copies is not None and (self.copies < 1 or self.copies % 2 == 0):
            raise ParameterError("copies", self.copies, "odd and at least 1")
        for name in ("rows", "first_columns"):
            if getattr(self, name) < 1:
                raise ParameterError(name, getattr(self, name), "at least 1")
        if self.probe_size is not None and self.probe_size < 1:
            raise ParameterError("probe_size", self.probe_size, "at least 1")
        if not 0.0 <= self.sampling_constant < math.inf:
            raise ParameterError("sampling_constant", self.sampling_constant, "finite, at least 0")
        if self.tail is not None and not 0.0 <= self.tail < math.inf:
            raise ParameterError("tail", self.tail, "None, or finite and at least 0")
        if self.tail is not None and self.fresh:
            raise ParameterError("fresh", True, "False with a tail: that variant is biased anyway")

    def releases(self, task: MeanTask) -> int:
        """The sizes there are, and one more with `fresh`."""
        return len(self.specs(task)) + self.fresh

    @property
    def gauged(self) -> bool:
        """Errors are measured."""
        return True

    def median_copies(self, task: MeanTask) -> int:
        """M, the number of sketches whose median is taken."""
        if self.copies is not None:
            return self.copies
        return 2 * (math.ceil(math.log(task.dimension * _most(task) / self.failure)) // 2) + 1

    def specs(self, task: MeanTask) -> list[SketchSpec]:
        """The first sketches of all rounds: columns double until nothing is left to compress."""
        specs: list[SketchSpec] = []
        for j in range(_most(task)):
            specs.append(self._spec(task, self.first_columns << j))
            if specs[-1].kind is SketchKind.IDENTITY:
                break
        return specs

    def probe(self, task: MeanTask) -> Probe:
        """The second sketch: it keeps the lengths of all clients and of all errors."""
        size = self.probe_size or jl_size(task.clients * _most(task), self.failure)
        return Probe(min(size, task.dimension), self.probe_share)

    def run(self, means: NoisyMeans) -> Estimate:
        """Double until the error is small, or nothing is left to compress."""
        task = means.task
        specs, most = self.specs(task), self.releases(task)
        means.require_releases(most, self.gauged)
        steps: list[Step] = []
        for j, spec in enumerate(specs):
            if spec.kind is SketchKind.IDENTITY:
                released = means.mean(spec, 1.0 / most)
                words = "Nothing is left to compress: no question is asked."
                steps.append(step(released, words, {"size": float(spec.size)}))
                return finished(means, released.update, steps)
            trial, done = self._try(means, j, spec, most)
            steps.append(done)
            if trial.small:
                break
        update = trial.released.update
        if self.fresh:
            share = 1.0 - len(steps) / most
            released = means.mean(spec, share)
            words = "The size that was found, with new hashes and all of the budget that is left."
            steps.append(step(released, words, {"share": share, "size": float(spec.size)}))
            update = released.update
        return finished(means, update, steps)

    def _try(self, means: NoisyMeans, j: int, spec: SketchSpec, most: int) -> tuple[Trial, Step]:
        top = None if self.tail is None else min(1 << j, spec.dimension)
        share, probe = 1.0 / most, self.probe(means.task)
        variance = means.noise_variance(replace(spec, probe=probe), share)
        height = self._height(means.task, spec, variance, top)
        questions = len(self.specs(means.task))
        bar = Bar(height, self.failure / questions, questions)
        trial = means.trial(spec, probe, share, bar, top)
        words = "The error is small enough." if trial.small else "The error is too large: doubled."
        numbers = {"threshold": height, "slack": trial.slack, "size": float(spec.size)}
        if trial.error is not None:
            numbers["error"] = trial.error
        if top is not None:
            numbers["top"] = float(top)
        return trial, step(trial.released, words, numbers)

    def _height(self, task: MeanTask, spec: SketchSpec, variance: float, top: int | None) -> float:
        """Constant (sqrt(d) sigma + c G sqrt(ln(8 d / beta) / n)), sigma that of a decoded entry.

        With a tail, sqrt(d) sigma becomes tail G + sqrt(2 k ln(2 d / beta)) sigma: the largest of d
        noisy entries are picked.
        """
        sigma = math.sqrt(variance * median_factor(spec.copies))
        log = math.log(8 * task.dimension / self.failure)
        sampling = self.sampling_constant * task.clip_l2 * math.sqrt(log / task.clients)
        if top is None or self.tail is None:
            return self.constant * (math.sqrt(task.dimension) * sigma + sampling)
        picked = math.sqrt(2.0 * top * math.log(2 * task.dimension / self.failure)) * sigma
        return self.constant * (self.tail * task.clip_l2 + picked + sampling)

    def _spec(self, task: MeanTask, columns: int) -> SketchSpec:
        copies, d = self.median_copies(task), task.dimension
        if copies * self.rows * columns >= d:
            return SketchSpec.identity(d)
        kind = SketchKind.COUNT_MEAN if copies == 1 else SketchKind.COUNT_MEDIAN
        return SketchSpec(kind, d, self.rows, columns, copies)


def _most(task: MeanTask) -> int:
    """K = ceil(log2 d), at least 1."""
    return max(1, (task.dimension - 1).bit_length())
