"""The checked result of round 0: who takes part in a round, with which keys.

The server commits to all advertisements with a hash tree. A client sees only those of its
neighbours, and a proof that its own is in the tree: so the order of the ring, which the tree's root
fixes, depends on every honest client's nonce.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from secagg.errors import SERVER, Reason, RemoteProtocolError, blaming
from secagg.framing import decode_set, encode_set, split_items
from secagg.keys import SecretSeed, check_public_key, signature_is_valid
from secagg.merkle import HashTree, proof_is_valid
from secagg.pairwise.context import SessionContext
from secagg.pairwise.graph import Graph, build_graph, random_order
from secagg.pairwise.messages import ADVERTISEMENT_ENTRY_BYTES, Advertisement, Roster, context_tag
from secagg.tags import Usage, digest, encode_index


@dataclass(frozen=True, slots=True)
class Committee:
    """Whose signatures on a survivor set count, and how many of them convince."""

    members: frozenset[int]
    quorum: int

    @classmethod
    def draw(cls, context: SessionContext, members: tuple[int, ...], seed: bytes) -> Committee:
        """The committee of a roster: in a random order that nobody chooses alone, the first s."""
        size = (chosen := context.committee(len(members))).size
        if size < len(members):
            members = random_order(members, seed, Usage.COMMITTEE)[:size]
        return cls(frozenset(members), chosen.quorum)


@dataclass(frozen=True, slots=True)
class Published:
    """What only the server keeps: the parts of the messages that carry a roster."""

    members: bytes
    entries: Mapping[int, bytes]
    tree: HashTree


@dataclass(frozen=True, slots=True)
class RoundRoster:
    """Verified advertisements, the graph, and the hash that binds what follows.

    Attributes:
        members: U1, ascending.
        advertisements: everybody's at the server; at a client, its own and its neighbours'.
        graph: over the members.
        committee: who confirms the survivor set.
        threshold: t.
        hash: covers the context, the members and the tree's root, so clients that were shown
            different rosters can neither open each other's shares nor cancel each other's masks.
        published: at the server only.
    """

    members: tuple[int, ...]
    advertisements: Mapping[int, Advertisement]
    graph: Graph
    committee: Committee
    threshold: int
    hash: bytes
    published: Published | None = field(default=None, repr=False)

    @classmethod
    def from_message(
        cls, context: SessionContext, own: Advertisement, message: Roster
    ) -> RoundRoster:
        """What a client accepts from the server."""
        members = _checked_members(context, message)
        if own.sender not in members:
            raise RemoteProtocolError(SERVER, Reason.OWN_ENTRY_MISSING)
        position = members.index(own.sender)
        if not proof_is_valid(message.root, own.entry(), position, len(members), message.proof):
            raise RemoteProtocolError(SERVER, Reason.NOT_IN_TREE)
        round_hash = _round_hash(context, message.members, message.root)
        graph = build_graph(members, context.degree, round_hash)
        neighbours = graph.neighbours(own.sender)
        with blaming(SERVER, Reason.BAD_LENGTH):
            entries = split_items(message.entries, ADVERTISEMENT_ENTRY_BYTES, len(neighbours))
        tag = context_tag(context)
        advertisements = {
            member: Advertisement.from_entry(tag, member, entry)
            for member, entry in zip(neighbours, entries, strict=True)
        }
        for advertisement in advertisements.values():
            check_advertisement(context, advertisement)
        advertisements[own.sender] = own
        check_distinct_keys(advertisements)
        committee = Committee.draw(context, members, round_hash)
        return cls(members, advertisements, graph, committee, context.threshold, round_hash)

    @classmethod
    def build(
        cls, context: SessionContext, advertisements: Mapping[int, Advertisement]
    ) -> RoundRoster:
        """The server's roster, from advertisements that are already checked."""
        members = tuple(sorted(advertisements))
        entries = {member: advertisements[member].entry() for member in members}
        tree, bitmap = HashTree([*entries.values()]), encode_set(members, context.size)
        round_hash = _round_hash(context, bitmap, tree.root)
        return cls(
            members,
            advertisements,
            build_graph(members, context.degree, round_hash),
            Committee.draw(context, members, round_hash),
            context.threshold,
            round_hash,
            Published(bitmap, entries, tree),
        )

    def to_message(self, context: SessionContext, recipient: int) -> Roster:
        """The roster as the server sends it to one client."""
        if self.published is None:
            raise ValueError("only the server's roster can be sent")
        tree, entries = self.published.tree, self.published.entries
        return Roster(
            context=context_tag(context),
            members=self.published.members,
            root=tree.root,
            proof=tree.proof(bisect_left(self.members, recipient)),
            entries=b"".join(entries[peer] for peer in self.graph.neighbours(recipient)),
        )


def advertisement_parts(
    context: SessionContext, index: int, sealing_key: bytes, masking_key: bytes, nonce: bytes
) -> tuple[bytes, ...]:
    """What an advertisement's signature covers."""
    return (context.hash, encode_index(index), sealing_key, masking_key, nonce)


def check_advertisement(context: SessionContext, advertisement: Advertisement) -> None:
    """Verify one signature under the identity registered for the sender, and look at the keys."""
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
    with blaming(sender, Reason.BAD_KEY):
        check_public_key(advertisement.sealing_key)
        check_public_key(advertisement.masking_key)


def check_distinct_keys(advertisements: Mapping[int, Advertisement]) -> None:
    """All public keys that a client was shown differ, across both kinds."""
    keys = [a.sealing_key for a in advertisements.values()]
    keys += [a.masking_key for a in advertisements.values()]
    if len(set(keys)) != len(keys):
        raise RemoteProtocolError(SERVER, Reason.DUPLICATE_KEY)


def masked_input_parts(round_hash: bytes, index: int, packed: bytes) -> tuple[bytes, ...]:
    """What the signature on a masked input covers: a hash, so that a long vector is read once."""
    return (round_hash, encode_index(index), digest(Usage.INPUT, packed))


def commitment(round_hash: bytes, index: int, which: int, seed: SecretSeed) -> bytes:
    """Hash commitment to a uniformly random 32-byte seed: hiding, because the seed is."""
    parts = (round_hash, encode_index(index), encode_index(which), seed.expose())
    return digest(Usage.COMMIT, *parts)


def _checked_members(context: SessionContext, message: Roster) -> tuple[int, ...]:
    with blaming(SERVER, Reason.BAD_LENGTH):
        members = decode_set(message.members, context.size)
    if len(members) < context.minimum_survivors:
        raise RemoteProtocolError(
            SERVER,
            Reason.SET_TOO_SMALL,
            f"{len(members)} clients, at least {context.minimum_survivors} needed",
        )
    if not context.roster_is_safe(len(members)):
        raise RemoteProtocolError(
            SERVER,
            Reason.SET_TOO_SMALL,
            f"among {len(members)} clients {context.tolerated_colluders} corrupt ones are too many "
            f"for threshold {context.threshold}",
        )
    return members


def _round_hash(context: SessionContext, members: bytes, root: bytes) -> bytes:
    return digest(Usage.ROSTER, context.hash, members, root)
