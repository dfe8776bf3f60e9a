"""A client of the pairwise protocol, made from docs/wire.md and docs/protocol.md alone.

It is a client of the *secure sum*: its caller turns updates into integers modulo p, adds noise,
keeps a history, and looks at `client.context` before `begin`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.independent import wire
from tests.independent.context import Context
from tests.independent.wire import require

FIELDS = {2: 4, 4: 2, 6: 1, 8: 2, 10: 1}  # of each message to a client, after `context`


@dataclass
class PairwiseClient:
    """One client in one round. It answers nothing that is not its, and no message twice.

    `vector` is called once with the removable seeds, whose noise the caller adds, and gives
    integers below p.
    """

    context: Context
    identity: Ed25519PrivateKey
    vector: Callable[[list[bytes]], list[int]]
    clock: Callable[[], float] = time.time
    rand: Callable[[int], bytes] = secrets.token_bytes

    def __post_init__(self) -> None:
        public = self.identity.public_key().public_bytes_raw()
        require(public in self.context.cohort, "we are not invited")
        self.index = self.context.cohort.index(public)
        self.seeds = max(self.context.removal, default=0).bit_length()
        self.expected: dict[int, Callable[..., bytes]] = {}

    def begin(self) -> bytes:
        """Open the round: the advertisement."""
        self.context.check(self.clock())
        self.sealing = X25519PrivateKey.from_private_bytes(self.rand(32))
        self.masking = X25519PrivateKey.from_private_bytes(self.rand(32))
        keys = [key.public_key().public_bytes_raw() for key in (self.sealing, self.masking)]
        self.expected, fields = {2: self.share}, (*keys, self.rand(16))
        signed = (self.context.hash, self.index, *fields)
        advertisement = self.message(1, fields, "sign advertisement", *signed)
        self.entry = b"".join(fields) + advertisement[-64:]
        return advertisement

    def receive(self, data: bytes) -> bytes:
        """The answer to a message; after a refusal, or the last answer, there is none."""
        expected, self.expected = self.expected, {}  # used up before anything is looked at
        self.context.check(self.clock())
        require(len(data) <= 1000 + len(self.context.cohort) * (300 + 36 * self.seeds), "too long")
        number, context, *rest = wire.decode(data, b"\x02", "ib+")
        require(number in expected and len(rest) == FIELDS[number], "another message")
        require(context == self.context.hash[:8], "another round")
        return expected[number](*rest)

    def message(self, number: int, fields: tuple[bytes, ...], *signed: Any) -> bytes:
        """A message of ours, which ends in a signature."""
        signature = self.identity.sign(wire.tagged(*signed))
        return b"\x02" + wire.pack([number, self.context.hash[:8], self.index, *fields, signature])

    def party_set(self, bitmap: bytes, inside: list[int]) -> list[int]:
        """A set of clients, in which we are, and which is large enough and inside another."""
        members = wire.indices_in(bitmap, len(self.context.cohort))
        require(set(members) <= set(inside), "a set is not inside the one before")
        require(self.index in members, "we are left out")
        require(len(members) >= self.context.minimum_survivors, "a set is too small")
        return members

    def share(self, bitmap: bytes, root: bytes, proof: bytes, entries: bytes) -> bytes:
        """Answer the roster with shares of our secrets for every holder."""
        context, me = self.context, self.index
        self.roster = self.party_set(bitmap, list(range(len(context.cohort))))
        ours = wire.root_above(self.entry, self.roster.index(me), len(self.roster), proof)
        require(ours == root, "our entry is not in the tree")
        self.round_hash = wire.digest("roster", context.hash, bitmap, root)
        neighbours = self.neighbours()
        self.agree_with(neighbours, wire.cut(entries, 144))
        self.own = [self.rand(32) for _ in range(1 + self.seeds)]
        masking = self.masking.private_bytes_raw()
        del self.masking  # from here on only its shares are left
        values = [limb for s in (self.own[0], masking, *self.own[1:]) for limb in wire.limbs(s)]
        drawn = wire.draw(len(values) * (context.threshold - 1), self.rand)
        polynomials = [[v, *drawn[i :: len(values)]] for i, v in enumerate(values)]
        holders = neighbours if context.degree else self.roster
        degrees = range(context.threshold)
        powers = [[pow(holder + 1, k, wire.M31) for k in degrees] for holder in holders]
        dealt = dict(zip(holders, wire.combine(polynomials, powers), strict=True))
        self.held = {me: dealt[me]} if me in dealt else {}
        signed = (self.round_hash, me)
        boxes = [wire.seal(self.sealed_with[v], dealt[v], *signed, v) for v in neighbours]
        fields = (wire.commit(self.own, *signed), b"".join(boxes))
        self.expected = {4: self.mask}
        return self.message(3, fields, "sign shares", *signed, *fields)

    def neighbours(self) -> list[int]:
        """Those with whom we share masks; on a ring, half of them on either side."""
        degree, count = self.context.degree, len(self.roster)
        if not degree or count <= degree + 1:
            return [other for other in self.roster if other != self.index]
        ring = self.in_order("graph")
        place = ring.index(self.index)
        steps = range(1, degree // 2 + 1)
        return sorted(ring[(place + s) % count] for step in steps for s in (step, -step))

    def in_order(self, usage: str) -> list[int]:
        """Members in the random order that the round's hash fixes."""
        key, size = wire.derive(self.round_hash, 32, usage), 16 * len(self.context.cohort)
        stream = wire.keystream(key, size)
        rank = {m: int.from_bytes(stream[16 * m : 16 * m + 8], "little") for m in self.roster}
        return sorted(self.roster, key=lambda member: (rank[member], member))

    def agree_with(self, neighbours: list[int], entries: list[bytes]) -> None:
        """Check what neighbours advertised, and agree on secrets with them."""
        require(len(entries) == len(neighbours), "number of entries")
        keys = [key for entry in (self.entry, *entries) for key in wire.cut(entry[:64], 32)]
        require(len(set(keys)) == len(keys), "one key twice")
        self.sealed_with: dict[int, bytes] = {}
        self.masked_with: dict[int, bytes] = {}
        for other, entry in zip(neighbours, entries, strict=True):
            signed = (entry[:32], entry[32:64], entry[64:80])
            parts = (self.context.hash, other, *signed)
            wire.verify(self.context.cohort[other], entry[80:], "sign advertisement", *parts)
            pair = (min(self.index, other), max(self.index, other))
            secret = wire.agree(self.masking, signed[1])
            self.masked_with[other] = wire.derive(
                secret, 16, "pairwise mask", self.round_hash, *pair
            )
            self.sealed_with[other] = wire.agree(self.sealing, signed[0])

    def mask(self, bitmap: bytes, sealed: bytes) -> bytes:
        """Open what others shared with us, and send the masked vector."""
        context, me, signed = self.context, self.index, (self.round_hash, self.index)
        self.participants = self.party_set(bitmap, self.roster)
        senders = [v for v in self.participants if v in self.sealed_with]
        boxes = wire.cut(sealed, 36 * (2 + self.seeds) + 16)
        require(len(boxes) == len(senders), "number of shares")
        for v, box in zip(senders, boxes, strict=True):
            parts = (self.round_hash, v, me)
            self.held[v] = wire.unseal(self.sealed_with[v], box, *parts)
        prime, vector = wire.field_prime(context.bits), self.vector(self.own[1:])
        require(len(vector) == context.length, "length of the vector")
        keys = [(wire.derive(self.own[0], 16, "self mask", *signed), 1)]
        keys += [(self.masked_with[v], 1 if v > me else -1) for v in senders]
        for key, sign in keys:
            stream = wire.uniform(key, context.bits, prime, range(context.length))
            vector = [(x + sign * m) % prime for x, m in zip(vector, stream, strict=True)]
        packed, usage = wire.pack_bits(vector, context.bits), "sign masked input"
        self.expected, self.masked_with = {6: self.confirm}, {}
        return self.message(5, (packed,), usage, *signed, wire.digest(usage, packed))

    def confirm(self, bitmap: bytes) -> bytes:
        """Sign the set of survivors; a server that is trusted with it gets the answer at once."""
        self.survivors, self.survivor_set = self.party_set(bitmap, self.participants), bitmap
        lost, removal = len(self.context.cohort) - len(self.survivors), self.context.removal
        require(not removal or lost < len(removal), "more lost clients than there is noise for")
        named = removal[lost] if removal else 0
        self.revealed = [i for i in range(self.seeds) if named >> i & 1]
        if self.context.mode == "semi_honest":
            return self.release()
        self.expected = {8: self.check_quorum}
        return self.message(7, (), "sign survivors", self.round_hash, bitmap)

    def check_quorum(self, bitmap: bytes, signatures: bytes) -> bytes:
        """Answer once enough others have signed the very same survivors."""
        cohort, allowed, quorum = self.context.cohort, self.roster, self.context.threshold
        if self.context.degree:
            allowed, quorum = self.committee()
        signers, signed = wire.indices_in(bitmap, len(cohort)), wire.cut(signatures, 64)
        require(set(signers) <= set(allowed) & set(self.survivors), "a signer that does not count")
        require(len(signers) == len(signed) and len(signers) >= quorum, "too few signatures")
        for signer, signature in zip(signers, signed, strict=True):
            parts = (self.round_hash, self.survivor_set)
            wire.verify(cohort[signer], signature, "sign survivors", *parts)
        return self.release()

    def committee(self) -> tuple[list[int], int]:
        """Whose signatures confirm the survivors of a sparse round, and how many of them."""
        context, total = self.context, len(self.roster)
        corrupt, alive = context.tolerated_colluders, min(total, context.minimum_survivors)

        def at_least(draws: int, marked: int, least: int) -> int:
            """In how many of all draws at least so many are among the marked ones."""
            chosen = range(least, draws + 1)
            return sum(comb(marked, k) * comb(total - marked, draws - k) for k in chosen)

        for size in range(64, min(total, 4097), 8):
            every, marked = comb(total, size), min(corrupt, total)
            tails = (at_least(size, marked, c + 1) for c in range(size + 1))
            most = next(c for c, t in enumerate(tails) if t << context.security_bits <= every)
            quorum = (size + most) // 2 + 1
            if (every - at_least(size, alive, quorum)) << 20 <= every:
                return self.in_order("committee")[:size], quorum
        return self.roster, (total + corrupt) // 2 + 1

    def release(self) -> bytes:
        """For each participant one share: of its seed if it survived, else of its masking key."""
        holdings = [(v, self.held[v]) for v in self.participants if v in self.held]
        shares = b"".join(s[:36] if v in self.survivors else s[36:72] for v, s in holdings)
        seeds = b"".join(self.own[1 + number] for number in self.revealed)
        signed = (self.round_hash, self.index, self.survivor_set, shares, seeds)
        self.expected = {10: self.recover} if self.revealed else {}
        return self.message(9, (shares, seeds), "sign unmask shares", *signed)

    def recover(self, bitmap: bytes) -> bytes:
        """Shares of the seeds that survivors have not revealed themselves."""
        missing = wire.indices_in(bitmap, len(self.context.cohort))
        require(set(missing) <= set(self.survivors) - {self.index}, "seeds of the wrong clients")
        held = [wire.cut(self.held[v], 36) for v in missing if v in self.held]
        shares = b"".join(items[2 + number] for items in held for number in self.revealed)
        signed = (self.round_hash, self.index, bitmap, shares)
        return self.message(11, (shares,), "sign seed shares", *signed)
