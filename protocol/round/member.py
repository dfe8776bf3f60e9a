"""One member of a committee in one round: its own policy, its own registry, its own history.

What keeps a server from opening two sums is the members' work, and a client that is none relies on
it. A member refuses a round whose figures are below its own, a cohort with strangers, and a number
that it has signed for before, whatever the context.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from dp import NoiseSeed
from dp.sampling.laws import MAX_VARIANCE
from protocol.errors import PolicyError
from protocol.round.announcements import read_announcement
from protocol.round.committee_policy import KEY_ROUNDS
from protocol.round.history import ClientHistory
from protocol.round.member_noise import LARGEST_GAP, MemberNoise, noise_vector
from protocol.round.one_process import OneProcess
from protocol.round.one_shot_setup import OneShotAnnouncement, WrittenReturns
from protocol.round.rings import UnixClock
from protocol.round.round_time import RoundTime
from protocol.round.stored_upload import UploadReceipt, announced_as
from secagg import Identity, LocalProtocolError, ParameterError, RemoteProtocolError
from secagg.checks import require_int
from secagg.keys import KEY_BYTES, AgreementKey, os_random
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.committee import Member
from secagg.oneshot.context import CommitteeContext
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.states import MemberParty
from secagg.oneshot.transitions import MemberPhase
from secagg.session import or_abort
from secagg.shamir import Rand
from secagg.storage import StateKeys, StoredStateError, suspend
from secagg.storage import resume as resume_session

OwnUpload = tuple[int, bytes | None]
"""Our index in the cohort, and what names our upload; None if we sent none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPolicy:
    """What a member insists on.

    Args:
        largest_length: longest vector that it draws noise for; a draw takes 8 bytes for each number
            of it.
        largest_variance: of that noise, in squared integer units; the table that it is drawn from
            grows with the square root.
    """

    minimum_survivors: int
    tolerated_colluders: int
    corrupt: int
    registry: frozenset[bytes]
    fewest_members: int = 0
    largest_length: int = 1 << 24
    largest_variance: float = MAX_VARIANCE

    def __post_init__(self) -> None:
        names = ("minimum_survivors", "tolerated_colluders", "corrupt")
        for name in (*names, "fewest_members", "largest_length"):
            require_int(name, getattr(self, name), 0)
        if type(self.largest_variance) is not float or not self.largest_variance > 0.0:
            raise ParameterError("largest_variance", self.largest_variance, "a float above 0")
        if len(self.registry) < 2:
            raise ParameterError("registry", f"{len(self.registry)} identities", "at least 2")


class SealingKeys:
    """A member's sealing key of one session, and its signed entry for committees.

    Args:
        session_id: 16 bytes.
        last_second: unix time after which `expire` erases it; None for a key that its owner drops.
    """

    def __init__(
        self,
        identity: Identity,
        session_id: bytes,
        first_round: int = 0,
        rounds: int = KEY_ROUNDS,
        key: AgreementKey | None = None,
        last_second: float | None = None,
    ) -> None:
        self.key = key or AgreementKey(secrets.token_bytes(KEY_BYTES))
        self._last_second = last_second
        self.entry = Member.sign(
            identity, session_id, self.key.public, first_round, first_round + rounds - 1
        )

    def expire(self, clock: UnixClock | None) -> bool:
        """Erase the key if its time is over, in memory; whether it is.

        Args:
            clock: tells unix seconds; without one no time ends.
        """
        # Written so that NaN is past every time.
        over = clock and self._last_second is not None and not clock() <= self._last_second
        if over:
            self.key.erase()
        return bool(over)


class RoundMember:
    """Drives one member through one round; feed it bytes, send what it returns.

    Threads may share it, and wait for one another; only `abort` and `expire` do not wait. A signal
    handler that asks in the middle of another call gets `LedgerError`.

    Args:
        clock: tells unix seconds; with it the member leaves a round that has expired, for good, and
            erases a sealing key whose time is over, at every call. See `expire`.
        noise: what we remember of the noise that we add; pass the same object to every round. None
            refuses rounds to which members add noise.
        rand: source of an upload's secrets; leave it alone except to run the same round twice.
    """

    def __init__(
        self,
        identity: Identity,
        sealing: SealingKeys,
        policy: MemberPolicy,
        history: ClientHistory,
        clock: UnixClock | None = None,
        noise: MemberNoise | None = None,
        rand: Rand = os_random,
    ) -> None:
        self._identity = identity
        self._sealing = sealing
        self._policy = policy
        self._history = history
        self._clock = clock
        self._time = RoundTime(clock)
        self._noise = noise
        self._rand = rand
        self._lock = OneProcess("a member's round")
        self._entered = self._aborted = False
        self._joined: _Joined | None = None
        self._upload: OneShotClient | None = None

    @property
    def phase(self) -> MemberPhase:
        """Where the round is; `WAITING` before one is joined."""
        return self._joined.session.phase if self._joined else MemberPhase.WAITING

    @property
    def has_joined(self) -> bool:
        """Whether this object has a round."""
        return self._joined is not None

    def is_in(self, announcement: bytes) -> bool:
        """Whether this object has the round that these very bytes announce."""
        return self._joined is not None and self._joined.announcement == announcement

    def join(self, announcement: bytes, own: OwnUpload | None = None) -> None:
        """Look at an announcement, and enter the round as signed for."""
        with self._lock:
            announced, context, index = self._enter(announcement)
            if own is None and context.committee.of_cohort:
                # A member that uploaded nothing signs for no upload in its name.
                own = (index, None)
            if context.member_uploads is not None:
                own = (context.invited + index, None)
            self._join(announced, context, index, own, announcement)

    def add_noise(self, announcement: bytes) -> bytes:
        """Enter a round to which members add noise, and return what we upload to it, once.

        What is uploaded is fresh noise, less that of the round before if the records say that it
        went in. Nothing about it depends on what was drawn.
        """
        with self._lock:
            return self._add_noise(announcement)

    def _add_noise(self, announcement: bytes) -> bytes:
        announced, context, index = self._enter(announcement, adding=True)
        noise, returns = self._known_noise(), announced.returns
        if returns is None:
            raise AssertionError("the round was entered as one to which members add noise")
        place = context.invited + index
        taken = noise.may_take_back(context, index, returns.variance)
        session = announced.adder(
            context, place, self._identity, self._rand, returns=taken is not None
        )
        # A seed of its own, bound to the round: nobody ever has a share of it.
        (seed,) = session.seeds(b"noise of a member")
        added = noise.add(context, returns.variance, NoiseSeed(seed.expose()))
        data = session.submit_bytes(noise_vector(context.field, context.length, added, taken))
        self._upload = session
        own = (place, session.header_digest)
        self._join(announced, context, index, own, announcement)
        return data

    def resend(self) -> bytes:
        """What was uploaded once more, the same bytes, for a server that did not get it."""
        if self._upload is None:
            raise LocalProtocolError(_NOTHING_UPLOADED)
        return self._upload.resend_bytes()

    @property
    def receipt(self) -> UploadReceipt:
        """What names our upload, to be stored beside it."""
        joined = self._under_way()
        if self._upload is None:
            raise LocalProtocolError(_NOTHING_UPLOADED)
        context, digest = joined.context, self._upload.header_digest
        place = context.invited + self._index(context)
        announced = announced_as(joined.announcement)
        return UploadReceipt(context.session_id, context.round_number, place, digest, announced)

    def _enter(
        self, announcement: bytes, *, adding: bool = False
    ) -> tuple[OneShotAnnouncement, CommitteeContext, int]:
        """Look at an announcement, and enter its round as one that we sign for: see `join`."""
        self._require_new()
        self._require_key()
        announced = read_announcement(announcement)
        context = announced.member_context()
        if adding and context.member_uploads is None:
            raise PolicyError("returns", None, "a round to which members add noise")
        policy, committee = self._policy, context.committee
        at_least: Sequence[tuple[str, int, int]] = (
            ("minimum_survivors", context.minimum_survivors, policy.minimum_survivors),
            ("tolerated_colluders", context.tolerated_colluders, policy.tolerated_colluders),
            ("corrupt", committee.corrupt, policy.corrupt),
        )
        if context.member_uploads is not None:
            fewest = context.member_uploads.fewest
            at_least = (*at_least, ("fewest_members", fewest, policy.fewest_members))
        for name, figure, lowest in at_least:
            if figure < lowest:
                raise PolicyError(name, figure, f"at least {lowest}")
        everyone = committee.of_cohort
        # Corrupt members of everyone are corrupt clients.
        if everyone and context.tolerated_colluders < policy.corrupt:
            colluders = context.tolerated_colluders
            raise PolicyError("tolerated_colluders", colluders, f"at least {policy.corrupt}")
        self._time.check(context)
        index = self._index(context)
        if announced.returns is not None:
            self._begin(announced, announced.returns, context, index)
        self._history.enter(context.session_id, context.round_number)
        # Whatever fails from here on, this object is of no use for another round.
        self._entered = True
        return announced, context, index

    def _begin(
        self,
        announced: OneShotAnnouncement,
        returns: WrittenReturns,
        context: CommitteeContext,
        index: int,
    ) -> None:
        """Begin a round to which members add noise: it follows those that we know."""
        place = context.invited + index
        if not context.is_invited(place, self._identity.public, announced.proof):
            raise PolicyError("cohort", "one without this member", "cohorts that include it")
        for name, figure, highest in (
            ("length", context.length, self._policy.largest_length),
            ("variance", returns.variance, self._policy.largest_variance),
        ):
            if figure > highest:
                raise PolicyError(name, figure, f"at most {highest}")
        if len(context.records) >= returns.rounds:
            valid = f"fewer than {returns.rounds}, the rounds of the run"
            raise PolicyError("records", f"{len(context.records)} rounds", valid)
        noise, session = self._known_noise(), context.session_id
        # A number is begun before it is entered, and the first of a run is no further ahead.
        if not noise.has_begun(session) and self._history.has_entered(session, range(LARGEST_GAP)):
            problem = "a run that this member has signed for, and of which its noise is lost"
            raise PolicyError("returns", problem, "runs that it remembers, or new ones")
        noise.begin(context)

    def _known_noise(self) -> MemberNoise:
        if self._noise is None:
            valid = "a round to which clients alone upload: this member remembers no noise"
            raise PolicyError("returns", "noise of members", valid)
        return self._noise

    def _join(
        self,
        announced: OneShotAnnouncement,
        context: CommitteeContext,
        index: int,
        own: OwnUpload | None,
        announcement: bytes,
    ) -> None:
        session = announced.MEMBER(
            context, index, self._identity, self._sealing.key, own, self._policy.registry
        )
        self._joined = _Joined(session, context, announcement)
        if self._aborted:  # by a callback or another thread, while this one was joining
            session.abort()

    def receive(self, data: bytes) -> bytes:
        """Process a message of the server, and answer it."""
        with self._lock:
            joined = self._under_way()
            self._leave_if_over(joined)
            session, context = joined.session, joined.context
            answer = session.receive_bytes(data)
            if (record := session.record) is not None:
                # Before the signature leaves.
                with or_abort(session):
                    self._known_noise().sign(context, record)
            return answer

    def expire(self) -> bool:
        """Leave a round that is over, and erase a sealing key whose time is; whether either was.

        For a host to schedule: a server that never asks again must not keep shares or keys alive.
        """
        over = self._sealing.expire(self._clock)
        if self._joined is not None:
            try:
                self._time.check(self._joined.context)
            except PolicyError:
                over = True
        if over:
            self.abort()
        return over

    def _require_new(self) -> None:
        if self._entered:
            raise LocalProtocolError("this member has already joined a round; make a new one")

    def _under_way(self) -> _Joined:
        if self._joined is None:
            raise LocalProtocolError("join a round first")
        return self._joined

    def _require_key(self) -> None:
        if self._sealing.expire(self._clock):
            raise LocalProtocolError("the time of this sealing key is over, and it is erased")

    def abort(self) -> None:
        """Leave the round for good; what it held is forgotten."""
        self._aborted = True
        if self._joined is not None:
            self._joined.session.abort()

    def suspend(self, keys: StateKeys) -> bytes:
        """Take the round out of this object, for a host that restarts between messages.

        What is stored holds shares, sealed under our identity and a key of its own; `resume` goes
        on from it, once, and destroys that key. This object is of no use afterwards.
        """
        with self._lock:
            joined = self._under_way()
            with or_abort(joined.session):
                self._require_key()
                self._time.look(joined.context)
            sealed = suspend(joined.session, keys, self._time.covered)
        plain = (_VERSION, joined.announcement, self._time.seen, sealed)
        return msgspec.msgpack.encode(plain)

    @staticmethod
    def round_of(stored: bytes) -> tuple[bytes, int]:
        """Session and number of a stored round, whose seal is still to be looked at."""
        announced = _read(stored)[0]
        return announced.session_id, announced.round_number

    def resume(self, stored: bytes, keys: StateKeys) -> None:
        """Go on with a round that was suspended."""
        with self._lock:
            self._resume(stored, keys)

    def _resume(self, stored: bytes, keys: StateKeys) -> None:
        self._require_new()
        announced, announcement, seen, sealed = _read(stored)
        try:
            context = announced.member_context()
            index = self._index(context)
        except (PolicyError, RemoteProtocolError) as error:
            raise StoredStateError(f"a stored round is damaged, or not ours: {error}") from None
        if context.member_uploads is not None:
            # Before anything is used up: another object, with a memory, can resume it.
            _ = self._known_noise()
        ours = (self._identity, self._sealing.key)
        party = MemberParty(context, index, *ours, own=None, registry=self._policy.registry)
        time = self._time.resumed(seen)
        session = resume_session(announced.MEMBER, sealed, party, keys, time.covered)
        self._entered, self._time = True, time
        joined = _Joined(session, context, announcement)
        # Only now: what was stored is used up first, expired or not.
        self._leave_if_over(joined)
        self._joined = joined

    def _leave_if_over(self, joined: _Joined) -> None:
        with or_abort(joined.session):
            self._require_key()
            self._time.check(joined.context)
            # What was signed may be opened later: its record is in all lists that come after.
            signed = joined.session.phase is MemberPhase.CONFIRMED
            if joined.context.member_uploads is not None and not signed:
                self._known_noise().require_last(joined.context)

    def _index(self, context: CommitteeContext) -> int:
        identities = [member.identity for member in context.committee.members]
        if self._identity.public not in identities:
            raise PolicyError("committee", "one without this member", "those that include it")
        return identities.index(self._identity.public)


@dataclass(frozen=True, slots=True)
class _Joined:
    """A round that a member is in."""

    session: OneShotMember
    context: CommitteeContext
    announcement: bytes


_NOTHING_UPLOADED = "this member has uploaded nothing"
_VERSION = 2
_Stored = tuple[int, bytes, float | None, bytes]
"""Version, announcement, latest time seen, sealed session."""


def _read(stored: bytes) -> tuple[OneShotAnnouncement, bytes, float | None, bytes]:
    try:
        version, announcement, seen, sealed = msgspec.msgpack.decode(stored, type=_Stored)
        if version != _VERSION:
            raise StoredStateError("the stored round has an unknown version")
        announced = read_announcement(announcement)
    except (msgspec.MsgspecError, RemoteProtocolError) as error:
        raise StoredStateError(f"a stored round is damaged: {error}") from None
    return announced, announcement, seen, sealed
