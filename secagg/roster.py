"""The checked result of round 0: who takes part in a round, with which keys."""

from __future__ import annotations

from dataclasses import dataclass

from secagg.context import SessionContext
from secagg.errors import SERVER, Reason, RemoteProtocolError
from secagg.graph import CompleteGraph, Graph
from secagg.keys import SecretSeed, signature_is_valid
from secagg.messages import (
    ADVERTISEMENT_ENTRY_BYTES,
    Advertisement,
    Roster,
    context_tag,
    decode_set,
    encode_set,
    split_items,
)
from secagg.tags import Usage, digest, encode_index


@dataclass(frozen=True, slots=True)
class RoundRoster:
    """Verified advertisements, the graph over them, and the hash that binds what follows.

    `hash` covers the context and every advertisement, so clients that were shown different
    rosters can neither open each other's shares nor cancel each other's masks.
    """

    members: tuple[int, ...]
    advertisements: dict[int, Advertisement]
    graph: Graph
    threshold: int
    hash: bytes

    @classmethod
    def from_message(cls, context: SessionContext, message: Roster) -> RoundRoster:
        """What a client accepts from the server.

        Raises:
            RemoteProtocolError: malformed sets, too few members, repeated keys, bad signatures.
        """
        try:
            members = decode_set(message.members, context.size)
            entries = split_items(message.entries, ADVERTISEMENT_ENTRY_BYTES, len(members))
        except ValueError as error:
            raise RemoteProtocolError(SERVER, Reason.BAD_LENGTH, str(error)) from None
        if len(members) < context.minimum_survivors:
            raise RemoteProtocolError(
                SERVER,
                Reason.SET_TOO_SMALL,
                f"{len(members)} clients, at least {context.minimum_survivors} needed",
            )
        tag = context_tag(context)
        advertisements = {
            member: Advertisement.from_entry(tag, member, entry)
            for member, entry in zip(members, entries, strict=True)
        }
        check_distinct_keys(advertisements, SERVER)
        for advertisement in advertisements.values():
            check_advertisement(context, advertisement)
        return cls.build(context, advertisements)

    @classmethod
    def build(
        cls, context: SessionContext, advertisements: dict[int, Advertisement]
    ) -> RoundRoster:
        """A roster from advertisements that are already checked."""
        members = tuple(sorted(advertisements))
        bitmap = encode_set(members, context.size)
        entries = b"".join(advertisements[member].entry() for member in members)
        return cls(
            members=members,
            advertisements=advertisements,
            graph=CompleteGraph(members),
            threshold=context.threshold,
            hash=digest(Usage.ROSTER, context.hash, bitmap, entries),
        )

    def to_message(self, context: SessionContext) -> Roster:
        """The roster as the server sends it."""
        return Roster(
            context=context_tag(context),
            members=encode_set(self.members, context.size),
            entries=b"".join(self.advertisements[member].entry() for member in self.members),
        )


def advertisement_parts(
    context: SessionContext, index: int, sealing_key: bytes, masking_key: bytes, nonce: bytes
) -> tuple[bytes, ...]:
    """What an advertisement's signature covers."""
    return (context.hash, encode_index(index), sealing_key, masking_key, nonce)


def check_advertisement(context: SessionContext, advertisement: Advertisement) -> None:
    """Verify one signature under the identity registered for the sender.

    Raises:
        RemoteProtocolError: it does not verify in this context.
    """
    sender = advertisement.sender
    parts = advertisement_parts(
        context,
        sender,
        advertisement.sealing_key,
        advertisement.masking_key,
        advertisement.nonce,
    )
    public = context.cohort[sender]
    if not signature_is_valid(public, advertisement.signature, Usage.ADVERTISE, *parts):
        raise RemoteProtocolError(sender, Reason.BAD_SIGNATURE, "advertisement")


def check_distinct_keys(advertisements: dict[int, Advertisement], culprit: int) -> None:
    """All public keys of a roster differ, across both kinds.

    Raises:
        RemoteProtocolError: a key appears twice.
    """
    keys = [a.sealing_key for a in advertisements.values()]
    keys += [a.masking_key for a in advertisements.values()]
    if len(set(keys)) != len(keys):
        raise RemoteProtocolError(culprit, Reason.DUPLICATE_KEY)


def masked_input_parts(round_hash: bytes, index: int, packed: bytes) -> tuple[bytes, ...]:
    """What the signature on a masked input covers: a hash, so that a long vector is read once."""
    return (round_hash, encode_index(index), digest(Usage.INPUT, packed))


def commitment(round_hash: bytes, index: int, seed: SecretSeed) -> bytes:
    """Hash commitment to a uniformly random 32-byte seed: hiding, because the seed is."""
    return digest(Usage.COMMIT_SELF, round_hash, encode_index(index), seed.expose())
