"""The sums that rounds are played for: those of training, and those of surveys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dp import FourEpsilons
from protocol.exchange.stages import RoundOutcome
from protocol.round.setup import RoundEncoding
from protocol.statistics.answers import Answer
from protocol.statistics.private import PlannedSurvey
from protocol.training.charged_sums import ChargedSums
from protocol.training.records import Notes

R_co = TypeVar("R_co", covariant=True)


class Sums(Protocol[R_co]):
    """Rounds of one kind, such as those of a `PrivateTraining`."""

    def next_setup(self, cohort: Sequence[bytes], model_digest: bytes) -> RoundEncoding:
        """The next round; nothing is announced or charged yet."""

    def run_setup(self, setup: RoundEncoding, *, notes: Notes) -> R_co:
        """Play the round, which is charged before it is released."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A survey that was answered."""

    number: int
    setup: RoundEncoding
    outcome: RoundOutcome
    epsilons: FourEpsilons
    answers: list[Answer]


@dataclass(frozen=True, slots=True)
class SurveySum:
    """The round of a survey, the next of these sums.

    Attributes:
        number: of surveys answered before it.
    """

    planned: PlannedSurvey
    sums: ChargedSums
    number: int

    def next_setup(self, cohort: Sequence[bytes], model_digest: bytes) -> RoundEncoding:
        """The round as announced, with the noise of its share of the goal."""
        return self.planned.setup(self.sums, cohort, model_digest)

    def run_setup(self, setup: RoundEncoding, *, notes: Notes) -> Asked:
        """Play it, and read what the sum says."""
        notes = {**notes, **self.planned.notes}
        outcome = self.sums.run(setup, self.sums.attempts, notes=notes)
        answers = self.planned.read(setup, outcome)
        return Asked(self.number, setup, outcome, self.sums.epsilons(), answers)
