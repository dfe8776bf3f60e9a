"""What a round of a run with returned noise releases, from the records of the run so far.

Records name members; accounting counts them, and leaves out as many as may work for the server.

Source: docs/correlated-rounds.md, "What is counted".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from dp.correlated import Parts, RoundParts, correlated_epsilon
from dp.correlated.event import CorrelatedRelease
from dp.correlated.parts_planning import largest_charge
from dp.correlated.planning import Schedule
from protocol.goal import PrivacyGoal
from protocol.round.account import Account
from protocol.round.parameters import RoundParameters, release_event
from protocol.round.released import Released, multiplier
from protocol.round.returned_noise import likely_returning
from protocol.round.round_events import RoundEvents
from protocol.round.run_account import RunAccount
from secagg import ParameterError
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.records import RoundRecord


class RunEvents(Released):
    """The events of the rounds of one run, seen from one of them."""

    def __init__(self, context: OneShotContext, parameters: RoundParameters) -> None:
        uploads, returned = context.member_uploads, parameters.returned
        if uploads is None or returned is None:
            raise ParameterError("returned", returned, "given, with members that upload")
        self._context, self._parameters = context, parameters
        self._returning = uploads.fewest_returning if uploads.returning else None
        self._records = uploads.records
        if self.index > returned.rounds:
            valid = f"at most {returned.rounds - 1} before this round, the last that is planned for"
            raise ParameterError("records", len(self._records), valid)
        self._known = self._parts()
        self._counts = _counts(uploads.records)

    @property
    def records(self) -> tuple[RoundRecord, ...]:
        """Of all rounds of the run before this one."""
        return self._records

    @property
    def heads(self) -> tuple[bytes, ...]:
        """Of the chain of records, one after each of them; the first is that of none."""
        return self._context.heads

    @property
    def index(self) -> int:
        """t, of this round among those of the run, from 1."""
        return len(self._records) + 1

    @property
    def parts(self) -> Parts:
        """Of the noise that the server does not know."""
        return self._known

    def past(self, bounds: Sequence[float]) -> list[CorrelatedRelease]:
        """The rounds before this one, as a client is charged for them.

        Args:
            bounds: Euclidean bound on its contribution to each, integer units; 0 for none.
        """
        counts = self._counts
        befores = [None, *counts][: len(counts)]
        return [
            self._known.release(index, now, before, bound)
            for index, (now, before, bound) in enumerate(
                zip(counts, befores, bounds, strict=True), start=1
            )
        ]

    @property
    def noise_multiplier(self) -> float:
        """As `Released.noise_multiplier` says: what enters in a round at least, of members too."""
        return multiplier(self._parameters, self._known.least_fresh)

    def worst(self) -> list[CorrelatedRelease]:
        """What this round can turn out as at the worst, for a client that takes part in it.

        The fewest upload; and as few, or as many, members as possible take something back.
        """
        ends, bound = self._ends(), self._parameters.l2_bound
        return [self._known.release(self.index, end, self._before, bound) for end in ends]

    @property
    def worst_case(self) -> CorrelatedRelease:
        """As `Released.worst_case` says: the dearest of `worst`."""
        return self.worst()[-1]

    def account(self, goal: PrivacyGoal | None) -> Account:
        """As `Released.account` says."""
        return RunAccount(goal, self._context.session_id)

    def epsilon_of_rounds(self, goal: PrivacyGoal, apart: int = 1) -> float:
        """As `Released.epsilon_of_rounds` says."""
        try:
            return self._epsilon_of_run(goal, apart)
        except ValueError:  # Nobody computes runs that are so long.
            return math.inf

    def _epsilon_of_run(self, goal: PrivacyGoal, apart: int) -> float:
        rounds, bound = self._known.rounds, self._parameters.l2_bound
        taken_part = min(goal.rounds, 1 + (rounds - 1) // apart)
        schedule = Schedule(rounds, taken_part, apart)
        back = likely_returning(self._known.members, self._known.fewest_members)
        delta = goal.delta_for_noise(rounds)
        return planned_epsilon(self._known, schedule, back, bound, delta)

    def possible(self) -> Sequence[RoundEvents]:
        """As `Released.possible` says."""
        return tuple(self._events(end) for end in self._ends())

    def of(self, survivors: int, record: RoundRecord | None = None) -> RoundEvents:
        """As `Released.of` says: what this round costs with this record."""
        if record is None or record.clients != survivors:
            raise ParameterError("record", record, f"that of a sum over {survivors} clients")
        if record.round_number != self._context.round_number:
            valid = f"that of round {self._context.round_number}"
            raise ParameterError("record", f"that of round {record.round_number}", valid)
        *_, now = _counts([*self._records, record])
        return self._events(now)

    def _ends(self) -> tuple[RoundParts, ...]:
        """What this round's record may say, at the worst."""
        if self._returning is None:
            fewest = (self._known.fewest_clients, self._known.fewest_members)
            return (RoundParts(clients=fewest[0], entered=fewest[1]),)
        return self._known.worst(self._before, self._returning)

    @property
    def _before(self) -> RoundParts | None:
        return self._counts[-1] if self._counts else None

    def _events(self, now: RoundParts) -> RoundEvents:
        bound, before = self._parameters.l2_bound, self._before
        mechanism = self._parameters.mechanism
        honest = max(now.clients - self._context.tolerated_colluders, 0)
        server = self._known.release(self.index, now, before, bound)
        return RoundEvents(
            server=server,
            # Who sees results alone learns no more.
            outsider=server,
            sybil=release_event(self._parameters, mechanism, 1),
            without_members=release_event(self._parameters, mechanism, honest),
            absent=replace(server, l2_sensitivity=0.0),
        )

    def _parts(self) -> Parts:
        context, parameters = self._context, self._parameters
        if parameters.returned is None or context.member_uploads is None:
            raise AssertionError("checked when this was made")
        try:
            return Parts(
                client_variance=parameters.mechanism.amount,
                member_variance=parameters.returned.variance,
                clients=context.invited,
                members=context.committee.size,
                corrupt_clients=context.tolerated_colluders,
                corrupt_members=context.committee.corrupt,
                fewest_clients=context.minimum_survivors,
                fewest_members=context.member_uploads.fewest,
                rounds=parameters.returned.rounds,
                dimension=parameters.length,
            )
        except (TypeError, ValueError) as error:
            raise ParameterError("returned", parameters.returned, str(error)) from None


def _counts(records: Sequence[RoundRecord]) -> list[RoundParts]:
    """Of every record the numbers of those who add, and of those who take back."""
    counts: list[RoundParts] = []
    entered = frozenset[int]()
    for record in records:
        back = len(entered.intersection(record.returned))
        counts.append(
            RoundParts(clients=record.clients, entered=len(record.entered), returned=back)
        )
        entered = frozenset(record.entered)
    return counts


@lru_cache(maxsize=16)
def planned_epsilon(
    parts: Parts, schedule: Schedule, fewest_returning: int, l2_bound: float, delta: float
) -> float:
    """Largest epsilon that a client's own count meets in a planned run.

    It is remembered: every client of a simulation asks for the same.

    Args:
        l2_bound: on a contribution, integer units.
    """
    charge = largest_charge(parts, schedule, fewest_returning)
    return correlated_epsilon(charge * l2_bound**2, parts.promises, delta)
