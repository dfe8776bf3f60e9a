"""The parties of a one-shot round under attack: real sessions, of which some work for the server.

The server reaches honest clients and members through messages only. The keys of colluding ones are
its own; so are all messages. Everything follows from public numbers, and nothing here is secret.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg import FieldVector, Identity, ProtocolError
from secagg.framing import Message, encode_set
from secagg.keys import AgreementKey
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.committee import Committee, CommitteeKind, Member, lowest_quorum
from secagg.oneshot.context import Cohort, OneShotContext, fewest_survivors
from secagg.oneshot.header import Header
from secagg.oneshot.layout import decode_rows
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.messages import (
    Answer,
    Complaints,
    Confirmation,
    Delivery,
    Proposal,
    Quorum,
    Upload,
    context_tag,
    seal_bytes,
)
from secagg.sealing import unseal
from simulations.threats.game.contexts import Integers, cohort_keys, counter_rand, identity_of
from simulations.threats.game.victims import refusal

SESSION = bytes(16)

ClientMaker = Callable[..., OneShotClient]
"""Makes an honest client's session: `OneShotClient`, or a client with a defence missing."""
MemberMaker = Callable[..., OneShotMember]
"""Makes an honest member's session: `OneShotMember`, or a member with a defence missing."""


@lru_cache(maxsize=64)
def member_identity(j: int) -> Identity:
    """The identity of member j, the same in every round."""
    return Identity.from_private_bytes(hashlib.sha256(b"one-shot member %d" % j).digest())


@lru_cache(maxsize=64)
def member_key(j: int, epoch: int = 0) -> AgreementKey:
    """Member j's sealing key of an epoch."""
    return AgreementKey(hashlib.sha256(b"one-shot sealing %d in %d" % (j, epoch)).digest())


def entry_of(j: int, rounds: tuple[int, int] = (0, 1 << 32), **changes: Any) -> Member:
    """Member j's entry: its identity, and a sealing key that it signed for some rounds."""
    signed = {
        "identity": member_identity(j),
        "session_id": SESSION,
        "sealing_key": member_key(j).public,
        "first_round": rounds[0],
        "last_round": rounds[1],
    }
    return Member.sign(**{**signed, **changes})


def committee_of(size: int, corrupt: int, first: int = 0, **changes: Any) -> Committee:
    """Members number first .. first + size - 1, with T = c, one secret in a polynomial."""
    numbers: dict[str, Any] = {
        "kind": CommitteeKind.NAMED,
        "members": tuple(entry_of(first + j) for j in range(size)),
        "corrupt": corrupt,
        "randomness": max(corrupt, 1),
        "per_polynomial": 1,
        "quorum": lowest_quorum(size, corrupt),
    }
    return Committee(**{**numbers, **changes})


@dataclass(frozen=True, slots=True, kw_only=True)
class OneShotSetting:
    """What the rounds of an attack have in common."""

    # clients, colluders: n and n_C; the colluding clients are the last ones.
    clients: int = 5
    colluders: int = 1
    # members, corrupt: s and c; the corrupt members are the last ones.
    members: int = 6
    corrupt: int = 1
    # randomness, per_polynomial: T and l.
    randomness: int = 1
    per_polynomial: int = 1
    length: int = 6
    bits: int = 12

    def context(self, number: int, **changes: Any) -> OneShotContext:
        """The context of a round."""
        committee = committee_of(
            self.members,
            self.corrupt,
            randomness=self.randomness,
            per_polynomial=self.per_polynomial,
        )
        parameters: dict[str, Any] = {
            "session_id": SESSION,
            "round_number": number,
            "size": self.clients,
            "cohort_root": Cohort(cohort_keys(self.clients)).root,
            "minimum_survivors": fewest_survivors(self.clients, self.colluders),
            "tolerated_colluders": self.colluders,
            "committee": committee,
            "degree": 1024,
            "limbs": 1,
            "bits": self.bits,
            "length": self.length,
            "application_digest": bytes(32),
        }
        return OneShotContext(**{**parameters, **changes})

    @property
    def own_clients(self) -> tuple[int, ...]:
        """The colluding clients."""
        return tuple(range(self.clients - self.colluders, self.clients))

    @property
    def own_members(self) -> tuple[int, ...]:
        """The corrupt members."""
        return tuple(range(self.members - self.corrupt, self.members))


def small_inputs(rng: np.random.Generator, context: OneShotContext) -> Integers:
    """One vector for each client, centred: int64[clients, length]; their sum does not wrap."""
    most = context.field.largest_centred // context.size
    return rng.integers(-most, most + 1, (context.size, context.length))


class OneShotVictims:
    """The honest parties of one round, asked by a server that keeps to nothing."""

    def __init__(
        self,
        setting: OneShotSetting,
        context: OneShotContext,
        salt: bytes,
        client: ClientMaker = OneShotClient,
        member: MemberMaker = OneShotMember,
    ) -> None:
        self.setting, self.context = setting, context
        self.cohort = Cohort(cohort_keys(context.size))
        self.refusals: Counter[str] = Counter()
        self._salt, self._client, self._member = salt, client, member

    # -- clients ---------------------------------------------------------------------------------

    def client(self, u: int, context: OneShotContext | None = None) -> OneShotClient:
        """A fresh session of a client; its randomness repeats, as after a restored snapshot."""
        rand = counter_rand(b"%d|" % u + self._salt)
        context = context or self.context
        return self._client(context, u, identity_of(u), self.cohort.proof(u), rand)

    def upload(self, u: int, vector: Integers, context: OneShotContext | None = None) -> Upload:
        """A client's one message."""
        return submitted(self.client(u, context), vector)

    def uploads(self, inputs: Integers) -> dict[int, Upload]:
        """Those of all clients."""
        return {u: self.upload(u, inputs[u]) for u in range(self.context.size)}

    # -- members ---------------------------------------------------------------------------------

    @property
    def honest_members(self) -> tuple[int, ...]:
        """The members that only answer messages."""
        own = self.setting.own_members
        return tuple(j for j in range(self.context.committee.size) if j not in own)

    def member(
        self, j: int, context: OneShotContext | None = None, number: int | None = None
    ) -> OneShotMember:
        """A fresh session of member j of a context's committee."""
        number = j if number is None else number
        context = context or self.context
        return self._member(context, j, member_identity(number), member_key(number))

    def ask(self, session: OneShotMember, message: Message) -> Message | None:
        """A member's answer; None if it refuses, which is counted."""
        try:
            return session.receive(message)
        except ProtocolError as error:
            self.refused(error)
            return None

    def refused(self, error: Exception) -> None:
        """Count a refusal."""
        self.refusals[refusal(error)] += 1


def submitted(client: OneShotClient, vector: Integers) -> Upload:
    """What a session uploads for a centred vector."""
    field = client._party.context.field
    client.seeds(vector.tobytes())
    elements = np.mod(vector, field.modulus).astype(field.dtype)
    message: Upload = client.submit(FieldVector(field, elements))
    return message


# -- what a server says ---------------------------------------------------------------------------


def delivery(
    context: OneShotContext,
    j: int,
    uploads: Mapping[int, Upload],
    keys: Sequence[bytes] | None = None,
) -> Delivery:
    """Everything about some uploads that member j is sent."""
    size = seal_bytes(context)
    senders = sorted(uploads)
    return Delivery(
        context=context_tag(context),
        cohort=b"".join(keys or cohort_keys(context.size)),
        uploaded=encode_set(senders, context.size),
        headers=b"".join(Header.of(uploads[u]).encode() for u in senders),
        seals=b"".join(uploads[u].seals[j * size : (j + 1) * size] for u in senders),
    )


def proposal(context: OneShotContext, survivors: Collection[int]) -> Proposal:
    """A set to be signed."""
    return Proposal(context=context_tag(context), survivors=encode_set(survivors, context.size))


def quorum(context: OneShotContext, signatures: Mapping[int, bytes]) -> Quorum:
    """Signatures on a set, by member."""
    return Quorum(
        context=context_tag(context),
        signers=encode_set(signatures, context.committee.size),
        signatures=b"".join(signatures[j] for j in sorted(signatures)),
    )


# -- a stage for one member -----------------------------------------------------------------------


def shown(
    victims: OneShotVictims, session: OneShotMember, j: int, uploads: Mapping[int, Upload]
) -> Complaints | None:
    """A member is sent uploads: its complaints."""
    answer = victims.ask(session, delivery(session._party.context, j, uploads))
    return answer if isinstance(answer, Complaints) else None


def signed(
    victims: OneShotVictims, session: OneShotMember, survivors: Collection[int]
) -> bytes | None:
    """A member is told whom to open: its signature."""
    answer = victims.ask(session, proposal(session._party.context, survivors))
    return answer.signature if isinstance(answer, Confirmation) else None


def answer(
    victims: OneShotVictims, session: OneShotMember, signatures: Mapping[int, bytes]
) -> NDArray[np.uint32] | None:
    """A member is shown signatures: its share of the sum of keys."""
    context = session._party.context
    given = victims.ask(session, quorum(context, signatures))
    if not isinstance(given, Answer):
        return None
    return np.asarray(decode_rows(given.sums, 1, context.layout.key_polynomials)[0])


def held(context: OneShotContext, upload: Upload, j: int) -> NDArray[np.uint32]:
    """The share that member j holds of an upload, opened with its own key: of corrupt members."""
    return opened_seal(context, upload, j, member_key(j))


def opened_seal(
    context: OneShotContext, upload: Upload, j: int, key: AgreementKey
) -> NDArray[np.uint32]:
    """Place j's share of an upload, opened with the key that it was sealed to."""
    size = seal_bytes(context)
    shared = key.agree(upload.ephemeral_key)
    sealed = upload.seals[j * size : (j + 1) * size]
    plain = unseal(shared, context.hash, upload.sender, j, sealed)
    return np.asarray(decode_rows(plain, 1, context.layout.polynomials)[0])
