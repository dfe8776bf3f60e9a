"""A party's half of rounds, one message after the other, whatever framework carries them.

Nothing is kept in memory between two messages: a framework may hand each to a new process. In the
party's folder, or where its framework keeps state, lies the round that is under way, sealed. A
stored state can be resumed once. So a process that dies while it answers, or before its answer
arrived, loses the round, and no more than that. A party is in one round at a time, as a client and
as a member of committees: one that was not finished when the next begins never will be.

Every method gives what to send back, or raises: then we have left the round. Send `refuse(error)`
and tell whoever runs this party.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

from protocol.checks import of_kind
from protocol.exchange.one_shot import MemberStage
from protocol.exchange.remote import MESSAGE, RemoteClient, UpdateMaker
from protocol.exchange.remote_one_shot import (
    OneShotUpdateMaker,
    RemoteMember,
    RemoteUploader,
    round_of,
    split_announcement,
)
from protocol.exchange.sealing_book import read_request
from protocol.round.client import RoundClient
from protocol.round.committee_policy import CommitteePolicy
from protocol.round.history import ClientHistory
from protocol.round.member import MemberPolicy, RoundMember
from protocol.round.member_noise import StoredMemberNoise
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.policy import ClientPolicy
from protocol.round.rings import UnixClock
from protocol.round.stored_sealing import SealingFolder
from protocol.round.stored_upload import UploadFolder
from protocol.round.turns import StoredTurns
from secagg import SERVER, Identity, LocalProtocolError, Reason, RemoteProtocolError
from secagg.storage import TokenFolder


class Shelf(Protocol):
    """Where the round that is under way lies between two messages."""

    def read(self) -> bytes:
        """It; empty if there is none."""

    def drop(self) -> None:
        """Forget it, if there is one."""

    def keep(self, state: bytes) -> None:
        """Keep it in place of all else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """Who takes part.

    Args:
        registry: public keys of all clients that are known.
        keys: of stored rounds.
        shelf: where these lie.
        clock: tells unix seconds.
        turns: its coins, if it hides in which round of a block it comes.
    """

    identity: Identity
    registry: frozenset[bytes]
    policy: ClientPolicy
    keys: TokenFolder
    shelf: Shelf
    clock: UnixClock
    turns: StoredTurns | None = None

    def stage(
        self,
        message: bytes,
        digest: bytes,
        update: UpdateMaker,
        history: ClientHistory,
        *,
        begins: bool,
    ) -> bytes:
        """The answer to a message of a pairwise round; `digest` is that of our model.

        Args:
            begins: whether it is a round's first.
        """
        ours = self.identity, self.registry, self.policy, history
        client = RoundClient(*ours, clock=self.clock, turns=self.turns)
        with self.resuming(self.shelf, begins=begins) as stored:
            if stored:
                client.resume(stored, self.keys)
        remote = RemoteClient(client, digest, update)
        answer = remote.answer(message)
        if begins:
            self.leave(self.shelf)
        if not remote.is_over:
            self.shelf.keep(client.suspend(self.keys))
        return answer

    @contextmanager
    def resuming(self, shelf: Shelf, *, begins: bool) -> Iterator[bytes]:
        """The stored round, or nothing where another begins; once it is resumed, it is gone."""
        stored = b"" if begins else shelf.read()
        if not begins and not stored:
            raise LocalProtocolError("no round to go on with: it is over, or lost")
        yield stored
        # Only after its key, which a round that cannot be resumed still has: it may be asked again.
        if stored:
            shelf.drop()

    def leave(self, shelf: Shelf) -> None:
        """Forget the stored round: we have joined another. One that we refuse erases nothing."""
        # Every key: a state may be damaged, or gone by a process that was killed in between.
        self.keys.clear()
        shelf.drop()


@dataclass(frozen=True, slots=True, kw_only=True)
class AddingMember:
    """What a member has that adds noise to rounds, and takes it back.

    Args:
        memory: of what it added, open in this process as long as a message is answered.
        uploads: its last upload of noise.
        fewest: members whose noise is in a sum, at least.
    """

    memory: StoredMemberNoise
    uploads: UploadFolder
    fewest: int

    def has_uploaded_to(self, message: bytes) -> bool:
        """Whether our last upload is to the round that a message begins with."""
        receipt = self.uploads.receipt()
        return receipt is not None and receipt.is_of(*round_of(message))


@dataclass(frozen=True, slots=True, kw_only=True)
class OneShotParty:
    """One that may also take part in one-shot rounds, if its policy says so.

    Args:
        shelf: where our round as a member lies; a stray message as a client does not touch it.
        uploads: our last upload.
        sealing: our sealing keys as a member of committees.
    """

    party: Party
    shelf: Shelf
    uploads: UploadFolder
    sealing: SealingFolder

    def key(self, request: bytes) -> bytes:
        """Our sealing key for the rounds of a session, signed."""
        self._clauses()
        return self.sealing.begin(self.party.identity, *read_request(request)).entry.encode()

    def upload(
        self,
        announcement: bytes,
        digest: bytes,
        update: OneShotUpdateMaker,
        history: Callable[[], AbstractContextManager[ClientHistory]],
    ) -> bytes:
        """Our whole part as a client: train, mask, and be done.

        If the reply was lost and the server asks again, the same bytes are sent again.
        """
        self._clauses()
        party = self.party
        if (sent := self.uploads.again(announcement, party.clock)) is not None:
            return MESSAGE + sent

        def joined(setup: OneShotSetup) -> NDArray[Any]:
            party.leave(party.shelf)
            self.uploads.begin()
            return update(setup)

        with history() as opened:
            client = OneShotRoundClient(
                party.identity,
                party.registry,
                party.policy,
                opened,
                clock=party.clock,
                turns=party.turns,
            )
            answer = RemoteUploader(client, digest, joined).answer(announcement)
            self.uploads.keep(client.receipt, answer[len(MESSAGE) :])
        return answer

    def as_member(
        self,
        message: bytes,
        signed: ClientHistory,
        stage: MemberStage,
        adding: AddingMember | None = None,
    ) -> bytes:
        """One of three short answers after the uploads are in; they need no model and no data.

        Before them comes an upload of noise, if we add any. It takes longer to draw some values
        than others: send it at a fixed time after it was asked for. So it is asked for by its own
        stage only.

        Args:
            signed: what we have signed before as a member.
            stage: that we are asked in.
            adding: None refuses rounds to which members add noise.
        """
        self._clauses()
        party, begins = self.party, stage <= MemberStage.CHECK
        if begins:
            announcement, delivered = split_announcement(message)
            if (stage is MemberStage.NOISE) == bool(delivered):
                why = f"{stage} {'with' if delivered else 'without'} uploads"
                raise RemoteProtocolError(SERVER, Reason.MALFORMED, why)
            if adding is not None:
                if not delivered:
                    return self._add_noise(announcement, message, signed, adding)
                begins = not adding.has_uploaded_to(message)
        if begins:
            member = self._member(round_of(message), signed, adding)
            remote = RemoteMember(member, self.uploads.receipt())
            answer = remote.answer(message)
            # Only now: a round that we refuse does not end the one that is under way.
            party.leave(self.shelf)
        else:
            with party.resuming(self.shelf, begins=False) as stored:
                member = self._member(RoundMember.round_of(stored), signed, adding)
                member.resume(stored, party.keys)
            remote = RemoteMember(member)
            answer = remote.answer(message)
        if not remote.is_over:
            self.shelf.keep(member.suspend(party.keys))
        return answer

    def _add_noise(
        self, announcement: bytes, message: bytes, signed: ClientHistory, adding: AddingMember
    ) -> bytes:
        """What we upload as a member; the same bytes if the reply was lost."""
        party = self.party
        if (sent := adding.uploads.again(announcement, party.clock)) is not None:
            return MESSAGE + sent
        member = self._member(round_of(message), signed, adding)
        answer = RemoteMember(member).answer(message)
        # Only now, as in `as_member`.
        party.leave(self.shelf)
        # If nothing else is kept, our noise goes in, and we neither check nor sign.
        adding.uploads.keep(member.receipt, answer[len(MESSAGE) :])
        self.shelf.keep(member.suspend(party.keys))
        return answer

    def _member(
        self, about: tuple[bytes, int], signed: ClientHistory, adding: AddingMember | None
    ) -> RoundMember:
        """We as a member, for a session and a number."""
        party = self.party
        policy = MemberPolicy(
            minimum_survivors=party.policy.minimum_survivors,
            tolerated_colluders=party.policy.registry_colluders,
            corrupt=self._clauses().most_corrupt,
            registry=party.registry,
            fewest_members=adding.fewest if adding else 0,
        )
        key, memory = self.sealing.key(party.identity, *about), adding.memory if adding else None
        return RoundMember(party.identity, key, policy, signed, party.clock, memory)

    def _clauses(self) -> CommitteePolicy:
        policy = self.party.policy
        clauses = policy.committee or policy.clauses(CommitteePolicy.KIND)
        return of_kind("schemes", clauses, CommitteePolicy)
