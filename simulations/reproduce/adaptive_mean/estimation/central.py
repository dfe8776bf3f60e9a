"""The central form: a **trusted** server sees exact sums and adds the noise.

Against an untrusted server this protects nobody: it sees every sum bare, and second sketches never
get any noise at all. It is here to reproduce the paper and to be compared with. For a fair
comparison neighbours are those of the other form (a vector zeroed; the paper replaces it), and the
Gaussian noise is as little as will do (the paper has the classical formulas).

Half of epsilon pays for norms (Laplace) or for errors (AboveThreshold), half for the means
(Gaussian); an algorithm that asks for neither gives all of it to the means. Clients clip, sketch,
and clip the sketch to B = 2 G; integers come from conditional rounding on a lattice so fine that it
is not felt, since floats on the private path would leak. The noise is a rounded normal variable: as
``total + round(N) == round(total + N)`` for an integer total, the release is a rounding of the
textbook mechanism, and whatever holds for that holds here exactly.

Source: arXiv 2307.10999, Algorithms 1 and 2; Dwork, Roth 2014, Appendix A, for Gaussian noise.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from dp import (
    Budget,
    Composition,
    DominationAccountant,
    Event,
    GaussianRelease,
    NoiseSeed,
    clip_l2,
    noise_multiplier_for_epsilon,
    quantize,
    quantized_l2_bound,
)
from dp.keystream import Usage
from dp.sampling import RoundedGaussianLaw, sample_law
from dp.search import bracketed
from secagg.keys import os_random
from simulations.reproduce.adaptive_mean.estimation.base import (
    Bar,
    Floats,
    MeanTask,
    NormReading,
    Released,
)
from simulations.reproduce.adaptive_mean.estimation.laplace import AboveThreshold, LaplaceMechanism
from sketch import LinearSketch, Probe, PublicSeed, SketchSpec, spec_for_size
from sketch.hashing import SEED_BYTES
from sketch.topk import top_k

SKETCH_CLIP = 2.0  # B = 2 G
# In integer units, whatever the round: one table for all, and rounding adds 1e-8 of it for each
# client
_NOISE = RoundedGaussianLaw(4096.0)


class CentralMeans:
    """Noisy means by a trusted server, with epsilon and delta of the whole estimation.

    `gauged`: half of epsilon is set aside for norms and errors.
    """

    def __init__(self, task: MeanTask, epsilon: float, delta: float, *, gauged: bool) -> None:
        self.task = task
        self.clip = SKETCH_CLIP * task.clip_l2
        # How far a norm or an error of the mean can move: B / n.
        self.gauge_sensitivity = self.clip / task.clients
        self._budget, self._account = Budget(epsilon, delta), DominationAccountant()
        self._gauge_epsilon = epsilon / 2.0
        mean_epsilon = epsilon / 2.0 if gauged else epsilon
        self._multiplier = noise_multiplier_for_epsilon(mean_epsilon, delta)
        self._stream: AboveThreshold | None = None

    @property
    def spent(self) -> float:
        """Epsilon of all events so far."""
        return self._account.epsilon(self._budget.delta)

    def share_left(self, spent: float) -> float:
        """Return 1: norms are paid for by the other half of epsilon."""
        return 1.0

    def noise_variance(self, spec: SketchSpec, share: float) -> float:
        """Return (multiplier * B / n)^2, rounding included. A probe has no part in it."""
        scale = self._scale(replace(spec, probe=None), share)
        return (_NOISE.sigma / (scale * self.task.clients)) ** 2

    def mean(self, spec: SketchSpec, share: float) -> Released:
        """Release the exact sum with Gaussian noise."""
        return self._mean(spec, share, _seed())

    def norm(self, size: int, share: float, failure: float) -> NormReading:
        """Return n_hat = |nu2| + Laplace of scale 2 B / (n eps), slack ln(4/failure) times that."""
        spec = spec_for_size(self.task.dimension, size, rows=1)
        exact = self._exact_mean(spec.build(_seed()))
        mechanism = LaplaceMechanism(self.gauge_sensitivity, self._gauge_epsilon)
        self._charge(mechanism.event)
        noisy = mechanism.release(float(np.linalg.norm(exact)), NoiseSeed.fresh())
        slack = mechanism.scale * math.log(4.0 / failure)
        return NormReading(value=max(noisy, 0.0), slack=slack, spec=spec, event=mechanism.event)

    def trial(
        self, spec: SketchSpec, probe: Probe, share: float, bar: Bar, top: int | None
    ) -> tuple[Released, bool]:
        """Return a noisy mean, and AboveThreshold's answer about its exact error."""
        opened: list[Event] = []
        if self._stream is None:
            self._stream = AboveThreshold(self.gauge_sensitivity, self._gauge_epsilon)
            opened = [self._stream.event]
            self._charge(self._stream.event)
        seed = _seed()
        released = self._mean(spec, share, seed)
        if top is not None:
            released = replace(released, update=top_k(released.update, top))
        second = probe.build(self.task.dimension, seed)
        missed = second.encode(released.update) - self._exact_mean(second)
        slack = self._stream.slack(bar.questions, bar.failure)
        small = self._stream.below(float(np.linalg.norm(missed)), bar.height + slack)
        event = Composition((*opened, released.event)) if opened else released.event
        return replace(released, event=event, spec=replace(spec, probe=probe)), small

    def _charge(self, event: Event) -> None:
        self._budget.check(self._account, event)
        self._account.compose(event)

    def _scale(self, spec: SketchSpec, share: float) -> float:
        """Return integer units per unit of a vector.

        The noise is fixed in integer units, so the scale is the largest whose sensitivity, rounding
        included, is small enough for it.
        """
        allowed = _NOISE.sigma * math.sqrt(share) / self._multiplier

        def too_fine(scale: float) -> bool:
            return quantized_l2_bound(self.clip, scale, spec.size) > allowed

        return bracketed(too_fine, 0.0, allowed / self.clip)[0]

    def _mean(self, spec: SketchSpec, share: float, seed: PublicSeed) -> Released:
        scale = self._scale(spec, share)
        sketch = spec.build(seed)
        total = np.zeros(spec.size, np.int64)
        limit = math.ceil(scale * self.clip) + 1
        for index in range(self.task.clients):
            bounded = clip_l2(self._sketched(sketch, index), self.clip)
            total += quantize(bounded, scale, limit, NoiseSeed.fresh()).values
        sensitivity = quantized_l2_bound(self.clip, scale, spec.size)
        event = GaussianRelease(_NOISE.sigma, sensitivity)
        self._charge(event)
        noise = sample_law(_NOISE, NoiseSeed.fresh().derive(Usage.SERVER_NOISE), total.size)
        return Released(
            update=sketch.decode((total + noise) / (scale * self.task.clients)),
            spec=spec,
            noise_variance=self.noise_variance(spec, share),
            event=event,
        )

    def _exact_mean(self, sketch: LinearSketch) -> Floats:
        """Return what only a trusted server may hold: the mean of clipped sketches, bare."""
        total = np.zeros(sketch.size)
        for index in range(self.task.clients):
            total += clip_l2(self._sketched(sketch, index), self.clip).values
        return total / self.task.clients

    def _sketched(self, sketch: LinearSketch, index: int) -> Floats:
        clipped = clip_l2(self.task.updates(index), self.task.clip_l2)
        return sketch.encode(clipped.values)


def _seed() -> PublicSeed:
    """Draw the seed of a sketch, when its size is fixed already."""
    return PublicSeed(os_random(SEED_BYTES))
