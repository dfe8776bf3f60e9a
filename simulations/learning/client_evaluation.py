"""Clients evaluate a run's models, privately: a survey of a round's cohort, out of the same goal.

Every so many examples of a client are not trained on but kept for this. A client that has none
counts as missing, and so does a loss that is no number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from protocol.errors import ConfigurationError
from protocol.planning.training_plan import TrainingPlan
from protocol.statistics.answers import Answer, Estimate
from protocol.statistics.private import PlannedSurvey
from protocol.statistics.questions import Count, Mean
from protocol.statistics.survey import Survey
from simulations.learning.partition import Partition

if TYPE_CHECKING:
    from simulations.learning.configuration import ClientEvaluation

ACCURACY: Final = "accuracy"
LOSS: Final = "loss"

Judged = Mapping[str, Sequence[Any]]
"""Of a client: whether each prediction is right, and each loss, by the names above."""


def planned_evaluation(section: ClientEvaluation, plan: TrainingPlan) -> PlannedSurvey:
    """The survey, as one of the equal rounds of a plan.

    Raises:
        ParameterError: no noise meets the goal.
    """
    questions = (Count(name=ACCURACY), Mean(name=LOSS, range=(0.0, section.loss_bound)))
    return PlannedSurvey.of(Survey(questions=questions, max_records=section.records), plan)


def kept_back(parts: Partition, section: ClientEvaluation | None) -> tuple[Partition, Partition]:
    """Each client's examples to train on, and those that are kept for evaluations."""
    if section is None:
        return parts, ()
    every = section.held_out
    if max(map(len, parts)) < every:
        valid = f"at most {max(map(len, parts))}, the examples of the richest client"
        raise ConfigurationError("evaluation.held_out", f"value {every}", valid)
    held = tuple(part[every - 1 :: every] for part in parts)
    rest = tuple(part[np.arange(len(part)) % every != every - 1] for part in parts)
    return rest, held


def said(answers: Sequence[Answer]) -> dict[str, float | None]:
    """What clients say, as figures of a record: each with its standard error.

    None stands for what the noise leaves nothing of.
    """
    accuracy, loss = answers
    found: dict[str, float | None] = {}
    estimates: dict[str, Estimate] = {ACCURACY: accuracy.parts["share"], LOSS: loss.estimate}
    for name, estimate in estimates.items():
        told = math.isfinite(estimate.value) and math.isfinite(estimate.standard_error)
        found[name] = estimate.value if told else None
        found[f"{name}_error"] = estimate.standard_error if told else None
    return found


def errors_of(planned: PlannedSurvey) -> dict[str, float | None]:
    """Standard errors to expect, of the figures in `said`, with nobody lost or missing."""
    figures = said(planned.predicted())
    return {name: figures[f"{name}_error"] for name in (ACCURACY, LOSS)}
