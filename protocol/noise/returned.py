"""From a goal to the noise of a run in which members of a committee take theirs back.

Noise is divided between clients, whose own stays, and members: so that the model has the least of
it at equal privacy, as clients' own filters count it, and knowing that members may be away. Then
come the scale and the variances. The theorem has no failure probability, so nothing of delta is
set aside for noise; but single parts must not be small, and a smaller scale makes them so. The
scale here is the smallest at which rounding and integers together add at most a stated share to
the variance in the model, where they weigh more than in a sum: most noise has gone back by then.

Source: docs/correlated-noise.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dp import (
    DiscreteGaussianMechanism,
    Sensitivities,
    noise_multiplier_for_epsilon,
    quantized_l2_bound,
)
from dp.accounting.gaussian import LARGEST_EPSILON
from dp.correlated import Parts, Promises, correlated_epsilon, largest_mu
from dp.correlated.parts_planning import PartsPlan, plan_parts
from dp.correlated.planning import WORTH_IT, Optimiser, Schedule, ServerSteps
from dp.rounding import ROUNDING_VARIANCE, require_linf_bound
from dp.search import bracketed
from protocol.checks import RANGES, require_number
from protocol.goal import delta_for_noise
from protocol.noise.calibration import COORDINATE_CLIP_PROBABILITY, ERROR_SHARE
from protocol.round.parameters import RoundParameters
from protocol.round.returned_events import planned_epsilon
from protocol.round.returned_noise import ReturnedNoise
from secagg import ParameterError
from secagg.checks import require_int
from secagg.oneshot.records import MemberUploads, RoundRecord
from sketch import PublicSeed, SketchSpec, flat_bound

_SCALES: Final = (1e-3, 2.0**40)
"""Where a scale is looked for, in integer units for a vector on the bound."""

_SCALE_TOLERANCE: Final = 1e-3
_VARIANCE_TOLERANCE: Final = 1e-6

_ROUNDINGS: Final = 1.0 + 1e-9
"""A filter adds up its charges in another order than the plan."""

_LARGE_PART: Final = 1e9
"""Parts so large that integers cost nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedRun:
    """Who is in the sums of a run whose noise comes back, as far as that is settled before it."""

    schedule: Schedule
    clients: int
    members: int
    corrupt_clients: int
    corrupt_members: int
    fewest_clients: int
    fewest_members: int
    fewest_returning: int
    away: float = 0.0
    optimiser: Optimiser | ServerSteps = Optimiser.SGD

    def __post_init__(self) -> None:
        for name in ("corrupt_clients", "corrupt_members"):
            require_int(name, getattr(self, name), 0)
        above = {"fewest_clients": self.corrupt_clients, "fewest_members": 2 * self.corrupt_members}
        for name, corrupt in above.items():
            if type(getattr(self, name)) is not int or getattr(self, name) <= corrupt:
                valid = f"an int above {corrupt}: the others may hide no honest noise at all"
                raise ParameterError(name, getattr(self, name), valid)
        require_int("clients", self.clients, self.fewest_clients)
        require_int("members", self.members, self.fewest_members)
        require_int("fewest_returning", self.fewest_returning, 0)
        if self.fewest_returning > self.fewest_members:
            valid = f"at most fewest_members, {self.fewest_members}"
            raise ParameterError("fewest_returning", self.fewest_returning, valid)
        require_number("away", self.away)
        most = 1.0 - self.fewest_members / self.members
        if not 0.0 <= self.away <= most:
            valid = f"in 0 .. {most:.6g}, so that fewest_members are left"
            raise ParameterError("away", self.away, valid)

    def parts(self, length: int, fresh_variance: float, returned_share: float) -> Parts:
        """What is counted of its noise; see `Parts.divided`. `length` is that of a sum."""
        return Parts(
            client_variance=1.0,
            member_variance=1.0,
            clients=self.clients,
            members=self.members,
            corrupt_clients=self.corrupt_clients,
            corrupt_members=self.corrupt_members,
            fewest_clients=self.fewest_clients,
            fewest_members=self.fewest_members,
            rounds=self.schedule.rounds,
            dimension=length,
        ).divided(fresh_variance, returned_share)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNoise:
    """The integers of a run whose noise comes back.

    Attributes:
        scale: s, integer units per unit of the update.
        sensitivities: of a client's contribution to one round, in integer units.
        client: noise of each client, V_b; it stays.
        member: noise of each member, V_a; taken back in the next round.
        parts: what is counted of both.
        plan: how noise was divided.
        gain: by how much the noise in the model is smaller than independent noise of the same
            clients would be, in standard deviations, if both meet the goal.
    """

    scale: float
    sensitivities: Sensitivities
    client: DiscreteGaussianMechanism
    member: DiscreteGaussianMechanism
    parts: Parts
    plan: PartsPlan
    gain: float


@lru_cache(maxsize=64)
def calibrate_returned(
    epsilon: float,
    delta: float,
    run: ReturnedRun,
    *,
    bound: float,
    length: int,
    error_share: float = ERROR_SHARE,
    errors: float = 0.0,
) -> PlannedNoise:
    """The noise with which every planned upload of every client meets the goal.

    Args:
        errors: variance of what every upload adds besides, which does not come back.
    """
    _check(epsilon, delta, error_share)
    usable = delta_for_noise(delta, run.schedule.rounds)
    plan = _plan(run, length)
    large = Promises(
        rounds=run.schedule.rounds,
        dimension=1,
        smallest_part=_LARGE_PART,
        most_parts=1,
        kept=_LARGE_PART,
        fresh=_LARGE_PART,
    )
    mu = largest_mu(epsilon, usable, large)
    times = run.schedule.participations
    independent = math.sqrt(times) / noise_multiplier_for_epsilon(epsilon, usable, times)
    gain = plan.gain * mu / independent
    if gain < WORTH_IT:
        valid = (
            f"one in which clients take part more seldom: noise that comes back is {gain:.3g} "
            f"times quieter in the model here, and a committee is worth it from {WORTH_IT} on"
        )
        raise ParameterError("schedule", run.schedule, valid)

    def meets(fresh_variance: float, scale: float) -> bool:
        parts = run.parts(length, fresh_variance, plan.returned_share)
        l2 = quantized_l2_bound(bound, scale, length)
        charge = plan.charge * l2 * l2 / fresh_variance * _ROUNDINGS
        return correlated_epsilon(charge, parts.promises, usable) <= epsilon

    def most(scale: float) -> float:
        """The fresh variance at which the share is used up."""
        real = plan.charge * (bound * scale / mu) ** 2
        added = run.clients * ROUNDING_VARIANCE + (run.clients + run.members) * errors
        return (1.0 + error_share) * real - added / plan.model_noise

    def enough(units: float) -> bool:
        scale = units / bound
        return most(scale) > 0.0 and meets(most(scale), scale)

    low, high = _SCALES
    if not enough(high):
        valid = "larger: no scale brings the noise this close"
        raise ParameterError("error_share", error_share, valid)
    scale = bracketed(enough, low, high, _SCALE_TOLERANCE, geometric=True)[1] / bound
    l2 = quantized_l2_bound(bound, scale, length)
    least = plan.charge * (l2 / mu) ** 2  # The gap and the roundings come on top.
    _, fresh = bracketed(
        lambda variance: meets(variance, scale), least, most(scale), _VARIANCE_TOLERANCE
    )
    parts = run.parts(length, fresh, plan.returned_share)
    linf = math.ceil(scale * flat_bound(bound, length, COORDINATE_CLIP_PROBABILITY))
    try:
        require_linf_bound(linf)
        client = DiscreteGaussianMechanism(parts.client_variance)
        member = DiscreteGaussianMechanism(parts.member_variance)
    except ValueError as error:
        valid = f"such that noise can be drawn: {error}; or raise error_share"
        raise ParameterError("epsilon", epsilon, valid) from None
    return PlannedNoise(
        scale=scale,
        sensitivities=Sensitivities(l2, linf),
        client=client,
        member=member,
        parts=parts,
        plan=plan,
        gain=gain,
    )


@lru_cache(maxsize=64)
def _plan(run: ReturnedRun, length: int) -> PartsPlan:
    """How noise is divided, which depends on no goal."""
    parts = run.parts(length, 1.0, 0.5)
    try:
        _ = parts.promises
    except ValueError as error:
        valid = f"such that all parts of a round can be counted: {error}"
        raise ParameterError("clients", run.clients, valid) from None
    weights = run.optimiser.weights(run.schedule.rounds)
    return plan_parts(parts, run.schedule, run.fewest_returning, float(run.away), weights)


def _check(epsilon: float, delta: float, error_share: float) -> None:
    """Raise `ParameterError` naming the figure that is out of range."""
    if not 0.0 < epsilon < LARGEST_EPSILON:
        valid = f"positive and below {LARGEST_EPSILON:g}"
        raise ParameterError("epsilon", epsilon, valid)
    RANGES["delta"].require("delta", delta)
    RANGES["error_share"].require("error_share", error_share)


def round_parameters(
    noise: PlannedNoise,
    *,
    model_digest: bytes,
    clip_l2: float,
    sketch: SketchSpec,
    sketch_clip_l2: float,
    public_seed: PublicSeed,
    tolerated_dropouts: int,
    wrap_probability: float,
) -> RoundParameters:
    """The parameters of a round of a planned run; but for the model, those of all its rounds."""
    parts = noise.parts
    return RoundParameters(
        model_digest=model_digest,
        clip_l2=clip_l2,
        sketch=sketch,
        sketch_clip_l2=sketch_clip_l2,
        public_seed=public_seed,
        scale=noise.scale,
        linf_bound=noise.sensitivities.linf,
        mechanism=noise.client,
        tolerated_dropouts=tolerated_dropouts,
        wrap_probability=wrap_probability,
        returned=ReturnedNoise(
            variance=noise.member.amount, rounds=parts.rounds, divisor=parts.clients
        ),
    )


def member_uploads(
    run: ReturnedRun,
    parameters: RoundParameters,
    records: tuple[RoundRecord, ...] = (),
    *,
    opened: bool = False,
    in_turn: bool = True,
) -> MemberUploads:
    """The terms of the members' uploads of a round.

    Args:
        in_turn: whether this is the first attempt since. If another failed, it was perhaps for want
            of members who remember what they added, so none is waited for.
    """
    returning = bool(records) and opened
    fewest = 0
    if returning and in_turn:
        fewest = min(run.fewest_returning, len(records[-1].entered))
    return MemberUploads(
        fewest=run.fewest_members,
        returning=returning,
        fewest_returning=fewest,
        block=parameters.block_digest(),
        records=records,
    )


def epsilon_of_run(
    noise: PlannedNoise, run: ReturnedRun, delta: float, contributions: float = 1.0
) -> float:
    """The most that a client's own count meets in a run as planned."""
    l2 = contributions * noise.sensitivities.l2
    delta = delta_for_noise(delta, run.schedule.rounds)
    return planned_epsilon(noise.parts, run.schedule, run.fewest_returning, l2, delta)
