"""The sums that rounds are played for: those of training, and those of surveys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dp import FourEpsilons
from protocol.exchange.stages import RoundOutcome
from protocol.round.pipeline import Pipeline
from protocol.round.setup import RoundEncoding
from protocol.statistics.answers import Answer
from protocol.statistics.private import PlannedSurvey
from protocol.training.charged_sums import ChargedSums
from protocol.training.records import Notes
from sketch import SketchSpec

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
        survey = self.planned.survey
        return self.sums.setup(
            SketchSpec.identity(survey.length),
            cohort,
            model_digest,
            goal=self.planned.goal,
            linf_bound=survey.linf_bound,
        )

    def run_setup(self, setup: RoundEncoding, *, notes: Notes) -> Asked:
        """Play it, and read what the sum says."""
        survey = self.planned.survey
        about: Notes = {"survey": survey.digest.hex(), "questions": len(survey.questions)}
        outcome = self.sums.run(setup, self.sums.attempts, notes={**notes, **about})
        release = Pipeline(setup).decode(outcome.total, outcome.surplus)
        clients = release.survivors
        total, deviation = release.mean_sketch * clients, math.sqrt(release.noise_variance)
        answers = survey.answers(total, deviation * clients, clients)
        return Asked(self.number, setup, outcome, self.sums.epsilons(), answers)
