"""One message of a round as an NVFlare task, and its answer as the task's result.

A stage is a task of its own name, so that filters which a job has for its training task leave these
alone: what they would change here is either bound into the round or masked. All clients of a stage
share its data: the model with the task at which the masked update is due, its digest with all. What
is meant for one client only travels in the context that NVFlare sends with every delivery.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants

from protocol.adapters.named_arrays import canonical
from protocol.adapters.nvflare.models import Weights, task_digest
from protocol.exchange.one_shot import MemberStage
from protocol.exchange.stages import Refusal
from protocol.round.losses import Stage
from secagg import SERVER, Reason, RemoteProtocolError

PREFIX = "veilsum_"


class OneShotTask(enum.Enum):
    """What clients are asked in one-shot rounds: once a job for a sealing key, then an upload.

    The others go to them as members of the committee.
    """

    KEYS = "keys"
    UPLOAD = "upload"
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
TASK_OF_MEMBERS = {
    MemberStage.CHECK: OneShotTask.CHECK,
    MemberStage.CONFIRM: OneShotTask.SIGN,
    MemberStage.OPEN: OneShotTask.OPEN,
}

_MESSAGE, _DIGEST, _ANSWER = "veilsum_message", "veilsum_digest", "veilsum_answer"
_RETURN_CODES = {value for name, value in vars(ReturnCode).items() if not name.startswith("_")}


def task_name(step: Step) -> str:
    """Of the task that carries a step."""
    return f"{PREFIX}{step}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """What all clients of a round are given to train on.

    Attributes:
        weights: the model.
        number: of the round, from 0.
        rounds: of the run.
    """

    weights: Weights
    number: int
    rounds: int

    def digest(self) -> bytes:
        """Of all of it; 32 bytes. The trainer's context is this site's, and not in it."""
        return task_digest(self.weights, self.number, self.rounds)

    def copy(self) -> Assignment:
        """Arrays of its own, for a trainer that changes them in place or looks at their layout."""
        return Assignment(canonical(self.weights), self.number, self.rounds)

    def shareable(self) -> Shareable:
        """The task as NVFlare's own workflows send it to a trainer."""
        shareable = DXO(DataKind.WEIGHTS, data=dict(self.weights)).to_shareable()
        shareable.set_header(AppConstants.CURRENT_ROUND, self.number)
        shareable.set_header(AppConstants.NUM_ROUNDS, self.rounds)
        return shareable


def outgoing(step: Step, assignment: Assignment, digest: bytes) -> Shareable:
    """The data of a task."""
    data = assignment.shareable() if step in WITH_MODEL else Shareable()
    data[_DIGEST] = digest
    return data


def enclose(message: bytes, delivery: FLContext) -> None:
    """Add the message for one client to the delivery of a task to it."""
    delivery.set_prop(_MESSAGE, message, private=False, sticky=False)


def incoming(data: Shareable, context: FLContext) -> tuple[bytes, bytes]:
    """The message in a task, and the digest of the model that the server announces."""
    sender = context.get_peer_context()
    message = sender.get_prop(_MESSAGE) if isinstance(sender, FLContext) else None
    digest = data.get(_DIGEST)
    if not isinstance(message, bytes) or not isinstance(digest, bytes):
        raise RemoteProtocolError(SERVER, Reason.MALFORMED, "a task without a message")
    return message, digest


def received_assignment(data: Shareable) -> Assignment:
    """What a task gives a client to train on."""
    number = data.get_header(AppConstants.CURRENT_ROUND)
    rounds = data.get_header(AppConstants.NUM_ROUNDS)
    weights = arrays(data, DataKind.WEIGHTS)
    if weights is None or type(number) is not int or type(rounds) is not int:
        raise RemoteProtocolError(SERVER, Reason.MALFORMED, "a task without a model")
    return Assignment(weights, number, rounds)


def arrays(data: Shareable, kind: str) -> dict[str, Any] | None:
    """The named arrays of a DXO of this kind; None if there is no such DXO."""
    try:
        dxo = from_shareable(data)
    except ValueError:
        return None
    named = isinstance(dxo.data, Mapping) and all(
        isinstance(name, str) and isinstance(array, np.ndarray) for name, array in dxo.data.items()
    )
    return dict(dxo.data) if named and dxo.data_kind == kind else None


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
    try:
        dxo = from_shareable(result)
    except ValueError:
        return None
    if dxo.data_kind != DataKind.APP_DEFINED or not isinstance(dxo.data, Mapping):
        return None
    answer = dxo.data.get(_ANSWER) if len(dxo.data) == 1 else None
    return answer if isinstance(answer, bytes) else None
