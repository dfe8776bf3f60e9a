"""A client's part in a private evaluation: what it agrees to, and what it lets out.

The survey comes with the message. A client answers it only if its policy allows it, by the digest
of what was declared or because the run's configuration declares it, and only in a round of integers
whose noise is for what the survey says that one client changes. Weights are the server's to choose:
they shift noise between metrics, and bounds follow from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray

from protocol.adapters.flower.arrays import loaded
from protocol.adapters.flower.evaluation import plain, unweighted
from protocol.adapters.flower.home import ClientRules
from protocol.adapters.flower.settings import declared_survey
from protocol.errors import ConfigurationError, PolicyError, TrainingFailedError
from protocol.round.policy import ClientPolicy
from protocol.statistics.survey import Survey
from secagg import SERVER, ParameterError, Reason, RemoteProtocolError

MAX_SURVEY_BYTES: Final = 1 << 16


def accepted(written: bytes, rules: ClientRules, run_config: Mapping[str, Any]) -> Survey:
    """The survey of a message.

    Raises:
        RemoteProtocolError: there is none.
        PolicyError: our policy does not allow it.
    """
    try:
        if not 0 < len(written) <= MAX_SURVEY_BYTES:
            raise ParameterError("survey", f"{len(written)} bytes", f"1 .. {MAX_SURVEY_BYTES}")
        survey = Survey.read(written)
    except ParameterError as error:
        raise RemoteProtocolError(SERVER, Reason.MALFORMED, str(error)) from None
    asked = unweighted(survey)
    if asked.digest.hex() in rules.evaluations:
        return survey
    declared = _declared(run_config) if rules.allow_declared_evaluation else None
    if declared and declared.digest == asked.digest:
        return survey
    allowed = "what the run's configuration declares" if rules.allow_declared_evaluation else ""
    valid = " or ".join(filter(None, [", ".join(rules.evaluations), allowed])) or "none"
    raise PolicyError("evaluation", f"a survey of digest {asked.digest.hex()}", valid)


def _declared(run_config: Mapping[str, Any]) -> Survey | None:
    try:
        return declared_survey(run_config)
    except ConfigurationError:
        return None


def policy_of(policy: ClientPolicy, survey: Survey) -> ClientPolicy:
    """What we insist on in the round of a survey: its clip is what one client changes, in integers.

    Everything else is as in training, the goal and its equal shares among it.
    """
    return replace(policy, largest_clip_l2=survey.l2_bound, dimension=survey.length)


def answered(content: RecordDict, survey: Survey) -> NDArray[np.int64]:
    """What an evaluation's answer becomes: int64[length]. Bad values count as missing.

    Raises:
        TrainingFailedError: it holds something that was not declared, or one thing twice.
    """
    return survey.encode(table_of(content, survey))


def table_of(content: RecordDict, survey: Survey) -> dict[str, Any]:
    """The columns in an answer, by the names that the survey asks for."""
    asked = {column for question in survey.questions for column in question.columns}
    table: dict[str, Any] = {}
    for name, record in content.items():
        if not isinstance(record, ArrayRecord | MetricRecord):
            raise _refused(f"a record {name!r} of type {type(record).__name__}", asked)
        for key, value in record.items():
            column = plain(key)
            if column not in asked:
                raise _refused(f"{key!r} in {name!r}", asked)
            if column in table:
                raise _refused(f"{key!r} twice", asked)
            table[column] = value
    return {
        column: loaded(column, value).ravel() if isinstance(value, Array) else value
        for column, value in table.items()
    }


def _refused(what: str, asked: set[str]) -> TrainingFailedError:
    return TrainingFailedError(
        f"the evaluation function answered with {what}, which is not declared: nothing would make "
        f"it private, and all clients weigh alike; valid: {', '.join(sorted(asked))}"
    )
