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

from protocol.errors import PolicyError
from protocol.round.committee_policy import KEY_ROUNDS
from protocol.round.history import ClientHistory
from protocol.round.one_shot_setup import OneShotAnnouncement
from protocol.round.rings import UnixClock
from protocol.round.round_time import RoundTime
from secagg import Identity, LocalProtocolError, ParameterError, RemoteProtocolError
from secagg.keys import KEY_BYTES, AgreementKey
from secagg.oneshot.committee import CommitteeKind, Member
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.states import MemberParty
from secagg.oneshot.transitions import MemberPhase
from secagg.session import or_abort
from secagg.storage import StateKeys, StoredStateError, suspend
from secagg.storage import resume as resume_session

OwnUpload = tuple[int, bytes | None]
"""Our index in the cohort, and what names our upload; None if we sent none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPolicy:
    """What a member insists on.

    Args:
        minimum_survivors: of a sum that it helps to open.
        tolerated_colluders: clients that may work for the server; a round that tolerates fewer is
            refused.
        corrupt: members that may; likewise.
        registry: identity keys of all clients that may be in a cohort.

    Raises:
        ParameterError: a number below 0, or no registry.
    """

    minimum_survivors: int
    tolerated_colluders: int
    corrupt: int
    registry: frozenset[bytes]

    def __post_init__(self) -> None:
        for name in ("minimum_survivors", "tolerated_colluders", "corrupt"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise ParameterError(name, value, "an int from 0 on")
        if len(self.registry) < 2:
            raise ParameterError("registry", f"{len(self.registry)} identities", "at least 2")


class SealingKeys:
    """A member's sealing key of one session, and its signed entry for committees.

    Args:
        identity: the member's signing key.
        session_id: 16 bytes.
        first_round: the first round that the key serves.
        rounds: how many it serves.
        key: fresh from the system; leave it alone except to simulate the same round twice.
    """

    def __init__(
        self,
        identity: Identity,
        session_id: bytes,
        first_round: int = 0,
        rounds: int = KEY_ROUNDS,
        key: AgreementKey | None = None,
    ) -> None:
        self.key = key or AgreementKey(secrets.token_bytes(KEY_BYTES))
        self.entry = Member.sign(
            identity, session_id, self.key.public, first_round, first_round + rounds - 1
        )


class RoundMember:
    """Drives one member through one round; feed it bytes, send what it returns.

    Args:
        identity: our signing key.
        sealing: our key of the session.
        policy: what we insist on.
        history: which rounds we have signed for. Pass the same object to every round; it is not the
            one that we may have as a client.
        clock: tells unix seconds; with it the member leaves a round that has expired, for good.
    """

    def __init__(
        self,
        identity: Identity,
        sealing: SealingKeys,
        policy: MemberPolicy,
        history: ClientHistory,
        clock: UnixClock | None = None,
    ) -> None:
        self._identity = identity
        self._sealing = sealing
        self._policy = policy
        self._history = history
        self._time = RoundTime(clock)
        self._joined: _Joined | None = None

    @property
    def phase(self) -> MemberPhase:
        """Where the round is; `WAITING` before one is joined."""
        return self._joined.session.phase if self._joined else MemberPhase.WAITING

    @property
    def has_joined(self) -> bool:
        """Whether this object has a round."""
        return self._joined is not None

    def join(self, announcement: bytes, own: OwnUpload | None = None) -> None:
        """Look at an announcement, and enter the round as signed for.

        Args:
            announcement: from the server, for a member or for the client that we are as well.
            own: for a member that is a client of this round, `OneShotRoundClient.own_upload`.

        Raises:
            RemoteProtocolError: the announcement is malformed.
            PolicyError: it is outside our policy, without us, was signed for before, or has
                expired.
        """
        if self._joined is not None:
            raise LocalProtocolError("this member has already joined a round; make a new one")
        context = OneShotAnnouncement.read(announcement).member_context()
        policy, committee = self._policy, context.committee
        at_least: Sequence[tuple[str, int, int]] = (
            ("minimum_survivors", context.minimum_survivors, policy.minimum_survivors),
            ("tolerated_colluders", context.tolerated_colluders, policy.tolerated_colluders),
            ("corrupt", committee.corrupt, policy.corrupt),
        )
        for name, announced, lowest in at_least:
            if announced < lowest:
                raise PolicyError(name, announced, f"at least {lowest}")
        everyone = committee.kind is CommitteeKind.EVERYONE
        # Corrupt members of everyone are corrupt clients.
        if everyone and context.tolerated_colluders < policy.corrupt:
            colluders = context.tolerated_colluders
            raise PolicyError("tolerated_colluders", colluders, f"at least {policy.corrupt}")
        self._time.check(context)
        index = self._index(context)
        if own is None and everyone:
            # A member that uploaded nothing signs for no upload in its name.
            own = (index, None)
        self._history.enter(context.session_id, context.round_number)
        session = OneShotMember(
            context, index, self._identity, self._sealing.key, own, policy.registry
        )
        self._joined = _Joined(session, context, announcement)

    def receive(self, data: bytes) -> bytes:
        """Process a message of the server, and answer it.

        Raises:
            RemoteProtocolError: it is not what an honest server sends; the session is aborted.
            PolicyError: the round has expired; the session is aborted.
        """
        if self._joined is None:
            raise LocalProtocolError("join a round first")
        self._leave_if_over(self._joined)
        return self._joined.session.receive_bytes(data)

    def abort(self) -> None:
        """Leave the round for good; what it held is forgotten."""
        if self._joined is not None:
            self._joined.session.abort()

    def suspend(self, keys: StateKeys) -> bytes:
        """Take the round out of this object, for a host that restarts between messages.

        What is stored holds shares, sealed under our identity and a key of its own; `resume` goes
        on from it, once, and destroys that key. This object is of no use afterwards.

        Args:
            keys: where the host keeps the keys of stored rounds; see `secagg.storage`.

        Raises:
            LocalProtocolError: no round was joined, or it is over.
        """
        if self._joined is None:
            raise LocalProtocolError("join a round first")
        joined = self._joined
        with or_abort(joined.session):
            self._time.look(joined.context)
        sealed = suspend(joined.session, keys, self._time.covered)
        plain = (_VERSION, joined.announcement, self._time.seen, sealed)
        return msgspec.msgpack.encode(plain)

    @staticmethod
    def round_of(stored: bytes) -> tuple[bytes, int]:
        """Session and number of a stored round, whose seal is still to be looked at.

        Raises:
            StoredStateError: it is no stored round.
        """
        announced = _read(stored)[0]
        return announced.session_id, announced.round_number

    def resume(self, stored: bytes, keys: StateKeys) -> None:
        """Go on with a round that was suspended.

        Args:
            stored: what `suspend` returned.
            keys: those that it was suspended with.

        Raises:
            LocalProtocolError: this object has a round already.
            StoredStateError: nothing that `suspend` made for this member, or resumed before; or
                joined with a clock, which this object lacks: another, with a clock, can resume it.
            PolicyError: the round has expired; what was stored cannot be resumed again.
        """
        if self._joined is not None:
            raise LocalProtocolError("this member has already joined a round; make a new one")
        announced, announcement, seen, sealed = _read(stored)
        try:
            context = announced.member_context()
            index = self._index(context)
        except (PolicyError, RemoteProtocolError) as error:
            raise StoredStateError(f"a stored round is damaged, or not ours: {error}") from None
        ours = (self._identity, self._sealing.key)
        party = MemberParty(context, index, *ours, own=None, registry=self._policy.registry)
        time = self._time.resumed(seen)
        session = resume_session(OneShotMember, sealed, party, keys, time.covered)
        self._time = time
        joined = _Joined(session, context, announcement)
        # Only now: what was stored is used up first, expired or not.
        self._leave_if_over(joined)
        self._joined = joined

    def _leave_if_over(self, joined: _Joined) -> None:
        with or_abort(joined.session):
            self._time.check(joined.context)

    def _index(self, context: OneShotContext) -> int:
        identities = [member.identity for member in context.committee.members]
        if self._identity.public not in identities:
            raise PolicyError("committee", "one without this member", "those that include it")
        return identities.index(self._identity.public)


@dataclass(frozen=True, slots=True)
class _Joined:
    """A round that a member is in."""

    session: OneShotMember
    context: OneShotContext
    announcement: bytes


_VERSION = 2
_Stored = tuple[int, bytes, float | None, bytes]
"""Version, announcement, latest time seen, sealed session."""


def _read(stored: bytes) -> tuple[OneShotAnnouncement, bytes, float | None, bytes]:
    try:
        version, announcement, seen, sealed = msgspec.msgpack.decode(stored, type=_Stored)
        if version != _VERSION:
            raise StoredStateError("the stored round has an unknown version")
        announced = OneShotAnnouncement.read(announcement)
    except (msgspec.MsgspecError, RemoteProtocolError) as error:
        raise StoredStateError(f"a stored round is damaged: {error}") from None
    return announced, announcement, seen, sealed
