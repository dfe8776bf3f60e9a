"""The committees of one-shot rounds whose members are all in this process."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from protocol.round.history import ClientHistory
from protocol.round.member import MemberPolicy, RoundMember, SealingKeys
from secagg import Identity, ParameterError
from secagg.keys import KEY_BYTES, AgreementKey
from secagg.oneshot.committee import CommitteeKind, Member

KeySource = Callable[[bytes, bytes], AgreementKey]
"""Gives the sealing key of a member, by its identity key, in a session."""


def fresh_key(session_id: bytes, key: bytes) -> AgreementKey:
    """A new secret key for whoever asks."""
    del session_id, key
    return AgreementKey(secrets.token_bytes(KEY_BYTES))


class LocalCommittee:
    """The members of committees in this process: their keys, policies and histories.

    Args:
        kind: everyone who is invited, or all of these, as a named committee.
        identities: of all who may be members.
        policy: what every member insists on.
        key_of: their sealing keys; leave it alone except to run the same rounds twice.
    """

    def __init__(
        self,
        kind: CommitteeKind,
        identities: Sequence[Identity],
        policy: MemberPolicy,
        key_of: KeySource = fresh_key,
    ) -> None:
        self._key_of = key_of
        self.kind = kind
        self._identities = {identity.public: identity for identity in identities}
        self._policy = policy
        self._histories = {key: ClientHistory() for key in self._identities}
        self._sealing: dict[tuple[bytes, bytes], SealingKeys] = {}

    @property
    def named(self) -> frozenset[bytes]:
        """The identity keys of a named committee; none if everyone is on it."""
        named = self.kind is CommitteeKind.NAMED
        return frozenset(self._identities) if named else frozenset()

    def members(self, session_id: bytes, cohort: Sequence[bytes]) -> list[Member]:
        """The signed keys of the members; see `HasCommittee.members`."""
        keys = cohort if self.kind is CommitteeKind.EVERYONE else list(self._identities)
        return [self._keys(session_id, key).entry for key in keys]

    def member(self, session_id: bytes, key: bytes) -> RoundMember:
        """A member for one round, by its identity key."""
        return RoundMember(
            self._identities[key],
            self._keys(session_id, key),
            self._policy,
            self._histories[key],
        )

    def _keys(self, session_id: bytes, key: bytes) -> SealingKeys:
        if key not in self._identities:
            raise ParameterError("cohort", key.hex(), "identities that are on the committee")
        place = (session_id, key)
        if place not in self._sealing:
            sealing = self._key_of(session_id, key)
            self._sealing[place] = SealingKeys(self._identities[key], session_id, key=sealing)
        return self._sealing[place]
