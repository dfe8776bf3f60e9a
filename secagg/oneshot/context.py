"""What all parties of a one-shot round agree on before it begins, and its hash.

The hash goes into every signature, every seal and the public ring elements: parties that were told
different things cannot open anything together. A client is not shown the cohort, only the root of a
hash tree over it and the path to its own entry; so an announcement does not grow with the cohort.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from secagg.checks import require_int, require_ints
from secagg.errors import ParameterError
from secagg.merkle import HASH_BYTES, proof_is_valid
from secagg.oneshot.committee import Committee, CommitteeKind
from secagg.oneshot.identities import IdentityList
from secagg.oneshot.layout import ShareLayout
from secagg.oneshot.packing import Packing
from secagg.oneshot.parameters import check_ring
from secagg.oneshot.records import MemberUploads, RoundRecord, next_head
from secagg.oneshot.ring import Ring
from secagg.tags import Usage, derive, digest, encode_parts
from secagg.terms import RoundTerms

PUBLIC_KEY_BYTES = 16
"""AES key under which the public ring elements are expanded."""

_INTEGERS = (
    "round_number",
    "size",
    "minimum_survivors",
    "tolerated_colluders",
    "degree",
    "limbs",
    "rounding_bits",
    "entries",
    "bits",
    "length",
    "opened_at",
    "lifetime_seconds",
)


class Cohort(IdentityList):
    """Who is invited to upload, fixed before the first upload; a party's index is its position."""

    _NAME = "cohort"
    _FEWEST = 2

    def proof(self, index: int) -> bytes:
        """The path that shows a client that it is in the cohort, 32 bytes for each level."""
        return self._tree.proof(index)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitteeContext(RoundTerms):
    """What all rounds that a committee opens agree on, however the vectors are masked.

    Beside the terms that every protocol has (`RoundTerms`):

    Args:
        cohort_root: 32 bytes, `Cohort.root` of their identities.
        member_uploads: the terms of members' uploads; None where clients alone upload.

    Source: the theorem of docs/one-shot-security.md. 2 n_min > n + n_C, so that an honest upload is
    in one opened set at most; n_min - n_C >= 2, so that two honest ones at least are in it.
    """

    NUMBERS: ClassVar[tuple[str, ...]]
    """The integers that the hash covers."""

    size: int
    cohort_root: bytes
    committee: Committee
    member_uploads: MemberUploads | None = None
    hash: bytes = field(init=False, repr=False)

    @property
    def invited(self) -> int:
        """n, the number of invited clients."""
        return self.size - self.committee.size if self.member_uploads else self.size

    @property
    def most_corrupt(self) -> int:
        """Uploads that may be of parties who work for the server."""
        members = self.committee.corrupt if self.member_uploads else 0
        return self.tolerated_colluders + members

    @property
    def records(self) -> tuple[RoundRecord, ...]:
        """Of the run's earlier rounds; none where clients alone upload."""
        return self.member_uploads.records if self.member_uploads else ()

    @property
    def heads(self) -> tuple[bytes, ...]:
        """Hashes of the run's records so far, that of none first; empty without members' uploads.

        The first covers all terms that stay the same over the run: rounds with other terms, or
        with another committee, belong to another run.
        """
        if self.member_uploads is None:
            return ()
        committee = self.committee
        numbers = (
            self.size,
            self.minimum_survivors,
            self.tolerated_colluders,
            self.length,
            committee.corrupt,
            self.member_uploads.fewest,
        )
        beginning = digest(
            Usage.RECORDS,
            self.session_id,
            self.member_uploads.block,
            b"".join(number.to_bytes(8, "little") for number in numbers),
            b"".join(member.identity for member in committee.members),
        )
        return self.member_uploads.heads(beginning, committee.size)

    @property
    def is_weak(self) -> bool:
        """Whether the ring is one that the security table does not allow."""
        return False

    @property
    def public_key(self) -> bytes:
        """16-byte key under which everybody expands the public ring elements."""
        return derive(self.hash, Usage.PUBLIC_ELEMENT, PUBLIC_KEY_BYTES)

    def is_invited(self, index: int, identity: bytes, proof: bytes) -> bool:
        """Whether an identity is number `index` of the cohort."""
        return proof_is_valid(self.cohort_root, identity, index, self.size, proof)

    def head_after(self, record: RoundRecord) -> bytes:
        """The last of `heads` once this round is over."""
        return next_head(self.heads[-1], record, self.committee.size)

    def check_round(self) -> None:
        """See that nothing can change after the hash is taken, and that all values are feasible."""
        self.check_term_types()
        require_ints(self, *self.NUMBERS)
        if type(self.cohort_root) is not bytes or len(self.cohort_root) != HASH_BYTES:
            raise ParameterError("cohort_root", "of another kind", f"{HASH_BYTES} bytes")
        if not isinstance(self.committee, Committee):
            raise ParameterError("committee", type(self.committee).__name__, "a Committee")
        if not isinstance(self.member_uploads, MemberUploads | None):
            kind = type(self.member_uploads).__name__
            raise ParameterError("member_uploads", kind, "MemberUploads, or None")
        self.check_terms()
        self.check_removal()
        self._check_cohort()
        self._check_committee()
        self._check_member_uploads()

    def encoded(self, *own: bytes) -> bytes:
        """Canonical, injective encoding of every parameter, a protocol's own among them."""
        numbers: list[int] = [getattr(self, name) for name in self.NUMBERS]
        return encode_parts(
            self.session_id,
            b"".join(number.to_bytes(8, "little") for number in numbers),
            b"".join(mask.to_bytes(8, "little") for mask in self.removal),
            self.cohort_root,
            self.committee.encode(),
            *own,
            self.application_digest,
            *self._encoded_uploads(),
        )

    def _encoded_uploads(self) -> tuple[bytes, ...]:
        """What members' uploads add to the encoding."""
        uploads = self.member_uploads
        if uploads is None:
            return ()
        fewest = uploads.fewest_returning.to_bytes(8, "little")
        return bytes([uploads.returning]) + fewest, self.heads[-1]

    def _check_cohort(self) -> None:
        lowest = fewest_survivors(self.invited, self.tolerated_colluders)
        require_int("minimum_survivors", self.minimum_survivors, lowest, self.invited)

    def _check_committee(self) -> None:
        committee = self.committee
        committee.check_keys(self.session_id, self.round_number)
        committee.check_draw(self.session_id, self.round_number)
        if committee.kind is not CommitteeKind.EVERYONE:
            return
        identities = [member.identity for member in committee.members]
        if len(identities) != self.size or Cohort(identities).root != self.cohort_root:
            raise ParameterError("committee", "of kind everyone", "the cohort, in its order")
        if committee.corrupt < self.tolerated_colluders:
            valid = f"at least the {self.tolerated_colluders} tolerated colluders"
            raise ParameterError("corrupt", committee.corrupt, valid)

    def _check_member_uploads(self) -> None:
        uploads, committee = self.member_uploads, self.committee
        if uploads is None:
            return
        if committee.kind is not CommitteeKind.NAMED:
            valid = "a named one, which stays the same, where members upload as well"
            raise ParameterError("committee", committee.kind.value, valid)
        if self.removal:
            valid = "empty where members upload: their noise has no removable batches"
            raise ParameterError("removal", f"{len(self.removal)} masks", valid)
        clients = range(self.minimum_survivors, self.invited + 1)
        uploads.check(committee.size, committee.corrupt, clients, self.round_number)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneShotContext(CommitteeContext):
    """The public parameters of one round of one-shot secure aggregation.

    Args:
        rounding_bits: r, low bits of every ciphertext coefficient that are not sent.
        entries: key entries packed into one shared secret.
    """

    NUMBERS = _INTEGERS

    degree: int
    limbs: int
    rounding_bits: int = 0
    entries: int = 1
    allow_weak: bool = False
    ring: Ring = field(init=False, repr=False, compare=False)
    packing: Packing = field(init=False, repr=False, compare=False)
    layout: ShareLayout = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if type(self.allow_weak) is not bool:
            raise ParameterError("allow_weak", self.allow_weak, "a bool")
        self.check_round()
        ring = Ring(self.degree, self.limbs)
        check_ring(ring, weak=f"{self.degree}x{self.limbs}" if self.allow_weak else None)
        object.__setattr__(self, "ring", ring)
        packing = Packing(ring, self.field.largest_centred, self.size, self.rounding_bits)
        object.__setattr__(self, "packing", packing)
        layout = ShareLayout(
            key_length=self.degree,
            clients=self.size,
            entries=self.entries,
            seeds=self.seeds,
            randomness=self.committee.randomness,
            per_polynomial=self.committee.per_polynomial,
            members=self.committee.size,
        )
        object.__setattr__(self, "layout", layout)
        object.__setattr__(self, "hash", digest(Usage.ONE_SHOT, self.encode()))

    @property
    def is_weak(self) -> bool:
        """As `CommitteeContext.is_weak` says: only if it is said."""
        return self.allow_weak

    def encode(self) -> bytes:
        """Canonical, injective encoding of every parameter."""
        return self.encoded(bytes([self.allow_weak]))


def fewest_survivors(size: int, colluders: int) -> int:
    """Smallest `minimum_survivors`: more than half of all uploads, and two honest ones."""
    return max((size + colluders) // 2 + 1, colluders + 2)
