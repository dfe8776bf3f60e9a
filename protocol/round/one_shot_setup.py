"""A one-shot round as announced: context and parameters, and what each client is told of them.

A client is told its own place in the cohort, with the path to the root, but not the cohort: an
announcement grows with the committee only. A member that is no client needs no model: the digest of
the encoding is enough for the context, and what it enforces is all in there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from protocol.checks import of_kind
from protocol.round.losses import NOBODY, Dropouts, Stage, left_after, require_left
from protocol.round.parameters import RoundParameters
from protocol.round.released import IndependentEvents, Released
from protocol.round.returned_events import RunEvents
from protocol.round.returned_noise import ReturnedNoise
from protocol.round.setup import RoundEncoding, announced_removal
from protocol.round.written_parameters import WrittenParameters, same_in, taken
from secagg import (
    SERVER,
    Identity,
    LocalProtocolError,
    ParameterError,
    Reason,
    RemoteProtocolError,
)
from secagg.keys import os_random
from secagg.merkle import largest_proof_bytes
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.collection import UploadCollection
from secagg.oneshot.committee import MEMBER_BYTES, Committee, CommitteeKind, Member
from secagg.oneshot.context import Cohort, CommitteeContext, OneShotContext
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.records import MemberUploads, decode_records, encode_records
from secagg.oneshot.server import OneShotServer
from secagg.oneshot.sortition import Draw, Places
from secagg.oneshot.traffic import client_traffic, member_traffic
from secagg.oneshot.wire import wire_bytes
from secagg.shamir import Rand
from secagg.tags import encode_index
from secagg.traffic import Traffic, bytes_field

ANNOUNCEMENT_VERSION = 1
_POSITION_BYTES = 4
MAX_ANNOUNCEMENT_BYTES = 1 << 21
"""A committee of 4096 members, drawn from a million, and some."""


@dataclass(frozen=True, slots=True)
class OneShotSetup(RoundEncoding):
    """A one-shot round as announced: the secure-aggregation context and what it carries.

    Args:
        places: of a drawn committee's members in the registry; None for any other.
    """

    KIND: ClassVar[str] = "one-shot"

    context: OneShotContext
    cohort: Cohort | None = field(default=None, compare=False, repr=False)
    places: Places | None = field(default=None, compare=False, repr=False)

    _run: RunEvents | None = field(init=False, compare=False, repr=False, default=None)

    def __post_init__(self) -> None:
        RoundEncoding.__post_init__(self)
        uploads = self.context.member_uploads
        if uploads is None:
            return
        if uploads.block != self.parameters.block_digest():
            raise ParameterError("block", "another digest", "that of the parameters but the model")
        object.__setattr__(self, "_run", RunEvents(self.context, self.parameters))

    def client(
        self, index: int, identity: Identity, proof: bytes, rand: Rand = os_random
    ) -> OneShotClient:
        """A client's session in the round."""
        return OneShotClient(self.context, index, identity, proof, rand)

    def uploads(self, folder: Path | None = None) -> UploadCollection:
        """Where uploads go, for `server`; see `UploadCollection`."""
        return UploadCollection(self.context, self.known_cohort(), folder)

    def server(self, uploads: UploadCollection | None = None) -> OneShotServer:
        """The server's session."""
        return OneShotServer(self.context, self.known_cohort(), uploads)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Those of a pairwise round whose losses this one can feel.

        The last two only if everybody is on the committee.
        """
        return (Stage.INPUT, Stage.CONFIRM, Stage.UNMASK)

    def require_left(self, stage: Stage, dropouts: Dropouts, refused: Dropouts = NOBODY) -> None:
        """See `RoundEncoding.require_left`.

        Whose upload is refused may be on the committee all the same; members of a named or drawn
        one are lost by other names than clients.
        """
        committee, invited = self.context.committee, self.context.invited
        if stage is Stage.INPUT:
            left = left_after(invited, {**dropouts, **refused}, stage)
            require_left(stage, len(left), self.context.minimum_survivors)
        elif committee.of_cohort:
            needed = committee.threshold
            if stage is not Stage.UNMASK:
                needed = max(committee.quorum, needed)
            require_left(stage, len(left_after(invited, dropouts, stage)), needed)

    @property
    def adding_members(self) -> int:
        """All members, if they upload as well."""
        return self.context.size - self.context.invited

    @property
    def member_uploads(self) -> MemberUploads | None:
        """Those of the context."""
        return self.context.member_uploads

    @property
    def run_events(self) -> RunEvents:
        """What the rounds of the run cost, seen from this one."""
        return of_kind("returned", self._run, RunEvents)

    @property
    def released(self) -> Released:
        """Of the run, if a part of its noise comes back; else of this round alone."""
        return self._run or IndependentEvents(self)

    @property
    def context_hash(self) -> bytes:
        """That of the context."""
        return self.context.hash

    @property
    def members(self) -> tuple[bytes, ...]:
        """As `RoundEncoding.members` says."""
        return tuple(member.identity for member in self.context.committee.members)

    @property
    def identities(self) -> tuple[bytes, ...]:
        """The clients, at the server."""
        return self.known_cohort().keys[: self.context.invited]

    @property
    def vector_bytes(self) -> int:
        """Bytes of one client's ciphertext."""
        return wire_bytes(self.context.packing, self.context.length)

    def traffic(self, survivors: int) -> Traffic:
        """As `RoundEncoding.traffic` says."""
        context = self.context
        found = client_traffic(context.layout, self.vector_bytes)
        if context.committee.of_cohort:
            given_up = len(context.removed_seeds(survivors))
            quorum = context.committee.quorum
            found += member_traffic(context.layout, quorum, given_up, survivors)
        return found.announced(len(self.announce(0)))

    def known_cohort(self) -> Cohort:
        """The cohort, at the server."""
        if self.cohort is None:
            raise LocalProtocolError("only the server's setup has the cohort")
        return self.cohort

    def announce(self, index: int) -> bytes:
        """The setup as bytes for one client, by its position in the cohort."""
        proof = self.known_cohort().proof(index)
        return self._encoded(index, proof)

    def announce_to_member(self, member: int | None = None) -> bytes:
        """The setup as bytes for a member of the committee that is no client."""
        if member is None:
            return self._encoded(-1, b"")
        return self.announce(self.context.invited + member)

    def _encoded(self, index: int, proof: bytes) -> bytes:
        return self._announcement(index, proof).encode()

    def _announcement(self, index: int, proof: bytes) -> OneShotAnnouncement:
        if self.context.allow_weak:
            why = "a ring that is weak is used in this process only, not announced"
            raise LocalProtocolError(why)
        terms = announced_terms(self, index, proof)
        return OneShotAnnouncement(**terms, **taken(self.context, _RING))


class WrittenDraw(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The wire form of a draw and of the members' places in the registry.

    `positions` are 4 little-endian bytes each, in the order of the members, which is the registry's
    own; `proof` is one for all of them.
    """

    registry_root: bytes
    registry_size: int
    odds: int
    beacon: bytes
    positions: bytes
    proof: bytes

    @classmethod
    def of(cls, committee: Committee, places: Places | None) -> WrittenDraw | None:
        """That of a committee; None if it was not drawn."""
        draw = committee.draw
        if draw is None and places is None:
            return None
        if draw is None or places is None:
            raise LocalProtocolError("a drawn committee is announced with its places, no other is")
        return cls(
            registry_root=draw.registry_root,
            registry_size=draw.registry_size,
            odds=draw.odds,
            beacon=draw.beacon,
            positions=b"".join(map(encode_index, places.positions)),
            proof=places.proof,
        )

    @property
    def draw(self) -> Draw:
        """The draw; ValueError if it is none."""
        return Draw(
            registry_root=self.registry_root,
            registry_size=self.registry_size,
            odds=self.odds,
            beacon=self.beacon,
        )

    def places(self, members: int) -> Places:
        """The members' places; ValueError if they are none."""
        if len(self.positions) != _POSITION_BYTES * members:
            raise ValueError("the members' positions are not one for each")
        cuts = range(0, len(self.positions), _POSITION_BYTES)
        cut = (self.positions[i : i + _POSITION_BYTES] for i in cuts)
        return Places(tuple(int.from_bytes(each, "little") for each in cut), self.proof)


class WrittenReturns(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The wire form of what members add and take back, and of the records of the run."""

    variance: float
    rounds: int
    divisor: int
    fewest: int
    returning: bool
    fewest_returning: int
    records: bytes

    @classmethod
    def of(cls, setup: OneShotSetup) -> WrittenReturns | None:
        """That of a setup; None if clients alone upload."""
        uploads, returned = setup.context.member_uploads, setup.parameters.returned
        if uploads is None or returned is None:
            return None
        return cls(
            variance=returned.variance,
            rounds=returned.rounds,
            divisor=returned.divisor,
            fewest=uploads.fewest,
            returning=uploads.returning,
            fewest_returning=uploads.fewest_returning,
            records=encode_records(uploads.records, setup.context.committee.size),
        )

    @property
    def noise(self) -> ReturnedNoise:
        """What comes back; ValueError if it is none."""
        return ReturnedNoise(variance=self.variance, rounds=self.rounds, divisor=self.divisor)

    def uploads(self, parameters: RoundParameters, members: int) -> MemberUploads:
        """The terms of the members' uploads; ValueError if they are none."""
        return MemberUploads(
            fewest=self.fewest,
            returning=self.returning,
            fewest_returning=self.fewest_returning,
            block=parameters.block_digest(),
            records=decode_records(self.records, members),
        )


class OneShotAnnouncement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The wire form of a setup.

    `index` and `proof` place a client in the cohort; a member that is none gets -1 and nothing.
    `digest` is that of the parameters with the server's model, for such members only: a client
    computes its own, with the model that it has. `draw` is that of a drawn committee. `returns` is
    there where members upload as well; `size` counts their uploads.
    """

    session_id: bytes
    round_number: int
    size: int
    cohort_root: bytes
    minimum_survivors: int
    tolerated_colluders: int
    kind: str
    members: bytes
    corrupt: int
    randomness: int
    per_polynomial: int
    quorum: int
    degree: int
    limbs: int
    rounding_bits: int
    entries: int
    bits: int
    length: int
    removable: bool
    opened_at: int
    lifetime_seconds: int
    parameters: WrittenParameters
    digest: bytes
    index: int
    proof: bytes
    draw: WrittenDraw | None = None
    returns: WrittenReturns | None = None

    TAG: ClassVar[bytes] = b"one-shot"
    """What its bytes begin with; those of a pairwise round do not begin like this."""
    MEMBER: ClassVar[type[OneShotMember]] = OneShotMember
    """A member's session in such rounds."""

    @classmethod
    def read(cls, data: bytes) -> OneShotAnnouncement:
        """An announcement from the server, of this kind of round."""
        head = cls.head()
        if len(data) > MAX_ANNOUNCEMENT_BYTES or data[: len(head)] != head:
            raise RemoteProtocolError(SERVER, Reason.MALFORMED, "announcement version or size")
        try:
            return msgspec.msgpack.decode(memoryview(data)[len(head) :], type=cls)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise RemoteProtocolError(SERVER, Reason.MALFORMED, str(error)) from None

    @classmethod
    def head(cls) -> bytes:
        """What the bytes begin with."""
        return cls.TAG + bytes([ANNOUNCEMENT_VERSION])

    def encode(self) -> bytes:
        """Inverse of `read`."""
        return self.head() + msgspec.msgpack.encode(self)

    def setup(self, model_digest: bytes) -> OneShotSetup:
        """The setup that a client with this model takes part in."""
        try:
            parameters = self.encoding(model_digest)
            context = self._context(parameters, parameters.digest())
            places = self.draw.places(context.committee.size) if self.draw else None
            return self._setup(context, parameters, places)
        except (ValueError, TypeError) as error:
            raise RemoteProtocolError(SERVER, Reason.MALFORMED, str(error)) from None

    def adder(
        self,
        context: CommitteeContext,
        index: int,
        identity: Identity,
        rand: Rand,
        *,
        returns: bool,
    ) -> OneShotClient:
        """The session in which a member uploads noise, at an index in the cohort."""
        return OneShotClient(context, index, identity, self.proof, rand, returns)

    def _setup(
        self, context: CommitteeContext, parameters: RoundParameters, places: Places | None
    ) -> OneShotSetup:
        return OneShotSetup(of_kind("context", context, OneShotContext), parameters, places=places)

    def member_context(self) -> CommitteeContext:
        """The context for a member that has no model, and relies on the digest it is told."""
        try:
            # The model is in the digest; nothing else of the encoding depends on it.
            return self._context(self.encoding(bytes(32)), self.digest)
        except (ValueError, TypeError) as error:
            raise RemoteProtocolError(SERVER, Reason.MALFORMED, str(error)) from None

    def encoding(self, model_digest: bytes) -> RoundParameters:
        """The parameters for a client with this model; TypeError or ValueError if none."""
        parameters = self.parameters.read(model_digest)
        if self.returns is None:
            return parameters
        return replace(parameters, returned=self.returns.noise)

    def _context(self, parameters: RoundParameters, digest: bytes) -> CommitteeContext:
        return OneShotContext(**self._terms(parameters, digest), **taken(self, _RING))

    def _terms(self, parameters: RoundParameters, digest: bytes) -> dict[str, Any]:
        """What every context with a committee is made of."""
        # Members hold no setup, which would look at this.
        if self.length != parameters.length:
            raise ParameterError("length", self.length, f"the sketch size {parameters.length}")
        if len(self.members) % MEMBER_BYTES:
            raise ValueError("the committee is not a list of members")
        entries = range(0, len(self.members), MEMBER_BYTES)
        committee = Committee(
            kind=CommitteeKind(self.kind),
            members=tuple(Member.decode(self.members[i : i + MEMBER_BYTES]) for i in entries),
            draw=self.draw.draw if self.draw else None,
            **taken(self, _NUMBERS),
        )
        uploads = self.returns.uploads(parameters, committee.size) if self.returns else None
        return {
            "committee": committee,
            "removal": announced_removal(
                parameters.mechanism,
                self.size - (committee.size if self.returns else 0),
                self.minimum_survivors,
                self.tolerated_colluders,
                removable=self.removable,
            ),
            "application_digest": digest,
            "member_uploads": uploads,
            **taken(self, _AS_IN_CONTEXT),
        }


_AS_IN_CONTEXT = same_in(OneShotAnnouncement, CommitteeContext)
_RING = ("degree", "limbs", "rounding_bits", "entries")
_FIXED_BYTES = 260
"""What is in an announcement besides members, places and proof, give or take some integers."""


def announcement_bytes(clients: int, members: int) -> int:
    """Bytes of an announcement to one of the clients, without a draw and the records of a run."""
    proof = bytes_field(largest_proof_bytes(clients))
    return _FIXED_BYTES + proof + bytes_field(members * MEMBER_BYTES)


_NUMBERS = ("corrupt", "randomness", "per_polynomial", "quorum")
"""Written as they are: of the context, of its ring, and of its committee."""


def announced_terms(setup: OneShotSetup, index: int, proof: bytes) -> dict[str, Any]:
    """What every announcement of a round with a committee says."""
    context, committee = setup.context, setup.context.committee
    return {
        "kind": committee.kind.value,
        "members": b"".join(member.encode() for member in committee.members),
        "removable": bool(context.removal),
        "parameters": WrittenParameters.of(setup.parameters),
        "digest": context.application_digest,
        "index": index,
        "proof": proof,
        "draw": WrittenDraw.of(committee, setup.places),
        "returns": WrittenReturns.of(setup),
        **taken(context, _AS_IN_CONTEXT),
        **taken(committee, _NUMBERS),
    }
