"""An upload's header: what its signature covers, and what names it in the set that is opened.

A set of uploads is a set of headers, not of clients: a corrupt client that uploads twice could
otherwise give two halves of a committee two sums under one signed set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from secagg.keys import KEY_BYTES, check_public_key, signature_is_valid
from secagg.merkle import HASH_BYTES
from secagg.oneshot.context import CommitteeContext
from secagg.oneshot.messages import Upload
from secagg.oneshot.records import RoundRecord
from secagg.tags import Usage, digest, encode_index


@dataclass(frozen=True, slots=True)
class Header:
    """What stands for one upload.

    Attributes:
        sender: index in the cohort.
        ephemeral_key: X25519 public key that the shares are sealed with.
        ciphertext_hash: 32 bytes.
        seals_hash: 32 bytes, over the commitments to the seeds and the seals for all members.
        returns: whether a member takes back what it added in the round before.
        signature: the sender's, over all of this in the round's context.
    """

    sender: int
    ephemeral_key: bytes
    ciphertext_hash: bytes
    seals_hash: bytes
    returns: bool
    signature: bytes

    @classmethod
    def of(cls, upload: Upload) -> Header:
        """The header of an upload, hashed from its bytes."""
        return cls(
            upload.sender,
            upload.ephemeral_key,
            digest(Usage.CIPHERTEXT, upload.ciphertext),
            digest(Usage.SEALS, upload.commitments, upload.seals),
            upload.returns,
            upload.signature,
        )

    def signed_parts(self, context: CommitteeContext) -> tuple[bytes, ...]:
        """What the signature covers."""
        return (
            context.hash,
            encode_index(self.sender),
            self.ephemeral_key,
            self.ciphertext_hash,
            self.seals_hash,
            bytes([self.returns]),
        )

    def is_signed(self, context: CommitteeContext, identity: bytes) -> bool:
        """Whether `identity` signed it in this context."""
        parts = self.signed_parts(context)
        return signature_is_valid(identity, self.signature, Usage.UPLOAD, *parts)

    def has_good_key(self) -> bool:
        """Whether the ephemeral key is one that an honest client sends."""
        try:
            check_public_key(self.ephemeral_key)
        except ValueError:
            return False
        return True

    def digest(self, context: CommitteeContext) -> bytes:
        """32 bytes that name the upload; the signature is not part of the name."""
        return digest(Usage.UPLOAD, *self.signed_parts(context))

    def encode(self) -> bytes:
        """Everything but the sender, at a fixed length."""
        hashes = self.ciphertext_hash + self.seals_hash
        return self.ephemeral_key + hashes + bytes([self.returns]) + self.signature

    @classmethod
    def decode(cls, sender: int, encoded: bytes) -> Header:
        """Inverse of `encode`, of bytes of the right length; ValueError if the flag is none."""
        lengths = (KEY_BYTES, HASH_BYTES, HASH_BYTES, 1, len(encoded))
        cuts = list(accumulate(lengths, initial=0))
        key, ciphertext, seals, flag, signature = (encoded[i:j] for i, j in pairwise(cuts))
        return cls(sender, key, ciphertext, seals, read_flag(flag), signature)

    def may_return(self, context: CommitteeContext) -> bool:
        """Whether the flag is one that the sender may have.

        Nobody takes something back but members whose upload the last record lists.
        """
        if not self.returns:
            return True
        uploads = context.member_uploads
        records = uploads.records if uploads and uploads.returning else ()
        return bool(records) and self.sender - context.invited in records[-1].entered


def read_flag(encoded: bytes) -> bool:
    """Whether a member takes something back; ValueError if the byte is neither 0 nor 1."""
    if encoded not in (b"\0", b"\1"):
        raise ValueError("the flag of a header is neither 0 nor 1")
    return encoded == b"\1"


def survivors_digest(context: CommitteeContext, headers: Sequence[Header]) -> bytes:
    """What members sign: the uploads to be opened, how many they are, and how many were lost."""
    counts = len(headers).to_bytes(4, "little"), (context.size - len(headers)).to_bytes(4, "little")
    names = b"".join(encode_index(each.sender) + each.digest(context) for each in headers)
    return digest(Usage.SURVIVORS, context.hash, *counts, names)


def counts_of(
    context: CommitteeContext, headers: Sequence[Header]
) -> tuple[tuple[str, int, int], ...]:
    """What a set of uploads must have enough of to be opened: name, how many there are, fewest."""
    clients = sum(header.sender < context.invited for header in headers)
    counts = ("uploads", clients, context.minimum_survivors)
    uploads = context.member_uploads
    if uploads is None:
        return (counts,)
    returning = sum(header.returns for header in headers)
    return (
        counts,
        ("uploads of members", len(headers) - clients, uploads.fewest),
        ("uploads that take something back", returning, uploads.fewest_returning),
    )


def record_of(context: CommitteeContext, headers: Sequence[Header]) -> RoundRecord:
    """The record of a set of uploads, by ascending sender."""
    clients = context.invited
    entered = [header for header in headers if header.sender >= clients]
    return RoundRecord(
        context.round_number,
        len(headers) - len(entered),
        tuple(header.sender - clients for header in entered),
        tuple(header.sender - clients for header in entered if header.returns),
    )


def seed_commitment(context: CommitteeContext, index: int, which: int, seed: bytes) -> bytes:
    """Hash commitment to a uniformly random 32-byte seed: hiding, because the seed is."""
    return digest(Usage.COMMIT, context.hash, encode_index(index), encode_index(which), seed)
