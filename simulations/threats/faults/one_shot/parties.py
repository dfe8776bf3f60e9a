"""One-shot rounds to damage, drawn at random, and their honest clients and members.

Parties vanish or restart when they are told to. On the wire clients have the numbers 0 .. n - 1,
and members those that follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from secagg import FieldVector, Identity, ParameterError
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.committee import Committee, CommitteeKind, lowest_quorum
from secagg.oneshot.context import Cohort, OneShotContext, fewest_survivors
from secagg.oneshot.key_entries import entries_for
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.messages import Upload, decode_from_member, decode_upload
from secagg.oneshot.transitions import MemberPhase
from secagg.shamir import Rand
from secagg.storage import resume, suspend
from simulations.threats.faults.behaviours import Sent
from simulations.threats.game.contexts import (
    MOST_LOST,
    Integers,
    MemoryKeys,
    Wanted,
    cohort_keys,
    counter_rand,
    identity_of,
    until_it_fits,
)
from simulations.threats.one_shot.parties import (
    SESSION,
    OneShotSetting,
    committee_of,
    entry_of,
    member_identity,
    member_key,
)

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
        self._session = self._begun(context, proof, rand)

    def _begun(self, context: Any, proof: bytes, rand: Rand) -> OneShotClient:
        return OneShotClient(context, self.index, identity_of(self.index), proof, rand)

    def _read(self, data: bytes) -> Any:
        return decode_upload(data, self.index, len(data))

    def open(self, heard: dict[int, Upload]) -> Sent:
        """The upload; it is also heard by clients that lie."""
        if self.leaves:
            return []
        vector, self.seeds = self._make_input(self._session)
        data = self._session.submit_bytes(vector)
        self.header_digest = self._session.header_digest
        heard[self.index] = self._read(data)
        return [(self.index, data)]


class HonestMember:
    """A member's session."""

    SESSION: ClassVar[type[OneShotMember]] = OneShotMember

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
        self.session = self.SESSION(self.context, self.index, identity, member_key(self.index), own)

    def receive(self, data: bytes) -> Sent:
        """The answer to a message of the server."""
        answer = self.session.receive_bytes(data)
        message = self._read(answer)
        if type(message) is self.leaves_before:
            self.session.abort()
            return []
        if self.restarts and self.session.phase is not MemberPhase.FINISHED:
            self.session = restarted(self.session, self._keys)
        return self.sent(message, answer)

    def _read(self, data: bytes) -> Any:
        return decode_from_member(data, self.index, len(data))

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


# -- rounds drawn at random -----------------------------------------------------------------------

LARGEST = 8
"""Most clients of a random round; a committee has one member more at the most."""


def random_context(
    rng: np.random.Generator, number: int, wanted: Wanted | None = None
) -> OneShotContext:
    """Named committees and such of everyone, small and large rings, rounded and not."""
    return until_it_fits(_random_context, rng, number, wanted or Wanted())


def random_committee(
    rng: np.random.Generator,
    clients: int,
    colluders: int,
    fewest_corrupt: int = 0,
) -> Committee:
    """One that stands all of its corrupt members, silent or lying; named if nobody is invited."""
    everyone = clients > 0 and rng.random() < 0.3
    size = clients if everyone else int(rng.integers(3, LARGEST + 2))
    corrupt = max(fewest_corrupt, colluders if everyone else 0, int(rng.integers(3)))
    randomness = max(corrupt, 1) + int(rng.random() < 0.3)
    most = size - randomness - 2 * corrupt
    if most < 1 or lowest_quorum(size, corrupt) > size - corrupt:
        raise ParameterError("members", size, "more of them")
    committee = committee_of(
        size, corrupt, randomness=randomness, per_polynomial=int(rng.integers(1, most + 1))
    )
    if not everyone:
        return committee
    members = tuple(entry_of(u, identity=identity_of(u)) for u in range(size))
    return replace(committee, kind=CommitteeKind.EVERYONE, members=members)


def random_setting(rng: np.random.Generator) -> OneShotSetting:
    """The numbers of a round with a hostile server, which has a client and maybe members."""
    committee = until_it_fits(random_committee, rng, 0, 0)
    return OneShotSetting(
        clients=int(rng.integers(5, LARGEST + 1)),
        members=committee.size,
        corrupt=committee.corrupt,
        randomness=committee.randomness,
        per_polynomial=committee.per_polynomial,
        length=int(rng.integers(1, 20)),
    )


def signer_of(context: OneShotContext, member: int) -> Identity:
    """The identity of a member of the context's committee."""
    named = context.committee.kind is CommitteeKind.NAMED
    return member_identity(member) if named else identity_of(member)


def random_sizes(rng: np.random.Generator, wanted: Wanted) -> dict[str, Any]:
    """Cohort, colluders, and fewest survivors."""
    size = int(rng.integers(4 + 2 * wanted.colluders, LARGEST + 1))
    colluders = max(wanted.colluders, int(rng.random() < 0.4))
    spare = size - fewest_survivors(size, colluders)
    if spare < wanted.spare:
        raise ParameterError("lost", spare, f"at least {wanted.spare}")
    lost = int(rng.integers(wanted.spare, max(MOST_LOST, wanted.spare) + 1))
    return {
        "size": size,
        "tolerated_colluders": colluders,
        "minimum_survivors": size - min(lost, spare),
    }


def _random_context(rng: np.random.Generator, number: int, wanted: Wanted) -> OneShotContext:
    sizes = random_sizes(rng, wanted)
    size = sizes["size"]
    lost = size - sizes["minimum_survivors"]
    removable = rng.random() < 0.5 if wanted.removable is None else wanted.removable
    degree, limbs = (1024, 1) if rng.random() < 0.8 else (2048, 2)
    return OneShotContext(
        session_id=SESSION,
        round_number=number,
        **sizes,
        cohort_root=Cohort(cohort_keys(size)).root,
        committee=random_committee(rng, size, sizes["tolerated_colluders"], wanted.corrupt),
        degree=degree,
        limbs=limbs,
        rounding_bits=int(rng.choice([0, 0, 2, 5])),
        entries=int(rng.choice([1, entries_for(size)])),
        # Never empty, so that a round with removable seeds has some to give up.
        removal=tuple(int(m) for m in rng.integers(1, 8, lost + 1)) if removable else (),
        bits=int(rng.choice([8, 12, 16, 24, 32])),
        length=int(rng.integers(1, 100)),
        application_digest=bytes(32),
    )
