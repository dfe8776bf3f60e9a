"""What a client's app answers to an evaluation, as the survey's columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from protocol.adapters.evaluation import accepted, column_of, undeclared
from protocol.adapters.flower.arrays import loaded
from protocol.adapters.flower.home import ClientRules
from protocol.adapters.flower.settings import declared_survey
from protocol.errors import ConfigurationError
from protocol.statistics.survey import Survey


def allowed(written: bytes, rules: ClientRules, run_config: Mapping[str, Any]) -> Survey:
    """The survey of a message, if our rules allow it; raises as `accepted` does."""
    if not rules.allow_declared_evaluation:
        return accepted(written, None, "", rules.evaluations)
    where = "what the run's configuration declares"
    return accepted(written, _declared(run_config), where, rules.evaluations)


def _declared(run_config: Mapping[str, Any]) -> Survey | None:
    try:
        return declared_survey(run_config)
    except ConfigurationError:
        return None


def answered(content: RecordDict, survey: Survey) -> NDArray[np.int64]:
    """What an evaluation's answer becomes: int64[length]. Bad values count as missing.

    Raises:
        TrainingFailedError: it holds something that was not declared, or one thing twice.
    """
    return survey.encode(table_of(content, survey))


def table_of(content: RecordDict, survey: Survey) -> dict[str, Any]:
    """The columns in an answer, by the names that the survey asks for."""
    table: dict[str, Any] = {}
    for name, record in content.items():
        if not isinstance(record, ArrayRecord | MetricRecord):
            raise undeclared(f"a record {name!r} of type {type(record).__name__}", survey)
        for key, value in record.items():
            table[column_of(key, survey, table, f" in {name!r}")] = value
    return {
        column: loaded(column, value).ravel() if isinstance(value, Array) else value
        for column, value in table.items()
    }
