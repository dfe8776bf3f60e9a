"""A client's half of rounds, one message after the other, through restarts of its process.

Between two messages a round lies sealed in the client's folder, and no state of it is kept in
memory: NVFlare may hand each task to a new process, and its simulator does when it has fewer
threads than clients. A stored state can be resumed once. So a process that dies while it answers,
or before its answer arrived, loses the round, and no more than that.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from numpy.typing import NDArray

from protocol.adapters.nvflare.messages import Assignment, OneShotTask, Step
from protocol.adapters.nvflare.one_shot_rounds import OneShotRounds, Train
from protocol.adapters.nvflare.site import Site
from protocol.errors import PolicyError
from protocol.exchange.remote import RemoteClient, answer_or_refuse, refuse
from protocol.round.client import RoundClient
from protocol.round.losses import Stage
from protocol.round.setup import RoundSetup
from protocol.round.stored_history import StoredHistory
from secagg import LocalProtocolError
from secagg.storage import TokenFolder, write_private

Received = Callable[[], Assignment]
"""Reads the model in the task that is being answered."""


class ClientRounds:
    """All rounds of one client in one job."""

    def __init__(self, site: Site, name: str, train: Train) -> None:
        self._identity = site.identity(name)
        self._registry = frozenset(site.registry.values())
        self._policy = site.policy
        self._train = train
        self._stored = site.client(name) / "round" / "state"
        self._keys = TokenFolder(site.client(name) / "round" / "keys")
        self._history = StoredHistory(site.client(name) / "history", self._policy.goal)
        self._one_shot = OneShotRounds(site, name, train, self._history)
        self._answered: tuple[bytes, bytes] | None = None

    def close(self) -> None:
        """Let another process act for this client."""
        self._history.close()
        self._one_shot.close()

    def answer(
        self, step: Step, message: bytes, digest: bytes, received: Received
    ) -> tuple[bytes, Exception | None]:
        """What to send back, and the error if we left the round.

        A task may be delivered again if the server has not got its result. Only the very same bytes
        are sent again: a second answer to one message could give secrets away.
        """
        self._one_shot.expire()
        task = hashlib.sha256(f"{step} ".encode() + message).digest()
        if self._answered is None or self._answered[0] != task:
            if isinstance(step, OneShotTask):
                answer, error = self._one_shot.answer(step, message, received)
                if error is not None:
                    return answer, error
                self._answered = task, answer
                return answer, None
            client = RoundClient(
                self._identity, self._registry, self._policy, self._history, clock=time.time
            )
            remote = RemoteClient(client, digest, partial(self._update, received))
            answer, error = self._first_answer(remote, client, step, message)
            if error is not None:
                return answer, error
            if not remote.is_over:
                write_private(self._stored, client.suspend(self._keys))
            self._answered = task, answer
        return self._answered[1], None

    def _first_answer(
        self, remote: RemoteClient, client: RoundClient, stage: Stage, message: bytes
    ) -> tuple[bytes, Exception | None]:
        if stage is Stage.ADVERTISE:
            # A new round; one that was not finished never will be. Every key, as a state may be
            # damaged, or gone by a process that was killed between the two.
            self._keys.clear()
        else:
            try:
                client.resume(self._stored.read_bytes(), self._keys)
            except FileNotFoundError:
                return _refused(LocalProtocolError("no round to go on with: it is over, or lost"))
            except (LocalProtocolError, PolicyError) as error:
                return _refused(error)
        # Only after its key: what is left of a state without one opens for nobody.
        self._stored.unlink(missing_ok=True)
        return answer_or_refuse(remote, message)

    def _update(self, received: Received, setup: RoundSetup) -> NDArray[Any]:
        """Train on the model that came, if it is the one that all others announced keys for."""
        assignment = received()
        announced = setup.parameters.model_digest
        if assignment.digest() != announced:
            valid = f"{announced.hex()}, as it was announced"
            raise PolicyError("model", assignment.digest().hex(), valid)
        return self._train(assignment)


def _refused(error: Exception) -> tuple[bytes, Exception]:
    """The answer to a message that no round is there for."""
    return refuse(error), error
