"""Private evaluation: which metrics a run declares, what clients agree to, what a server gets.

A declaration is a table of metrics, each with its kind and bounds. It becomes a survey, whose
questions are in the order of their names. Names are compared with hyphens as underscores, as all
settings are. A client's app answers with bounded numbers under the declared names, and with the
columns `y_true` and `y_score` where a classifier is evaluated.

The survey comes with the task. A client answers it only if it was declared to it or its digest is
allowed, and only in a round of integers whose noise is for what the survey says that one client
changes. Weights are the server's to choose: they shift noise between metrics, and bounds follow
from them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from pydantic import Field

from protocol.errors import ConfigurationError, PolicyError, TrainingFailedError
from protocol.planning.configuration import Section, parse
from protocol.planning.training_plan import TrainingPlan
from protocol.statistics.answers import Answer
from protocol.statistics.evaluation import Evaluation
from protocol.statistics.private import PlannedSurvey
from protocol.statistics.questions import Count, Mean, Question
from protocol.statistics.survey import Survey
from secagg import SERVER, ParameterError, Reason, RemoteProtocolError
from secagg.tags import encode_parts

EVALUATION_KEY: Final = "evaluation"
RECORDS_KEY: Final = "evaluation_records"
RECORDS: Final = 16
"""Examples that stand for a client, unless it is said otherwise."""
LABELS, SCORES = "y_true", "y_score"
PREFIX: Final = "eval_"
MAX_SURVEY_BYTES: Final = 1 << 16
_LABEL: Final = b"veilsum/evaluation/1"
_OF_CLASSIFIERS: Final = ("accuracy", "precision", "recall", "positives")


class Metric(Section):
    """A metric of a declaration."""

    kind: Literal["mean", "count", "evaluation"] = Field(
        default="mean",
        description="a mean within bounds; a share of yes, 1 or 0; or a binary classifier, from "
        f"{LABELS} and {SCORES}",
    )
    low: float | None = Field(default=None, description="of a mean: numbers below count as this")
    high: float | None = Field(default=None, description="of a mean: numbers above count as this")
    bins: int | None = Field(default=None, description="of a classifier's scores, 32 if left out")

    def question(self, name: str) -> Question:
        """The question of a survey; ParameterError if there is none."""
        given = {key for key in ("low", "high", "bins") if getattr(self, key) is not None}
        takes = {"mean": {"low", "high"}, "count": set(), "evaluation": {"bins"}}[self.kind]
        for key in sorted(given - takes):
            raise ParameterError(key, getattr(self, key), f"left out of a metric of {self.kind}")
        if self.kind == "count":
            return Count(name=name)
        if self.kind == "evaluation":
            bins = {} if self.bins is None else {"bins": self.bins}
            return Evaluation(name=name, label=LABELS, score=SCORES, **bins)
        valid = "finite bounds, low below high; choose them without looking at the data"
        if self.low is None or self.high is None:
            raise ParameterError("low" if self.low is None else "high", None, valid)
        if not -math.inf < self.low < self.high < math.inf:
            raise ParameterError("high", self.high, valid)
        return Mean(name=name, range=(self.low, self.high))


def plain(name: str) -> str:
    """A name as it is compared."""
    return name.replace("-", "_")


def survey_of(declared: Mapping[str, Mapping[str, Any]], records: int = RECORDS) -> Survey | None:
    """The survey of a declaration, without weights; None if nothing is declared.

    Raises:
        ConfigurationError: no such metrics, two that a strategy could not tell apart, or one
            example for a classifier.
    """
    questions = []
    for name in sorted(declared, key=plain):
        key = f"{EVALUATION_KEY}.{name}"
        try:
            questions.append(parse(dict(declared[name]), Metric).question(plain(name)))
        except ConfigurationError as error:
            problem, valid = error.problem, error.valid
            raise ConfigurationError(f"{key}.{error.key}", problem, valid) from None
        except ParameterError as error:
            raise ConfigurationError(f"{key}.{error.argument}", *_told(error)) from None
    if records == 1 and any(isinstance(each, Evaluation) for each in questions):
        valid = "at least 2 for a classifier: errors would leave out which example is drawn"
        raise ConfigurationError(RECORDS_KEY, "value 1", valid)
    keys = [key for question in questions for key in keys_of(question).values()]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise ConfigurationError(
            EVALUATION_KEY, f"{twice[0]} twice", f"other names: {_names(questions)}"
        )
    try:
        return Survey(questions=tuple(questions), max_records=records) if questions else None
    except ParameterError as error:
        key = RECORDS_KEY if error.argument == "max_records" else EVALUATION_KEY
        raise ConfigurationError(key, *_told(error)) from None


def _told(error: ParameterError) -> tuple[str, str]:
    return f"value {error.value}", error.valid


def _names(questions: Sequence[Question]) -> str:
    return ", ".join(question.name for question in questions)


def planned_survey(survey: Survey, plan: TrainingPlan) -> PlannedSurvey:
    """A declared survey with its weights, as one of the equal rounds of a plan.

    Raises:
        ConfigurationError: no round of the plan can have such a survey.
    """
    try:
        return PlannedSurvey.of(survey, plan)
    except ParameterError as error:
        problem = f"{error.argument} = {error.value}"
        raise ConfigurationError(EVALUATION_KEY, problem, error.valid) from None


def bound_digest(seen: bytes, survey: Survey | None) -> bytes:
    """What a round is bound to: the hash of what the app sees, and the survey's if it has one.

    So no round that was joined as an evaluation goes on as training, and nobody answers another
    survey than the rest. A round that was joined as training has training's clip and noise.
    """
    if survey is None:
        return seen
    return hashlib.sha256(encode_parts(_LABEL, seen, survey.digest)).digest()


def accepted(
    written: bytes, declared: Survey | None, where: str, allowed: Collection[str] = ()
) -> Survey:
    """The survey of a task, with the server's weights.

    Args:
        declared: what was declared, where this client takes it from; None if there is none.
        where: words for that place; empty if there is none.
        allowed: hexadecimal digests of others that this client answers.

    Raises:
        RemoteProtocolError: there is none.
        PolicyError: it is not one of these.
    """
    try:
        if not 0 < len(written) <= MAX_SURVEY_BYTES:
            raise ParameterError("survey", f"{len(written)} bytes", f"1 .. {MAX_SURVEY_BYTES}")
        asked = Survey.declared_digest(written)
        if asked.hex() in allowed or (declared is not None and declared.digest == asked):
            return Survey.read(written)
    except ParameterError as error:
        raise RemoteProtocolError(SERVER, Reason.MALFORMED, str(error)) from None
    valid = " or ".join(filter(None, [", ".join(allowed), where])) or "none"
    raise PolicyError("evaluation", f"a survey of digest {asked.hex()}", valid)


def column_of(key: str, survey: Survey, found: Collection[str], place: str = "") -> str:
    """The column that an answer names, which the survey has to ask for, once.

    Args:
        found: columns of the answer before it.
        place: where in the answer, for the message.

    Raises:
        TrainingFailedError: it is something that was not declared, or one thing twice.
    """
    column = plain(key)
    if column not in survey.columns:
        raise undeclared(f"{key!r}{place}", survey)
    if column in found:
        raise undeclared(f"{key!r} twice", survey)
    return column


def undeclared(what: str, survey: Survey) -> TrainingFailedError:
    """The error of an answer that holds something else than was declared."""
    return TrainingFailedError(
        f"the evaluation function answered with {what}, which is not declared: nothing would make "
        f"it private, and all clients weigh alike; valid: {', '.join(sorted(survey.columns))}"
    )


def keys_of(question: Question) -> dict[str, str]:
    """The metrics of a question by the part of its answer; "" is the main estimate."""
    if isinstance(question, Evaluation):
        return {"": f"{PREFIX}auc", **{part: PREFIX + part for part in _OF_CLASSIFIERS}}
    name = question.name if question.name.startswith(PREFIX) else PREFIX + question.name
    return {"share" if isinstance(question, Count) else "": name}


def metrics_of(survey: Survey, answers: Sequence[Answer], clients: int) -> dict[str, float]:
    """The figures of an evaluation by their names, each with its standard error."""
    pairs = zip(survey.questions, answers, strict=True)
    return {
        key: float(value)
        for question, answer in pairs
        for key, value in _figures(question, answer, clients)
    }


def _figures(question: Question, answer: Answer, clients: int) -> Iterator[tuple[str, float]]:
    keys = keys_of(question)
    for part, key in keys.items():
        estimate = answer.parts[part] if part else answer.estimate
        yield key, estimate.value
        yield f"{key}_se", estimate.standard_error
    if isinstance(question, Evaluation):
        yield f"{PREFIX}auc_bias_bound", answer.bias_bound
        yield f"{PREFIX}missing", answer.parts["missing"].value
    else:
        (key,) = keys.values()
        absent = answer.parts.get("missing")
        yield (
            f"{key}_missing",
            absent.value if absent else clients - answer.parts["answered"].value,
        )
