"""Private evaluation: which metrics a run declares, and what a strategy gets of them.

A declaration is a table of metrics, each with its kind and bounds. It becomes a survey, whose
questions are in the order of their names. Names are compared with hyphens as underscores, as all
settings are. A client's app answers with bounded numbers under the declared names, and with the
columns `y_true` and `y_score` where a classifier is evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from pydantic import Field

from protocol.errors import ConfigurationError
from protocol.planning.configuration import Section, parse
from protocol.statistics.answers import Answer
from protocol.statistics.evaluation import Evaluation
from protocol.statistics.questions import Count, Mean, Question
from protocol.statistics.survey import Survey
from secagg import ParameterError

EVALUATION_KEY: Final = "evaluation"
RECORDS_KEY: Final = "evaluation_records"
RECORDS: Final = 16
"""Examples that stand for a client, unless it is said otherwise."""
LABELS, SCORES = "y_true", "y_score"
PREFIX: Final = "eval_"
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
        ConfigurationError: no such metrics, or two that a strategy could not tell apart.
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


def unweighted(survey: Survey) -> Survey:
    """A survey as it was declared: weights follow from it and from a plan."""
    return replace(survey, weights=())


def keys_of(question: Question) -> dict[str, str]:
    """The metrics of a question by the part of its answer; "" is the main estimate."""
    if isinstance(question, Evaluation):
        return {"": f"{PREFIX}auc", **{part: PREFIX + part for part in _OF_CLASSIFIERS}}
    name = question.name if question.name.startswith(PREFIX) else PREFIX + question.name
    return {"share" if isinstance(question, Count) else "": name}


def metrics_of(survey: Survey, answers: Sequence[Answer], clients: int) -> dict[str, float]:
    """The figures of an evaluation for a Flower `MetricRecord`."""
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
