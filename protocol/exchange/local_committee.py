"""The committees of one-shot rounds whose members are all in this process."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from protocol.round.history import ClientHistory
from protocol.round.lottery import Lottery, Members
from protocol.round.member import MemberPolicy, RoundMember, SealingKeys
from protocol.round.member_noise import MemberNoise
from secagg import Identity, ParameterError
from secagg.keys import KEY_BYTES, AgreementKey, os_random
from secagg.oneshot.committee import CommitteeKind, Member
from secagg.shamir import Rand

KeySource = Callable[[bytes, bytes], AgreementKey]
"""Gives the sealing key of a member, by its identity key, in a session."""


def fresh_key(session_id: bytes, key: bytes) -> AgreementKey:
    """A new secret key for whoever asks."""
    del session_id, key
    return AgreementKey(secrets.token_bytes(KEY_BYTES))


def system_rand_of(key: bytes) -> Rand:
    """The operating system's generator, for every member."""
    del key
    return os_random


class LocalCommittee:
    """The members of committees in this process: their keys, policies and histories.

    Args:
        rand_of: the source of a member's secrets in one round, by its identity key, where members
            add noise; leave it alone except to run the same rounds twice.
    """

    def __init__(
        self,
        kind: CommitteeKind,
        identities: Sequence[Identity],
        policy: MemberPolicy,
        key_of: KeySource = fresh_key,
        lottery: Lottery | None = None,
        rand_of: Callable[[bytes], Rand] = system_rand_of,
    ) -> None:
        if (kind is CommitteeKind.DRAWN) != (lottery is not None):
            raise ParameterError("lottery", lottery, "given for a drawn committee, and no other")
        self._key_of = key_of
        self._rand_of = rand_of
        self.kind = kind
        self.lottery = lottery
        self._identities = {identity.public: identity for identity in identities}
        self.policy = policy
        self._histories: dict[bytes, ClientHistory] = {}
        self._noise: dict[bytes, MemberNoise] = {}
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
            noise=self._noise.setdefault(key, MemberNoise()),
            rand=self._rand_of(key),
        )

    def _keys(self, session_id: bytes, key: bytes) -> SealingKeys:
        if key not in self._identities:
            raise ParameterError("cohort", key.hex(), "identities that are on the committee")
        place = (session_id, key)
        if place not in self._sealing:
            sealing = self._key_of(session_id, key)
            self._sealing[place] = SealingKeys(self._identities[key], session_id, key=sealing)
        return self._sealing[place]
