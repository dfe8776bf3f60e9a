"""A client's half of one-shot rounds: one upload, and what it answers as a member of committees.

As in `client_rounds`, nothing is kept in memory between two tasks. In the client's folder lie its
sealing keys of the session, its last upload, what it has signed before as a member, and, while the
members are asked, the member's sealed state. A member of a named committee need not be a client.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from protocol.adapters.nvflare.messages import Assignment, OneShotTask
from protocol.adapters.nvflare.site import Site
from protocol.errors import PolicyError
from protocol.exchange.remote import MESSAGE, answer_or_refuse, refuse
from protocol.exchange.remote_one_shot import RemoteMember, RemoteUploader, round_of
from protocol.exchange.sealing_book import read_request
from protocol.round.history import ClientHistory
from protocol.round.member import MemberPolicy, RoundMember
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.stored_history import StoredHistory
from protocol.round.stored_sealing import SealingFolder
from protocol.round.stored_upload import UploadFolder
from secagg import LocalProtocolError
from secagg.storage import TokenFolder, write_private

Train = Callable[[Assignment], NDArray[Any]]
"""Trains, and returns the update: float32|float64[d]."""


class OneShotRounds:
    """All one-shot rounds of one client in one job."""

    def __init__(self, site: Site, name: str, train: Train, history: ClientHistory) -> None:
        agreement, folder = site.agreement, site.client(name)
        self._identity = site.identity(name)
        self._registry = frozenset(site.registry.values())
        self._policy = site.policy
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
        self._uploads = UploadFolder(folder / "upload")
        self._stored = folder / "round" / "member"
        self._keys = TokenFolder(folder / "round" / "keys")
        self._sealing = SealingFolder(
            folder / "sealing", time.time, agreement.key_rounds, self._keys.clear
        )
        self._signed = StoredHistory(folder / "member")
        self.expire()

    def expire(self) -> None:
        """Erase sealing keys whose time is over, and with them the key of a member's stored round.

        The start of a job and every task do it; an operator can schedule it for a server that gives
        none.
        """
        self._sealing.expire()

    def close(self) -> None:
        """Let another process act for this client."""
        self._signed.close()

    def answer(
        self, task: OneShotTask, message: bytes, received: Callable[[], Assignment]
    ) -> tuple[bytes, Exception | None]:
        """What to send back, and the error if we left the round."""
        try:
            if not self._trusts_one:
                raise PolicyError("protocol", "one-shot", "pairwise, as agreed")
            if task is OneShotTask.KEYS:
                keys = self._sealing.begin(self._identity, *read_request(message))
                return MESSAGE + keys.entry.encode(), None
            if task is OneShotTask.UPLOAD:
                return self._upload(message, received())
            return self._as_member(task, message)
        except Exception as error:
            return refuse(error), error

    def _upload(self, message: bytes, assignment: Assignment) -> tuple[bytes, Exception | None]:
        if (sent := self._uploads.again(message, time.time)) is not None:
            return MESSAGE + sent, None
        # A round that was not finished never will be: a client is in one at a time.
        self._keys.clear()
        self._stored.unlink(missing_ok=True)
        self._uploads.begin()
        client = OneShotRoundClient(
            self._identity, self._registry, self._policy, self._history, clock=time.time
        )
        remote = RemoteUploader(client, assignment.digest(), lambda _: self._train(assignment))
        answer, error = answer_or_refuse(remote, message)
        if error is None:
            self._uploads.keep(client.receipt, answer[len(MESSAGE) :])
        return answer, error

    def _as_member(self, task: OneShotTask, message: bytes) -> tuple[bytes, Exception | None]:
        stored, receipt = b"", None
        if task is OneShotTask.CHECK:
            self._keys.clear()
            receipt = self._uploads.receipt()
            about = round_of(message)
        else:
            stored = self._taken()
            about = RoundMember.round_of(stored)
        member = RoundMember(
            self._identity,
            self._sealing.key(self._identity, *about),
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
