"""A client of the pairwise protocol, made from docs/wire.md and docs/protocol.md alone.

It is a client of the *secure sum*: its caller turns updates into integers modulo p, adds noise,
keeps a history, and looks at `client.context` before `begin`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from tests.independent.blocks import (
    M31,
    Refused,
    agree,
    committee_of,
    cut,
    deal,
    decode,
    derive,
    digest,
    field_prime,
    in_order,
    indices_in,
    limbs,
    pack,
    pack_bits,
    require,
    root_above,
    tagged,
    u32,
    uniform,
    verify,
)
from tests.independent.context import Context


class PairwiseClient:
    """One client in one round. Answer nothing that is not its, and no message twice.

    `vector` is called once with the removable seeds, whose noise the caller adds, and gives
    integers below p. `clock` is the time in seconds, if there is one.
    """

    def __init__(
        self,
        context: Context,
        identity: Ed25519PrivateKey,
        vector: Callable[[list[bytes]], list[int]],
        clock: Callable[[], float] | None = None,
        rand: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.context, self.vector, self.clock, self.rand = context, vector, clock, rand
        self.identity = identity
        public = identity.public_key().public_bytes_raw()
        require(public in context.cohort, "we are not invited")
        self.index = context.cohort.index(public)
        self.expected: dict[int, Callable[..., bytes]] = {}

    def begin(self) -> bytes:
        """Open the round: the advertisement."""
        self.context.check(self.clock and self.clock())
        self.sealing = X25519PrivateKey.from_private_bytes(self.rand(32))
        self.masking = X25519PrivateKey.from_private_bytes(self.rand(32))
        keys = [key.public_key().public_bytes_raw() for key in (self.sealing, self.masking)]
        signed = [*keys, self.rand(16)]
        signature = self.sign("sign advertisement", self.context.hash, u32(self.index), *signed)
        self.entry = b"".join([*signed, signature])
        self.expected = {2: self.share}
        return self.message(1, *signed, signature)

    def receive(self, data: bytes) -> bytes:
        """The answer to a message; after a refusal, or the last answer, there is none."""
        expected, self.expected = self.expected, {}  # used up before anything is looked at
        self.context.check(self.clock and self.clock())
        n = len(self.context.cohort)
        require(len(data) <= 1000 + n * (300 + 36 * self.seeds), "too long")
        require(data[:1] == b"\x02", "version")
        fields = decode(data[1:])
        require(isinstance(fields, list) and len(fields) > 1, "not a message")
        number, context, *rest = fields
        require(number in expected and len(rest) == {2: 4, 4: 2, 6: 1, 8: 2, 10: 1}[number], "step")
        require(context == self.context.hash[:8], "another round")
        require(all(isinstance(field, bytes) for field in rest), "types")
        return expected[number](*rest)

    @property
    def seeds(self) -> int:
        """The number of our removable seeds."""
        return max(self.context.removal, default=0).bit_length()

    def message(self, number: int, *fields: bytes) -> bytes:
        """A message of ours."""
        return b"\x02" + pack([number, self.context.hash[:8], self.index, *fields])

    def sign(self, usage: str, *parts: bytes) -> bytes:
        """Our signature."""
        return self.identity.sign(tagged(usage, *parts))

    def party_set(self, bitmap: bytes, inside: list[int]) -> list[int]:
        """A set of clients, in which we are, and which is large enough and inside another."""
        members = indices_in(bitmap, len(self.context.cohort))
        require(set(members) <= set(inside), "a set is not inside the one before")
        require(self.index in members, "we are left out")
        require(len(members) >= self.context.minimum_survivors, "a set is too small")
        return members

    def share(self, bitmap: bytes, root: bytes, proof: bytes, entries: bytes) -> bytes:
        """Answer the roster with shares of our secrets for every holder."""
        context, me = self.context, self.index
        self.roster = self.party_set(bitmap, list(range(len(context.cohort))))
        ours = root_above(self.entry, self.roster.index(me), len(self.roster), proof)
        require(ours == root, "our entry is not in the tree")
        self.round_hash = digest("roster", context.hash, bitmap, root)
        neighbours = self.neighbours()
        self.agree_with(neighbours, cut(entries, 144))
        self.own = [self.rand(32) for _ in range(1 + self.seeds)]
        masking = self.masking.private_bytes_raw()
        del self.masking  # from here on only its shares are left
        values = [limb for s in (self.own[0], masking, *self.own[1:]) for limb in limbs(s)]
        holders = neighbours if context.degree else self.roster
        dealt = dict(zip(holders, deal(values, holders, context.threshold, self.rand), strict=True))
        self.held = {me: dealt.pop(me)} if me in dealt else {}
        sealed = b"".join(
            self.seal(me, v).encrypt(s, [self.label(me, v)]) for v, s in dealt.items()
        )
        signed = (self.round_hash, u32(me))
        numbered = [(*signed, u32(number), seed) for number, seed in enumerate(self.own)]
        commitments = b"".join(digest("commit seed", *parts) for parts in numbered)
        self.expected = {4: self.mask}
        signature = self.sign("sign shares", *signed, commitments, sealed)
        return self.message(3, commitments, sealed, signature)

    def agree_with(self, neighbours: list[int], entries: list[bytes]) -> None:
        """Check what neighbours advertised, and agree on secrets with them."""
        require(len(entries) == len(neighbours), "number of entries")
        keys = [key for entry in (self.entry, *entries) for key in cut(entry[:64], 32)]
        require(len(set(keys)) == len(keys), "one key twice")
        self.sealed_with: dict[int, bytes] = {}
        self.masked_with: dict[int, bytes] = {}
        for other, entry in zip(neighbours, entries, strict=True):
            sealing, masking, nonce, signature = entry[:32], entry[32:64], entry[64:80], entry[80:]
            signed = (self.context.hash, u32(other), sealing, masking, nonce)
            verify(self.context.cohort[other], signature, "sign advertisement", *signed)
            pair = (u32(min(self.index, other)), u32(max(self.index, other)))
            secret = agree(self.masking, masking)
            mask_key = derive(secret, 16, "pairwise mask", self.round_hash, *pair)
            self.sealed_with[other], self.masked_with[other] = (
                agree(self.sealing, sealing),
                mask_key,
            )

    def neighbours(self) -> list[int]:
        """Those with whom we share masks; on a ring, half of them on either side."""
        degree, count = self.context.degree, len(self.roster)
        if not degree or count <= degree + 1:
            return [other for other in self.roster if other != self.index]
        ring = in_order(self.roster, "graph", self.round_hash)
        place = ring.index(self.index)
        steps = range(1, degree // 2 + 1)
        return sorted(ring[(place + s) % count] for step in steps for s in (step, -step))

    def label(self, sender: int, recipient: int) -> bytes:
        """The associated data of a seal."""
        return tagged("seal shares", self.round_hash, u32(sender), u32(recipient))

    def seal(self, sender: int, recipient: int) -> AESSIV:
        """The cipher for shares from one client to another."""
        secret = self.sealed_with[recipient if sender == self.index else sender]
        parts = (self.round_hash, u32(sender), u32(recipient))
        return AESSIV(derive(secret, 64, "seal shares", *parts))

    def mask(self, bitmap: bytes, sealed: bytes) -> bytes:
        """Open what others shared with us, and send the masked vector."""
        context, me = self.context, self.index
        self.participants = self.party_set(bitmap, self.roster)
        senders = [v for v in self.participants if v in self.sealed_with]
        size = 36 * (2 + self.seeds)
        require(len(sealed) == (size + 16) * len(senders), "number of shares")
        for sender, box in zip(senders, cut(sealed, size + 16), strict=True):
            try:
                self.held[sender] = self.seal(sender, me).decrypt(box, [self.label(sender, me)])
            except InvalidTag:
                raise Refused("shares do not open") from None
            words = cut(self.held[sender], 4)
            require(all(int.from_bytes(w, "little") < M31 for w in words), "shares")
        prime, indices = field_prime(context.bits), range(context.length)
        own = derive(self.own[0], 16, "self mask", self.round_hash, u32(me))
        vector = self.vector(self.own[1:])
        require(len(vector) == context.length, "length of the vector")
        keys = [(own, 1), *((self.masked_with[v], 1 if v > me else -1) for v in senders)]
        for key, sign in keys:
            stream = uniform(key, context.bits, prime, indices)
            vector = [(x + sign * m) % prime for x, m in zip(vector, stream, strict=True)]
        packed = pack_bits(vector, context.bits)
        usage, parts = "sign masked input", (self.round_hash, u32(me))
        self.expected, self.masked_with = {6: self.confirm}, {}
        return self.message(5, packed, self.sign(usage, *parts, digest(usage, packed)))

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
        return self.message(7, self.sign("sign survivors", self.round_hash, bitmap))

    def check_quorum(self, bitmap: bytes, signatures: bytes) -> bytes:
        """Answer once enough others have signed the very same survivors."""
        context = self.context
        allowed, quorum = self.survivors, context.threshold
        if context.degree:
            terms = (context.tolerated_colluders, context.minimum_survivors, context.security_bits)
            committee, quorum = committee_of(self.roster, *terms, self.round_hash)
            allowed = [member for member in committee if member in self.survivors]
        signers, signed = indices_in(bitmap, len(context.cohort)), cut(signatures, 64)
        require(set(signers) <= set(allowed), "a signer whose signature does not count")
        require(len(signers) == len(signed) and len(signers) >= quorum, "too few signatures")
        for signer, signature in zip(signers, signed, strict=True):
            parts = (self.round_hash, self.survivor_set)
            verify(context.cohort[signer], signature, "sign survivors", *parts)
        return self.release()

    def release(self) -> bytes:
        """For each participant one share: of its seed if it survived, else of its masking key."""
        holdings = [(v, self.held[v]) for v in self.participants if v in self.held]
        shares = b"".join(s[:36] if v in self.survivors else s[36:72] for v, s in holdings)
        seeds = b"".join(self.own[1 + number] for number in self.revealed)
        parts = (self.round_hash, u32(self.index), self.survivor_set, shares, seeds)
        self.expected = {10: self.recover} if self.revealed else {}
        return self.message(9, shares, seeds, self.sign("sign unmask shares", *parts))

    def recover(self, bitmap: bytes) -> bytes:
        """Shares of the seeds that survivors have not revealed themselves."""
        missing = indices_in(bitmap, len(self.context.cohort))
        require(set(missing) <= set(self.survivors) - {self.index}, "seeds of the wrong clients")
        held = [cut(self.held[v], 36) for v in missing if v in self.held]
        shares = b"".join(items[2 + number] for items in held for number in self.revealed)
        parts = (self.round_hash, u32(self.index), bitmap, shares)
        return self.message(11, shares, self.sign("sign seed shares", *parts))
