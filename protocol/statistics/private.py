"""A survey as a charged sum: planned, asked, decoded.

One ledger adds up what is released of one identity, in training and in surveys alike, if both have
one goal. A survey takes a share of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp import FourEpsilons, Ledger
from protocol.exchange.aggregators import Aggregator, UpdateSource, own_updates
from protocol.exchange.stages import RoundOutcome
from protocol.goal import PrivacyGoal, round_goal
from protocol.planning.training_plan import TrainingPlan
from protocol.round.losses import NOBODY, Dropouts
from protocol.round.parameters import RoundParameters
from protocol.round.pipeline import Pipeline
from protocol.round.setup import RoundEncoding
from protocol.statistics.answers import Answer
from protocol.statistics.survey import Survey, weighted
from protocol.training.charged_sums import ChargedSums
from protocol.training.records import Notes
from secagg import ParameterError
from secagg.checks import Range
from secagg.keys import os_random
from secagg.shamir import Rand
from secagg.terms import SESSION_ID_BYTES
from sketch import PublicSeed, SketchSpec
from sketch.hashing import SEED_BYTES

SHARE = Range(0, 1, "(]")

Tables = Callable[[int], Mapping[str, Any]]
"""A client's table by its index in the cohort: columns by name."""

RandOf = Callable[[int], Rand]


@dataclass(frozen=True, slots=True, eq=False)
class PlannedSurvey:
    """A survey with the plan of its round.

    Attributes:
        survey: with its weights.
        plan: whose clip is what one client changes at most.
        goal: of this round: the plan's, or a share of it.
    """

    survey: Survey
    plan: TrainingPlan
    goal: PrivacyGoal

    @classmethod
    def of(
        cls,
        survey: Survey,
        plan: TrainingPlan,
        *,
        share: float | None = None,
        importance: Mapping[str, float] | None = None,
    ) -> PlannedSurvey:
        """Choose weights.

        Args:
            survey: whose weights do not matter yet.
            plan: whose clip does not; its goal is that of the ledger.
            share: of the goal, in (0, 1]: squared shifts of all rounds add up to 1. Left out, the
                round is one of the goal's equal rounds.
            importance: see `weighted`.

        Raises:
            ParameterError: no such share or importance, or no noise meets the goal.
        """
        goal = plan.goal
        if share is None:
            share = 1.0 / goal.rounds
        SHARE.require("share", share)
        if goal.moment_order is not None and goal.rounds > 1:
            valid = "left out, the order of moments: shares are of a goal counted by domination"
            raise ParameterError("goal", f"moment_order={goal.moment_order}", valid)
        of_round = goal if goal.rounds == 1 and share == 1.0 else round_goal(goal, share)
        found = weighted(
            survey,
            of_round,
            fewest_honest=plan.fewest_honest,
            importance=importance,
            mechanism=plan.noise.mechanism,
            errors=plan.scheme.ERROR_VARIANCE,
        )
        return cls(found, replace(plan, clip_l2=found.l2_bound), of_round)

    @property
    def of_clients(self) -> TrainingPlan:
        """The plan as one round for itself, for clients who see no other."""
        return replace(self.plan, goal=self.goal)

    @property
    def parameters(self) -> RoundParameters:
        """Of the round, but for its seed."""
        return self.plan.calibrate(
            SketchSpec.identity(self.survey.length),
            self.survey.digest,
            PublicSeed(bytes(SEED_BYTES)),
            goal=self.goal,
            linf_bound=self.survey.linf_bound,
        )

    def deviation(self, survivors: int) -> float:
        """Standard deviation of the noise in each place of a sum, all of it left in."""
        each = self.parameters.mechanism.variance + self.plan.scheme.ERROR_VARIANCE
        return math.sqrt(survivors * each)

    def predicted(self, survivors: int | None = None) -> list[Answer]:
        """What errors to expect, before anybody is asked: of clients who are spread evenly.

        Args:
            survivors: the whole cohort, if left out.
        """
        survivors = self.plan.cohort if survivors is None else survivors
        return self.survey.answers(
            self.survey.even(survivors), self.deviation(survivors), survivors
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Surveyed:
    """What the server learned, and what it cost.

    Attributes:
        answers: in the order of the questions.
        epsilons: spent so far by the client that spent most.
        setup: the public parameters.
        outcome: survivors and bytes.
    """

    answers: list[Answer]
    epsilons: FourEpsilons
    setup: RoundEncoding
    outcome: RoundOutcome

    @property
    def number(self) -> int:
        """Of the round in its session."""
        return self.setup.context.round_number


@dataclass(frozen=True, slots=True, eq=False)
class SurveySum:
    """The round of a survey, as the next sum of a session. Methods raise as `PrivateTraining`'s.

    Args:
        sums: of a plan that differs in its clip at most.
    """

    planned: PlannedSurvey
    sums: ChargedSums

    def next_setup(self, cohort: Sequence[bytes], digest: bytes | None = None) -> RoundEncoding:
        """The round; nothing is announced or charged yet.

        Args:
            digest: that the round is bound to; the survey's if left out.
        """
        survey = self.planned.survey
        return self.sums.setup(
            SketchSpec.identity(survey.length),
            cohort,
            survey.digest if digest is None else digest,
            clip_l2=survey.l2_bound,
            goal=self.planned.goal,
            linf_bound=survey.linf_bound,
        )

    def run_setup(
        self,
        setup: RoundEncoding,
        updates: UpdateSource = own_updates,
        dropouts: Dropouts = NOBODY,
        notes: Notes | None = None,
    ) -> Surveyed:
        """Play it, and read what the sum says.

        Args:
            updates: a client's answers by its index, int64[length]; none of clients elsewhere.
        """
        survey = self.planned.survey
        asked: Notes = {"survey": survey.digest.hex(), "questions": len(survey.questions)}
        notes = {**(notes or {}), **asked}
        outcome = self.sums.run(setup, self.sums.attempts, updates, dropouts, notes)
        release = Pipeline(setup).decode(outcome.total, outcome.surplus)
        clients = release.survivors
        total, deviation = release.mean_sketch * clients, math.sqrt(release.noise_variance)
        return Surveyed(
            answers=survey.answers(total, deviation * clients, clients),
            epsilons=self.sums.epsilons(),
            setup=setup,
            outcome=outcome,
        )

    def ask(
        self,
        cohort: Sequence[bytes],
        tables: Tables,
        dropouts: Dropouts = NOBODY,
        rand: RandOf = lambda _: os_random,
        notes: Notes | None = None,
    ) -> Surveyed:
        """Run it for clients whose data are here.

        Args:
            cohort: identity keys, in the order of their indices; a person has one in all rounds.
            tables: a client's data, asked for when its turn comes. What is wrong in them never
                raises.
            rand: secret, of a client: draws the records that stand for it.
        """

        def answers(index: int) -> NDArray[np.int64]:
            return self.planned.survey.encode(tables(index), rand(index))

        return self.run_setup(self.next_setup(cohort), answers, dropouts, notes)


def ask(
    planned: PlannedSurvey,
    aggregator: Aggregator,
    ledger: Ledger,
    cohort: Sequence[bytes],
    tables: Tables,
    dropouts: Dropouts = NOBODY,
) -> Surveyed:
    """Run a survey in a session of its own, charged on a ledger; as `SurveySum.ask` says."""
    sums = ChargedSums(planned.plan, aggregator, ledger, os_random(SESSION_ID_BYTES))
    return SurveySum(planned, sums).ask(cohort, tables, dropouts)
