"""The kinds of noise that a plan may have: every round its own, or a part of it that comes back.

Source: docs/accounting.md; docs/correlated-noise.md for noise that comes back.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from dp import BinomialMechanism, DiscreteGaussianMechanism
from dp.correlated.planning import Optimiser, Schedule, ServerSteps
from dp.mechanisms import MECHANISMS, MechanismName
from protocol.checks import of_kind, require, require_number
from protocol.goal import PrivacyGoal
from protocol.noise.calibration import calibrate
from protocol.noise.returned import (
    PlannedNoise,
    ReturnedRun,
    calibrate_returned,
    epsilon_of_run,
    member_uploads,
    round_parameters,
)
from protocol.promise import Promise
from protocol.round.clauses import ReturnedClauses
from protocol.round.parameters import RoundParameters, require_room
from protocol.round.returned_noise import likely_returning
from secagg import ParameterError
from secagg.oneshot.records import MemberUploads, RoundRecord
from secagg.shamir import Rand
from sketch import PublicSeed, SketchSpec
from sketch.hashing import SEED_BYTES

_SEED_LABEL = b"veilsum/seed of a session/"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfRound:
    """What calibration is told of one round, beside the plan.

    Attributes:
        model_digest: 32-byte hash of what is sent to the cohort.
        public_seed: of the round.
        goal: of the round, where rounds take unequal shares; the plan's if left out.
        clip_l2: of the round; the plan's if left out.
        sketch_clip_l2: see `calibrate`.
        linf_bound: where clients have integers, with the clip as their sensitivity: the largest
            that a coordinate changes by; None for real vectors, which are scaled.
    """

    model_digest: bytes
    public_seed: PublicSeed
    goal: PrivacyGoal | None = None
    clip_l2: float | None = None
    sketch_clip_l2: float | None = None
    linf_bound: int | None = None


class Noise(ABC):
    """Which noise is added to sums, and what becomes of it."""

    mechanism: MechanismName
    """Name of the noise that clients add."""
    remembered: ClassVar[bool] = False
    """Whether members remember what they added until the next round."""
    exact: bool | None
    """Whether surplus noise is taken off; see `Independent`."""

    @abstractmethod
    def check(self, plan: Promise) -> None:
        """See that a plan can have such noise; `ParameterError` if not."""

    @abstractmethod
    def calibrate(self, plan: Promise, sketch: SketchSpec, of_round: OfRound) -> RoundParameters:
        """The integers of a round; raises as `calibrate`."""

    def clauses(self, plan: Promise) -> ReturnedClauses | None:
        """What clients insist on about what comes back; None if nothing does."""
        del plan
        return None

    def adding(self, plan: Promise) -> int:
        """Members of a committee who add noise."""
        del plan
        return 0

    def fewest_members(self, plan: Promise) -> int:
        """Members whose noise is in a sum, at least."""
        del plan
        return 0

    def population(self, plan: Promise) -> int:
        """Clients that a run needs, so that its cohorts can follow one another."""
        return plan.cohort

    def public_seed(self, session_id: bytes, rand: Rand) -> PublicSeed:
        """Of the next round. Drawn after its size is fixed, or a server could choose collisions."""
        del session_id
        return PublicSeed(rand(SEED_BYTES))

    def drawn(self, rand: Rand) -> bytes:
        """What tells a sum from another of its number, where its context has no seed of its own."""
        del rand
        return b""

    def uploads(
        self,
        plan: Promise,
        parameters: RoundParameters,
        records: Callable[[], tuple[RoundRecord, ...]] = tuple,
        *,
        number: int = 0,
        opened: int = -1,
    ) -> MemberUploads | None:
        """The terms of the members' uploads of a round; None if they add nothing."""
        del plan, parameters, records, number, opened
        return None

    def figures(self, plan: Promise, length: int) -> dict[str, float]:
        """What there is to say of it before a run, for vectors of a length."""
        del plan, length
        return {}

    def epsilon_of_run(
        self, plan: Promise, parameters: RoundParameters, contributions: float = 1.0
    ) -> float | None:
        """Epsilon of a whole run as its clients count it; None where rounds count one by one."""
        del plan, parameters, contributions
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Independent(Noise):
    """Every round has its own noise, which stays in its sum.

    Args:
        mechanism: `binomial`, `skellam` or `discrete-gaussian`.
        exact: take surplus noise off, to 2 % of its variance, when fewer clients vanish than
            tolerated, at the price of a few more shares for each pair of clients; otherwise it
            stays in the sum. Coins alone can be taken off, and are if this is left out.

    Raises:
        ParameterError: no such mechanism, or one whose noise cannot be taken off.
    """

    mechanism: MechanismName = "binomial"
    exact: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, str) or self.mechanism not in MECHANISMS:
            raise ParameterError("mechanism", self.mechanism, f"one of {', '.join(MECHANISMS)}")
        if not isinstance(self.exact, bool | None):
            raise ParameterError("exact", self.exact, "a bool, or left out")
        if self.exact and self.mechanism != BinomialMechanism.name:
            valid = f"left out or False: {self.mechanism} noise comes as a whole, it stays in sums"
            raise ParameterError("exact", self.exact, valid)

    def check(self, plan: Promise) -> None:
        """As `Noise.check` says."""
        require_room(self.mechanism, plan.wrap_probability)

    def calibrate(self, plan: Promise, sketch: SketchSpec, of_round: OfRound) -> RoundParameters:
        """As `Noise.calibrate` says."""
        return calibrate(
            of_round.goal or plan.goal,
            fewest_honest=plan.fewest_honest,
            sketch=sketch,
            clip_l2=plan.clip_l2 if of_round.clip_l2 is None else of_round.clip_l2,
            linf_bound=of_round.linf_bound,
            tolerated_dropouts=plan.tolerated_dropouts,
            model_digest=of_round.model_digest,
            public_seed=of_round.public_seed,
            error_share=plan.error_share,
            wrap_probability=plan.wrap_probability,
            sketch_clip_l2=of_round.sketch_clip_l2,
            mechanism=self.mechanism,
            errors=plan.scheme.ERROR_VARIANCE,
        )


def returned_run(plan: Promise) -> ReturnedRun:
    """Who is in the sums of a plan whose noise comes back; `ParameterError` of any other."""
    return of_kind("noise", plan.noise, Returned).run(plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned(Noise):
    """Members of a named committee add a part of the noise, and take it back in the next round.

    The goal's rounds are then those of one client. Clients add discrete Gaussian noise.

    Args:
        rounds: T, of the run.
        apart: minimum number of rounds between participations of a client.
        away: the share of members that are likely to be away in a round.
        optimiser: how the model adds up the sums of its rounds.
    """

    remembered: ClassVar[bool] = True

    rounds: int
    apart: int
    away: float = 0.0
    optimiser: Optimiser | ServerSteps = Optimiser.SGD

    def __post_init__(self) -> None:
        require(self, "rounds", "apart")
        require_number("away", self.away)

    @property
    def mechanism(self) -> MechanismName:  # type: ignore[override]
        """What can be divided among clients and members."""
        return "discrete-gaussian"

    @property
    def exact(self) -> None:  # type: ignore[override]
        """Such noise comes as a whole."""
        return None

    def run(self, plan: Promise) -> ReturnedRun:
        """Who is in the sums of the run.

        Raises:
            ParameterError: the figures make no such run.
        """
        members = plan.scheme.standing(plan)
        try:
            schedule = Schedule(self.rounds, plan.goal.rounds, self.apart)
        except (TypeError, ValueError) as error:
            raise ParameterError("apart", self.apart, str(error)) from None
        return ReturnedRun(
            schedule=schedule,
            clients=plan.cohort,
            members=members.size,
            corrupt_clients=plan.tolerated_colluders,
            corrupt_members=members.corrupt,
            fewest_clients=plan.minimum_survivors,
            fewest_members=members.fewest,
            fewest_returning=likely_returning(members.size, members.fewest),
            away=self.away,
            optimiser=self.optimiser,
        )

    def planned(
        self, plan: Promise, length: int, sketch_clip_l2: float | None = None
    ) -> PlannedNoise:
        """The integers of the run.

        Args:
            length: of the vectors that are summed.
            sketch_clip_l2: bound on them; the plan's clip if left out.

        Raises:
            ParameterError: nothing would be gained, or no noise meets the goal.
        """
        return calibrate_returned(
            plan.goal.epsilon,
            plan.goal.delta,
            self.run(plan),
            bound=plan.clip_l2 if sketch_clip_l2 is None else sketch_clip_l2,
            length=length,
            error_share=plan.error_share,
            errors=plan.scheme.ERROR_VARIANCE,
        )

    def check(self, plan: Promise) -> None:
        """As `Noise.check` says."""
        require_room(DiscreteGaussianMechanism.name, plan.wrap_probability)
        _ = self.run(plan)

    def calibrate(self, plan: Promise, sketch: SketchSpec, of_round: OfRound) -> RoundParameters:
        """As `Noise.calibrate` says."""
        if of_round.linf_bound is not None:
            valid = "None: integers are summed once, with noise that stays"
            raise ParameterError("linf_bound", of_round.linf_bound, valid)
        goal, clip = of_round.goal, of_round.clip_l2
        if goal not in (None, plan.goal) or clip not in (None, plan.clip_l2):
            valid = "those of the plan in all rounds: noise comes back at the scale it went in"
            raise ParameterError("goal, clip_l2", (goal, clip), valid)
        bound = of_round.sketch_clip_l2
        return round_parameters(
            self.planned(plan, sketch.size, bound),
            model_digest=of_round.model_digest,
            clip_l2=plan.clip_l2,
            sketch=sketch,
            sketch_clip_l2=plan.clip_l2 if bound is None else bound,
            public_seed=of_round.public_seed,
            tolerated_dropouts=plan.tolerated_dropouts,
            wrap_probability=plan.wrap_probability,
        )

    def clauses(self, plan: Promise) -> ReturnedClauses:
        """As `Noise.clauses` says."""
        return ReturnedClauses(apart=self.apart)

    def adding(self, plan: Promise) -> int:
        """As `Noise.adding` says: all members."""
        return self.run(plan).members

    def fewest_members(self, plan: Promise) -> int:
        """As `Noise.fewest_members` says."""
        return self.run(plan).fewest_members

    def population(self, plan: Promise) -> int:
        """As `Noise.population` says; members are no clients of it."""
        return self.apart * plan.cohort

    def public_seed(self, session_id: bytes, rand: Rand) -> PublicSeed:
        """One for the whole session: noise comes back at the place where it went in."""
        return PublicSeed(hashlib.sha256(_SEED_LABEL + session_id).digest()[:SEED_BYTES])

    def drawn(self, rand: Rand) -> bytes:
        """As `Noise.drawn` says."""
        return rand(SEED_BYTES)

    def uploads(
        self,
        plan: Promise,
        parameters: RoundParameters,
        records: Callable[[], tuple[RoundRecord, ...]] = tuple,
        *,
        number: int = 0,
        opened: int = -1,
    ) -> MemberUploads:
        """As `Noise.uploads` says."""
        known = records()
        last = known[-1].round_number if known else -1
        return member_uploads(
            self.run(plan), parameters, known, opened=last == opened, in_turn=last == number - 1
        )

    def figures(self, plan: Promise, length: int) -> dict[str, float]:
        """As `Noise.figures` says: how much quieter the model is, and the share that comes back."""
        noise = self.planned(plan, length)
        return {"gain": noise.gain, "returned_share": noise.plan.returned_share}

    def epsilon_of_run(
        self, plan: Promise, parameters: RoundParameters, contributions: float = 1.0
    ) -> float:
        """As `Noise.epsilon_of_run` says."""
        noise = self.planned(plan, parameters.length, parameters.sketch_clip_l2)
        return epsilon_of_run(noise, self.run(plan), plan.goal.delta, contributions)
