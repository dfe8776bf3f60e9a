"""A client of the pairwise protocol, made from docs/wire.md and docs/protocol.md alone.

It is a client of the *secure sum*: its caller turns updates into integers modulo p, adds noise,
keeps a history, and looks at `client.context` before `begin`.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

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
    sized,
    tagged,
    u32,
    u64,
    uniform,
    verify,
)

EARLY_SECONDS = 300  # how fast the server's clock may be


@dataclass(frozen=True)
class Context:
    """The public parameters of a round."""

    session_id: bytes
    mode: str
    round_number: int
    threshold: int
    minimum_survivors: int
    tolerated_colluders: int
    degree: int
    bits: int
    length: int
    security_bits: int
    opened_at: int
    lifetime_seconds: int
    removal: tuple[int, ...]
    cohort: tuple[bytes, ...]
    application_digest: bytes

    @cached_property
    def hash(self) -> bytes:
        """What everything in the round is bound to."""
        integers = u64(
            self.round_number,
            self.threshold,
            self.minimum_survivors,
            self.tolerated_colluders,
            self.degree,
            self.bits,
            self.length,
            self.security_bits,
            self.opened_at,
            self.lifetime_seconds,
        )
        cohort, digests = b"".join(self.cohort), self.application_digest
        head = (self.session_id, self.mode.encode(), integers, u64(*self.removal))
        return sha256(tagged("context", sized(*head, cohort, digests))).digest()

    def check(self, now: float | None) -> None:
        """Refuse a context that promises nothing, or a time outside its round."""
        n, t, corrupt = len(self.cohort), self.threshold, self.tolerated_colluders
        require(len(set(self.cohort)) == n, "one key for two clients")
        require(corrupt < t <= self.minimum_survivors <= n, "threshold")
        require(self.mode in ("active", "semi_honest"), "mode")
        holders = self.degree or n
        require(self.mode != "active" or 2 * t > holders + corrupt, "threshold in active mode")
        if self.lifetime_seconds and now is not None:
            since = now - self.opened_at
            require(-EARLY_SECONDS <= since <= self.lifetime_seconds, "not the time of the round")


def read_announcement(data: bytes, model_digest: bytes) -> Context:
    """The context that a server of training announces, for a model that the client has."""
    require(data[:1] == b"\x03", "version of the announcement")
    fields = decode(data[1:])
    require(isinstance(fields, list) and len(fields) == 22, "fields of the announcement")
    session, number, cohort, threshold, minimum, mode, corrupt, degree, bits = fields[:9]
    spec, noise, dropouts, exact = fields[10], fields[15], fields[16], fields[18]
    keys = tuple(cut(cohort, 32))
    removal = removal_table(noise, len(keys), dropouts, corrupt) if exact else ()
    application = application_digest(model_digest, fields[9:18])
    terms = (threshold, minimum, corrupt, degree, bits, length_of(spec), *fields[19:])
    return Context(session, mode, number, *terms, removal, keys, application)


def length_of(spec: bytes) -> int:
    """The number of elements of an encoded update, from the sketch's canonical bytes."""
    rows, columns, copies, probe = struct.unpack("<10x4Q8x", spec)
    return int(rows * columns * copies + probe)


def application_digest(model_digest: bytes, fields: list[Any]) -> bytes:
    """What binds a round to the model and to the way from an update to integers."""
    clip, spec, sketch_clip, seed, scale, bound, noise, dropouts, wrap = fields
    if isinstance(noise, list):
        label, made = b"veilsum/round/2/" + noise[0].encode() + b"\0", struct.pack("<d", noise[1])
    else:
        label, made = b"veilsum/round/1", u64(noise)
    if scale is None:
        label, scale = b"veilsum/round/4/" + label, 1.0
    numbers = struct.pack("<3d", clip, sketch_clip, scale) + u64(bound) + made + u64(dropouts)
    return sha256(label + model_digest + spec + seed + numbers + struct.pack("<d", wrap)).digest()


def removal_table(coins: int, cohort: int, dropouts: int, corrupt: int) -> tuple[int, ...]:
    """Which removable seeds survivors reveal for each number of lost clients.

    As docs/dropouts.md has it: the batches that were not needed, in the cheaper of two schedules.
    """
    needed = [-(-coins // (cohort - lost - corrupt)) for lost in range(dropouts + 1)]
    extra = [count - needed[0] for count in needed]
    steps = [lost for lost in range(1, dropouts + 1) if extra[lost] > extra[lost - 1]]
    one_each = [sum(1 << i for i, at in enumerate(steps) if at > d) for d in range(dropouts + 1)]
    if 100 * needed[-1] <= 102 * needed[0]:
        return ()
    for batches in range(1, len(steps)):
        unit = -(-extra[-1] // (2**batches - 1))
        rest = extra[-1] - unit * (2 ** (batches - 1) - 1)
        kept = []
        for count in extra:
            with_rest = count > extra[-1] - rest
            digits = -(-(count - rest * with_rest) // unit)
            kept.append(max(digits, 0) + (with_rest << (batches - 1)))
        sizes = [unit << i for i in range(batches - 1)] + [rest]
        sums = [sum(size for i, size in enumerate(sizes) if k >> i & 1) for k in kept]
        pairs = zip(sums, needed, strict=True)
        if all(100 * (needed[0] + more) <= 102 * least for more, least in pairs):
            return tuple(2**batches - 1 - k for k in kept)
    return tuple(one_each)


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
        place = self.roster.index(me)
        ours = root_above(self.entry, place, len(self.roster), proof)
        require(ours == root, "our entry is not in the tree")
        self.round_hash = digest("roster", context.hash, bitmap, root)
        neighbours = self.neighbours()
        shown = cut(entries, 144)
        require(len(shown) == len(neighbours), "number of entries")
        keys = {me: self.entry[:64]} | dict(zip(neighbours, (e[:64] for e in shown), strict=True))
        for other, entry in zip(neighbours, shown, strict=True):
            parts = (context.hash, u32(other), entry[:32], entry[32:64], entry[64:80])
            verify(context.cohort[other], entry[80:], "sign advertisement", *parts)
        require(len({k for pair in keys.values() for k in cut(pair, 32)}) == 2 * len(keys), "keys")
        self.sealed_with, self.masked_with = {}, {}
        for other in neighbours:
            self.sealed_with[other] = agree(self.sealing, keys[other][:32])
            pair = u32(min(me, other), max(me, other))
            secret = agree(self.masking, keys[other][32:])
            parts = (self.round_hash, pair[:4], pair[4:])
            self.masked_with[other] = derive(secret, 16, "pairwise mask", *parts)
        self.own = [self.rand(32) for _ in range(1 + self.seeds)]
        masking = self.masking.private_bytes_raw()
        del self.masking  # from here on only its shares are left
        values = [limb for s in (self.own[0], masking, *self.own[1:]) for limb in limbs(s)]
        holders = neighbours if context.degree else self.roster
        dealt = dict(zip(holders, deal(values, holders, context.threshold, self.rand), strict=True))
        self.held = {me: dealt.pop(me)} if me in dealt else {}
        sealed = b"".join(self.seal(me, h).encrypt(s, [self.label(me, h)]) for h, s in dealt.items())
        numbered = enumerate(self.own)
        parts = (self.round_hash, u32(me))
        commitments = b"".join(digest("commit seed", *parts, u32(i), seed) for i, seed in numbered)
        signature = self.sign("sign shares", *parts, commitments, sealed)
        self.expected = {4: self.mask}
        return self.message(3, commitments, sealed, signature)

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
