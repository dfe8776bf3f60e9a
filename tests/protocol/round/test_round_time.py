"""A party's time in a round only goes forward, whatever its clock does and where the round lies."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pytest
from one_shot_rounds import identity
from one_shot_worlds import SESSION, World, plan_of
from round_kit import HOUR, MODEL, OPENED, Watch, expiring, make_client, make_setup

from dp import LedgerError
from protocol import ClientHistory
from protocol.errors import PolicyError
from protocol.exchange.remote_one_shot import RemoteMember, with_announcement
from protocol.round.member import RoundMember, SealingKeys
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.round_time import RoundTime
from secagg import LocalProtocolError, ProtocolError, SessionAbortedError
from secagg.keys import AgreementKey
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.transitions import MemberPhase
from secagg.pairwise.transitions import ClientPhase
from secagg.storage import StoredStateError, TokenFolder

WORLD = World(plan_of(CommitteeKind.NAMED))


def _setup() -> OneShotSetup:
    """A round without an end; members' keys are those of `make`."""
    made = WORLD.setup()
    entry = SealingKeys(identity("member", 0), SESSION, key=AgreementKey(bytes([7]) * 32)).entry
    committee = made.context.committee
    committee = replace(committee, members=(entry, *committee.members[1:]))
    return replace(made, context=replace(made.context, committee=committee))


ENDLESS = _setup()
SETUP = expiring(ENDLESS)


def make(clock: Watch | None = None, last_second: float | None = None) -> RoundMember:
    """Member 0, anew at each call, with a history of its own and this clock."""
    who = identity("member", 0)
    keys = SealingKeys(who, SESSION, key=AgreementKey(bytes([7]) * 32), last_second=last_second)
    return RoundMember(who, keys, WORLD.member_policy, ClientHistory(), clock)


class TestRoundTime:
    def test_it_goes_forward_only(self) -> None:
        watch = Watch(HOUR)
        time = RoundTime(watch)
        time.check(SETUP.context)
        watch.seconds = 0
        time.check(SETUP.context)
        assert time.seen == OPENED + HOUR

    def test_a_look_after_the_end_is_remembered(self) -> None:
        watch = Watch(HOUR + 1)
        time = RoundTime(watch)
        time.look(SETUP.context)
        watch.seconds = 0
        with pytest.raises(PolicyError, match="opened_at"):
            time.check(SETUP.context)

    def test_what_is_no_number_is_no_time(self) -> None:
        time = RoundTime(Watch(math.nan))
        with pytest.raises(PolicyError, match="opened_at"):
            time.check(SETUP.context)
        time.look(SETUP.context)
        assert time.seen is None

    def test_without_a_clock_or_an_end_none_is_kept(self) -> None:
        endless = ENDLESS.context
        for time, context in ((RoundTime(None), SETUP.context), (RoundTime(Watch(9e9)), endless)):
            time.check(context)
            time.look(context)
            assert time.seen is None
        assert not RoundTime(None).keeps_time


@dataclass(frozen=True)
class Kind:
    """A kind of party: how one is made, by its clock, and how it joins."""

    make: Callable[[Watch | None], Any]
    join: Callable[[Any, bool], object]  # a round that ends or not
    waiting: Any  # its phase then
    aborted: Any
    uses: Sequence[str] = ("receive", "suspend")

    def joined(self, clock: Watch | None, ends: bool = True) -> Any:
        party = self.make(clock)
        self.join(party, ends)
        return party


def _client_joins(client: Any, ends: bool) -> None:
    setup = make_setup()
    client.join((expiring(setup) if ends else setup).announce(), MODEL)


KINDS = {
    "client": Kind(
        lambda clock: make_client(clock=clock),
        _client_joins,
        ClientPhase.ADVERTISED,
        ClientPhase.ABORTED,
        uses=("receive", "submit", "suspend"),
    ),
    "member": Kind(
        make,
        lambda member, ends: member.join((SETUP if ends else ENDLESS).announce_to_member()),
        MemberPhase.WAITING,
        MemberPhase.ABORTED,
    ),
}


class TestStored:
    """A round that was joined with a clock ends by it, through restarts, whoever the party is."""

    @pytest.fixture(params=KINDS.values(), ids=KINDS)
    def kind(self, request: pytest.FixtureRequest) -> Kind:
        return request.param

    @pytest.mark.parametrize("stored_at", [0, HOUR + 1])
    def test_one_that_is_over_stays_over(
        self, tokens: TokenFolder, kind: Kind, stored_at: float
    ) -> None:
        watch = Watch()
        party, late = kind.joined(watch), kind.make(watch)
        watch.seconds = stored_at
        stored = party.suspend(tokens)
        # Of one that was over when it was stored, a clock that goes back makes no other.
        watch.seconds = 0 if stored_at else HOUR + 1
        with pytest.raises(PolicyError, match="opened_at"):
            late.resume(stored, tokens)
        # It is used up all the same.
        watch.seconds = 0
        with pytest.raises(StoredStateError, match="resumed before"):
            kind.make(watch).resume(stored, tokens)

    def test_a_clock_that_went_back_does_not_lengthen_it(
        self, tokens: TokenFolder, kind: Kind
    ) -> None:
        watch = Watch(HOUR - 1)
        party = kind.joined(watch)
        for seconds in (0, math.nan, 0):  # whatever it shows while the round is stored
            watch.seconds = seconds
            stored = party.suspend(tokens)
            watch.seconds = 0
            party = kind.make(watch)
            party.resume(stored, tokens)
        assert party._time.seen == OPENED + HOUR - 1

    def test_without_a_clock_it_is_not_resumed_and_not_used_up(
        self, tokens: TokenFolder, kind: Kind
    ) -> None:
        stored = kind.joined(Watch()).suspend(tokens)
        for _ in range(2):
            with pytest.raises(StoredStateError, match="pass `clock`"):
                kind.make(None).resume(stored, tokens)
        again = kind.make(Watch(HOUR))
        again.resume(stored, tokens)
        assert again.phase is kind.waiting

    def test_the_seal_covers_the_time(self, tokens: TokenFolder, kind: Kind) -> None:
        stored = kind.joined(Watch(HOUR - 1)).suspend(tokens)
        *before, seen, sealed = msgspec.msgpack.decode(stored)
        assert seen == OPENED + HOUR - 1
        for other in (None, float(OPENED)):
            changed = msgspec.msgpack.encode((*before, other, sealed))
            for clock in (None, Watch()):
                with pytest.raises(StoredStateError):
                    kind.make(clock).resume(changed, tokens)
        kind.make(Watch()).resume(stored, tokens)

    @pytest.mark.parametrize(("clock", "ends"), [(Watch(), False), (None, False), (None, True)])
    def test_one_without_an_end_or_joined_without_a_clock_needs_none(
        self, tokens: TokenFolder, kind: Kind, clock: Watch | None, ends: bool
    ) -> None:
        kind.make(None).resume(kind.joined(clock, ends).suspend(tokens), tokens)

    @pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
    def test_a_clock_that_fails_ends_the_round(
        self, tokens: TokenFolder, kind: Kind, error: type[BaseException]
    ) -> None:
        class Broken(Watch):
            def __call__(self) -> float:
                if self.seconds:
                    raise error
                return super().__call__()

        given = {"receive": b"", "submit": np.zeros(200), "suspend": tokens}
        for use in kind.uses:
            watch = Broken()
            party = kind.joined(watch)
            watch.seconds = 1
            with pytest.raises(error):
                getattr(party, use)(given[use])
            assert party.phase is kind.aborted

    def test_a_late_message_is_remembered(self, kind: Kind) -> None:
        watch = Watch(HOUR)
        party = kind.joined(watch)
        watch.seconds = 0
        with pytest.raises(ProtocolError):
            party.receive(b"")
        assert party._time.seen == OPENED + HOUR


def test_an_expired_round_gets_no_answer_of_a_member() -> None:
    watch = Watch(HOUR)
    remote = RemoteMember(make(watch))
    watch.seconds = HOUR + 1
    with pytest.raises(PolicyError, match="opened_at"):
        remote.answer(with_announcement(SETUP.announce_to_member(), b"x"))
    member = make(watch)
    watch.seconds = HOUR
    member.join(SETUP.announce_to_member())
    watch.seconds = HOUR + 1
    with pytest.raises(PolicyError, match="opened_at"):
        member.receive(b"")
    watch.seconds = 0
    with pytest.raises(SessionAbortedError):
        member.receive(b"")


class NosyWatch(Watch):
    """A clock that calls its reader, once."""

    call: Callable[[], object] | None = None

    def __call__(self) -> float:
        call, self.call = self.call, None
        if call:
            with pytest.raises(LedgerError, match="a member's round is already in use"):
                call()
        return super().__call__()


@pytest.mark.parametrize("outer", ["join", "receive", "suspend", "resume"])
def test_no_call_gets_in_between(tokens: TokenFolder, outer: str) -> None:
    """What is written before a signature leaves is written by the call that sends it."""
    watch, announcement = NosyWatch(), SETUP.announce_to_member()
    member, before = make(watch), make(watch)
    before.join(announcement)
    stored = before.suspend(tokens)
    calls: dict[str, Callable[[], object]] = {
        "join": lambda: member.join(announcement),
        "resume": lambda: member.resume(stored, tokens),
        "receive": lambda: member.receive(b""),
        "suspend": lambda: member.suspend(tokens),
    }
    if outer in ("receive", "suspend"):
        member.join(announcement)
    watch.call = calls[outer]
    with contextlib.suppress(ProtocolError):
        calls[outer]()
    assert watch.call is None


class TestKeys:
    """What a server that says nothing more cannot keep alive."""

    def test_a_round_that_is_over_is_left(self) -> None:
        watch = Watch()
        member = make(watch)
        assert not member.expire()
        member.join(SETUP.announce_to_member())
        watch.seconds = HOUR
        assert not member.expire() and member.phase is MemberPhase.WAITING
        watch.seconds += 1
        assert member.expire() and member.phase is MemberPhase.ABORTED

    @pytest.mark.parametrize("call", ["join", "expire", "receive", "suspend", "resume"])
    def test_a_key_whose_time_is_over_is_erased_whatever_is_called(
        self, tokens: TokenFolder, call: str
    ) -> None:
        """The round is not over, and of one without a lifetime this is the only end."""
        watch = Watch()
        announcement, member = SETUP.announce_to_member(), make(watch, OPENED + 9.0)
        calls: dict[str, Callable[[], object]] = {
            "join": lambda: member.join(announcement),
            "expire": member.expire,
            "receive": lambda: member.receive(b""),
            "suspend": lambda: member.suspend(tokens),
        }
        if call == "resume":
            before = make(watch)
            before.join(announcement)
            stored = before.suspend(tokens)
            calls["resume"] = lambda: member.resume(stored, tokens)
        elif call != "join":
            member.join(announcement)
        watch.seconds = 9
        assert not member.expire()
        watch.seconds = 10
        if call == "expire":
            assert member.expire()
        else:
            with pytest.raises(LocalProtocolError, match="time of this sealing key is over"):
                calls[call]()
        assert member._sealing.key.expose() == b""
        assert not member.has_joined or member.phase is MemberPhase.ABORTED
