"""The client's executor: answers the tasks of a round, and trains or evaluates when it is due.

The trainer is a component of the job: an NVFlare `Executor`, given its usual training task, or any
object that maps a model to a trained one. It is not routed any task itself, so there is no way past
the masks, and of what it returns only the arrays go on; its counts of samples, metrics and headers
stay here. Of an evaluation, only the metrics that the agreement declares go on, as a survey's
integers; one that is not declared is refused.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvflare.apis.dxo import DataKind
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReservedKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.app_constant import AppConstants

from protocol.adapters.evaluation import column_of
from protocol.adapters.nvflare.client_rounds import ClientRounds
from protocol.adapters.nvflare.messages import (
    STEP_OF,
    Assignment,
    arrays,
    entries,
    incoming,
    received_assignment,
    reply,
)
from protocol.adapters.nvflare.models import Weights, difference, flat
from protocol.adapters.nvflare.site import Site
from protocol.errors import ConfigurationError, TrainingFailedError
from protocol.exchange.remote import FROM_TRAINING, refuse
from protocol.exchange.stages import PEER_ERRORS
from protocol.statistics.survey import Survey
from secagg import LocalProtocolError, RemoteProtocolError

TrainFunction = Callable[[Weights], Weights]
"""Maps a model to a trained one, of the same names and shapes."""


class MaskedTraining(Executor):
    """Executor of all tasks of `PrivateAveraging`; give it the tasks `veilsum_*`.

    Policy, identity, registry and history are those of the site (`protocol.adapters.nvflare.site`).

    Args:
        trainer: id of the component that trains.
        train_task: name of the task that a trainer which is an `Executor` expects.
        evaluator: id of the component that evaluates, an `Executor` whose result has metrics, or
            any object that maps a model to them; the trainer, if left out and an `Executor`.
        validate_task: name of the task that an evaluator which is an `Executor` expects.
    """

    def __init__(
        self,
        trainer: str,
        train_task: str = AppConstants.TASK_TRAIN,
        evaluator: str = "",
        validate_task: str = AppConstants.TASK_VALIDATION,
    ) -> None:
        super().__init__()
        self.trainer = trainer
        self.train_task = train_task
        self.evaluator = evaluator
        self.validate_task = validate_task
        self._rounds: ClientRounds | None = None
        self._context: tuple[FLContext, Signal] | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Give the client's folder free at the end of a run."""
        if event_type in (EventType.END_RUN, EventType.SWAP_OUT) and self._rounds is not None:
            self._rounds.close()
            self._rounds = None

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Answer one task.

        Any error, of the round, of the trainer or of this site's set-up, is told to this site's
        log; the server learns that we left, and hardly more. NVFlare would send a code that depends
        on the type of the exception.
        """
        step = STEP_OF.get(task_name)
        if step is None:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        try:
            came = incoming(shareable, fl_ctx)
        except RemoteProtocolError as error:
            self._note(fl_ctx, error)
            return make_reply(ReturnCode.BAD_TASK_DATA)
        self._context = fl_ctx, abort_signal
        try:
            rounds = self._opened(fl_ctx)
            received = partial(received_assignment, shareable)
            return reply(rounds.answer(step, came, received))
        except Exception as error:
            self._note(fl_ctx, error)
            return reply(refuse(error))
        finally:
            self._context = None

    def _note(self, fl_ctx: FLContext, error: Exception) -> None:
        """Tell this site's log, and nothing but the log.

        By default NVFlare fires an event with every error that it logs, and a job's configuration
        alone, without any code of its own, can have such events sent to the server.
        """
        self.log_error(fl_ctx, f"left the round: {_for_log(error)}", fire_event=False)

    def _opened(self, fl_ctx: FLContext) -> ClientRounds:
        if self._rounds is None:
            self._rounds = ClientRounds(Site.of(fl_ctx), fl_ctx.get_identity_name(), self._train)
        return self._rounds

    def _train(self, assignment: Assignment) -> NDArray[Any]:
        """Train, and return the update; or evaluate, and return the answers as integers."""
        try:
            if assignment.survey is None:
                return self._trained(assignment)
            return assignment.survey.encode(self._evaluated(assignment, assignment.survey))
        except FROM_TRAINING as error:
            raise TrainingFailedError(f"training: {type(error).__name__}: {error}") from error

    def _trained(self, assignment: Assignment) -> NDArray[Any]:
        result = self._called("trainer", self.trainer, self.train_task, assignment)
        if isinstance(result, Shareable):
            return update_of(result, assignment.weights)
        return difference(result, assignment.weights)

    def _evaluated(self, assignment: Assignment, survey: Survey) -> dict[str, Any]:
        """The columns that a survey asks for."""
        named = bool(self.evaluator)
        name = self.evaluator or self.trainer
        result = self._called("evaluator", name, self.validate_task, assignment, named)
        metrics = metrics_in(result) if isinstance(result, Shareable) else result
        table: dict[str, Any] = {}
        for key, value in dict(metrics).items():
            table[column_of(key, survey, table)] = value
        return table

    def _called(
        self, role: str, name: str, task: str, assignment: Assignment, function: bool = True
    ) -> Any:
        """What a component makes of a model: of an `Executor`, its whole result.

        Args:
            function: whether it may be one.
        """
        if self._context is None:
            raise LocalProtocolError("an update is due, but no task is being answered")
        fl_ctx, abort_signal = self._context
        component = fl_ctx.get_engine().get_component(name)
        if isinstance(component, Executor):
            data = assignment.copy().shareable()
            return checked(role, component.execute(task, data, _local(fl_ctx), abort_signal))
        if callable(component) and function:
            return component(assignment.copy().weights)
        raise LocalProtocolError(
            f"{role} {name!r} is {type(component).__name__}: it must be the id of a component that "
            f"is an Executor{' or can be called' if function else ''}"
        )


def _local(fl_ctx: FLContext) -> FLContext:
    """A context for the trainer: what this site has set, and nothing of the task's delivery.

    The server gives each client a context of its own with every task, and the digest does not cover
    it. It has no manager either: what a trainer makes sticky ends with its training, and nothing
    that it makes public is sent.
    """
    context = fl_ctx.get_engine().new_context()
    context.remove_prop(ReservedKey.MANAGER, force_removal=True)
    context.remove_prop(ReservedKey.PEER_CTX, force_removal=True)
    return context


def _for_log(error: Exception) -> str:
    """For this site's log: with the trace where it shows more than the words."""
    known = isinstance(error, (*PEER_ERRORS, ConfigurationError)) and error.__cause__ is None
    return (
        f"{type(error).__name__}: {error}" if known else "".join(traceback.format_exception(error))
    )


def checked(role: str, result: object) -> Shareable:
    """The result of an `Executor`, if it is one that came to its end."""
    if not isinstance(result, Shareable) or result.get_return_code() != ReturnCode.OK:
        code = result.get_return_code() if isinstance(result, Shareable) else type(result).__name__
        raise LocalProtocolError(f"the {role} returned {code} instead of a result")
    return result


def metrics_in(result: Shareable) -> dict[str, Any]:
    """The metrics in an evaluator's result."""
    found = entries(result, DataKind.METRICS)
    if found is None:
        raise LocalProtocolError("the evaluator returned no metrics")
    return found


def update_of(result: Shareable, received: Weights) -> NDArray[np.float64]:
    """The update in a trainer's result: float64[d]."""
    if (trained := arrays(result, DataKind.WEIGHTS)) is not None:
        return difference(trained, received)
    if (changes := arrays(result, DataKind.WEIGHT_DIFF)) is not None:
        return flat(changes, received)
    raise LocalProtocolError("the trainer returned neither weights nor weight differences")
