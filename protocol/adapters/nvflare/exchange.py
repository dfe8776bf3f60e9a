"""The server's transport: a stage of a round is one NVFlare task, broadcast to those who are left.

NVFlare delivers one and the same data to everybody. Here every client has a message of its own,
with shares for its eyes only, which is added to each delivery. (A task of its own for each client
is no way out: with two tasks standing, NVFlare 2.9 puts down a delivery that it repeats twice, and
the thread that ends tasks stumbles over the second.)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from queue import Empty, SimpleQueue

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from protocol.adapters.nvflare.messages import OneShotTask, Step, enclose, open_reply, task_name
from protocol.exchange.stages import Refusal
from protocol.round.losses import Stage
from secagg import LocalProtocolError

CHECK_SECONDS = 1
"""Between two looks at whether the job was aborted."""
GRACE_SECONDS = 10
"""NVFlare ends a task that is out of time. If it has not after so long, we do."""

MEASURED = frozenset[Step]({Stage.ADVERTISE, OneShotTask.KEYS})
"""Stages whose answers take as long as a trip does."""

Answer = tuple[int, bytes | Refusal]
_Answers = SimpleQueue[tuple[str, bytes | Refusal] | None]
"""Results by the client's name; None when the task is over."""


class TaskExchange:
    """An `Exchange` over tasks, for one round.

    Args:
        timeout: seconds that a stage may take, at least 1.
        measure: is told how many seconds it took to the last answer of a stage in which clients
            have nothing to wait for.
    """

    def __init__(
        self,
        controller: Controller,
        fl_ctx: FLContext,
        abort_signal: Signal,
        clients: Sequence[str],
        data: Callable[[Step], Shareable],
        timeout: Callable[[Step], int],
        measure: Callable[[float], object],
    ) -> None:
        self._controller = controller
        self._fl_ctx = fl_ctx
        self._abort_signal = abort_signal
        self._clients = clients
        self._data = data
        self._timeout = timeout
        self._measure = measure

    def __call__(self, stage: Step, messages: Iterable[tuple[int, bytes]]) -> Iterator[Answer]:
        """Deliver one stage's messages and yield the answers, as an `Exchange` does."""
        waiting: dict[str, int] = {}
        outbound: dict[str, bytes] = {}
        for index, message in messages:
            name = self._clients[index]
            if self._controller.get_client_disconnect_time(name):
                yield index, Refusal("disconnected")
            else:
                waiting[name], outbound[name] = index, message
        if waiting:
            yield from self._delivered(stage, waiting, outbound)

    def _delivered(
        self, stage: Step, waiting: dict[str, int], outbound: Mapping[str, bytes]
    ) -> Iterator[Answer]:
        # Of this stage alone: what comes after its end finds nobody who listens.
        answers: _Answers = SimpleQueue()
        seconds = self._timeout(stage)
        task = Task(
            name=task_name(stage),
            data=self._data(stage),
            timeout=seconds,
            before_task_sent_cb=partial(_enclosed, outbound),
            result_received_cb=partial(_received, answers),
            task_done_cb=partial(_done, answers),
        )
        self._controller.broadcast(task, self._fl_ctx, list(waiting), min_responses=0)
        try:
            yield from self._collected(stage, seconds, waiting, answers)
        finally:
            if task.completion_status is None:
                self._controller.cancel_task(task)

    def _collected(
        self, stage: Step, seconds: int, waiting: dict[str, int], answers: _Answers
    ) -> Iterator[Answer]:
        patience, start = seconds + GRACE_SECONDS, time.monotonic()
        while waiting and patience > 0:
            if self._abort_signal.triggered:
                raise LocalProtocolError(f"the job was aborted at stage {stage}")
            try:
                answer = answers.get(timeout=CHECK_SECONDS)
            except Empty:
                patience -= CHECK_SECONDS
                continue
            if answer is None:
                break
            name, content = answer
            if name in waiting:
                if stage in MEASURED:
                    self._measure(time.monotonic() - start)
                yield waiting.pop(name), content
        for index in waiting.values():
            yield index, Refusal(f"no answer within {seconds} s")


def _enclosed(outbound: Mapping[str, bytes], client_task: ClientTask, fl_ctx: FLContext) -> None:
    """A client fetches its task; what is put into this context goes with it, and to nobody else."""
    enclose(outbound[client_task.client.name], fl_ctx)


def _received(answers: _Answers, client_task: ClientTask, fl_ctx: FLContext) -> None:
    """A result arrived. NVFlare holds its locks meanwhile, so it is only put aside."""
    answers.put((client_task.client.name, open_reply(client_task.result)))
    # NVFlare would keep it until the task is cleared away.
    client_task.result = None


def _done(answers: _Answers, task: Task, fl_ctx: FLContext) -> None:
    """The task is over: everybody has answered, is disconnected, or is out of time."""
    answers.put(None)
