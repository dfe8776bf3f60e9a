"""Sums that are charged before they are released: what every kind of training is made of.

The order inside a sum is the promise: check everything that can be checked before anyone is asked,
aggregate, write the event to the ledger as soon as the survivors are decided and before any of them
hears it, and only then hand out the sum. So one that fails may be over-counted, never
under-counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol, TypeVar

from dp import FourEpsilons, Ledger
from dp.accounting import reserved_accountant
from protocol.exchange.aggregators import Aggregator, HasCommittee, UpdateSource, own_updates
from protocol.exchange.stages import RoundOutcome
from protocol.goal import PrivacyGoal
from protocol.planning.training_plan import TrainingPlan
from protocol.round.field_size import bits_for
from protocol.round.losses import NOBODY, Dropouts, check_dropouts
from protocol.round.lottery import Members
from protocol.round.rings import UnixClock
from protocol.round.setup import RoundEncoding, removal_table
from protocol.schemes.scheme import Announced
from protocol.training.records import Notes, Records
from secagg import ParameterError, TooFewSurvivorsError
from secagg.keys import os_random
from secagg.oneshot.records import RoundRecord
from secagg.shamir import Rand
from sketch import SketchSpec

MOST_DRAWS = 32
"""Draws in a row with too few candidates; so many are no bad luck but a wrong plan, or nobody is
there."""


R_co = TypeVar("R_co", covariant=True)


class Sums(Protocol[R_co]):
    """Rounds of one kind for clients elsewhere: of a `PrivateTraining`, or of a `SurveySum`."""

    def next_setup(self, cohort: Sequence[bytes], model_digest: bytes, /) -> RoundEncoding:
        """The next round; nothing is announced or charged yet."""

    def run_setup(self, setup: RoundEncoding, *, notes: Notes | None = None) -> R_co:
        """Play the round, which is charged before it is released."""


class ChargedSums:
    """The sums of one session, one after another.

    Args:
        together: sums of one round of training. A round that was interrupted after some of them
            were charged runs all of them again, and none is charged twice.
        opened: the last of the sums announced before that was opened; None for the very last.
        varying: whether cohorts may be smaller than planned, see `TrainingPlan.of_cohort`.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        aggregator: Aggregator,
        ledger: Ledger,
        session_id: bytes,
        attempts: int = 0,
        rand: Rand = os_random,
        together: int = 1,
        clock: UnixClock | None = None,
        opened: int | None = None,
        varying: bool = False,
    ) -> None:
        if plan.lifetime_seconds and clock is None:
            raise ParameterError(
                "clock", None, "a clock that gives Unix seconds: the plan's rounds expire"
            )
        self._plan = plan
        self._varying = varying
        self._aggregator = aggregator
        self._records = Records(ledger, plan.goal, together)
        self._released = reserved_accountant(plan.goal.reserve)
        self._session_id = session_id
        self._attempts = attempts
        self._rand = rand
        self._clock = clock
        self._opened = attempts - 1 if opened is None else opened

    @property
    def session_id(self) -> bytes:
        """The session id of every sum."""
        return self._session_id

    @property
    def opened(self) -> int | None:
        """The last sum that was opened; None for the very last that was announced."""
        return None if self._opened == self._attempts - 1 else self._opened

    @property
    def attempts(self) -> int:
        """How many sums have been announced."""
        return self._attempts

    @property
    def records(self) -> tuple[RoundRecord, ...]:
        """Where noise comes back, of the rounds that members were asked to sign for."""
        return self._records.run_records(self._session_id, self._attempts)

    def call_off(self) -> None:
        """Use up the next number without a sum."""
        self._attempts += 1

    def epsilons(self) -> FourEpsilons:
        """Spent so far by the client that spent most, against four adversaries."""
        return self._records.epsilons(self._plan.tolerated_colluders)

    @property
    def spent(self) -> float:
        """Epsilon of these sums alone, against the server.

        They are all that were charged, now or before. This is an estimate; the goal is what is
        guaranteed.
        """
        return self._released.epsilon(self._plan.goal.delta)

    def setup(
        self,
        sketch: SketchSpec,
        cohort: Sequence[bytes],
        model_digest: bytes,
        clip_l2: float | None = None,
        goal: PrivacyGoal | None = None,
        sketch_clip_l2: float | None = None,
        linf_bound: int | None = None,
    ) -> RoundEncoding:
        """The next sum, with a public seed of its own; nothing is announced or charged yet.

        Args:
            model_digest: 32-byte hash of what is sent to the cohort for this sum.
            linf_bound: of integers, whose clip is no update's; see `OfRound`.
        """
        plan = self._plan.of_cohort(len(cohort)) if self._varying else self._plan
        if len(cohort) != plan.cohort:
            raise ParameterError("cohort", f"{len(cohort)} clients", f"{plan.cohort}, as planned")
        # Written so that NaN fails the test. Integers have a clip of their own.
        if clip_l2 is not None and linf_bound is None and not clip_l2 <= plan.clip_l2:
            raise ParameterError("clip_l2", clip_l2, f"at most {plan.clip_l2}, as planned")
        session = self._session_id
        parameters = plan.calibrate(
            sketch,
            model_digest,
            plan.noise.public_seed(session, self._rand),
            goal=goal,
            clip_l2=clip_l2,
            sketch_clip_l2=sketch_clip_l2,
            linf_bound=linf_bound,
        )
        opened_at = int(self._clock()) if self._clock and plan.lifetime_seconds else 0
        members = self._members(cohort) if plan.scheme.SEATS else None
        number = self._attempts
        uploads = plan.noise.uploads(
            plan,
            parameters,
            partial(self._records.run_records, session, number),
            number=number,
            opened=self._opened,
        )
        bits = 0
        if self._varying:
            # A field that follows the cohort would show it in the largest released values.
            removal = removal_table(self._plan.schedule(parameters.mechanism))
            seeds = max(removal, default=0).bit_length()
            bits = bits_for(parameters, self._plan.cohort, seeds)
        announced = Announced(
            cohort=cohort,
            session_id=session,
            round_number=number,
            opened_at=opened_at,
            members=members,
            uploads=uploads,
            bits=bits,
        )
        return plan.scheme.setup(plan, parameters, announced)

    def _members(self, cohort: Sequence[bytes]) -> Members:
        """The committee of the next sum. A number that draws too few candidates is passed over."""
        if not isinstance(self._aggregator, HasCommittee):
            valid = "one that knows a committee, because a committee opens the plan's sums"
            raise ParameterError("aggregator", type(self._aggregator).__name__, valid)
        for last in range(MOST_DRAWS - 1, -1, -1):
            try:
                return self._aggregator.members(self._session_id, cohort, self._attempts)
            except TooFewSurvivorsError:
                # The same number would draw the same candidates, for ever.
                self._attempts += 1
                if not last:
                    raise
        raise AssertionError("the last draw returns or raises")

    def run(
        self,
        setup: RoundEncoding,
        number: int,
        updates: UpdateSource = own_updates,
        dropouts: Dropouts = NOBODY,
        notes: Notes | None = None,
    ) -> RoundOutcome:
        """The sum of a setup."""
        turn = (setup.context.session_id, setup.context.round_number)
        if turn != (self._session_id, self._attempts):
            valid = f"that of the next round, number {self._attempts} of this session"
            raise ParameterError("setup", f"round number {turn[1]}", valid)
        check_dropouts(dropouts, setup.context.invited)
        if not callable(updates):
            valid = "a function that gives a party's update by its index in the cohort"
            raise ParameterError("updates", f"of type {type(updates).__name__}", valid)
        drawn = self._plan.noise.drawn(self._rand)
        charge = self._records.prepare(setup, number, notes, drawn)
        # A number that was announced is used up, or a client would answer one round twice.
        self._attempts += 1

        def pay(survivors: Sequence[int], record: RoundRecord | None = None, /) -> None:
            charge(survivors, record)
            if record is None:
                self._released.compose(setup.events(len(survivors)).server)

        outcome = self._aggregator.run(setup, updates, dropouts, before_release=pay)
        charge.settle(outcome.total.survivors)
        self._opened = setup.context.round_number
        return outcome
