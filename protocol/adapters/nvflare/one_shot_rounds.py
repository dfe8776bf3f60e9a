"""A client's half of one-shot rounds: one upload, and what it answers as a member of committees.

As in `client_rounds`, nothing is kept in memory between two tasks. In the client's folder lie the
sealing key of the session, the receipt of its last upload, what it has signed before as a member,
and, while the members are asked, the member's sealed state.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from protocol.adapters.nvflare.messages import Assignment, OneShotTask
from protocol.adapters.nvflare.site import Site
from protocol.errors import PolicyError
from protocol.exchange.remote import MESSAGE, answer_or_refuse, refuse
from protocol.exchange.remote_one_shot import RemoteMember, RemoteUploader, session_of
from protocol.round.history import ClientHistory
from protocol.round.member import MemberPolicy, RoundMember
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.stored_history import StoredHistory
from protocol.round.stored_sealing import SealingFolder
from protocol.round.upload_receipt import UploadReceipt
from secagg import LocalProtocolError
from secagg.storage import TokenFolder

Train = Callable[[Assignment], NDArray[Any]]
"""Trains, and returns the update: float32|float64[d]."""


class OneShotRounds:
    """All one-shot rounds of one client in one job.

    Args:
        site: the client's own.
        name: of the client.
        train: called once a round, with a model that is the announced one.
        history: of the client; what it signs as a member is in a history of its own.

    Raises:
        ConfigurationError: agreement, registry or identity cannot be used.
        LedgerError: the member's history was altered, or another job of this client has it open.
    """

    def __init__(self, site: Site, name: str, train: Train, history: ClientHistory) -> None:
        agreement, folder = site.agreement, site.client(name)
        self._identity = site.identity(name)
        self._registry = frozenset(site.registry.values())
        self._policy = agreement.policy
        self._trusts_one = self._policy.committee is not None
        corrupt = self._policy.committee.most_corrupt if self._policy.committee else 0
        self._member_policy = MemberPolicy(
            minimum_survivors=self._policy.minimum_survivors,
            tolerated_colluders=self._policy.registry_colluders,
            corrupt=corrupt,
            registry=self._registry,
        )
        self._train = train
        self._history = history
        self._sealing = SealingFolder(folder / "sealing")
        self._receipt = folder / "round" / "receipt"
        self._stored = folder / "round" / "member"
        self._keys = TokenFolder(folder / "round" / "keys")
        self._signed = StoredHistory(folder / "member")

    def close(self) -> None:
        """Let another process act for this client."""
        self._signed.close()

    def answer(
        self, task: OneShotTask, message: bytes, received: Callable[[], Assignment]
    ) -> tuple[bytes, Exception | None]:
        """What to send back, and the error if we left the round.

        Args:
            task: of the message.
            message: of the server.
            received: reads the model that came with the message.
        """
        try:
            if not self._trusts_one:
                raise PolicyError("protocol", "one-shot", "pairwise, as agreed")
            if task is OneShotTask.KEYS:
                return MESSAGE + self._sealing.begin(self._identity, message).entry.encode(), None
            if task is OneShotTask.UPLOAD:
                return self._upload(message, received())
            return self._as_member(task, message)
        except Exception as error:
            return refuse(error), error

    def _upload(self, message: bytes, assignment: Assignment) -> tuple[bytes, Exception | None]:
        # A round that was not finished never will be: a client is in one at a time.
        self._keys.clear()
        self._stored.unlink(missing_ok=True)
        self._receipt.unlink(missing_ok=True)
        client = OneShotRoundClient(
            self._identity, self._registry, self._policy, self._history, clock=time.time
        )
        remote = RemoteUploader(client, assignment.digest(), lambda _: self._train(assignment))
        answer, error = answer_or_refuse(remote, message)
        if error is None:
            write_private(self._receipt, client.receipt.encode())
        return answer, error

    def _as_member(self, task: OneShotTask, message: bytes) -> tuple[bytes, Exception | None]:
        stored, receipt = b"", None
        if task is OneShotTask.CHECK:
            self._keys.clear()
            if self._receipt.exists():
                receipt = UploadReceipt.decode(self._receipt.read_bytes())
            session_id = session_of(message)
        else:
            stored = self._taken()
            session_id = RoundMember.session_of(stored)
        member = RoundMember(
            self._identity,
            self._sealing.key(self._identity, session_id),
            self._member_policy,
            self._signed,
            time.time,
        )
        if stored:
            member.resume(stored, self._keys)
        remote = RemoteMember(member, receipt)
        answer, error = answer_or_refuse(remote, message)
        if not remote.is_over:
            write_private(self._stored, member.suspend(self._keys))
        return answer, error

    def _taken(self) -> bytes:
        """The stored member, taken out: whatever happens next, it answers once."""
        try:
            stored = self._stored.read_bytes()
        except FileNotFoundError:
            raise LocalProtocolError("no round to go on with: it is over, or lost") from None
        self._stored.unlink()
        return stored


def write_private(path: Path, data: bytes) -> None:
    """Replace a file in one step; nobody else may read it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    fresh.replace(path)
