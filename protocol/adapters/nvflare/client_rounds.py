"""A client's half of all rounds of one job, task after task, through restarts of its process.

NVFlare may hand each task to a new process, and its simulator does when it has fewer threads than
clients. In the client's folder lie its history, the round that is under way, and for one-shot
rounds its sealing keys of the session, its last upload, and what it has signed before as a member
of committees, and added to their sums. A member of a named committee need not be a client.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from protocol.adapters.evaluation import accepted, bound_digest
from protocol.adapters.nvflare.messages import (
    STAGE_OF_MEMBERS,
    SURVEYED,
    Assignment,
    Incoming,
    OneShotTask,
    Step,
)
from protocol.adapters.nvflare.site import Site
from protocol.adapters.party import AddingMember, OneShotParty, Party
from protocol.errors import PolicyError
from protocol.exchange.one_shot import MemberStage
from protocol.exchange.remote import MESSAGE
from protocol.round.losses import Stage
from protocol.round.member_noise import StoredMemberNoise
from protocol.round.setup import RoundEncoding, RoundSetup
from protocol.round.stored_history import StoredHistory
from protocol.round.stored_sealing import SealingFolder
from protocol.round.stored_upload import UploadFolder
from protocol.statistics.survey import Survey
from secagg.storage import TokenFolder, replace_durably

Received = Callable[[Survey | None], Assignment]
"""Reads the model in the task that is being answered; for a survey, if it asks one."""
Train = Callable[[Assignment], NDArray[Any]]
"""Trains, and returns the update, float32|float64[d]; or evaluates, and returns int64[length]."""


@dataclass(frozen=True, slots=True)
class FileShelf:
    """As `Shelf` says, in a file."""

    path: Path

    def read(self) -> bytes:
        """As `Shelf.read` says."""
        return self.path.read_bytes() if self.path.exists() else b""

    def drop(self) -> None:
        """As `Shelf.drop` says."""
        self.path.unlink(missing_ok=True)

    def keep(self, state: bytes) -> None:
        """As `Shelf.keep` says."""
        replace_durably(self.path, state)


class ClientRounds:
    """All rounds of one client in one job."""

    def __init__(self, site: Site, name: str, train: Train) -> None:
        folder, policy = site.client(name), site.policy
        self._site, self._folder = site, folder
        keys = TokenFolder(folder / "round" / "keys")
        self._party = Party(
            identity=site.identity(name),
            registry=frozenset(site.registry.values()),
            policy=policy,
            keys=keys,
            shelf=FileShelf(folder / "round" / "state"),
            clock=lambda: time.time(),
        )
        self._one_shot = OneShotParty(
            party=self._party,
            shelf=FileShelf(folder / "round" / "member"),
            uploads=UploadFolder(folder / "upload"),
            sealing=SealingFolder(
                folder / "sealing", self._party.clock, site.agreement.key_rounds, keys.clear
            ),
        )
        self._train = train
        self._history = StoredHistory(folder / "history", policy.goal)
        self._signed = StoredHistory(folder / "member")
        self._answered: tuple[bytes, bytes] | None = None
        self.expire()

    def expire(self) -> None:
        """Erase sealing keys whose time is over, and with them the key of a member's stored round.

        The start of a job and every task do it; an operator can schedule it for a server that gives
        none.
        """
        self._one_shot.sealing.expire()

    def close(self) -> None:
        """Let another process act for this client."""
        self._history.close()
        self._signed.close()

    def answer(self, step: Step, came: Incoming, received: Received) -> bytes:
        """What to send back, or an error if we left the round.

        A task may be delivered again if the server has not got its result. Only the very same bytes
        are sent again: a second answer to one message could give secrets away.
        """
        self.expire()
        task = hashlib.sha256(f"{step} ".encode() + came.message).digest()
        if self._answered is None or self._answered[0] != task:
            self._answered = task, self._first_answer(step, came, received)
        return self._answered[1]

    def _first_answer(self, step: Step, came: Incoming, received: Received) -> bytes:
        if step is OneShotTask.KEYS:
            return MESSAGE + self._one_shot.key(came.message)
        survey = self._survey(came.survey) if came.survey and step in SURVEYED else None
        party = self._party
        if survey is not None:
            party = replace(party, policy=survey.policy(party.policy))
        received_for = partial(received, survey)
        if isinstance(step, Stage):
            return party.stage(
                came.message,
                bound_digest(came.seen, survey),
                partial(self._update, received_for),
                self._history,
                begins=step is Stage.ADVERTISE,
            )
        one_shot = replace(self._one_shot, party=party)
        if step is OneShotTask.UPLOAD:
            assignment = received_for()
            return one_shot.upload(
                came.message,
                assignment.digest,
                partial(self._made, assignment),
                lambda: nullcontext(self._history),
            )
        return self._as_member(one_shot, STAGE_OF_MEMBERS[step], came.message)

    def _as_member(self, one_shot: OneShotParty, stage: MemberStage, message: bytes) -> bytes:
        """What a member answers; its noise leaves at a fixed time after it was asked for."""
        began = time.monotonic()
        try:
            with self._adding() as adding:
                return one_shot.as_member(message, self._signed, stage, adding)
        finally:  # a disk may be full behind the draw
            if stage is MemberStage.NOISE:
                left = began + self._site.agreement.noise_after_seconds - time.monotonic()
                time.sleep(max(0.0, left))

    @contextmanager
    def _adding(self) -> Iterator[AddingMember | None]:
        """What we added to rounds as a member; None if our agreement has no noise that returns."""
        plan = self._site.agreement.plan
        if not plan.noise.remembered:
            yield None
            return
        with StoredMemberNoise(self._folder / "noise") as memory:
            uploads = UploadFolder(self._folder / "added")
            fewest = plan.noise.fewest_members(plan)
            yield AddingMember(memory=memory, uploads=uploads, fewest=fewest)

    def _survey(self, written: bytes) -> Survey:
        """What an evaluation asks, if it is what was agreed to."""
        declared = self._site.agreement.survey()
        return accepted(written, declared, "what agreement.toml declares" if declared else "")

    def _update(self, received: Callable[[], Assignment], setup: RoundSetup) -> NDArray[Any]:
        """Train on the model that came, if it is the one that all others announced keys for."""
        assignment, announced = received(), setup.parameters.model_digest
        if (digest := assignment.digest) != announced:
            valid = f"{announced.hex()}, as it was announced"
            raise PolicyError("model", digest.hex(), valid)
        return self._made(assignment, setup)

    def _made(self, assignment: Assignment, setup: RoundEncoding) -> NDArray[Any]:
        """What goes into the sum."""
        if assignment.survey is not None:
            assignment.survey.check(setup.parameters)
        return self._train(assignment)
