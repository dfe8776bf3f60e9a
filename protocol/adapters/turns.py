"""Whose turn it is in a run whose noise comes back, in which clients refuse to come too often.

Clients count the rounds that have a record, and the server sees no more: whoever was invited to one
counts as having taken part, for its upload may have been lost on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

from protocol.planning.training_plan import TrainingPlan
from secagg.oneshot.records import RoundRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """The cohorts of one run.

    Args:
        apart: minimum number of records between two rounds of a client.
        most: rounds that a client takes part in.
    """

    apart: int
    most: int
    _invited: dict[int, Sequence[bytes]] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, plan: TrainingPlan) -> Turns | None:
        """Those of a plan; None if its clients may come to every round."""
        clauses = plan.noise.clauses(plan)
        return cls(apart=clauses.apart, most=plan.goal.rounds) if clauses else None

    def invite(self, number: int, cohort: Sequence[bytes]) -> None:
        """Note who is invited to a round, by its number."""
        self._invited[number] = cohort

    def taken(self, records: Sequence[RoundRecord]) -> tuple[Counter[bytes], set[bytes]]:
        """Rounds that each client was in, and who would refuse the one after these records."""
        cohorts = [self._invited[record.round_number] for record in records]
        taken = Counter(chain.from_iterable(cohorts))
        lately = chain.from_iterable(cohorts[max(0, len(cohorts) - self.apart + 1) :])
        return taken, {*lately, *(key for key, times in taken.items() if times >= self.most)}
