"""One one-shot round as a script: every message by hand, and the order in which they travel.

Ciphertexts, seals, answers, given-up seeds and the total come from `secagg.oneshot.reference`;
keys, contexts, commitments, hashes, signatures and framing from `wire`. The seals are opened by
hand as well, and their sums compared with the answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, cast

from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from secagg.oneshot.context import OneShotContext as Parameters
from secagg.oneshot.reference import ReferenceRound, _packed, _primes, run_one_shot

from .. import wire
from ..handmade import APPLICATION_DIGEST, SESSION_ID, Event
from ..wire import bitmap, digest, index, sign
from .encodings import (
    context_encoding,
    draw_seed,
    header_of,
    header_parts,
    ticket,
    words,
)
from .runner import context_of
from .schema import DrawTerms, MemberUploadsTerms, OneShotContext, OneShotResult

CHECK, CONFIRM, OPEN = range(3)
PRIMES = _primes(1024, 1)
FIRST_ROUND, ROUND_NUMBER, LAST_ROUND = 2, 3, 8


@dataclass(frozen=True, kw_only=True)
class OneShotRound:
    """Parameters and parties of a round; everything else follows from them.

    Args:
        adding: the terms of the members' uploads, which are the last of the n; None if they upload
            nothing.
    """

    PARTY_KEY: ClassVar = "party"
    """What an operation calls whoever takes a step."""
    LAST: ClassVar = "server_open"
    """The step that gives the sum."""

    n: int
    members: int
    minimum: int
    per_polynomial: int
    quorum: int
    kind: str = "named"
    registered: int = 0
    odds: int = 0
    beacon: bytes = b""
    corrupt: int = 0
    randomness: int = 1
    colluders: int = 0
    removal: tuple[int, ...] = ()
    bits: int = 14
    length: int = 3
    rounding_bits: int = 0
    entries: int = 3
    opened_at: int = 0
    lifetime_seconds: int = 0
    lost: frozenset[int] = frozenset()
    away: Mapping[int, int] = field(default_factory=dict)
    forged: Mapping[int, bytes] = field(default_factory=dict)
    complaining: Mapping[int, frozenset[int]] = field(default_factory=dict)
    lies: Mapping[int, bytes] = field(default_factory=dict)
    adding: MemberUploadsTerms | None = None
    returning: frozenset[int] = frozenset()
    seed: str = "one-shot round"

    # -- what everybody knows -----------------------------------------------------------------

    @cached_property
    def identities(self) -> list[bytes]:
        """Ed25519 private keys of those who upload."""
        clients = self.n - self.members if self.adding else self.n
        found = [hashlib.sha256(b"identity %d" % u).digest() for u in range(clients)]
        return found + self.member_identities if self.adding else found

    @property
    def first_member(self) -> int:
        """Index in the cohort of the first member, where members upload."""
        return self.n - self.members if self.adding else 0

    @cached_property
    def member_identities(self) -> list[bytes]:
        """Ed25519 private keys of the members."""
        if self.kind == "everyone":
            return self.identities
        if self.kind == "drawn":
            return [self.registered_identities[place] for place in self.positions]
        return [hashlib.sha256(b"member %d" % j).digest() for j in range(self.members)]

    @cached_property
    def registered_identities(self) -> list[bytes]:
        """Ed25519 private keys of all who can be drawn."""
        return [hashlib.sha256(b"registered %d" % j).digest() for j in range(self.registered)]

    @cached_property
    def registry(self) -> list[bytes]:
        """Registered keys of all who can be drawn."""
        return [wire.identity_public(key) for key in self.registered_identities]

    @cached_property
    def draw(self) -> DrawTerms:
        """How members are drawn."""
        return {
            "registry_root": wire.tree_root(self.registry).hex(),
            "registry_size": self.registered,
            "odds": self.odds,
            "beacon": self.beacon.hex(),
        }

    @cached_property
    def tickets(self) -> list[int]:
        """By place in the registry."""
        seed = draw_seed(self.draw, SESSION_ID, ROUND_NUMBER)
        return [ticket(seed, key) for key in self.registry]

    @cached_property
    def positions(self) -> list[int]:
        """The members' places in the registry."""
        low = [place for place, drawn in enumerate(self.tickets) if drawn < self.odds]
        if len(low) < self.members:
            raise AssertionError("too few are drawn")
        return low[: self.members]

    @cached_property
    def sealing_keys(self) -> list[bytes]:
        """X25519 private keys of the members."""
        return [hashlib.sha256(b"sealing key %d" % j).digest() for j in range(self.members)]

    @cached_property
    def rand_seeds(self) -> list[bytes]:
        """Seeds of the clients' randomness."""
        return [f"{self.seed}, client {u}".encode() for u in range(self.n)]

    @cached_property
    def rounded(self) -> list[bytes]:
        """What the noise seeds are bound to."""
        return [b"rounded integers of client %d" % u for u in range(self.n)]

    @cached_property
    def cohort(self) -> list[bytes]:
        """Registered keys of the clients."""
        return [wire.identity_public(key) for key in self.identities]

    def member_entry(self, j: int) -> dict[str, Any]:
        """One member's keys, signed for some rounds of the session."""
        public, private = wire.public_key(self.sealing_keys[j]), self.member_identities[j]
        rounds = b"".join(number.to_bytes(8, "little") for number in (FIRST_ROUND, LAST_ROUND))
        return {
            "identity": wire.identity_public(private).hex(),
            "sealing_key": public.hex(),
            "first_round": FIRST_ROUND,
            "last_round": LAST_ROUND,
            "signature": sign(private, "sign sealing key", SESSION_ID, public, rounds).hex(),
        }

    @cached_property
    def context(self) -> OneShotContext:
        """The context as in the file."""
        fields: dict[str, Any] = {
            "session_id": SESSION_ID.hex(),
            "round_number": ROUND_NUMBER,
            "cohort": [key.hex() for key in self.cohort],
            "cohort_root": wire.tree_root(self.cohort).hex(),
            "committee": {
                "kind": self.kind,
                "members": [self.member_entry(j) for j in range(self.members)],
                "corrupt": self.corrupt,
                "randomness": self.randomness,
                "per_polynomial": self.per_polynomial,
                "quorum": self.quorum,
            },
            "minimum_survivors": self.minimum,
            "tolerated_colluders": self.colluders,
            "degree": 1024,
            "limbs": 1,
            "rounding_bits": self.rounding_bits,
            "entries": self.entries,
            "allow_weak": False,
            "removal": list(self.removal),
            "bits": self.bits,
            "length": self.length,
            "application_digest": APPLICATION_DIGEST.hex(),
            "opened_at": self.opened_at,
            "lifetime_seconds": self.lifetime_seconds,
        }
        if self.kind == "drawn":
            fields["committee"]["draw"] = self.draw
        if self.adding:
            fields["member_uploads"] = self.adding
        fields["hash"] = digest("one-shot context", context_encoding(fields)).hex()
        return cast(OneShotContext, fields)

    @cached_property
    def parameters(self) -> Parameters:
        """The context as the reference takes it; its hash is compared with ours."""
        return context_of(self.context)

    @property
    def hash(self) -> bytes:
        """Hash of the context."""
        return bytes.fromhex(self.context["hash"])

    @cached_property
    def inputs(self) -> list[list[int]]:
        """Elements below p, small enough for a sum that does not wrap."""
        p = wire.prime(self.bits)
        vectors = []
        for u in range(self.n):
            rand = wire.counter_rand(f"{self.seed}, input {u}".encode())
            most = p // 2 // self.n
            drawn = [int.from_bytes(rand(16), "little") for _ in range(self.length)]
            vectors.append([(x % (2 * most + 1) - most) % p for x in drawn])
        return vectors

    # -- the reference ------------------------------------------------------------------------

    def reference(self, lost: frozenset[int]) -> ReferenceRound:
        """The round with these uploads missing, and nobody away who answers in the end."""
        half = wire.prime(self.bits) // 2
        return run_one_shot(
            self.parameters,
            self.rounded,
            [[x - 2 * half - 1 if x > half else x for x in vector] for vector in self.inputs],
            lost,
            set(range(self.members)) - set(self.answering),
            [wire.counter_rand(seed) for seed in self.rand_seeds],
            self.returning,
        )

    @cached_property
    def everything(self) -> ReferenceRound:
        """Where every upload arrives: for what they are made of."""
        return self.reference(frozenset())

    @cached_property
    def played(self) -> ReferenceRound:
        """As it ends; the sums of opened shares are compared with the answers."""
        missing = self.lost | self.excluded
        found = self.reference(missing) if missing else self.everything
        for j, (sums, _, _) in found.answers.items():
            opened = [self.opened_share(u, j) for u in self.survivors]
            rows = [sum(column) % wire.SHAMIR_PRIME for column in zip(*opened, strict=True)]
            if rows[: len(sums)] != sums:
                raise AssertionError(f"member {j}'s shares do not add up to its answer")
        return found

    # -- sets ---------------------------------------------------------------------------------

    @cached_property
    def excluded(self) -> frozenset[int]:
        """Clients that complaints leave out; no member is, in the rounds here."""
        return frozenset().union(*self.complaining.values())

    @cached_property
    def uploaded(self) -> list[int]:
        """Clients whose upload arrives."""
        return [u for u in range(self.n) if u not in self.lost]

    @cached_property
    def survivors(self) -> list[int]:
        """Clients whose upload is opened."""
        return [u for u in self.uploaded if u not in self.excluded]

    def present(self, stage: int) -> list[int]:
        """Members that answer in a stage."""
        return [j for j in range(self.members) if self.away.get(j, 3) > stage]

    @cached_property
    def answering(self) -> list[int]:
        """Members that answer in the end."""
        return self.present(OPEN)

    @cached_property
    def surplus(self) -> list[int]:
        """Seeds that are given up."""
        mask = self.removal[self.n - len(self.survivors)] if self.removal else 0
        return [i for i in range(mask.bit_length()) if mask >> i & 1]

    # -- uploads ------------------------------------------------------------------------------

    def root(self, u: int) -> bytes:
        """The first and only bytes that a client draws."""
        return wire.counter_rand(self.rand_seeds[u])(32)

    def seed_of(self, u: int, which: int) -> bytes:
        """A noise seed of a client: a removable one, or with the next number its own."""
        what = digest("derive noise seeds", self.rounded[u])
        bound = (self.hash, index(u), index(which), what)
        return wire.derive(self.root(u), "derive noise seeds", 32, *bound)

    @property
    def seed_count(self) -> int:
        """Removable seeds of each client."""
        return max(self.removal, default=0).bit_length()

    def seeds_of(self, u: int) -> list[bytes]:
        """Removable seeds of a client."""
        return [self.seed_of(u, which) for which in range(self.seed_count)]

    def ephemeral(self, u: int) -> bytes:
        """Private ephemeral key."""
        elements = b"".join(x.to_bytes(2, "little") for x in self.inputs[u])
        what = digest("derive upload secrets", elements, b"".join(self.seeds_of(u)))
        bound = (b"ephemeral key", self.hash, index(u), what)
        return wire.derive(self.root(u), "derive upload secrets", 32, *bound)

    def seal_bytes(self) -> int:
        """Bytes of one seal."""
        return len(self.everything.seals[0]) // self.members

    def opened_share(self, u: int, j: int) -> list[int]:
        """What client u sealed for member j."""
        public = wire.public_key(self.ephemeral(u))
        shared = wire.agree(self.sealing_keys[j], public)
        bound = (self.hash, index(u), index(j))
        cipher = AESSIV(wire.derive(shared, "seal shares", 64, *bound))
        size = self.seal_bytes()
        sealed = self.everything.seals[u][j * size : (j + 1) * size]
        plain = cipher.decrypt(sealed, [wire.tagged("seal shares", *bound)])
        return [int.from_bytes(plain[i : i + 4], "little") for i in range(0, len(plain), 4)]

    def upload_fields(self, u: int) -> dict[str, Any]:
        """What a client uploads, beside its signature."""
        packed = _packed(self.everything.ciphertexts[u], PRIMES, self.rounding_bits)
        commitments = [
            digest("commit seed", self.hash, index(u), index(i), seed)
            for i, seed in enumerate(self.seeds_of(u))
        ]
        return {
            "ephemeral_key": wire.public_key(self.ephemeral(u)),
            "ciphertext": packed,
            "commitments": b"".join(commitments),
            "seals": self.everything.seals[u],
            "returns": u in self.returning,
        }

    def header_parts(self, u: int, fields: Mapping[str, Any]) -> tuple[bytes, ...]:
        """What client u's signature on an upload covers."""
        return header_parts(self.hash, u, fields)

    def upload(
        self, u: int, signature: bytes | None = None, signer: int | None = None, **changes: Any
    ) -> bytes:
        """Client u's upload, or another that it, or somebody else, signs."""
        fields = {**self.upload_fields(u), **changes}
        private = self.identities[u if signer is None else signer]
        signed = signature or sign(private, "sign upload", *self.header_parts(u, fields))
        return self.message(32, u, *fields.values(), signed)

    def header(self, u: int, **changes: Any) -> bytes:
        """What a member gets of an upload."""
        if u in self.forged and not changes:
            return header_of(self.forged[u])
        parts = self.header_parts(u, {**self.upload_fields(u), **changes})
        return b"".join(parts[2:]) + sign(self.identities[u], "sign upload", *parts)

    # -- members ------------------------------------------------------------------------------

    def seals_for(self, j: int) -> bytes:
        """Member j's seals of all uploads."""
        size = self.seal_bytes()
        found = []
        for u in self.uploaded:
            seals = (
                wire.fields_of(self.forged[u])[1]["seals"]
                if u in self.forged
                else self.everything.seals[u]
            )
            found.append(seals[j * size : (j + 1) * size])
        return b"".join(found)

    def delivery(self, j: int, **changes: bytes) -> bytes:
        """To a member: everything that it checks."""
        fields = {
            "cohort": b"".join(self.cohort),
            "uploaded": bitmap(self.uploaded, self.n),
            "headers": b"".join(self.header(u) for u in self.uploaded),
            "seals": self.seals_for(j),
            **changes,
        }
        return self.message(33, *fields.values())

    def signed(self, number: int, *, context: bytes, sender: int, **fields: Any) -> bytes:
        """A message with any fields, and the signature that its sender makes itself."""
        del context, fields["signature"]
        make = {32: self.upload, 34: self.complaints, 38: self.answer}
        made: bytes = make[number](sender, **fields)  # type: ignore[operator]
        return made

    def complaints(self, j: int, bad: bytes | None = None, signature: bytes = b"") -> bytes:
        """From a member: whose uploads are bad."""
        bad = bitmap(sorted(self.complaining.get(j, ())), self.n) if bad is None else bad
        private = self.member_identities[j]
        signed = signature or sign(private, "sign complaints", self.hash, index(j), bad)
        return self.message(34, j, bad, signed)

    def proposal(self, survivors: Sequence[int] | None = None) -> bytes:
        """To members: the set to be opened."""
        chosen = self.survivors if survivors is None else survivors
        return self.message(35, bitmap(chosen, self.n))

    def signed_set(self, survivors: Sequence[int] | None = None) -> bytes:
        """What members sign."""
        chosen = self.survivors if survivors is None else survivors
        names = b"".join(
            index(u) + digest("sign upload", *self.header_parts(u, self.upload_fields(u)))
            for u in chosen
        )
        counts = (index(len(chosen)), index(self.n - len(chosen)))
        return digest("sign one-shot survivors", self.hash, *counts, names)

    def vote(self, j: int, survivors: Sequence[int] | None = None) -> bytes:
        """A member's signature on a set."""
        return sign(
            self.member_identities[j], "sign one-shot survivors", self.signed_set(survivors)
        )

    def confirmation(self, j: int, signature: bytes = b"") -> bytes:
        """From a member: its vote."""
        return self.message(36, j, signature or self.vote(j))

    def quorum_of(
        self, signers: Sequence[int] | None = None, signatures: bytes | None = None
    ) -> bytes:
        """To members: the first votes."""
        chosen = self.present(CONFIRM)[: self.quorum] if signers is None else signers
        votes = b"".join(map(self.vote, chosen)) if signatures is None else signatures
        return self.message(37, bitmap(chosen, self.members), votes)

    def answer(self, j: int, signature: bytes = b"", **changes: bytes) -> bytes:
        """From a member: what it gives up."""
        sums, seeds, checks = map(words, self.played.answers[j])
        fields = {"sums": self.lies.get(j, sums), "seeds": seeds, "checks": checks, **changes}
        parts = (self.hash, index(j), self.signed_set(), *fields.values())
        made = signature or sign(self.member_identities[j], "sign answer", *parts)
        return self.message(38, j, *fields.values(), made)

    # -- the script ---------------------------------------------------------------------------

    def message(self, number: int, *fields: bytes | int) -> bytes:
        """A message of this context."""
        return wire.message(number, self.hash[:8], *fields)

    def known(self) -> dict[str, Any]:
        """What a file says first: the context, and all that the parties start with."""
        return {
            "context": self.context,
            "identities": [key.hex() for key in self.identities],
            "member_identities": [key.hex() for key in self.member_identities],
            "sealing_keys": [key.hex() for key in self.sealing_keys],
            "own": [self._own(j) for j in range(self.members)],
            **({"returning": sorted(self.returning)} if self.returning else {}),
            "rand_seeds": [seed.hex() for seed in self.rand_seeds],
            "rounded": [each.hex() for each in self.rounded],
            "inputs": self.inputs,
        }

    def _own(self, j: int) -> list[Any] | None:
        if self.kind != "everyone" and not self.adding:
            return None
        u = j + self.first_member
        if u in self.lost:
            return [u, None]
        return [u, digest("sign upload", *self.header_parts(u, self.upload_fields(u))).hex()]

    def named(self, name: str) -> bytes:
        """A message by its name in the file."""
        kind, *rest = name.split()
        if kind == "proposal":
            return self.proposal()
        if kind == "quorum":
            return self.quorum_of()
        party = int(rest[0])
        if kind == "upload":
            return self.forged.get(party) or self.upload(party)
        made: bytes = getattr(self, kind)(party)
        return made

    def events(self) -> Iterator[Event]:
        """All steps in order."""
        for u in range(self.n):
            own = self.seed_of(u, self.seed_count)
            seeds = [seed.hex() for seed in (own, *self.seeds_of(u))]
            yield Event("client_seeds", u, expect=seeds)
            if u not in self.forged:
                yield Event("client_submit", u, expect=f"upload {u}")
        for u in self.uploaded:
            yield Event("server_receive_upload", u, f"upload {u}")
        for u in sorted(self.lost):
            yield Event("client_resend", u, expect=f"upload {u}")
        sent = [(j, f"delivery {j}") for j in range(self.members)]
        yield from self._stage(sent, "complaints", CHECK)
        sent = [(j, "proposal") for j in self.present(CHECK)]
        yield from self._stage(sent, "confirmation", CONFIRM)
        sent = [(j, "quorum") for j in self.present(CONFIRM)]
        yield from self._stage(sent, "answer", OPEN)
        yield Event("server_open")

    def _stage(self, sent: list[tuple[int, str]], answer: str, stage: int) -> Iterator[Event]:
        yield Event("server_close", expect=[[to, name] for to, name in sent])
        for to, name in sent:
            if to in self.present(stage):
                honest = answer != "answer" or to not in self.lies
                yield Event("member_receive", to, name, f"{answer} {to}" if honest else ...)
        for j in self.present(stage):
            yield Event("server_receive_from_member", j, f"{answer} {j}")

    def result(self) -> OneShotResult:
        """What comes out."""
        p = wire.prime(self.bits)
        total = [x % p for x in self.played.total]
        for place, x in enumerate(total):
            if x != sum(self.inputs[u][place] for u in self.survivors) % p:
                raise AssertionError("the reference gives another sum")
        return {
            "total": total,
            "survivors": [u for u in self.survivors if not self.adding or u < self.first_member],
            "excluded": sorted(self.excluded),
            "wrong_members": sorted(self.lies),
            "noisy": [],
            "seeds": {
                str(u): [seed.hex() for seed in given] for u, given in self.played.seeds.items()
            },
        }
