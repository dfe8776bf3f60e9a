"""Surveys whose clients are all in this process, on one ledger."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dp import Ledger
from protocol.exchange.aggregators import Aggregator, IdealAggregator
from protocol.planning.training_plan import TrainingPlan
from protocol.round.losses import NOBODY, Dropouts
from protocol.statistics.answers import Answer
from protocol.statistics.private import PlannedSurvey, Surveyed, ask
from protocol.statistics.survey import Survey
from protocol.training.local import local_aggregator
from secagg import Identity, ParameterError


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What answers cost.

    Attributes:
        epsilon: guaranteed to every client, for this call or, with a ledger, for all calls on it;
            against a server that may deviate and work together with as many clients as planned,
            whether a client is left out or answers otherwise.
        delta: of that guarantee.
        spent: epsilon so far of the client that spent most: of this call or, with a ledger, of all.
        survivors: clients in the last sum.
        bytes_sent: by a client, all messages together; the mean over the survivors.
    """

    epsilon: float
    delta: float
    spent: float
    survivors: int
    bytes_sent: float


class LocalSurveys:
    """Clients who answer surveys, each with its table.

    Args:
        plan: whose clip does not matter.
        people: identities of the clients, in their order.
        tables: columns by name, of each client.
        ledger: file of what was released; kept nowhere if left out.
        cryptography: leave keys and masks out if False, which changes no sum.

    Raises:
        ParameterError: a committee without cryptography.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        people: Sequence[Identity],
        tables: Sequence[Mapping[str, Any]],
        *,
        ledger: str | Path | None = None,
        cryptography: bool = True,
        dropouts: Dropouts = NOBODY,
    ) -> None:
        if not cryptography and plan.scheme.SEATS:
            valid = "pairwise without cryptography: a committee has keys of its own"
            raise ParameterError("scheme", plan.scheme.KIND, valid)
        self._plan, self._people, self._tables = plan, people, tables
        self._cryptography, self._dropouts, self._ledger = cryptography, dropouts, ledger
        self._done: list[Surveyed] = []

    def run(self, planned: PlannedSurvey) -> list[Answer]:
        """One round; raises as `ask`."""
        aggregator: Aggregator = IdealAggregator()
        if self._cryptography:
            length = planned.survey.length
            aggregator = local_aggregator(planned.of_clients, self._people, length)
        with ExitStack() as stack:
            path = self._ledger
            if path is None:
                kind = tempfile.TemporaryDirectory(prefix="veilsum-statistics-")
                path = Path(stack.enter_context(kind)) / "ledger.jsonl"
            ledger = stack.enter_context(Ledger.open(path))
            cohort = [person.public for person in self._people]
            tables = self._tables.__getitem__
            self._done.append(ask(planned, aggregator, ledger, cohort, tables, self._dropouts))
        return self._done[-1].answers

    def shared(self, survey: Survey, share: float) -> list[Answer]:
        """One round of several, with a share of the goal."""
        return self.run(PlannedSurvey.of(survey, self._plan, share=share))

    @property
    def cost(self) -> Cost:
        """Of all rounds so far, one at least."""
        last = self._done[-1]
        return Cost(
            epsilon=self._plan.goal.epsilon,
            delta=self._plan.goal.delta,
            spent=last.epsilons.server,
            survivors=len(last.outcome.total.survivors),
            bytes_sent=math.fsum(each.outcome.bytes_per_survivor() for each in self._done),
        )
