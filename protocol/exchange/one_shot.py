"""One-shot rounds: every client speaks once, then the members of the committee three times.

The rules of `protocol.exchange.stages` hold here as well. A client whose upload is refused is lost,
and costs nobody anything. The caller hears who survived when the complaints are closed, before any
member is asked to sign: from the signatures on the sum can be opened, so its privacy is paid for at
that moment, whatever becomes of the round.
"""

from __future__ import annotations

import enum
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dp import NoiseSeed
from protocol.exchange.aggregators import NoiseSource, UpdateSource, fresh_noise, system_rand
from protocol.exchange.stages import (
    PEER_ERRORS,
    SERVER_PARTY,
    Clock,
    Dropouts,
    LossHook,
    NoClock,
    Refusal,
    ReleaseHook,
    RoundOutcome,
    Stage,
    check_dropouts,
    explained,
    no_hook,
    no_losses,
)
from protocol.round.history import ClientHistory
from protocol.round.lottery import Lottery, Members
from protocol.round.member import MemberPolicy, RoundMember, SealingKeys
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.policy import ClientPolicy
from protocol.round.rings import UnixClock
from protocol.round.setup import RoundEncoding
from secagg import Identity, ParameterError, RemoteProtocolError
from secagg.keys import KEY_BYTES, AgreementKey
from secagg.oneshot.committee import CommitteeKind, Member
from secagg.oneshot.server import OneShotServer
from secagg.shamir import Rand


class MemberStage(enum.IntEnum):
    """The message that a lost member never sends; it sent all before."""

    CHECK = 0
    CONFIRM = 1
    OPEN = 2

    def __str__(self) -> str:
        return self.name.lower()


AWAY: Mapping[MemberStage, Stage] = {
    MemberStage.CHECK: Stage.CONFIRM,
    MemberStage.CONFIRM: Stage.CONFIRM,
    MemberStage.OPEN: Stage.UNMASK,
}
"""When everybody is a member, what a client that is lost at a stage of a pairwise round, after its
upload, does not send: the members' messages that take the place of that stage."""

Absences = Mapping[int, MemberStage]
"""For each lost member of a named or drawn committee, the first message that it does not send."""

MemberMessages = Iterable[tuple[int, bytes]]
"""A message for each member, by its index in the committee; made one at a time."""

MemberExchange = Callable[[MemberStage, MemberMessages], Iterable[tuple[int, bytes | Refusal]]]
"""Delivers a stage's messages to members, and yields what comes back; see `stages.Exchange`."""


@dataclass(frozen=True, slots=True)
class OneShotOutcome(RoundOutcome):
    """The sum of a one-shot round and how it came about; `bytes_up` and `bytes_down` are clients'.

    Attributes:
        member_bytes_up: bytes that each member sent as such, by its index in the committee.
        member_bytes_down: bytes that each was sent.
        refused_members: members lost because their message was refused or they refused, and why.
    """

    member_bytes_up: dict[int, int] = field(default_factory=dict)
    member_bytes_down: dict[int, int] = field(default_factory=dict)
    refused_members: dict[int, str] = field(default_factory=dict)

    def count_members_as_clients(self) -> None:
        """Add members' bytes to clients', where everybody is a member, at the same place."""
        for clients, members in (
            (self.bytes_up, self.member_bytes_up),
            (self.bytes_down, self.member_bytes_down),
        ):
            for index, size in members.items():
                clients[index] = clients.get(index, 0) + size


class _Ledger:
    """Bytes and refusals of one kind of party."""

    def __init__(self, on_loss: LossHook) -> None:
        self.up: dict[int, int] = {}
        self.down: dict[int, int] = {}
        self.refused: dict[int, str] = {}
        self._on_loss = on_loss

    def took(
        self, index: int, answer: bytes | Refusal, receive: Callable[[int, bytes], None]
    ) -> None:
        """Count what came up, and hand it to the server; either side may refuse."""
        reason = ""
        if isinstance(answer, Refusal):
            reason = answer.reason
        else:
            self.up[index] = self.up.get(index, 0) + len(answer)
            try:
                receive(index, answer)
            except RemoteProtocolError as error:
                reason = str(error)
        if reason:
            self.refused[index] = reason
            self._on_loss(index, reason)


def conduct_one_shot(
    server: OneShotServer,
    uploads: Iterable[tuple[int, bytes | Refusal]],
    exchange: MemberExchange,
    before_release: ReleaseHook = no_hook,
    clock: Clock | None = None,
    on_loss: LossHook = no_losses,
    on_member_loss: LossHook = no_losses,
) -> OneShotOutcome:
    """Run all stages of a one-shot round.

    Args:
        server: fresh.
        uploads: clients' messages as they arrive, until their time is up.
        exchange: the transport to the members.
        before_release: told the survivors before any member signs for them.
        clock: optional, for measurement.
        on_loss: told of each client that is lost for a refusal.
        on_member_loss: the same of members.

    Raises:
        TooFewSurvivorsError: with the reasons of refused parties in its notes.
        OpeningFailedError: the sum cannot be opened.
    """
    charge = partial((clock or NoClock()).charge, SERVER_PARTY)
    clients, members = _Ledger(on_loss), _Ledger(on_member_loss)

    def receive_upload(index: int, data: bytes) -> None:
        charge(partial(server.receive_upload, index, data))

    def receive(index: int, data: bytes) -> None:
        charge(partial(server.receive_from_member, index, data))

    def counted(messages: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        while (message := charge(partial(next, messages, None))) is not None:
            index, data = message
            members.down[index] = members.down.get(index, 0) + len(data)
            yield message

    with explained(clients.refused):
        for index, answer in uploads:
            clients.took(index, answer, receive_upload)
        for stage in MemberStage:
            messages = charge(server.close_round_bytes)
            if stage is MemberStage.CONFIRM:
                before_release(server.survivors)
            for index, answer in exchange(stage, counted(messages)):
                members.took(index, answer, receive)
    with explained(members.refused):
        total = charge(server.open)
    refused = {**clients.refused, **dict.fromkeys(server.excluded, "its shares do not open")}
    return OneShotOutcome(
        total=total,
        bytes_up=clients.up,
        refused=refused,
        member_bytes_up=members.up,
        member_bytes_down=members.down,
        refused_members=members.refused,
    )


KeySource = Callable[[bytes, bytes], AgreementKey]
"""Gives the sealing key of a member, by its identity key, in a session."""


def fresh_key(session_id: bytes, key: bytes) -> AgreementKey:
    """A new secret key for whoever asks."""
    del session_id, key
    return AgreementKey(secrets.token_bytes(KEY_BYTES))


class LocalCommittee:
    """The members of committees in this process: their keys, policies and histories.

    Args:
        kind: everyone who is invited; all of these, as a named committee; or some, by lot.
        identities: of all who may be members.
        policy: what every member insists on.
        key_of: their sealing keys; leave it alone except to run the same rounds twice.
        lottery: of a drawn committee; its registry is these identities.

    Raises:
        ParameterError: a lottery without a drawn committee, or the other way round.
    """

    def __init__(
        self,
        kind: CommitteeKind,
        identities: Sequence[Identity],
        policy: MemberPolicy,
        key_of: KeySource = fresh_key,
        lottery: Lottery | None = None,
    ) -> None:
        if (kind is CommitteeKind.DRAWN) != (lottery is not None):
            raise ParameterError("lottery", lottery, "given for a drawn committee, and no other")
        self._key_of = key_of
        self.kind = kind
        self.lottery = lottery
        self._identities = {identity.public: identity for identity in identities}
        self.policy = policy
        self._histories: dict[bytes, ClientHistory] = {}
        self._sealing: dict[tuple[bytes, bytes], SealingKeys] = {}

    @property
    def named(self) -> frozenset[bytes]:
        """The identity keys of a named committee; none if everyone is on it."""
        named = self.kind is CommitteeKind.NAMED
        return frozenset(self._identities) if named else frozenset()

    def members(self, session_id: bytes, cohort: Sequence[bytes], round_number: int) -> Members:
        """The signed keys of the members; see `HasCommittee.members`."""

        def entry_of(key: bytes) -> Member:
            return self._keys(session_id, key).entry

        if self.lottery is not None:
            return self.lottery.seat(session_id, round_number, entry_of)
        keys = cohort if self.kind is CommitteeKind.EVERYONE else self._identities
        return [entry_of(key) for key in keys]

    def member(self, session_id: bytes, key: bytes) -> RoundMember:
        """A member for one round, by its identity key."""
        return RoundMember(
            self._identities[key],
            self._keys(session_id, key),
            self.policy,
            self._histories.setdefault(key, ClientHistory()),
        )

    def _keys(self, session_id: bytes, key: bytes) -> SealingKeys:
        if key not in self._identities:
            raise ParameterError("cohort", key.hex(), "identities that are on the committee")
        place = (session_id, key)
        if place not in self._sealing:
            sealing = self._key_of(session_id, key)
            self._sealing[place] = SealingKeys(self._identities[key], session_id, key=sealing)
        return self._sealing[place]


class OneShotAggregator:
    """Runs every client, every member and the server over in-memory bytes, with real cryptography.

    A client is made when its turn comes and gone when it has uploaded: memory is one vector, the
    members' shares, and what `secagg.oneshot.spool` holds.

    Args:
        identities: the clients' signing keys; their public halves are the registry.
        policy: what every client insists on.
        committee: the members.
        clock: optional, for measurement; members are charged as the parties -2, -3, ...
        noise: secret seeds of rounding; leave it alone except to run the same round twice.
        rand_of: likewise, the source of every other secret of a client.
        unix_clock: the clients' own, if their rounds expire.
        absences: members of a named or drawn committee that get lost, and when.
        folder: where the server spools uploads that do not fit into memory.
    """

    def __init__(
        self,
        identities: Sequence[Identity],
        policy: ClientPolicy,
        committee: LocalCommittee,
        clock: Clock | None = None,
        noise: NoiseSource = fresh_noise,
        rand_of: Callable[[int], Rand] = system_rand,
        unix_clock: UnixClock | None = None,
        absences: Absences | None = None,
        folder: Path | None = None,
    ) -> None:
        self._identities = {identity.public: identity for identity in identities}
        self._registry = frozenset(self._identities)
        self._policy = policy
        self._committee = committee
        self._clock: Clock = clock or NoClock()
        self._noise = noise
        self._rand_of = rand_of
        self._unix_clock = unix_clock
        self._absences = absences or {}
        self._folder = folder
        self._histories = {key: ClientHistory(policy.goal) for key in self._registry}

    def members(self, session_id: bytes, cohort: Sequence[bytes], round_number: int) -> Members:
        """The signed keys of the members; see `HasCommittee.members`."""
        return self._committee.members(session_id, cohort, round_number)

    def run(
        self,
        setup: RoundEncoding,
        updates: UpdateSource,
        dropouts: Dropouts,
        *,
        before_release: ReleaseHook = no_hook,
    ) -> RoundOutcome:
        """Run all stages in this process; see `Aggregator.run`."""
        if not isinstance(setup, OneShotSetup):
            raise ParameterError("setup", type(setup).__name__, "that of a one-shot round")
        check_dropouts(dropouts, setup.context.invited)
        playing = _Round(self, setup, updates, dropouts)
        server = OneShotServer(setup.context, setup.known_cohort(), self._folder)
        outcome = conduct_one_shot(
            server, playing.uploads(), playing.exchange, before_release, self._clock
        )
        outcome.bytes_down.update(playing.announced)
        if setup.context.committee.kind is CommitteeKind.EVERYONE:
            outcome.count_members_as_clients()
        return outcome


class _Round:
    """The clients and members of one round, made when their turn comes."""

    def __init__(
        self,
        of: OneShotAggregator,
        setup: OneShotSetup,
        updates: UpdateSource,
        dropouts: Dropouts,
    ) -> None:
        self._of, self._setup, self._updates, self._dropouts = of, setup, updates, dropouts
        self._everyone = setup.context.committee.kind is CommitteeKind.EVERYONE
        seated = {member.identity for member in setup.context.committee.members}
        self._own: dict[bytes, tuple[int, bytes | None]] = {
            key: (index, None)
            for index, key in enumerate(setup.known_cohort().keys)
            if key in seated
        }
        self._members: dict[int, RoundMember] = {}
        self.announced: dict[int, int] = {}

    def uploads(self) -> Iterator[tuple[int, bytes | Refusal]]:
        """Every client's only message, one after the other."""
        for index, key in enumerate(self._setup.known_cohort().keys):
            announcement = self._setup.announce(index)
            self.announced[index] = len(announcement)
            if self._dropouts.get(index, Stage.RECOVER) <= Stage.INPUT:
                continue
            work = partial(self._upload, index, key, announcement)
            try:
                yield index, self._of._clock.charge(index, work)
            except PEER_ERRORS as error:
                yield index, Refusal(str(error))

    def _upload(self, index: int, key: bytes, announcement: bytes) -> bytes:
        of = self._of
        client = OneShotRoundClient(
            of._identities[key],
            of._registry,
            of._policy,
            of._histories[key],
            of._rand_of(index),
            of._unix_clock,
        )
        client.join(announcement, self._setup.parameters.model_digest)
        update: tuple[object, NoiseSeed] = self._updates(index), of._noise(index)
        data = client.submit(*update)  # type: ignore[arg-type]
        if key in self._own:
            self._own[key] = client.own_upload
        return data

    def exchange(
        self, stage: MemberStage, messages: MemberMessages
    ) -> Iterator[tuple[int, bytes | Refusal]]:
        """Deliver a stage's messages to the members, and give their answers."""
        for index, data in messages:
            if self._is_away(index, stage):
                continue
            work = partial(self._answer, index, data)
            try:
                yield index, self._of._clock.charge(-2 - index, work)
            except PEER_ERRORS as error:
                yield index, Refusal(str(error))

    def _is_away(self, index: int, stage: MemberStage) -> bool:
        if self._everyone:
            return self._dropouts.get(index, len(Stage)) <= AWAY[stage]
        return self._of._absences.get(index, len(MemberStage)) <= stage

    def _answer(self, index: int, data: bytes) -> bytes:
        if index not in self._members:
            context = self._setup.context
            key = context.committee.members[index].identity
            member = self._of._committee.member(context.session_id, key)
            member.join(self._setup.announce_to_member(), self._own.get(key))
            self._members[index] = member
        return self._members[index].receive(data)
