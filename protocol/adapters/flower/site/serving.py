"""Answers to a SuperNode's tasks: the protocol by the site, training by the app."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import ArrayRecord, Context, Error, Message, MessageType, RecordDict

from protocol.adapters.flower.client import REFUSED, guarded, only_arrays
from protocol.adapters.flower.home import ClientHome
from protocol.adapters.flower.log import warn
from protocol.adapters.flower.record import category
from protocol.adapters.flower.site.request import Request, expected_bytes, read_arrays
from protocol.adapters.flower.site.rules import SiteRules
from protocol.adapters.flower.site.trainer import Trainer
from protocol.errors import PolicyError, TrainingFailedError


@dataclass(frozen=True, slots=True)
class Site:
    """Everything of a site but its connection.

    Args:
        home: identity, policy, history.
        rules: which apps may train.
        sleep: waits for so many seconds.
    """

    home: ClientHome
    rules: SiteRules
    sleep: Callable[[float], object] = time.sleep

    def answer(self, message: Message, context: Context, app: bytes) -> Message:
        """The one reply to a message; `app` is the file of the run's app.

        A message at which training is due is answered at a fixed moment, whatever training did.
        """
        began, training = time.monotonic(), Training(self.rules, app)
        try:
            self._check(message, app)
        except PolicyError as error:
            warn(f"refused: {error}")
            return Message(Error(REFUSED, type(error).__name__), reply_to=message)
        reply = guarded(lambda _: self.home, message, context, training)
        if training.due:
            self.sleep(max(0.0, began + self.rules.answer_after_seconds - time.monotonic()))
        return reply

    def _check(self, message: Message, app: bytes) -> None:
        kind, digest = message.metadata.message_type, hashlib.sha256(app).hexdigest()
        if category(kind) != MessageType.TRAIN:
            raise PolicyError("message type", kind, "training only: a site's process has no other")
        if digest not in self.rules.approved_apps:
            valid = ", ".join(self.rules.approved_apps) or "none: approved_apps is empty"
            raise PolicyError("app", f"one of SHA-256 {digest}", valid)


class Training:
    """The app's training function, as the mod calls it: in a process of its own.

    `due` says whether it was called.
    """

    def __init__(self, rules: SiteRules, app: bytes) -> None:
        self._rules, self._app = rules, app
        self.due = False

    def __call__(self, message: Message, context: Context) -> Message:
        """The model after training; as it came, if anything went wrong."""
        self.due = True
        received = only_arrays(message.content)
        try:
            arrays = self._trained(message, context, received)
        except TrainingFailedError as error:
            warn(f"an update of zeros, because training failed: {error}")
            arrays = received
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    def _trained(self, message: Message, context: Context, received: ArrayRecord) -> ArrayRecord:
        request = Request.of(self._app, message, context).write()
        trainer = Trainer(self._rules.trainer, self._rules.training_seconds)
        return read_arrays(trainer.run(request, expected_bytes(received)), received)
