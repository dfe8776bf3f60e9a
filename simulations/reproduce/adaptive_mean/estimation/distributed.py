"""The untrusted form: every sum carries the clients' noise before anybody sees it.

A round is what it is in training: calibrate, announce, aggregate, charge, decode. Norms and errors
are computed from what was released, and cost nothing on top. A norm is a round of its own with a
small sketch; an error comes from a second sketch that travels in the same sum. No AboveThreshold is
needed: there is no un-noised number to compare.

One goal is divided up among rounds. Gaussian privacy adds up in squares: releases that are
dominated by shifts mu_t are together dominated by the shift with mu^2 = sum of mu_t^2. A round's
share is its part of that sum, the same thing as its share of zero-concentrated privacy,
rho = mu^2 / 2.

Source: docs/mean-estimation.md; docs/accounting.md, Gaussian domination.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dp import Ledger
from dp.rounding import ROUNDING_VARIANCE
from protocol.exchange.aggregators import Aggregator
from protocol.goal import PrivacyGoal, round_goal
from protocol.planning.training_plan import TrainingPlan
from protocol.round.pipeline import MeanRelease, Pipeline
from protocol.round.setup import RoundEncoding
from protocol.training.charged_sums import ChargedSums
from secagg.keys import os_random
from secagg.shamir import Rand
from secagg.terms import SESSION_ID_BYTES
from simulations.reproduce.adaptive_mean.estimation.base import Bar, MeanTask, NormReading, Released
from simulations.reproduce.adaptive_mean.estimation.bounds import (
    squared_norm_excess,
    squared_norm_upper,
)
from sketch import Probe, PublicSeed, SketchKind, SketchSpec, spec_for_size
from sketch.hashing import SEED_BYTES
from sketch.topk import top_k

_NO_MODEL = bytes(32)  # clients bring vectors of their own; no model was sent to them


class DistributedMeans:
    """Noisy means through the whole pipeline, with nobody dropping out and nobody colluding.

    The goal is that of the whole estimation, its `rounds` the most releases there will be. The
    cohort is identity keys in the order of the clients' indices. Events already in the ledger
    count; public seeds come from `rand`.
    """

    def __init__(
        self,
        task: MeanTask,
        goal: PrivacyGoal,
        cohort: Sequence[bytes],
        aggregator: Aggregator,
        ledger: Ledger,
        rand: Rand = os_random,
    ) -> None:
        self.task, self._cohort = task, tuple(cohort)
        self.plan = TrainingPlan(
            goal=goal,
            cohort=len(cohort),
            tolerated_dropouts=0,
            tolerated_colluders=0,
            clip_l2=task.clip_l2,
        )
        session = rand(SESSION_ID_BYTES)
        self._sums = ChargedSums(self.plan, aggregator, ledger, session, rand=rand)

    @property
    def spent(self) -> float:
        """Epsilon of this estimation's events so far, against the server."""
        return self._sums.spent

    def share_left(self, spent: float) -> float:
        """Return 1 - spent: every release draws on one budget."""
        return 1.0 - spent

    def noise_variance(self, spec: SketchSpec, share: float) -> float:
        """Return that of the decoded sketch's coordinates, rounding included."""
        seed, clip = PublicSeed(bytes(SEED_BYTES)), roomy_clip(self.plan.clip_l2, spec)
        goal = round_goal(self.plan.goal, share)
        parameters = self.plan.calibrate(spec, _NO_MODEL, seed, goal=goal, sketch_clip_l2=clip)
        one = parameters.mechanism.variance + ROUNDING_VARIANCE
        return one / (self.task.clients * (parameters.scale * spec.main_weight) ** 2)

    def mean(self, spec: SketchSpec, share: float) -> Released:
        """Release one secure sum."""
        return _released(*self._round(spec, share))

    def norm(self, size: int, share: float, failure: float) -> NormReading:
        """Release one secure sum of second sketches; n_hat^2 = max(|nu2|^2 - L2 s2, 0).

        The slack is from the spread of that estimate at the same probability of failure; see
        `bounds.squared_norm_upper`.
        """
        setup, release = self._round(spec_for_size(self.task.dimension, size, rows=1), share)
        sketch, variance = release.mean_sketch, release.noise_variance
        measured = float(sketch @ sketch)
        value = math.sqrt(max(measured - sketch.size * variance, 0.0))
        upper = squared_norm_upper(measured, sketch.size, variance, failure / 4.0)
        slack = max(math.sqrt(upper) - value, 0.0)
        released = _released(setup, release)
        return NormReading(value=value, slack=slack, spec=released.spec, event=released.event)

    def trial(
        self, spec: SketchSpec, probe: Probe, share: float, bar: Bar, top: int | None
    ) -> tuple[Released, bool]:
        """Release one secure sum of both sketches; so e^2 = |S2 U - nu2|^2 - L2 s2 is released too.

        The error is small if e^2 is at most height^2 and what it may exceed that by.
        """
        setup, release = self._round(replace(spec, probe=probe), share)
        released = _released(setup, release)
        if top is not None:
            released = replace(released, update=top_k(released.update, top))
        parameters = setup.parameters
        _, second = parameters.sketch.split(release.mean_sketch)
        assert second is not None  # noqa: S101 - the spec has a probe
        sketch = probe.build(self.task.dimension, parameters.public_seed)
        missed = sketch.encode(released.update) - second
        variance = release.noise_variance / probe.weight**2
        excess = squared_norm_excess(bar.height**2, probe.size, variance, bar.failure)
        squared = float(missed @ missed) - probe.size * variance
        return released, squared <= bar.height**2 + excess

    def _round(self, spec: SketchSpec, share: float) -> tuple[RoundEncoding, MeanRelease]:
        sums, clip = self._sums, roomy_clip(self.plan.clip_l2, spec)
        goal = round_goal(self.plan.goal, share)
        setup = sums.setup(spec, self._cohort, _NO_MODEL, goal=goal, sketch_clip_l2=clip)
        outcome = sums.run(setup, sums.attempts, self.task.updates, notes={"share": share})
        return setup, Pipeline(setup).decode(outcome.total, outcome.surplus)


def _released(setup: RoundEncoding, release: MeanRelease) -> Released:
    spec = setup.parameters.sketch
    return Released(
        update=release.update,
        spec=spec,
        noise_variance=release.noise_variance / spec.main_weight**2,
        event=setup.events(release.survivors).server,
    )


def roomy_clip(clip_l2: float, spec: SketchSpec) -> float:
    """Return a bound that sketches of updates on theirs seldom meet, so that it brings no bias.

    Var |Sx|^2 <= 2 C^4 / L for a vector on the bound C, so |Sx| has standard deviation at most
    about C / sqrt(2 L), and this is two of them above C; of two sketches with shares of the squared
    norm, each counts with the square of its share. Source: docs/sketching.md.
    """
    share = spec.probe.share if spec.probe else 0.0
    spread = 0.0
    if spec.kind is not SketchKind.IDENTITY:
        spread += (1.0 - share) ** 2 / spec.main_size
    if spec.probe is not None:
        spread += share**2 / spec.probe.size
    return clip_l2 * (1.0 + math.sqrt(2.0 * spread))
