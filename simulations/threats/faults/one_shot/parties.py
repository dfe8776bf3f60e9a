"""Honest clients and members of one-shot rounds, which vanish or restart when they are told to.

On the wire clients have the numbers 0 .. n - 1, and members those that follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from secagg import FieldVector
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.context import Cohort, OneShotContext
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.messages import Upload, decode_from_member, decode_upload
from secagg.oneshot.transitions import MemberPhase
from secagg.storage import resume, suspend
from simulations.threats.faults.one_shot.contexts import signer_of
from simulations.threats.faults.wire import Sent
from simulations.threats.game.contexts import Integers, cohort_keys, counter_rand, identity_of
from simulations.threats.game.stored_keys import MemoryKeys
from simulations.threats.one_shot.parties import member_key

Input = Callable[[OneShotClient], tuple[FieldVector, tuple[bytes, ...]]]
"""Asks a session for its seeds, and makes its input; gives that and the removable seeds."""
Own = tuple[int, bytes | None] | None
"""What a member that is a client knows of its own upload."""


def plain_input(context: OneShotContext, vector: Integers) -> Input:
    """The input of a client that adds no noise: `field.dtype`[length]."""

    def make(session: OneShotClient) -> tuple[FieldVector, tuple[bytes, ...]]:
        _, *removable = session.seeds(vector.tobytes())
        seeds = tuple(seed.expose() for seed in removable)
        return FieldVector(context.field, vector.copy()), seeds

    return make


class HonestClient:
    """A client session and its input."""

    def __init__(self, context: OneShotContext, index: int, make_input: Input, salt: bytes) -> None:
        self.index = index
        self.seeds: tuple[bytes, ...] = ()
        self.header_digest: bytes | None = None
        self.leaves = False
        self._make_input = make_input
        proof = Cohort(cohort_keys(context.size)).proof(index)
        rand = counter_rand(b"%d|" % index + salt)
        self._session = OneShotClient(context, index, identity_of(index), proof, rand)

    def open(self, heard: dict[int, Upload]) -> Sent:
        """The upload; it is also heard by clients that lie."""
        if self.leaves:
            return []
        vector, self.seeds = self._make_input(self._session)
        data = self._session.submit_bytes(vector)
        self.header_digest = self._session.header_digest
        heard[self.index] = decode_upload(data, self.index, len(data))
        return [(self.index, data)]


class HonestMember:
    """A member's session."""

    def __init__(self, context: OneShotContext, index: int) -> None:
        self.context = context
        self.index = index
        self.leaves_before: type | None = None
        self.restarts = False
        self._keys = MemoryKeys()

    @property
    def number(self) -> int:
        """Its number on the wire."""
        return self.context.size + self.index

    def seat(self, header_digest: bytes | None) -> None:
        """Begin, after the uploads; of a member that is a client, with what it uploaded."""
        everyone = self.context.committee.kind is CommitteeKind.EVERYONE
        own = (self.index, header_digest) if everyone else None
        identity = signer_of(self.context, self.index)
        self.session = OneShotMember(
            self.context, self.index, identity, member_key(self.index), own
        )

    def receive(self, data: bytes) -> Sent:
        """The answer to a message of the server."""
        answer = self.session.receive_bytes(data)
        message = decode_from_member(answer, self.index, len(answer))
        if type(message) is self.leaves_before:
            self.session.abort()
            return []
        if self.restarts and self.session.phase is not MemberPhase.FINISHED:
            self.session = restarted(self.session, self._keys)
        return self.sent(message, answer)

    def sent(self, message: Any, data: bytes) -> Sent:
        """What is sent of an answer."""
        return [(self.number, data)]


def restarted(session: OneShotMember, keys: MemoryKeys) -> OneShotMember:
    """The session, stored and resumed."""
    party = session._party
    return resume(type(session), suspend(session, keys), party, keys)


def random_vectors(rng: np.random.Generator, context: OneShotContext) -> Integers:
    """One vector for each client: `field.dtype`[size, length]; their sum does not wrap a digit."""
    field = context.field
    most = field.largest_centred // context.size
    drawn = rng.integers(-most, most + 1, (context.size, context.length))
    return np.mod(drawn, field.modulus).astype(field.dtype)
