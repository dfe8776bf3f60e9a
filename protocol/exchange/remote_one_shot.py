"""One-shot rounds with clients elsewhere: what a transport has to carry, in bytes.

A client gets its announcement, and with it the model; it trains, answers with its upload, and is
done. Then the members of the committee are asked three times, and before that for noise if they add
any. Up to the uploads that it is to check, a message to a member begins with an announcement of its
own: it need not be a client, and if it is one it need not have uploaded.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from protocol.checks import of_kind
from protocol.exchange.aggregators import UpdateSource, own_updates
from protocol.exchange.one_shot import (
    Announcements,
    MemberExchange,
    MemberStage,
    one_shot_script,
)
from protocol.exchange.remote import RemoteParty, made, opened, require_elsewhere
from protocol.exchange.stages import (
    CLIENT,
    MEMBER,
    Inbound,
    LossHook,
    Messages,
    ReleaseHook,
    RoundOutcome,
    conduct,
    no_hook,
    no_losses,
)
from protocol.round.announcements import read_announcement
from protocol.round.losses import NOBODY, Dropouts
from protocol.round.lottery import Members
from protocol.round.member import RoundMember
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.one_shot_setup import MAX_ANNOUNCEMENT_BYTES, OneShotSetup
from protocol.round.setup import RoundEncoding
from protocol.round.stored_upload import UploadReceipt
from secagg import SERVER, Reason, RemoteProtocolError
from secagg.oneshot.transitions import MemberPhase

_LENGTH_BYTES = 4

UploadExchange = Callable[[Announcements], Inbound]
"""Delivers announcements to clients, and yields their uploads; see `stages.Exchange`."""

MemberSource = Callable[[bytes, Sequence[bytes], int], Members]
"""The members' signed keys: see `HasCommittee.members`."""

OneShotUpdateMaker = Callable[[OneShotSetup], NDArray[Any]]
"""Makes a client's update, once it has accepted the round: float32|float64[d]."""


class RemoteOneShotAggregator:
    """The server's side of one-shot rounds with parties elsewhere. An `Aggregator`."""

    def __init__(
        self,
        collect: UploadExchange,
        exchange: MemberExchange,
        members_of: MemberSource,
        on_loss: LossHook = no_losses,
        on_member_loss: LossHook = no_losses,
        folder: Path | None = None,
    ) -> None:
        self._collect = collect
        self._exchange = exchange
        self._members_of = members_of
        self._on_loss = on_loss
        self._on_member_loss = on_member_loss
        self._folder = folder

    def members(self, session_id: bytes, cohort: Sequence[bytes], round_number: int) -> Members:
        """The members' signed keys: see `HasCommittee.members`."""
        return self._members_of(session_id, cohort, round_number)

    def run(
        self,
        setup: RoundEncoding,
        updates: UpdateSource = own_updates,
        dropouts: Dropouts = NOBODY,
        *,
        before_release: ReleaseHook = no_hook,
    ) -> RoundOutcome:
        """Run one round, as `Aggregator.run` does."""
        require_elsewhere(updates, dropouts)
        setup = of_kind("setup", setup, OneShotSetup)
        context = setup.context
        outcome = conduct(
            one_shot_script(
                setup.server(setup.uploads(self._folder)), setup, partial(_introduced, setup)
            ),
            ((index, setup.announce(index)) for index in range(context.invited)),
            self._carry,
            before_release,
            on_loss={CLIENT: self._on_loss, MEMBER: self._on_member_loss},
        )
        if context.committee.of_cohort:
            outcome.count_members_as_clients()
        return outcome

    def _carry(self, stage: enum.IntEnum, messages: Messages) -> Inbound:
        if isinstance(stage, MemberStage):
            return opened(MEMBER, partial(self._exchange, stage), messages)
        return opened(CLIENT, self._collect, messages)


class RemoteUploader(RemoteParty):
    """A client's side: it answers an announcement with its upload, and nothing else.

    Args:
        model_digest: 32-byte hash of the model that we received for this round.
    """

    _OVER = "this client has answered its announcement"

    def __init__(
        self, client: OneShotRoundClient, model_digest: bytes, update: OneShotUpdateMaker
    ) -> None:
        super().__init__(client.abort)
        self._client = client
        self._model_digest = model_digest
        self._update = update

    def _reply(self, data: bytes) -> bytes:
        self._left = True
        setup = self._client.join(data, self._model_digest)
        return self._client.submit(made(self._update, setup))


class RemoteMember(RemoteParty):
    """A member's side.

    Args:
        receipt: of what we have uploaded last as a client, of this round or an earlier one; None if
            that is nothing.
    """

    _OVER = "this member has left the round"

    def __init__(self, member: RoundMember, receipt: UploadReceipt | None = None) -> None:
        super().__init__(member.abort)
        self._member = member
        self._receipt = receipt

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be answered."""
        return self._left or self._member.phase in (MemberPhase.FINISHED, MemberPhase.ABORTED)

    def _reply(self, data: bytes) -> bytes:
        if self._member.phase is MemberPhase.WAITING:
            announcement, data = split_announcement(data)
            if not data:
                return self._add_noise(announcement)
            if not self._member.has_joined:
                self._join(announcement)
            elif not self._member.is_in(announcement):
                why = "another announcement than the one that was answered"
                raise RemoteProtocolError(SERVER, Reason.WRONG_CONTEXT, why)
        return self._member.receive(data)

    def _add_noise(self, announcement: bytes) -> bytes:
        """Our upload of noise; the same bytes for a server that did not get it."""
        if self._member.is_in(announcement):
            return self._member.resend()
        return self._member.add_noise(announcement)

    def _join(self, announcement: bytes) -> None:
        receipt, own = self._receipt, None
        # Reading is quick; a context costs a signature for every member.
        read = read_announcement(announcement)
        if receipt is not None and receipt.is_of(read.session_id, read.round_number):
            own = (receipt.index, receipt.header_digest)
        self._member.join(announcement, own)


def _introduced(setup: OneShotSetup, member: int, message: bytes) -> bytes:
    """A message to a member that may not know of the round."""
    place = member if setup.adding_members else None
    return with_announcement(setup.announce_to_member(place), message)


def with_announcement(announcement: bytes, message: bytes) -> bytes:
    """A member's first message; without one of the server's it asks for noise."""
    return len(announcement).to_bytes(_LENGTH_BYTES, "little") + announcement + message


def round_of(data: bytes) -> tuple[bytes, int]:
    """Session and number of the round that a member's first message is about: its key's range."""
    read = read_announcement(split_announcement(data)[0])
    return read.session_id, read.round_number


def split_announcement(data: bytes) -> tuple[bytes, bytes]:
    """Inverse of `with_announcement`."""
    length = int.from_bytes(data[:_LENGTH_BYTES], "little")
    end = _LENGTH_BYTES + length
    if len(data) < end or length > MAX_ANNOUNCEMENT_BYTES:
        raise RemoteProtocolError(SERVER, Reason.MALFORMED, "a member's first message")
    return data[_LENGTH_BYTES:end], data[end:]
