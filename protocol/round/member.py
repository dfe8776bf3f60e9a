"""One member of a committee in one round: its own policy, its own registry, its own history.

What keeps a server from opening two sums is the members' work, and a client that is none relies on
it. A member refuses a round whose figures are below its own, a cohort with strangers, and a number
that it has signed for before, whatever the context.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.errors import PolicyError
from protocol.round.committee_policy import KEY_ROUNDS
from protocol.round.history import ClientHistory
from protocol.round.one_shot_setup import OneShotAnnouncement
from secagg import Identity, LocalProtocolError, ParameterError
from secagg.keys import KEY_BYTES, AgreementKey
from secagg.oneshot.committee import CommitteeKind, Member
from secagg.oneshot.member import OneShotMember


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
    """

    def __init__(
        self,
        identity: Identity,
        sealing: SealingKeys,
        policy: MemberPolicy,
        history: ClientHistory,
    ) -> None:
        self._identity = identity
        self._sealing = sealing
        self._policy = policy
        self._history = history
        self._session: OneShotMember | None = None

    def join(self, announcement: bytes, own: tuple[int, bytes | None] | None = None) -> None:
        """Look at an announcement, and enter the round as signed for.

        Args:
            announcement: from the server, for a member or for the client that we are as well.
            own: for a member that is a client of this round, `OneShotRoundClient.own_upload`.

        Raises:
            RemoteProtocolError: the announcement is malformed.
            PolicyError: it is outside our policy, without us, or was signed for before.
        """
        if self._session is not None:
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
        if committee.kind is CommitteeKind.EVERYONE:
            # Corrupt members are corrupt clients.
            if context.tolerated_colluders < policy.corrupt:
                colluders = context.tolerated_colluders
                raise PolicyError("tolerated_colluders", colluders, f"at least {policy.corrupt}")
        identities = [member.identity for member in committee.members]
        if self._identity.public not in identities:
            raise PolicyError("committee", "one without this member", "those that include it")
        index = identities.index(self._identity.public)
        self._history.enter(context.session_id, context.round_number)
        self._session = OneShotMember(
            context, index, self._identity, self._sealing.key, own, policy.registry
        )

    def receive(self, data: bytes) -> bytes:
        """Process a message of the server, and answer it.

        Raises:
            RemoteProtocolError: it is not what an honest server sends; the session is aborted.
        """
        if self._session is None:
            raise LocalProtocolError("join a round first")
        return self._session.receive_bytes(data)

    def abort(self) -> None:
        """Leave the round for good; the shares that were opened are forgotten.

        For a round that the server does not go on with: they are as sensitive as the sealing key.
        """
        if self._session is not None:
            self._session.abort()
