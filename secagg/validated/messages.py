"""The messages of a validated round that a one-shot round does not have, and an upload's header.

What members are asked after that, and answer, is as in a one-shot round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Self

import msgspec
import numpy as np

from secagg import field
from secagg.framing import FRAME_BYTES, ClientMessage, Message, split_items
from secagg.keys import KEY_BYTES, SIGNATURE_BYTES
from secagg.merkle import HASH_BYTES, HashTree, largest_proof_bytes
from secagg.oneshot.context import CommitteeContext
from secagg.oneshot.header import Header, read_flag
from secagg.oneshot.messages import Answer, Confirmation, Proposal, Quorum
from secagg.sealing import SEAL_OVERHEAD_BYTES
from secagg.tags import Usage, digest, encode_index
from secagg.validated.context import ValidatedContext
from secagg.validated.parameters import Parameters
from secagg.validated.proof import Functional
from secagg.validated.ring import PrimeRing, Residues
from secagg.validated.sharing import at_member

FIRST, SECOND = b"part 1", b"part 2"
"""Labels of the two parts of an upload, in seals."""
HEADER_BYTES = KEY_BYTES + 5 * HASH_BYTES + 1 + SIGNATURE_BYTES


class Upload(ClientMessage, frozen=True, tag=48):
    """All that a client says: ciphertext, both parts sealed for each member, functional.

    The signature covers the ephemeral key and hashes of the rest.
    """

    ephemeral_key: bytes
    ciphertext: bytes
    first: bytes
    second: bytes
    functional: bytes
    returns: bool
    signature: bytes


class Delivery(Message, frozen=True, tag=49):
    """To a member: the cohort, who uploaded, their headers in order, and its parts of each upload.

    A part has both seals, its leaf, and its three paths.
    """

    cohort: bytes
    uploaded: bytes
    headers: bytes
    parts: bytes


class Verdicts(ClientMessage, frozen=True, tag=50):
    """From a member: whose uploads are bad, and V1, V2 and L of all others, in their order."""

    bad: bytes
    answers: bytes
    signature: bytes


FromMember = Verdicts | Confirmation | Answer
ToMember = Delivery | Proposal | Quorum
decode_upload: msgspec.msgpack.Decoder[Upload] = msgspec.msgpack.Decoder(Upload)
decode_from_member: msgspec.msgpack.Decoder[FromMember] = msgspec.msgpack.Decoder(FromMember)
decode_to_member: msgspec.msgpack.Decoder[ToMember] = msgspec.msgpack.Decoder(ToMember)


@dataclass(frozen=True, slots=True)
class ValidatedHeader(Header):
    """What stands for one upload; `seals_hash` is the root of the tree over part 1's seals.

    Attributes:
        second_root: 32 bytes, of the tree over part 2's seals.
        functional_hash: 32 bytes.
        leaves_root: 32 bytes, of the tree over what each member is given of the functional.
    """

    second_root: bytes
    functional_hash: bytes
    leaves_root: bytes

    def signed_parts(self, context: CommitteeContext) -> tuple[bytes, ...]:
        """What the signature covers."""
        return (
            context.hash,
            encode_index(self.sender),
            self.ephemeral_key,
            self.ciphertext_hash,
            self.seals_hash,
            self.second_root,
            self.functional_hash,
            self.leaves_root,
            bytes([self.returns]),
        )

    def root1(self, context: CommitteeContext) -> bytes:
        """As `root1` says."""
        first = (self.ephemeral_key, self.ciphertext_hash, self.seals_hash)
        return root1(context, self.sender, *first)

    def root2(self, context: CommitteeContext) -> bytes:
        """As `root2` says."""
        return root2(self.root1(context), self.second_root)

    def encode(self) -> bytes:
        """Everything but the sender, at a fixed length."""
        hashes = (self.ciphertext_hash, self.seals_hash, self.second_root, self.functional_hash)
        flag = bytes([self.returns])
        return b"".join((self.ephemeral_key, *hashes, self.leaves_root, flag, self.signature))

    @classmethod
    def decode(cls, sender: int, encoded: bytes) -> Self:
        """Inverse of `encode`, of bytes of the right length; ValueError if the flag is none."""
        lengths = (KEY_BYTES, *[HASH_BYTES] * 5, 1, SIGNATURE_BYTES)
        cuts = list(accumulate(lengths, initial=0))
        key, ciphertext, first, second, functional, leaves, flag, signature = (
            encoded[i:j] for i, j in pairwise(cuts)
        )
        returns = read_flag(flag)
        return cls(sender, key, ciphertext, first, returns, signature, second, functional, leaves)


@dataclass(frozen=True, slots=True)
class Trees:
    """The hash trees of an upload, over what each member gets of it."""

    first: HashTree
    second: HashTree
    leaves: HashTree

    @classmethod
    def of(cls, context: ValidatedContext, upload: Upload, given: Sequence[bytes]) -> Self:
        """Those of an upload whose parts have the right lengths, and of its `values`."""
        first, second = (
            HashTree(split_items(part, size, len(given)))
            for part, size in zip(
                (upload.first, upload.second), part_bytes(context.parameters), strict=True
            )
        )
        return cls(first, second, leaf_tree(context, given))

    def header(self, upload: Upload) -> ValidatedHeader:
        """The header of the upload."""
        return ValidatedHeader(
            upload.sender,
            upload.ephemeral_key,
            digest(Usage.CIPHERTEXT, upload.ciphertext),
            self.first.root,
            upload.returns,
            upload.signature,
            self.second.root,
            functional_hash(upload.functional),
            self.leaves.root,
        )

    def paths(self, member: int) -> bytes:
        """The three paths of a member."""
        return b"".join(tree.proof(member) for tree in (self.first, self.second, self.leaves))


def root1(
    context: CommitteeContext, sender: int, key: bytes, ciphertext: bytes, seals: bytes
) -> bytes:
    """What the rows follow from: all that fixes the vector, as a header has it."""
    return _hash(b"root 1", context.hash, encode_index(sender), key, ciphertext, seals)


def root2(first: bytes, second_root: bytes) -> bytes:
    """What the weights follow from: `root1`, and the root over part 2, all that is committed to."""
    return _hash(b"root 2", first, second_root)


def functional_hash(functional: bytes) -> bytes:
    """The hash of a functional in a header."""
    return _hash(b"functional", functional)


def encoded(context: ValidatedContext, functional: Functional) -> bytes:
    """A functional as it is sent: coefficients, then constants."""
    flat = functional.coefficients.reshape(-1), functional.constants
    return pack(context.parameters.ring, np.concatenate(flat))


def values(context: ValidatedContext, functional: bytes) -> list[bytes]:
    """What each member is given of a functional: its values at the member's point, and kappa."""
    p = context.parameters
    every = unpack(p.ring, functional, functional_words(p))
    slots, kappa = every[: -p.repetitions], every[-p.repetitions :]
    shaped = slots.reshape(p.repetitions, 2 * p.key_polynomials, p.per_polynomial)
    found = (at_member(p, shaped, member).reshape(-1) for member in range(p.members))
    return [pack(p.ring, np.concatenate([each, kappa])) for each in found]


def leaf_tree(context: ValidatedContext, given: Sequence[bytes]) -> HashTree:
    """The tree over what members are given."""
    return HashTree([leaf(context, j, each) for j, each in enumerate(given)])


def leaf(context: ValidatedContext, member: int, given: bytes) -> bytes:
    """The entry of the tree over what members are given."""
    return _hash(b"leaf", context.hash, encode_index(member), given)


def seal_label(context: ValidatedContext, part: bytes) -> bytes:
    """What stands for the round in the seals of one part: a seal of the other does not open."""
    return _hash(part, context.hash)


def functional_words(p: Parameters) -> int:
    """Residues of a functional."""
    return p.repetitions * (2 * p.key_polynomials * p.per_polynomial + 1)


def leaf_words(p: Parameters) -> int:
    """Residues that a member is given of it."""
    return p.repetitions * (2 * p.key_polynomials + 1)


def part_words(p: Parameters) -> tuple[int, int]:
    """Residues of a member's share of part 1 and of part 2."""
    return 2 * p.key_polynomials, p.bit_polynomials + 3 * p.repetitions


def part_bytes(p: Parameters) -> tuple[int, int]:
    """Bytes of one seal of part 1 and of part 2."""
    first, second = (packed_bytes(p.ring, words) + SEAL_OVERHEAD_BYTES for words in part_words(p))
    return first, second


def path_bytes(member: int, members: int) -> int:
    """Bytes of a member's path in a tree over all members."""
    siblings = 0
    while members > 1:
        siblings += (member ^ 1) < members
        member, members = member >> 1, (members + 1) >> 1
    return siblings * HASH_BYTES


def own_bytes(p: Parameters) -> int:
    """Bytes of a member's part of one upload, but for its paths."""
    return sum(part_bytes(p)) + packed_bytes(p.ring, leaf_words(p))


def delivered_bytes(p: Parameters, member: int) -> int:
    """Bytes of a member's part of one upload."""
    return own_bytes(p) + 3 * path_bytes(member, p.members)


def upload_bytes(context: ValidatedContext) -> dict[str, int]:
    """Bytes of an upload by part."""
    p = context.parameters
    return {
        "ciphertext": packed_bytes(p.ring, p.blocks * p.ring.degree),
        "seals": p.members * sum(part_bytes(p)),
        "functional": packed_bytes(p.ring, functional_words(p)),
        "header": KEY_BYTES + SIGNATURE_BYTES + FRAME_BYTES,
    }


def largest_message_bytes(context: ValidatedContext) -> tuple[int, int]:
    """Bytes that no honest message to a member, and from one, exceeds."""
    p, size = context.parameters, context.size
    each = own_bytes(p) + HEADER_BYTES + KEY_BYTES
    to_member = size * (each + 3 * largest_proof_bytes(p.members) + 1)
    signatures = p.members * (SIGNATURE_BYTES + 1)
    from_member = packed_bytes(p.ring, 3 * size * p.repetitions + 2 * p.key_polynomials) + size
    return to_member + signatures + 2 * FRAME_BYTES, from_member + SIGNATURE_BYTES + FRAME_BYTES


def packed_bytes(ring: PrimeRing, count: int) -> int:
    """Bytes of so many residues."""
    return field.packed_bytes(count, ring.bits)


def pack(ring: PrimeRing, residues: Residues) -> bytes:
    """Residues at the bits of the prime each, little-endian; the last byte is padded with zeros."""
    return field.pack_words(np.ascontiguousarray(residues).reshape(-1), ring.bits)


def unpack(ring: PrimeRing, data: bytes, count: int) -> Residues:
    """Inverse of `pack`: uint64[count]; ValueError on length, padding or range."""
    found = np.empty(count, np.uint64)
    field.unpack_words(data, ring.bits, found)
    if count and int(found.max()) >= ring.modulus:
        raise ValueError("a residue is not below the prime")
    return found


def _hash(label: bytes, *parts: bytes) -> bytes:
    return digest(Usage.CHALLENGE, label, *parts)
