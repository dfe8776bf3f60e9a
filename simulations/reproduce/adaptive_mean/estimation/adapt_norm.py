"""Adapt Norm: measure the length of the mean in one round, size the sketch by it in the next.

    L = max(L_JL, n_bar^2 / sigma^2), at most d,    n_bar = n_hat + slack

so that compression adds no more than the noise. The size is drawn from hashes and noise that the
second round shares nothing with, so that the result is unbiased.

The paper wants the mean of the population that n clients are drawn from. It adds what drawing them
adds to n_bar, and asks for no more precision than that allows. Here the mean of just these clients
is wanted, and both are left out.

Source: arXiv 2307.10999, Algorithm 1 and Theorem 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simulations.reproduce.adaptive_mean.estimation.base import (
    FAILURE,
    Estimate,
    MeanTask,
    NoisyMeans,
)
from simulations.reproduce.adaptive_mean.estimation.bounds import jl_size
from sketch import SketchSpec, spec_for_size
from sketch.probed import PROBE_SHARE
from sketch.spec import DEFAULT_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptNormMean:
    """Two rounds; unbiased. The norm takes a tenth of the budget, or half of a central epsilon."""

    rows: int = DEFAULT_ROWS  # R of the first sketch
    gauged = True

    def releases(self, task: MeanTask) -> int:
        """Return 2: the norm, then the mean."""
        return 2

    def run(self, means: NoisyMeans) -> Estimate:
        """Measure the norm, then the mean."""
        d = means.task.dimension
        # L_JL: no vector's sketch is longer than B = 2 G, but for the probability of failure.
        least = min(jl_size(means.task.clients, FAILURE), d)
        reading = means.norm(least, PROBE_SHARE, FAILURE)
        share = means.share_left(PROBE_SHARE)
        # Shorter sketches have no less noise than all of the vector, so the size errs upward.
        variance = means.noise_variance(SketchSpec.identity(d), share)
        wanted = max(float(least), (reading.value + reading.slack) ** 2 / variance)
        spec = spec_for_size(d, math.ceil(min(wanted, float(d))), self.rows)
        released = means.mean(spec, share)
        return Estimate(released.update, [reading, released], means.spent)
