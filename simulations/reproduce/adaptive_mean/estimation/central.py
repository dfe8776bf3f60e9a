"""The central form, as published: a **trusted** server sees exact sums and adds the noise.

Against an untrusted server this protects nobody: it sees every sum bare, and second sketches never
get any noise at all. It is here to reproduce the paper and to be compared with.

Half of epsilon pays for norms (Laplace) or for errors (AboveThreshold), half for the means
(Gaussian); an algorithm that asks for neither gives all of it to the means. Clients clip, sketch,
and clip the sketch to B = 2 G; integers come from conditional rounding on a lattice so fine that it
is not felt, since floats on the private path would leak.

Source: arXiv 2307.10999, Algorithms 1 and 2, with the constants of its Theorems 1 and 3.
"""

from __future__ import annotations

import enum
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
from secagg import ParameterError
from secagg.keys import os_random
from secagg.shamir import Rand
from simulations.reproduce.adaptive_mean.estimation.above_threshold import AboveThreshold
from simulations.reproduce.adaptive_mean.estimation.base import (
    Bar,
    Floats,
    MeanTask,
    NormReading,
    Released,
    Trial,
    require_positive,
    require_probability,
)
from simulations.reproduce.adaptive_mean.estimation.gaussian import GaussianMechanism
from simulations.reproduce.adaptive_mean.estimation.laplace import LaplaceMechanism
from sketch import LinearSketch, Probe, PublicSeed, SketchSpec, spec_for_size
from sketch.hashing import SEED_BYTES
from sketch.topk import top_k

SKETCH_CLIP = 2.0
"""B = 2 G."""

_LATTICE_SIGMA = 4096.0
"""Noise in integer units, whatever the round: one table for all, and rounding adds 1e-8 of it for
each client."""


class Neighbours(enum.Enum):
    """Which data sets must be hard to tell apart; the value is the sensitivity in units of B.

    A client's vector replaced by any other, as in the paper; or by the zero vector, as everywhere
    else in this project. The first implies the second.
    """

    REPLACE_ONE = 2.0
    ZERO_OUT = 1.0


class GaussianRule(enum.Enum):
    """How much Gaussian noise (epsilon, delta) takes.

    PUBLISHED: the classical 2 ln(1.25/delta) for a single release, zero-concentrated privacy for
    several. ANALYTIC: as little as will do, for one release or several.
    """

    PUBLISHED = "published"
    ANALYTIC = "analytic"


class CentralMeans:
    """Noisy means by a trusted server.

    Args:
        task: whose mean.
        epsilon, delta: of the whole estimation.
        gauged: whether half of epsilon is set aside for norms and errors.
        neighbours: which data sets must be hard to tell apart.
        rule: how much Gaussian noise is taken.
        rand: source of public seeds and of noise; leave it alone except in tests.

    Raises:
        ParameterError: an argument is out of range, or the classical formula does not hold for so
            large an epsilon.
    """

    def __init__(
        self,
        task: MeanTask,
        epsilon: float,
        delta: float,
        *,
        gauged: bool,
        neighbours: Neighbours = Neighbours.REPLACE_ONE,
        rule: GaussianRule = GaussianRule.PUBLISHED,
        rand: Rand = os_random,
    ) -> None:
        require_positive("epsilon", epsilon)
        require_probability("delta", delta)
        self._task = task
        self._delta = delta
        self._budget = Budget(epsilon, delta)
        self._gauged = gauged
        self._gauge_epsilon = epsilon / 2.0
        self._mean_epsilon = epsilon / 2.0 if gauged else epsilon
        self._neighbours = neighbours
        self._rule = rule
        self._rand = rand
        self._account = DominationAccountant()
        self._stream: AboveThreshold | None = None

    @property
    def form(self) -> str:
        """The name of this form: `central`."""
        return "central"

    @property
    def task(self) -> MeanTask:
        """The task whose mean is wanted."""
        return self._task

    @property
    def epsilon(self) -> float:
        """Of the whole estimation, for the chosen neighbours."""
        return self._budget.epsilon

    @property
    def spent(self) -> float:
        """Of all events so far, for the same."""
        return self._account.epsilon(self._delta)

    @property
    def clip(self) -> float:
        """B, to which clients clip their sketches."""
        return SKETCH_CLIP * self._task.clip_l2

    @property
    def gauge_sensitivity(self) -> float:
        """How far a norm or an error of the mean can move: 2 B / n, or B / n for zero-out."""
        return self._neighbours.value * self.clip / self._task.clients

    def share_left(self, spent: float) -> float:
        """1: norms are paid for by the other half of epsilon."""
        return 1.0

    def require_releases(self, most: int, gauged: bool) -> None:
        """See that there is a part for gauges; any number of releases may divide the rest up."""
        if gauged and not self._gauged:
            raise ParameterError("gauged", False, "True: this algorithm asks for norms or errors")

    def noise_variance(self, spec: SketchSpec, share: float) -> float:
        """sigma^2 of one coordinate of the mean sketch: (multiplier * sensitivity)^2.

        With the published rule 32 B^2 ln(1.25/delta) / (n eps)^2 for a whole share, and
        2 K B^2 / (n^2 rho) for a share of 1 / K. A probe has no part in it.
        """
        scale, _ = self._lattice(replace(spec, probe=None), share)
        return (_LATTICE_SIGMA / (scale * self._task.clients)) ** 2

    def mean(self, spec: SketchSpec, share: float) -> Released:
        """Exact sum, Gaussian noise, decoded."""
        return self._mean(spec, share, self._seed())

    def norm(self, size: int, share: float, failure: float) -> NormReading:
        """n_hat = |nu2| + Laplace of scale 4 B / (n eps); the slack is ln(4/failure) times that."""
        spec = spec_for_size(self._task.dimension, size, rows=1)
        exact = self._exact_mean(spec.build(self._seed()))
        mechanism = LaplaceMechanism(self.gauge_sensitivity, self._gauge_epsilon)
        self._charge(mechanism.event())
        noisy = mechanism.release(float(np.linalg.norm(exact)), NoiseSeed(self._rand(32)))
        return NormReading(
            value=max(noisy, 0.0),
            slack=mechanism.scale * math.log(4.0 / failure),
            spec=spec,
            sent=spec.size,
            event=mechanism.event(),
        )

    def trial(
        self, spec: SketchSpec, probe: Probe, share: float, bar: Bar, top: int | None
    ) -> Trial:
        """A noisy mean, and AboveThreshold's answer about its exact distance from the truth."""
        opened: list[Event] = []
        if self._stream is None:
            seed = NoiseSeed(self._rand(32))
            self._stream = AboveThreshold(self.gauge_sensitivity, self._gauge_epsilon, seed)
            opened = [self._stream.event()]
            self._charge(opened[0])
        seed_of_round = self._seed()
        released = self._mean(spec, share, seed_of_round)
        if top is not None:
            released = replace(released, update=top_k(released.update, top))
        second = probe.build(self._task.dimension, seed_of_round)
        missed = second.encode(released.update) - self._exact_mean(second)
        slack = self._stream.slack(bar.questions, bar.failure)
        small = self._stream.below(float(np.linalg.norm(missed)), bar.height + slack)
        event = Composition((*opened, released.event)) if opened else released.event
        sent = released.sent + probe.size
        both = replace(released, sent=sent, event=event, spec=replace(spec, probe=probe))
        return Trial(released=both, error=None, slack=slack, small=small)

    def _seed(self) -> PublicSeed:
        """Drawn when a size is fixed already."""
        return PublicSeed(self._rand(SEED_BYTES))

    def _charge(self, event: Event) -> None:
        self._budget.check(self._account, event)
        self._account.compose(event)

    def _multiplier(self, share: float) -> float:
        """Sigma over sensitivity of a release with this share of the Gaussian part."""
        epsilon, delta = self._mean_epsilon, self._delta
        if self._rule is GaussianRule.ANALYTIC:
            return noise_multiplier_for_epsilon(epsilon, delta) / math.sqrt(share)
        if share == 1.0:
            if epsilon >= 1.0:
                raise ParameterError(
                    "epsilon", epsilon, "below 1 for the means: the classical formula ends there"
                )
            return math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon
        log = math.log(1.0 / delta)
        rho = (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2
        return math.sqrt(1.0 / (2.0 * rho * share))

    def _lattice(self, spec: SketchSpec, share: float) -> tuple[float, float]:
        """(integer units per unit of a vector, sensitivity in integer units) of a round.

        The noise is fixed in integer units, so the scale is the largest whose sensitivity, rounding
        included, is small enough for it.
        """
        if not 0.0 < share <= 1.0:
            raise ParameterError("share", share, "above 0 and at most 1")
        allowed = _LATTICE_SIGMA / (self._multiplier(share) * self._neighbours.value)
        low, high = 0.0, allowed / self.clip
        for _ in range(60):
            middle = 0.5 * (low + high)
            fits = quantized_l2_bound(self.clip, middle, spec.size) <= allowed if middle else True
            low, high = (middle, high) if fits else (low, middle)
        if low < 0.5 * allowed / self.clip:
            raise ParameterError(
                "epsilon", self._mean_epsilon, "larger: the noise has no lattice for so little"
            )
        return low, self._neighbours.value * quantized_l2_bound(self.clip, low, spec.size)

    def _mean(self, spec: SketchSpec, share: float, seed: PublicSeed) -> Released:
        scale, sensitivity = self._lattice(spec, share)
        sketch = spec.build(seed)
        total = np.zeros(spec.size, np.int64)
        limit = math.ceil(scale * self.clip) + 1
        for index in range(self._task.clients):
            bounded = clip_l2(self._sketched(sketch, index), self.clip)
            total += quantize(bounded, scale, limit, NoiseSeed(self._rand(32))).values
        event = GaussianRelease(_LATTICE_SIGMA, sensitivity)
        self._charge(event)
        mechanism = GaussianMechanism(_LATTICE_SIGMA)
        noisy = mechanism.release(total, NoiseSeed(self._rand(32)))
        return Released(
            update=sketch.decode(noisy / (scale * self._task.clients)),
            spec=spec,
            sent=spec.size,
            noise_variance=self.noise_variance(spec, share),
            event=event,
        )

    def _exact_mean(self, sketch: LinearSketch) -> Floats:
        """What only a trusted server may hold: the mean of clipped sketches without any noise."""
        total = np.zeros(sketch.size)
        for index in range(self._task.clients):
            total += clip_l2(self._sketched(sketch, index), self.clip).values
        return total / self._task.clients

    def _sketched(self, sketch: LinearSketch, index: int) -> Floats:
        clipped = clip_l2(self._task.updates(index), self._task.clip_l2)
        return sketch.encode(clipped.values)
