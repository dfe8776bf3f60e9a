"""Answers to a SuperNode's tasks: the protocol by the site, training by the app."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from flwr.app import ArrayRecord, Context, Error, Message, MessageType, RecordDict

from protocol.adapters.flower.client import REFUSED, guarded, only_arrays
from protocol.adapters.flower.frozen import why_frozen
from protocol.adapters.flower.home import ClientHome
from protocol.adapters.flower.log import warn
from protocol.adapters.flower.record import asks_noise, category
from protocol.adapters.flower.site.request import Request, expected_bytes, read_arrays
from protocol.adapters.flower.site.rules import SETTLING, SiteRules
from protocol.adapters.flower.site.trainer import Trainer
from protocol.errors import PolicyError
from protocol.exchange.remote import OTHER


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

        A message at which training is due is answered at a fixed moment, whatever training did; so
        is one that asks a member for noise, however long it took to draw.
        """
        began = time.monotonic()
        training = Training(self.rules, app, began, self.sleep)
        try:
            self._check(message, app)
        except PolicyError as error:
            warn(f"refused: {error}")
            return Message(Error(REFUSED, type(error).__name__), reply_to=message)
        digest = hashlib.sha256(app).digest()
        reply = guarded(lambda _: self.home, message, context, training, digest)
        noise = asks_noise(message.content) if message.has_content() else False
        if training.due or noise:
            name = "noise_after_seconds" if noise else "answer_after_seconds"
            left = began + getattr(self.rules, name) - time.monotonic()
            if left < 0.0:
                warn(f"answered {-left:.1f} s late: raise {name}")
            self.sleep(max(0.0, left))
        if (reason := why_frozen(self.home.folder)) is not None:  # maybe since it began
            warn(f"not sent: frozen: {reason}")
            return Message(Error(REFUSED, OTHER), reply_to=message)
        # Made only now: a reply has the time at which it was made.
        if reply.has_error():
            return Message(reply.error, reply_to=message)
        return Message(reply.content, reply_to=message)

    def _check(self, message: Message, app: bytes) -> None:
        kind, digest = message.metadata.message_type, hashlib.sha256(app).hexdigest()
        if category(kind) != MessageType.TRAIN:
            raise PolicyError("message type", kind, "training only: a site's process has no other")
        if digest not in self.rules.approved_apps:
            valid = ", ".join(self.rules.approved_apps) or "none: approved_apps is empty"
            raise PolicyError("app", f"one of SHA-256 {digest}", valid)


class Training:
    """The app's training function, as the mod calls it: in a process of its own.

    It returns at a fixed moment too, so that what follows, the round's own time among it, does not
    depend on how long training took. `due` says whether it was called.
    """

    def __init__(
        self, rules: SiteRules, app: bytes, began: float, sleep: Callable[[float], object]
    ) -> None:
        self._rules, self._app, self._sleep = rules, app, sleep
        self._end = began + rules.training_seconds
        self.due = False

    def __call__(self, message: Message, context: Context) -> Message:
        """The model after training; as it came, if anything went wrong."""
        self.due = True
        received = only_arrays(message.content)
        try:
            arrays = self._trained(message, context, received)
        except Exception as error:
            warn(f"an update of zeros, because training failed: {type(error).__name__}: {error}")
            arrays = received
        self._sleep(max(0.0, self._end + SETTLING - time.monotonic()))
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    def _trained(self, message: Message, context: Context, received: ArrayRecord) -> ArrayRecord:
        request = Request.of(self._app, message, context).write()
        trainer = Trainer(
            self._rules.trainer, max(0.0, self._end - time.monotonic()), self._rules.sandbox
        )
        return read_arrays(trainer.run(request, expected_bytes(received)), received)
