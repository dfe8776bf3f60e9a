"""The untrusted form: every sum carries the clients' noise before anybody sees it.

A round is what it is in training: calibrate, announce, aggregate, charge, decode. Norms and errors
are computed from what was released, and cost nothing on top. A norm is a round of its own with a
small sketch; an error comes from a second sketch that travels in the same sum. No AboveThreshold is
needed: there is no un-noised number to compare.

Source: docs/mean-estimation.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dp import Ledger
from dp.rounding import ROUNDING_VARIANCE
from protocol.exchange.aggregators import Aggregator
from protocol.exchange.stages import NOBODY, Dropouts
from protocol.planning.training_plan import TrainingPlan
from protocol.round.client import ClientPolicy
from protocol.round.pipeline import MeanRelease, Pipeline
from protocol.round.rings import UnixClock
from protocol.round.setup import RoundSetup, noise_left
from protocol.training.charged_sums import ChargedSums
from secagg import ParameterError
from secagg.context import SESSION_ID_BYTES
from secagg.keys import os_random
from secagg.shamir import Rand
from simulations.reproduce.adaptive_mean.estimation.base import (
    Bar,
    MeanTask,
    NormReading,
    Released,
    Trial,
)
from simulations.reproduce.adaptive_mean.estimation.bounds import (
    squared_norm_excess,
    squared_norm_upper,
)
from simulations.reproduce.adaptive_mean.estimation.shares import largest_mu, round_goal
from sketch import Probe, PublicSeed, SketchKind, SketchSpec, spec_for_size
from sketch.hashing import SEED_BYTES
from sketch.topk import top_k

_NO_MODEL = bytes(32)
"""Clients bring vectors of their own; no model was sent to them."""


@dataclass(frozen=True, slots=True, eq=False)
class _Round:
    setup: RoundSetup
    release: MeanRelease


class DistributedMeans:
    """Noisy means through the whole pipeline.

    Args:
        task: whose mean.
        plan: cohort, dropouts, colluders, and the goal of the whole estimation; `goal.rounds` is
            the most releases there will be.
        cohort: identity keys of the clients, in the order of their indices.
        aggregator: real or ideal.
        ledger: open; events already in it count.
        dropouts: who gets lost in every round, and when.
        model_digest: 32 bytes that every client must agree on.
        rand: source of public seeds; leave it alone except in tests.
        clock: tells unix seconds; needed if the plan's rounds expire, and only then.

    Raises:
        ParameterError: plan, task and cohort do not belong together, or the ledger is another's.
    """

    def __init__(
        self,
        task: MeanTask,
        plan: TrainingPlan,
        cohort: Sequence[bytes],
        aggregator: Aggregator,
        ledger: Ledger,
        dropouts: Dropouts = NOBODY,
        model_digest: bytes = _NO_MODEL,
        rand: Rand = os_random,
        clock: UnixClock | None = None,
    ) -> None:
        if not plan.cohort == len(cohort) == task.clients:
            got = (plan.cohort, len(cohort), task.clients)
            raise ParameterError("plan.cohort, cohort, task.clients", got, "equal numbers")
        if plan.clip_l2 != task.clip_l2:
            clips = (plan.clip_l2, task.clip_l2)
            raise ParameterError("plan.clip_l2, task.clip_l2", clips, "equal")
        self._task = task
        self._plan = plan
        self._cohort = tuple(cohort)
        session = rand(SESSION_ID_BYTES)
        self._sums = ChargedSums(plan, aggregator, ledger, session, rand=rand, clock=clock)
        self._dropouts = dropouts
        self._digest = model_digest

    @property
    def form(self) -> str:
        """The name of this form: `untrusted`."""
        return "untrusted"

    @property
    def task(self) -> MeanTask:
        """The task whose mean is wanted."""
        return self._task

    @property
    def epsilon(self) -> float:
        """The plan's goal, against the server with the tolerated colluders."""
        return self._plan.goal.epsilon

    @property
    def spent(self) -> float:
        """Of this estimation's events so far, against the same."""
        return self._sums.spent

    def share_left(self, spent: float) -> float:
        """1 - spent: every release draws on one budget."""
        return 1.0 - spent

    def require_releases(self, most: int, gauged: bool) -> None:
        """See that delta was divided for so many releases; gauges need nothing of their own."""
        if most > self._plan.goal.rounds:
            raise ParameterError("goal.rounds", self._plan.goal.rounds, f"at least {most}")

    def noise_variance(self, spec: SketchSpec, share: float) -> float:
        """Of the decoded sketch's coordinates if nobody drops out, rounding included."""
        parameters = self._plan.calibrate(
            spec,
            self._digest,
            PublicSeed(bytes(SEED_BYTES)),
            goal=round_goal(self._plan.goal, share),
            sketch_clip_l2=roomy_clip(self._plan.clip_l2, spec),
        )
        schedule = self._plan.schedule(parameters.mechanism)
        one = noise_left(parameters.mechanism, schedule, 0).variance + ROUNDING_VARIANCE
        return one / (self._task.clients * (parameters.scale * spec.main_weight) ** 2)

    def mean(self, spec: SketchSpec, share: float) -> Released:
        """One secure sum."""
        return self._released(self._round(spec, share))

    def norm(self, size: int, share: float, failure: float) -> NormReading:
        """One secure sum of second sketches; n_hat^2 = max(|nu2|^2 - L2 s2, 0).

        The slack is from the spread of that estimate at the same probability of failure; see
        `bounds.squared_norm_upper`.
        """
        done = self._round(spec_for_size(self._task.dimension, size, rows=1), share)
        sketch, variance = done.release.mean_sketch, done.release.noise_variance
        measured = float(sketch @ sketch)
        value = math.sqrt(max(measured - sketch.size * variance, 0.0))
        upper = squared_norm_upper(measured, sketch.size, variance, failure / 4.0)
        released = self._released(done)
        return NormReading(
            value=value,
            slack=max(math.sqrt(upper) - value, 0.0),
            spec=released.spec,
            sent=released.sent,
            event=released.event,
        )

    def trial(
        self, spec: SketchSpec, probe: Probe, share: float, bar: Bar, top: int | None
    ) -> Trial:
        """One secure sum of both sketches; e^2 = |S2 U - nu2|^2 - L2 s2 is a released value.

        Small means that e^2 is at most height^2 and what it may exceed that by.
        """
        done = self._round(replace(spec, probe=probe), share)
        released = self._released(done)
        if top is not None:
            released = replace(released, update=top_k(released.update, top))
        parameters = done.setup.parameters
        _, second = parameters.sketch.split(done.release.mean_sketch)
        assert second is not None  # noqa: S101 - the spec has a probe
        sketch = probe.build(self._task.dimension, parameters.public_seed)
        missed = sketch.encode(released.update) - second
        variance = done.release.noise_variance / probe.weight**2
        excess = squared_norm_excess(bar.height**2, probe.size, variance, bar.failure)
        squared = float(missed @ missed) - probe.size * variance
        return Trial(
            released=released,
            error=math.sqrt(max(squared, 0.0)),
            slack=math.sqrt(bar.height**2 + excess) - bar.height,
            small=squared <= bar.height**2 + excess,
        )

    def client_policy(self, largest_share: float) -> ClientPolicy:
        """The policy of clients who want what the goal promises and accept nothing less.

        Rounds have unequal shares, so that a single one proves nothing: the client's own history
        adds them up, and the multiplier bounds the largest.

        Args:
            largest_share: of any round.
        """
        policy = self._plan.client_policy(self._task.dimension)
        multiplier = 1.0 / (largest_mu(self._plan.goal) * math.sqrt(largest_share))
        return replace(
            policy, minimum_noise_multiplier=multiplier * (1.0 - 1e-6), equal_rounds=False
        )

    def _round(self, spec: SketchSpec, share: float) -> _Round:
        setup = self._sums.setup(
            spec,
            self._cohort,
            self._digest,
            goal=round_goal(self._plan.goal, share),
            sketch_clip_l2=roomy_clip(self._plan.clip_l2, spec),
        )
        outcome = self._sums.run(
            setup, self._sums.attempts, self._task.updates, self._dropouts, {"share": share}
        )
        return _Round(setup, Pipeline(setup).decode(outcome.total))

    def _released(self, done: _Round) -> Released:
        spec = done.setup.parameters.sketch
        return Released(
            update=done.release.update,
            spec=spec,
            sent=spec.size,
            noise_variance=done.release.noise_variance / spec.main_weight**2,
            event=done.setup.events(done.release.survivors).server,
        )


def roomy_clip(clip_l2: float, spec: SketchSpec) -> float:
    """A bound that sketches of updates on theirs seldom meet, so that no bias comes from it.

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
