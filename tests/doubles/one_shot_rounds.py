"""Small one-shot rounds for tests: parties with known keys, and a round played to its end."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from secagg.field import FieldVector, lift
from secagg.framing import encode_message, encode_set
from secagg.keys import AgreementKey, Identity
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.committee import Committee, CommitteeKind, Member, lowest_quorum
from secagg.oneshot.context import Cohort, OneShotContext, fewest_survivors
from secagg.oneshot.header import Header
from secagg.oneshot.member import OneShotMember, answer_parts
from secagg.oneshot.messages import Answer, Complaints, Upload, context_tag
from secagg.oneshot.opening import OpenedSum
from secagg.oneshot.records import MemberUploads
from secagg.oneshot.server import OneShotServer
from secagg.oneshot.transitions import ClientPhase
from secagg.sealing import seal
from secagg.tags import Usage, encode_index

SESSION = bytes(range(16))


def secret(*what: object) -> bytes:
    """32 bytes that stand for a name."""
    return hashlib.sha256(repr(what).encode()).digest()


def identity(name: str, index: int) -> Identity:
    """A known identity."""
    return Identity.from_private_bytes(secret("identity", name, index))


def sealing(name: str, index: int) -> AgreementKey:
    """A known sealing key."""
    return AgreementKey(secret("sealing", name, index))


class Stream:
    """Repeatable randomness for one party."""

    def __init__(self, *what: object) -> None:
        self._what, self._calls = what, 0

    def __call__(self, count: int) -> bytes:
        self._calls += 1
        return hashlib.shake_256(repr((self._what, self._calls)).encode()).digest(count)


def committee(size: int, name: str = "member", **changes: Any) -> Committee:
    """A named committee of so many members, one of them corrupt unless changed."""
    corrupt = changes.get("corrupt", 1)
    randomness = changes.get("randomness", max(corrupt, 1))
    members = tuple(
        Member.sign(identity(name, i), SESSION, sealing(name, i).public, 0, 9) for i in range(size)
    )
    terms = {
        "kind": CommitteeKind.NAMED,
        "members": members,
        "corrupt": corrupt,
        "randomness": randomness,
        "per_polynomial": max(size - randomness - 2 * corrupt, 1),
        "quorum": lowest_quorum(size, corrupt),
    }
    return Committee(**{**terms, **changes})


def cohort(size: int) -> Cohort:
    """The identities of so many clients."""
    return Cohort([identity("client", i).public for i in range(size)])


def context(size: int = 5, members: int = 6, **changes: Any) -> OneShotContext:
    """A small round on the smallest ring; any parameter may be replaced."""
    colluders = changes.get("tolerated_colluders", 1)
    terms: dict[str, Any] = {
        "session_id": SESSION,
        "round_number": 3,
        "size": size,
        "cohort_root": cohort(size).root,
        "minimum_survivors": fewest_survivors(size, colluders),
        "tolerated_colluders": colluders,
        "committee": changes.get("committee") or committee(members),
        "degree": 1024,
        "limbs": 1,
        "bits": 12,
        "length": 7,
        "application_digest": bytes(32),
    }
    return OneShotContext(**{**terms, **changes})


def seated(size: int, members: int) -> Cohort:
    """So many clients, and after them the kit's members."""
    keys = cohort(size).keys + tuple(identity("member", j).public for j in range(members))
    return Cohort(keys)


def uploads(**changes: Any) -> MemberUploads:
    """Terms of members' uploads in a first round; four members of six at least."""
    terms: dict[str, Any] = {
        "fewest": 4,
        "returning": False,
        "fewest_returning": 0,
        "block": bytes(range(32)),
        "records": (),
    }
    return MemberUploads(**{**terms, **changes})


def adding(
    terms: MemberUploads | None = None, size: int = 5, members: int = 6, **changes: Any
) -> OneShotContext:
    """A small round to which the members upload as well."""
    colluders = changes.get("tolerated_colluders", 1)
    return context(
        size + members,
        members,
        cohort_root=seated(size, members).root,
        minimum_survivors=changes.pop("minimum_survivors", fewest_survivors(size, colluders)),
        member_uploads=terms or uploads(),
        **changes,
    )


def uploader(context: OneShotContext, index: int) -> Identity:
    """The signing key of whoever uploads at a place of the cohort."""
    member = index - context.invited
    return identity("client", index) if member < 0 else identity("member", member)


def signed_upload(context: OneShotContext, message: Upload) -> Upload:
    """A changed upload with the signature that its sender, who is malicious, makes."""
    parts = Header.of(message).signed_parts(context)
    signature = uploader(context, message.sender).sign(Usage.UPLOAD, *parts)
    return replace(message, signature=signature)


def sealed_rows(context: OneShotContext, message: Upload, rows: NDArray[np.uint32]) -> Upload:
    """An upload that deals other shares, uint32[members, polynomials], each sealed as it should."""
    key = sealing("ephemeral", message.sender)
    seals = [
        seal(
            key.agree(each.sealing_key),
            context.hash,
            message.sender,
            j,
            rows[j].astype("<u4").tobytes(),
        )
        for j, each in enumerate(context.committee.members)
    ]
    changed = replace(message, ephemeral_key=key.public, seals=b"".join(seals))
    return signed_upload(context, changed)


@dataclass
class Round:
    """All parties of one round, and its stages one by one."""

    context: OneShotContext  # of the round; a committee with the kit's keys, named or of everyone
    away: Collection[int] = ()  # members that never answer
    # by client, centred integers; those of `vector` if there are none
    inputs: Sequence[Sequence[int]] = ()
    returning: Collection[int] = ()  # uploads that say that a member takes something back
    clients: dict[int, OneShotClient] = field(default_factory=dict)
    members: dict[int, OneShotMember] = field(default_factory=dict)

    def __post_init__(self) -> None:
        members = self.context.committee.size
        adds = self.context.member_uploads is not None
        self.cohort = seated(self.context.invited, members) if adds else cohort(self.context.size)
        self.server = OneShotServer(self.context, self.cohort)
        self.sent: dict[int, bytes] = {}
        for i in range(self.context.size):
            self.clients[i] = OneShotClient(
                self.context,
                i,
                uploader(self.context, i),
                self.cohort.proof(i),
                Stream("client", i),
                i in self.returning,
            )
        for j in range(self.context.committee.size):
            self.members[j] = self.member(j)

    @property
    def everyone(self) -> bool:
        """Whether the clients are the committee."""
        return self.context.committee.kind is CommitteeKind.EVERYONE

    def member(self, index: int) -> OneShotMember:
        """A new session of a member; one that is a client knows what it uploaded."""
        own = None
        if self.everyone or self.context.member_uploads is not None:
            place = index if self.everyone else self.context.invited + index
            client = self.clients[place]
            sent = client.phase is ClientPhase.UPLOADED
            own = (place, client.header_digest if sent else None)
        sealing_key = sealing(self.names, index)
        return OneShotMember(self.context, index, self.member_identity(index), sealing_key, own)

    @property
    def names(self) -> str:
        """What the keys of the members are made of."""
        return "client" if self.everyone else "member"

    def member_identity(self, index: int) -> Identity:
        """A member's signing key."""
        return identity(self.names, index)

    def vector(self, client: int) -> FieldVector:
        """A client's input: small and different for everybody, unless chosen."""
        if self.inputs:
            return lift(np.array(self.inputs[client], np.int64), self.context.field)
        values = np.arange(self.context.length, dtype=np.int64) % 50 * (client + 1) - 5
        return lift(values, self.context.field)

    def upload(self, client: int) -> bytes:
        """A client's only message."""
        self.clients[client].seeds(b"rounded %d" % client)
        return self.clients[client].submit_bytes(self.vector(client))

    def collect(self, lost: Collection[int] = ()) -> None:
        """Deliver all uploads but those of lost clients."""
        for client in self.clients:
            data = self.upload(client)
            if client not in lost:
                self.server.receive_upload(client, data)
        self.seat()

    def seat(self) -> None:
        """Members that upload know now what they uploaded."""
        if self.everyone or self.context.member_uploads is not None:
            self.members = {j: self.member(j) for j in self.members}

    def check(self, complaints: Mapping[int, Collection[int]]) -> None:
        """Close the uploads; some members complain about clients without a reason."""

        def changed(member: int, answer: bytes) -> bytes:
            if member not in complaints:
                return answer
            return encode_message(self.complaints(member, complaints[member]))

        self.pass_on(changed)

    def complaints(self, member: int, bad: Collection[int]) -> Complaints:
        """What a member says that complains about these clients."""
        encoded = encode_set(bad, self.context.size)
        signed = (self.context.hash, encode_index(member), encoded)
        signature = self.member_identity(member).sign(Usage.COMPLAIN, *signed)
        return Complaints(context_tag(self.context), member, encoded, signature)

    def answer(self, member: int, answer: Answer, **changes: bytes) -> bytes:
        """An answer with other content, signed by the member that lies."""
        changed = replace(answer, **changes)
        parts = (changed.sums, changed.seeds, changed.checks)
        signed = answer_parts(self.context, member, self.server._signed, *parts)
        signature = self.member_identity(member).sign(Usage.ANSWER, *signed)
        return encode_message(replace(changed, signature=signature))

    def pass_on(self, change: Callable[[int, bytes], bytes | None] | None = None) -> None:
        """Close a stage, and take the answers of all members that are not away.

        Args:
            change: what becomes of a member's answer on its way; None if it is lost.
        """
        self.sent = dict(self.server.close_round_bytes())
        for member, data in self.sent.items():
            if member in self.away:
                continue
            answer = self.members[member].receive_bytes(data)
            changed = change(member, answer) if change else answer
            if changed is not None:
                self.server.receive_from_member(member, changed)

    def finish(self, lost: Collection[int] = ()) -> OpenedSum:
        """The whole round."""
        self.collect(lost)
        for _ in range(3):
            self.pass_on()
        return self.server.open()

    def expected(self, survivors: Sequence[int]) -> list[int]:
        """The sum of some clients' inputs, modulo p."""
        modulus = self.context.field.modulus
        vectors = [self.vector(i).elements.tolist() for i in survivors]
        return [sum(column) % modulus for column in zip(*vectors, strict=True)]
