"""One-shot rounds: every client speaks once, then the members of the committee three times.

The rules of `protocol.exchange.stages` hold here as well. A client whose upload is refused is lost,
and costs nobody anything. The caller hears who survived when the complaints are closed, before any
member is asked to sign: from the signatures on the sum can be opened, so its privacy is paid for at
that moment, whatever becomes of the round.

Ranks can share a round: each plays its own clients and members, with a server that has the uploads
of its clients, and all servers come to the same state (`protocol.exchange.divided`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dp import NoiseSeed
from protocol.checks import of_kind
from protocol.exchange.aggregators import NoiseSource, UpdateSource, fresh_noise, system_rand
from protocol.exchange.divided import DividedUploads
from protocol.exchange.in_step import InStep, answers_of_all
from protocol.exchange.local_committee import LocalCommittee
from protocol.exchange.ranks import ALONE, Ranks
from protocol.exchange.stages import (
    CLIENT,
    MEMBER,
    Clock,
    Inbound,
    Messages,
    NoClock,
    Refusal,
    ReleaseHook,
    RoundOutcome,
    Script,
    Step,
    answer_of,
    conduct,
    no_hook,
)
from protocol.round.history import ClientHistory
from protocol.round.losses import Dropouts, Stage, check_dropouts
from protocol.round.lottery import Members
from protocol.round.member import RoundMember
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.pipeline import Pipeline
from protocol.round.policy import ClientPolicy
from protocol.round.rings import UnixClock
from protocol.round.setup import RoundEncoding
from secagg import Identity, ParameterError
from secagg.oneshot.server import OneShotServer
from secagg.oneshot.transitions import ServerPhase
from secagg.shamir import Rand


class MemberStage(enum.IntEnum):
    """The message that a lost member never sends; it sent all before."""

    NOISE = 0
    CHECK = 1
    CONFIRM = 2
    OPEN = 3

    def __str__(self) -> str:
        return self.name.lower()


EXCHANGES = (MemberStage.CHECK, MemberStage.CONFIRM, MemberStage.OPEN)
"""What members of every round are sent something in."""


AWAY: Mapping[MemberStage, Stage] = {
    MemberStage.CHECK: Stage.CONFIRM,
    MemberStage.CONFIRM: Stage.CONFIRM,
    MemberStage.OPEN: Stage.UNMASK,
}
"""When everybody is a member, what a client that is lost at a stage of a pairwise round, after its
upload, does not send: the members' messages that take the place of that stage."""

Absences = Mapping[int, MemberStage]
"""For each lost member of a named or drawn committee, the first message that it does not send."""

AbsenceSource = Callable[[int], Absences]
"""Gives the absences of a round, by its number."""


def nobody_away(round_number: int) -> Absences:
    """For committees that are always there."""
    del round_number
    return {}


MemberMessages = Messages
Announcements = Messages
"""A message for each party, by its index; made one at a time."""

MemberExchange = Callable[[MemberStage, MemberMessages], Inbound]
"""Delivers a stage's messages to members, and yields what comes back; see `stages.Exchange`."""


def as_it_is(member: int, message: bytes) -> bytes:
    """A message to a member that knows of the round."""
    del member
    return message


def one_shot_script(
    server: OneShotServer,
    setup: OneShotSetup,
    introduced: Callable[[int, bytes], bytes] = as_it_is,
) -> Script:
    """Clients upload, members are asked three times; their complaints decide the survivors.

    Where members add noise they are asked for it first, by an empty message.

    Args:
        introduced: what is sent in place of a message to a member, by its index, that may need to
            be told of the round.
    """
    adding = range(setup.adding_members)
    waiting = [[(member, introduced(member, b"")) for member in adding]] if adding else []

    def close() -> Messages:
        if waiting:
            return waiting.pop()
        messages = server.close_round_bytes()
        if server.phase is not ServerPhase.CHECKING:
            return messages
        return ((member, introduced(member, data)) for member, data in messages)

    def add(member: int, data: bytes) -> None:
        server.receive_upload(setup.context.invited + member, data)

    noise = [Step(MemberStage.NOISE, MEMBER, add)] if adding else []
    asked = [
        Step(stage, MEMBER, server.receive_from_member, decides=stage is MemberStage.CHECK)
        for stage in EXCHANGES
    ]
    return Script(
        steps=[Step(Stage.INPUT, CLIENT, server.receive_upload), *noise, *asked],
        close=close,
        decided=lambda: (server.survivors, server.record),
        total=lambda _: server.open(),
        excluded=lambda: dict.fromkeys(server.excluded, server.WHY_EXCLUDED),
    )


class OneShotAggregator:
    """Runs every client, every member and the server over in-memory bytes, with real cryptography.

    A client is made when its turn comes and gone when it has uploaded: memory is one vector, the
    members' shares, and what `secagg.oneshot.spool` holds.

    Args:
        noise: secret seeds of rounding; leave it alone except to run the same round twice.
        rand_of: likewise, the source of every other secret of a client.
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
        absences: AbsenceSource = nobody_away,
        folder: Path | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self._ranks = ranks
        self._identities = {identity.public: identity for identity in identities}
        self._registry = frozenset(self._identities)
        self._policy = policy
        self._committee = committee
        self._clock: Clock = clock or NoClock()
        self._noise = noise
        self._rand_of = rand_of
        self._unix_clock = unix_clock
        self._absences = absences
        self._folder = folder
        self._histories = {key: ClientHistory(policy.goal) for key in self._registry}
        # By client, the rounds that it took part in on other ranks, and whether it uploaded.
        self._elsewhere: dict[bytes, list[tuple[OneShotSetup, bool]]] = {}

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
        """Run all stages, in this process or in step with others; see `Aggregator.run`."""
        setup = of_kind("setup", setup, OneShotSetup)
        check_dropouts(dropouts, setup.context.invited)
        if setup.adding_members and self._ranks.size > 1:
            valid = "1 where members add noise as well"
            raise ParameterError("ranks", self._ranks.size, valid)
        with InStep(self._ranks) as ranks:
            _require_one_round(ranks, setup)
            playing = _Round(self, setup, updates, dropouts, ranks)
            server = setup.server(self._uploads(setup, ranks))
            outcome = conduct(
                one_shot_script(server, setup),
                playing.announcements(),
                playing.carry,
                before_release,
                clock=self._clock,
                ranks=ranks,
            )
            outcome = _with_surplus(setup, outcome, ranks)
        if setup.context.committee.of_cohort:
            outcome.count_members_as_clients()
        return outcome

    def _uploads(self, setup: OneShotSetup, ranks: Ranks) -> Any:
        """Where this rank's uploads go."""
        here, context = setup.uploads(self._folder), setup.context
        if ranks.size == 1:
            return here
        return DividedUploads(here, ranks, context.committee.size, context.seeds)

    def _history(self, key: bytes) -> ClientHistory:
        """What a client remembers, also of rounds in which another rank played it."""
        history = self._histories[key]
        for setup, uploaded in self._elsewhere.pop(key, ()):
            keeps_time = self._unix_clock is not None
            history.answer(setup, keeps_time=keeps_time, draw=self._policy.draw)
            if uploaded:
                history.charge(setup)
        return history


def _require_one_round(ranks: Ranks, setup: OneShotSetup) -> None:
    """See that all ranks are about to run the same round."""
    hashes = ranks.gather(setup.context.hash)
    if others := [rank for rank, each in enumerate(hashes) if each != hashes[0]]:
        raise ParameterError(
            "setup", f"on rank {others[0]} another than on rank 0", "the same on all ranks"
        )


def _with_surplus(setup: OneShotSetup, outcome: RoundOutcome, ranks: Ranks) -> RoundOutcome:
    """The outcome with the noise that was given up: each rank draws that of its own clients."""
    removed = outcome.total.removed
    if ranks.size == 1 or not removed:
        return outcome
    own = [seeds for index, seeds in removed.items() if ranks.owns(index)]
    lost = setup.context.invited - len(outcome.total.survivors)
    drawn = Pipeline(setup).surplus(own, lost)
    return outcome if drawn is None else replace(outcome, surplus=ranks.add(drawn)[0])


class _Round:
    """The clients and members of one round, made when their turn comes."""

    def __init__(
        self,
        of: OneShotAggregator,
        setup: OneShotSetup,
        updates: UpdateSource,
        dropouts: Dropouts,
        ranks: Ranks,
    ) -> None:
        self._of, self._setup, self._updates, self._dropouts = of, setup, updates, dropouts
        self._ranks = ranks
        self._everyone = setup.context.committee.of_cohort
        seated = {member.identity for member in setup.context.committee.members}
        self._own: dict[bytes, tuple[int, bytes | None]] = {
            key: (index, None)
            for index, key in enumerate(setup.known_cohort().keys)
            if key in seated
        }
        self._members: dict[int, RoundMember] = {}
        self._joined: dict[int, bool] = {}

    def announcements(self) -> Iterator[tuple[int, bytes]]:
        """For every client of this rank."""
        own = filter(self._ranks.owns, range(self._setup.context.invited))
        return ((index, self._setup.announce(index)) for index in own)

    def carry(self, stage: enum.IntEnum, messages: Messages) -> Inbound:
        """Deliver the messages of a step, and give the answers; members' are told to all ranks."""
        if isinstance(stage, MemberStage):
            return answers_of_all(self._ranks, messages, partial(self._answers, stage))
        return self._uploads(messages)

    def _uploads(self, messages: Messages) -> Iterator[tuple[int, bytes | Refusal]]:
        """The only message of every client of this rank, one after the other."""
        keys, clock = self._setup.known_cohort().keys, self._of._clock
        for index, announcement in messages:
            if self._dropouts.get(index, Stage.RECOVER) > Stage.INPUT:
                work = partial(self._upload, index, keys[index], announcement)
                yield index, answer_of(clock, index, work)
        if self._ranks.size > 1:
            self._share(keys)

    def _member(self, index: int) -> RoundMember:
        """A member that has no round yet."""
        context = self._setup.context
        key = context.committee.members[index].identity
        return self._of._committee.member(context.session_id, key)

    def _share(self, keys: Sequence[bytes]) -> None:
        """Tell other ranks of our clients, and hear of theirs.

        A client's own member half, and its history, may be on another rank now or next time.
        """
        uploaded_here = {key: own for key, own in self._own.items() if own[1] is not None}
        setup = replace(self._setup, cohort=None)
        for own, joined in self._ranks.gather((uploaded_here, self._joined)):
            self._own |= own
            for index, uploaded in joined.items():
                if not self._ranks.owns(index):
                    self._of._elsewhere.setdefault(keys[index], []).append((setup, uploaded))

    def _upload(self, index: int, key: bytes, announcement: bytes) -> bytes:
        of = self._of
        client = OneShotRoundClient(
            of._identities[key],
            of._registry,
            of._policy,
            of._history(key),
            of._rand_of(index),
            of._unix_clock,
        )
        client.join(announcement, self._setup.parameters.model_digest)
        self._joined[index] = False
        update: tuple[object, NoiseSeed] = self._updates(index), of._noise(index)
        data = client.submit(*update)  # type: ignore[arg-type]
        self._joined[index] = True
        if key in self._own:
            self._own[key] = client.own_upload
        return data

    def _answers(
        self, stage: MemberStage, messages: Messages
    ) -> Iterator[tuple[int, bytes | Refusal]]:
        for index, data in messages:
            if not self._is_away(index, stage):
                work = partial(self._answer, index, data)
                yield index, answer_of(self._of._clock, -2 - index, work)

    def _is_away(self, index: int, stage: MemberStage) -> bool:
        if self._everyone:
            return self._dropouts.get(index, len(Stage)) <= AWAY[stage]
        absences = self._of._absences(self._setup.context.round_number)
        return absences.get(index, len(MemberStage)) <= stage

    def _answer(self, index: int, data: bytes) -> bytes:
        if not data:
            return self._add_noise(index)
        if index not in self._members:
            key = self._setup.context.committee.members[index].identity
            member = self._member(index)
            place = index if self._setup.adding_members else None
            member.join(self._setup.announce_to_member(place), self._own.get(key))
            self._members[index] = member
        return self._members[index].receive(data)

    def _add_noise(self, index: int) -> bytes:
        """What a member uploads, by its index in the committee."""
        member = self._member(index)
        data = member.add_noise(self._setup.announce_to_member(index))
        self._members[index] = member
        return data
