"""One message of a round as an NVFlare task, and its answer as the task's result.

A stage is a task of its own name, so that filters which a job has for its training task leave these
alone: what they would change here is either bound into the round or masked. All clients of a stage
share its data: the model with the task at which the masked update is due, its digest with all, and
the survey of an evaluation with the first task and with the model's. What
is meant for one client only travels in the context that NVFlare sends with every delivery.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants

from protocol.adapters.evaluation import bound_digest
from protocol.adapters.named_arrays import canonical
from protocol.adapters.nvflare.models import Weights, task_digest
from protocol.exchange.one_shot import MemberStage
from protocol.exchange.stages import Refusal
from protocol.round.losses import Stage
from protocol.statistics.survey import Survey
from secagg import SERVER, Reason, RemoteProtocolError

PREFIX = "veilsum_"


class OneShotTask(enum.Enum):
    """What clients are asked in one-shot rounds: once a job for a sealing key, then an upload.

    The others go to them as members of the committee.
    """

    KEYS = "keys"
    UPLOAD = "upload"
    NOISE = "noise"
    CHECK = "check"
    SIGN = "sign"
    OPEN = "open"

    def __str__(self) -> str:
        return self.value


Step = Stage | OneShotTask
STEP_OF: Mapping[str, Step] = {f"{PREFIX}{step}": step for step in (*Stage, *OneShotTask)}
"""Steps by the name of their task."""
WITH_MODEL = frozenset[Step]({Stage.INPUT, OneShotTask.UPLOAD})
"""The steps that the model travels with."""
SURVEYED = WITH_MODEL | {Stage.ADVERTISE}
"""The steps that a survey travels with."""
TASK_OF_MEMBERS = {
    MemberStage.NOISE: OneShotTask.NOISE,
    MemberStage.CHECK: OneShotTask.CHECK,
    MemberStage.CONFIRM: OneShotTask.SIGN,
    MemberStage.OPEN: OneShotTask.OPEN,
}
STAGE_OF_MEMBERS = {task: stage for stage, task in TASK_OF_MEMBERS.items()}

_MESSAGE, _DIGEST, _ANSWER = "veilsum_message", "veilsum_digest", "veilsum_answer"
_SURVEY = "veilsum_survey"
_RETURN_CODES = {value for name, value in vars(ReturnCode).items() if not name.startswith("_")}


def task_name(step: Step) -> str:
    """Of the task that carries a step."""
    return f"{PREFIX}{step}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """What all clients of a round are given to train on, or to evaluate.

    Attributes:
        weights: the model.
        number: of the round, from 0.
        rounds: of the run.
        survey: what an evaluation asks; None in training.
    """

    weights: Weights
    number: int
    rounds: int
    survey: Survey | None = None

    @property
    def seen(self) -> bytes:
        """Digest of what the trainer sees, 32 bytes. Its context is this site's, and not in it."""
        return task_digest(self.weights, self.number, self.rounds)

    @property
    def digest(self) -> bytes:
        """What the round is bound to: of all of it."""
        return bound_digest(self.seen, self.survey)

    def copy(self) -> Assignment:
        """Arrays of its own, for a trainer that changes them in place or looks at their layout."""
        return replace(self, weights=canonical(self.weights))

    def shareable(self) -> Shareable:
        """The task as NVFlare's own workflows send it to a trainer."""
        shareable = DXO(DataKind.WEIGHTS, data=dict(self.weights)).to_shareable()
        shareable.set_header(AppConstants.CURRENT_ROUND, self.number)
        shareable.set_header(AppConstants.NUM_ROUNDS, self.rounds)
        return shareable


def outgoing(step: Step, assignment: Assignment, seen: bytes) -> Shareable:
    """The data of a task; `seen` is `assignment.seen`."""
    data = assignment.shareable() if step in WITH_MODEL else Shareable()
    data[_DIGEST] = seen
    if assignment.survey is not None and step in SURVEYED:
        data[_SURVEY] = assignment.survey.written()
    return data


def enclose(message: bytes, delivery: FLContext) -> None:
    """Add the message for one client to the delivery of a task to it."""
    delivery.set_prop(_MESSAGE, message, private=False, sticky=False)


@dataclass(frozen=True, slots=True)
class Incoming:
    """What came with a task.

    Attributes:
        message: the protocol's, for this client.
        seen: digest of what the server says that the trainer will see.
        survey: as it is written; empty in training.
    """

    message: bytes
    seen: bytes
    survey: bytes


def incoming(data: Shareable, context: FLContext) -> Incoming:
    """What came with a task, but for a model."""
    sender = context.get_peer_context()
    message = sender.get_prop(_MESSAGE) if isinstance(sender, FLContext) else None
    parts = message, data.get(_DIGEST), data.get(_SURVEY, b"")
    found = [part for part in parts if isinstance(part, bytes)]
    if len(found) < len(parts):
        raise RemoteProtocolError(SERVER, Reason.MALFORMED, "a task without a message")
    return Incoming(*found)


def received_assignment(data: Shareable, survey: Survey | None) -> Assignment:
    """What a task gives a client to train on, or to evaluate for a survey that it answers."""
    number = data.get_header(AppConstants.CURRENT_ROUND)
    rounds = data.get_header(AppConstants.NUM_ROUNDS)
    weights = arrays(data, DataKind.WEIGHTS)
    if weights is None or type(number) is not int or type(rounds) is not int:
        raise RemoteProtocolError(SERVER, Reason.MALFORMED, "a task without a model")
    return Assignment(weights, number, rounds, survey)


def arrays(data: Shareable, kind: str) -> dict[str, Any] | None:
    """The named arrays of a DXO of this kind; None if there is no such DXO."""
    found = entries(data, kind)
    if found is None:
        return None
    named = all(isinstance(n, str) and isinstance(array, np.ndarray) for n, array in found.items())
    return found if named else None


def entries(data: Shareable, kind: str) -> dict[Any, Any] | None:
    """What a DXO of this kind holds; None if there is no such DXO."""
    try:
        dxo = from_shareable(data)
    except ValueError:
        return None
    is_one = dxo.data_kind == kind and isinstance(dxo.data, Mapping)
    return dict(dxo.data) if is_one else None


def reply(answer: bytes) -> Shareable:
    """The result of a task: the answer, and nothing that a trainer may have put beside it."""
    return DXO(DataKind.APP_DEFINED, data={_ANSWER: answer}).to_shareable()


def open_reply(result: object) -> bytes | Refusal:
    """A client's answer. Whatever else came in its place counts as leaving the round."""
    if not isinstance(result, Shareable):
        return Refusal("sent no result")
    code = result.get_return_code()
    if code != ReturnCode.OK:
        return Refusal(str(code) if code in _RETURN_CODES else "an unknown return code")
    answer = answer_in(result)
    return Refusal("sent a result that is no answer") if answer is None else answer


def answer_in(result: Shareable) -> bytes | None:
    """The answer in a result; None if it is something else, or there is something beside it."""
    found = entries(result, DataKind.APP_DEFINED)
    answer = found.get(_ANSWER) if found is not None and len(found) == 1 else None
    return answer if isinstance(answer, bytes) else None
