"""Adapt Norm: measure the length of the mean in one round, size the sketch by it in the next.

    L = max(L_JL, n_bar^2 min(1 / sigma^2, n d / G^2)), at most d,
    n_bar = n_hat + slack + c G sqrt(ln(8 d / beta) / n)

so that compression adds no more than the noise, or than drawing n clients at random does. The size
is drawn from hashes and noise that the second round shares nothing with, so that the result is
unbiased.

Source: arXiv 2307.10999, Algorithm 1 and Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from secagg import ParameterError
from simulations.reproduce.adaptive_mean.estimation.base import (
    Estimate,
    MeanTask,
    NoisyMeans,
    NormReading,
    finished,
    require_probability,
    step,
)
from simulations.reproduce.adaptive_mean.estimation.bounds import jl_size
from sketch import SketchSpec, spec_for_size
from sketch.probed import PROBE_SHARE
from sketch.spec import DEFAULT_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptNormMean:
    """Two rounds; unbiased.

    Args:
        failure: beta, probability that the sizes are not what the theorem promises.
        norm_size: coordinates of the second sketch; None takes L_JL.
        norm_share: of the budget, for the norm; the central form pays with half of epsilon instead.
        sampling_constant: c. The mean of the clients' *population* is off by about G / sqrt(n)
            anyway, and the norm is read generously by as much; 0 if the mean of just these clients
            is wanted.
        rows: R of the first sketch.

    Raises:
        ParameterError: an argument is out of range.
    """

    failure: float = 0.05
    norm_size: int | None = None
    norm_share: float = PROBE_SHARE
    sampling_constant: float = 1.0
    rows: int = DEFAULT_ROWS

    def __post_init__(self) -> None:
        require_probability("failure", self.failure)
        require_probability("norm_share", self.norm_share)
        if self.norm_size is not None and self.norm_size < 1:
            raise ParameterError("norm_size", self.norm_size, "at least 1")
        if not 0.0 <= self.sampling_constant < math.inf:
            raise ParameterError("sampling_constant", self.sampling_constant, "finite, at least 0")

    def releases(self, task: MeanTask) -> int:
        """Two: the norm, then the mean."""
        return 2

    @property
    def gauged(self) -> bool:
        """The norm is measured."""
        return True

    def smallest_size(self, task: MeanTask) -> int:
        """L_JL: no vector's sketch is longer than B = 2 G, but for the probability of failure."""
        return min(jl_size(task.clients, self.failure), task.dimension)

    def run(self, means: NoisyMeans) -> Estimate:
        """The norm, then the mean."""
        means.require_releases(2, self.gauged)
        size = self.norm_size or self.smallest_size(means.task)
        share = means.share_left(self.norm_share)
        # Before anything is paid for: a size that cannot be had is no use afterwards.
        longest = self._longest(means, share)
        reading = means.norm(size, self.norm_share, self.failure)
        read = {"norm": reading.value, "slack": reading.slack}
        first = step(reading, "Only the second sketch, for the length of the mean.", read)
        spec, numbers = self._decide(means, reading, longest)
        released = means.mean(spec, share)
        words = "Large enough that compression adds no more than noise or sampling do."
        return finished(means, released.update, [first, step(released, words, numbers)])

    def _longest(self, means: NoisyMeans, share: float) -> tuple[SketchSpec, float]:
        """The longest sketch that a share of the budget can pay for, and its noise variance.

        The uncompressed vector, as a rule; it may need more coins than there can be.

        Raises:
            ParameterError: not even the shortest can be had.
        """
        d = means.task.dimension
        size = d
        while True:
            spec = spec_for_size(d, size, self.rows)
            try:
                return spec, means.noise_variance(spec, share)
            except ParameterError:
                size //= 2
                if size < self.rows:
                    raise

    def _decide(
        self, means: NoisyMeans, reading: NormReading, longest: tuple[SketchSpec, float]
    ) -> tuple[SketchSpec, dict[str, float]]:
        task = means.task
        d, n, clip = task.dimension, task.clients, task.clip_l2
        sampling = self.sampling_constant * clip * math.sqrt(math.log(8 * d / self.failure) / n)
        bound = reading.value + reading.slack + sampling
        # Shorter sketches have no less noise, so the size errs upward.
        limit, variance = longest
        precision = 1.0 / variance
        if self.sampling_constant:
            precision = min(precision, n * d / clip**2)
        wanted = max(float(self.smallest_size(task)), bound**2 * precision)
        spec = spec_for_size(d, math.ceil(min(wanted, float(limit.size))), self.rows)
        numbers = {
            "norm": reading.value,
            "slack": reading.slack,
            "sampling_slack": sampling,
            "norm_bound": bound,
            "noise_variance": variance,
            "wanted_size": wanted,
            "size": float(spec.size),
        }
        return spec, numbers
