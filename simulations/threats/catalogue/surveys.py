"""A76: two histograms over clients who differ in one, and what their difference tells of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from dp import BinomialMechanism
from protocol import PrivacyGoal, Stage, TrainingPlan
from protocol.exchange.aggregators import IdealAggregator
from protocol.round.pipeline import Pipeline
from protocol.schemes.pairwise import pairwise_setup
from protocol.statistics.private import PlannedSurvey
from protocol.statistics.questions import Histogram
from protocol.statistics.survey import Survey
from secagg import Identity
from simulations.audits.base import Figures, derived_seed, public_keys
from simulations.threats.attack import Attack, Effort, Findings
from simulations.threats.rounds.released import allowed_accuracy, guessing_rate

_COHORT: Final = 12
_TARGET: Final = 4
_CELLS: Final = (2, 6)
"""Bins of the target's answer in the two worlds."""
_SURVEY: Final = Survey(questions=(Histogram(name="age", bins=8, range=(0.0, 80.0)),))


def _planned() -> PlannedSurvey:
    """The first of two such surveys on one ledger."""
    plan = TrainingPlan(
        goal=PrivacyGoal(1.0, 1e-5, 2),
        cohort=_COHORT,
        tolerated_dropouts=1,
        tolerated_colluders=0,
        clip_l2=1.0,
    )
    return PlannedSurvey.of(_SURVEY, plan)


def _differences(rounds: int, seed: int, *, noise: bool) -> Figures:
    """Guess the target's bin from the sum with it less the sum without it, many times."""
    planned = _planned()
    parameters, survey = planned.parameters, planned.survey
    if not noise:
        parameters = replace(parameters, mechanism=BinomialMechanism(0))
    keys = public_keys([Identity.generate() for _ in range(_COHORT)])
    setup = pairwise_setup(planned.plan, parameters, keys, bytes(16), 0)
    pipeline, rng = Pipeline(setup), np.random.default_rng(derived_seed(seed, "worlds"))
    worlds, scores = rng.integers(0, 2, rounds), np.zeros(rounds)
    for number, world in enumerate(worlds):
        ages = rng.uniform(0.0, 80.0, _COHORT)
        ages[_TARGET] = 10.0 * _CELLS[world] + 5.0
        sums = []
        for lost in ({}, {_TARGET: Stage.INPUT}):
            answers = [survey.encode({"age": age}) for age in ages]
            outcome = IdealAggregator().run(setup, answers.__getitem__, lost)
            mean = pipeline.decode(outcome.total, outcome.surplus).mean_sketch
            sums.append(mean * len(outcome.total.survivors))
        difference = sums[0] - sums[1]
        scores[number] = difference[_CELLS[1]] - difference[_CELLS[0]]
    claimed = pairwise_setup(planned.plan, planned.parameters, keys, bytes(16), 0)
    allowed = allowed_accuracy(claimed.events(_COHORT).server)
    return guessing_rate(scores, worlds, 0.0, allowed)


def differenced_histograms(effort: Effort, seed: int) -> Findings:
    """A76: subtract the histogram without a client from the one with it."""
    rounds = effort.choose(300, 5_000)
    return Findings(_differences(rounds, seed, noise=True), _differences(rounds, seed, noise=False))


ATTACKS: Final = (
    Attack(
        id="A76",
        promise="P6",
        name="difference of two histograms",
        title="Two histograms over clients who differ in one leave that one's answer in doubt",
        says="asks the same question with a client and without it, and subtracts",
        stopped_by="noise in every sum, charged on one ledger",
        see=("statistics.md",),
        run=differenced_histograms,
    ),
)
