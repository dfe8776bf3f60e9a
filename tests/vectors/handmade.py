"""One round as a script: every message by hand, and the order in which they travel.

Masked vectors, unmask shares, given-up seeds and the total come from `secagg.pairwise.reference`;
keys, seals, commitments, signatures and framing from `wire`. Both make the unmask shares of an
honest round, and must agree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, cast

from secagg.pairwise.context import SessionContext
from secagg.pairwise.reference import ReferenceRound, Stage, run_secagg

from . import wire
from .runner import context_of
from .schema import Context, Result
from .wire import bitmap, index, sign

SESSION_ID = bytes(range(16))
APPLICATION_DIGEST = hashlib.sha256(b"application").digest()


@dataclass(frozen=True)
class Event:
    """A step of one party; `data` and `expect` name messages.

    What comes out of it is None if it is nothing, and an ellipsis if it is not compared.
    """

    op: str
    client: int | None = None
    data: str | None = None
    expect: Any = ...


@dataclass(frozen=True, kw_only=True)
class Round:
    """Parameters and clients of a round; everything else follows from them.

    Args:
        lies: plain shares (owner, holder) that a malicious owner deals instead of the right ones.
    """

    PARTY_KEY: ClassVar = "client"
    """What an operation calls whoever takes a step."""
    LAST: ClassVar = "server_unmask"
    """The step that gives the sum."""

    n: int
    threshold: int
    minimum: int
    mode: str = "active"
    colluders: int = 0
    degree: int = 0
    removal: tuple[int, ...] = ()
    bits: int = 16
    length: int = 3
    security_bits: int = 80
    opened_at: int = 0
    lifetime_seconds: int = 0
    drops: Mapping[int, Stage] = field(default_factory=dict)
    seed: str = "round"
    forged: Mapping[int, bytes] = field(default_factory=dict)
    lies: Mapping[tuple[int, int], bytes] = field(default_factory=dict)
    promises: Mapping[int, bytes] = field(default_factory=dict)

    # -- what everybody knows -----------------------------------------------------------------

    @cached_property
    def identities(self) -> list[bytes]:
        """Ed25519 private keys."""
        return [hashlib.sha256(b"identity %d" % u).digest() for u in range(self.n)]

    @cached_property
    def rand_seeds(self) -> list[bytes]:
        """Seeds of the clients' randomness."""
        return [f"{self.seed}, client {u}".encode() for u in range(self.n)]

    @cached_property
    def context(self) -> Context:
        """The context as in the file."""
        fields: dict[str, Any] = {
            "session_id": SESSION_ID.hex(),
            "round_number": 3,
            "cohort": [wire.identity_public(key).hex() for key in self.identities],
            "threshold": self.threshold,
            "minimum_survivors": self.minimum,
            "mode": self.mode,
            "tolerated_colluders": self.colluders,
            "degree": self.degree,
            "removal": list(self.removal),
            "bits": self.bits,
            "length": self.length,
            "application_digest": APPLICATION_DIGEST.hex(),
            "security_bits": self.security_bits,
            "opened_at": self.opened_at,
            "lifetime_seconds": self.lifetime_seconds,
        }
        fields["hash"] = wire.digest("context", wire.context_encoding(fields)).hex()
        return cast(Context, fields)

    @property
    def context_hash(self) -> bytes:
        """Hash of the context."""
        return bytes.fromhex(self.context["hash"])

    @property
    def active(self) -> bool:
        """Whether there is a consistency round."""
        return self.mode == "active"

    @cached_property
    def inputs(self) -> list[list[int]]:
        """Elements below p; the first ones are p - 1 and 0, alternately."""
        p = wire.prime(self.bits)
        vectors = []
        for u in range(self.n):
            rand = wire.counter_rand(f"{self.seed}, input {u}".encode())
            elements = [int.from_bytes(rand(16), "little") % p for _ in range(self.length)]
            vectors.append([[p - 1, 0][u % 2], *elements[1:]])
        return vectors

    def left(self, clients: Sequence[int], stage: Stage) -> list[int]:
        """Those that answer in a stage."""
        return [u for u in clients if u not in self.drops or self.drops[u] > stage]

    # -- sets ---------------------------------------------------------------------------------

    @cached_property
    def members(self) -> list[int]:
        """Set U1: those who advertised keys."""
        return self.left(range(self.n), Stage.ADVERTISE)

    @cached_property
    def participants(self) -> list[int]:
        """Set U2: those who shared secrets."""
        return self.left(self.members, Stage.SHARE)

    @cached_property
    def survivors(self) -> list[int]:
        """Set U3: those whose masked vectors arrived."""
        return self.left(self.participants, Stage.MASK)

    @cached_property
    def confirmed(self) -> list[int]:
        """Set U4: those who signed U3."""
        return self.left(self.survivors, Stage.CONFIRM)

    def confirmers(self, u: int) -> list[int]:
        """Whose signatures the server shows to a client: those of the first quorum."""
        return self.counted[: self.quorum]

    @property
    def counted(self) -> list[int]:
        """Who signed U3 and is in the committee."""
        if self.degree == 0:
            return self.confirmed
        order = wire.random_order(self.members, self.hash, "committee")
        return [u for u in self.confirmed if u in order[: self._committee[0]]]

    @property
    def quorum(self) -> int:
        """Signatures that convince a client."""
        return self.threshold if self.degree == 0 else self._committee[1]

    @cached_property
    def _committee(self) -> tuple[int, int]:
        count = len(self.members)
        return wire.committee_size(
            count, self.colluders, min(count, self.minimum), self.security_bits
        )

    @cached_property
    def convinced(self) -> list[int]:
        """U4: who was shown enough signatures."""
        return self.confirmed if len(self.counted) >= self.quorum else []

    @cached_property
    def answered(self) -> list[int]:
        """Set U5: those who answered with shares."""
        return self.left(self.convinced if self.active else self.survivors, Stage.UNMASK)

    @cached_property
    def removed(self) -> list[int]:
        """Which removable seeds survivors give up."""
        mask = self.removal[self.n - len(self.survivors)] if self.removal else 0
        return [i for i in range(mask.bit_length()) if mask >> i & 1]

    @property
    def seeds(self) -> int:
        """Removable seeds of each client."""
        return max(self.removal, default=0).bit_length()

    @cached_property
    def missing(self) -> list[int]:
        """Survivors whose removable seeds have to be rebuilt."""
        return [u for u in self.survivors if u not in self.answered] if self.removed else []

    def held_by(self, u: int, owners: Sequence[int]) -> list[int]:
        """Those of the owners whose shares a client holds."""
        return [v for v in owners if u in self.holders[v]]

    # -- keys and secrets ---------------------------------------------------------------------

    @cached_property
    def _rand(self) -> list[wire.Rand]:
        return [wire.counter_rand(seed) for seed in self.rand_seeds]

    @cached_property
    def keys(self) -> dict[int, tuple[bytes, bytes, bytes]]:
        """Private sealing key, private masking key and nonce, in the order of the draws."""
        return {u: (self._rand[u](32), self._rand[u](32), self._rand[u](16)) for u in self.members}

    def entry(
        self,
        u: int,
        *,
        sealing: bytes = b"",
        masking: bytes = b"",
        context_hash: bytes = b"",
    ) -> bytes:
        """A signed advertisement's entry in the roster, with other keys if wanted."""
        own_sealing, own_masking, nonce = self.keys[u]
        sealing = sealing or wire.public_key(own_sealing)
        masking = masking or wire.public_key(own_masking)
        signed = (context_hash or self.context_hash, index(u), sealing, masking, nonce)
        return sealing + masking + nonce + sign(self.identities[u], "sign advertisement", *signed)

    @cached_property
    def entries(self) -> dict[int, bytes]:
        """All entries of the tree."""
        return {u: self.forged.get(u) or self.entry(u) for u in self.members}

    @cached_property
    def root(self) -> bytes:
        """Root of the tree."""
        return wire.tree_root([self.entries[u] for u in self.members])

    @cached_property
    def hash(self) -> bytes:
        """The round hash."""
        return wire.digest("roster", self.context_hash, bitmap(self.members, self.n), self.root)

    @cached_property
    def neighbours(self) -> dict[int, list[int]]:
        """Who masks with whom."""
        return wire.neighbours(self.members, self.degree, self.hash)

    @cached_property
    def holders(self) -> dict[int, list[int]]:
        """Who holds whose shares: with degree 0 everybody, also of its own; else the neighbours."""
        return self.neighbours if self.degree else {u: self.members for u in self.members}

    @cached_property
    def _dealt(self) -> dict[int, tuple[list[bytes], dict[int, bytes]]]:
        dealt = {}
        for u in self.participants:
            _, masking, _ = self.keys[u]
            seed = self._rand[u](32)
            removable = [self._rand[u](32) for _ in range(self.seeds)]
            secrets = [seed, masking, *removable]
            shares = wire.split(secrets, self.holders[u], self.threshold, self._rand[u])
            shares |= {v: lie for (owner, v), lie in self.lies.items() if owner == u}
            dealt[u] = (secrets, shares)
        return dealt

    def secrets(self, u: int) -> list[bytes]:
        """Self-mask seed, masking key, removable seeds."""
        return self._dealt[u][0]

    def share(self, owner: int, holder: int) -> bytes:
        """A holder's share of all of an owner's secrets."""
        return self._dealt[owner][1][holder]

    @cached_property
    def reference(self) -> ReferenceRound:
        """The round by the reference."""
        return self._refer(self.drops)

    @cached_property
    def uploads(self) -> dict[int, tuple[int, ...]]:
        """Masked vectors of U2: those of the round that nobody leaves from then on.

        A vector has masks with all of U2, whoever uploads.
        """
        early = {u: stage for u, stage in self.drops.items() if stage <= Stage.SHARE}
        return self._refer(early).masked

    def session_context(self) -> SessionContext:
        """The context as the reference takes it."""
        return context_of(self.context)

    def _refer(self, drops: Mapping[int, Stage]) -> ReferenceRound:
        rand = [wire.counter_rand(seed) for seed in self.rand_seeds]
        return run_secagg(self.session_context(), self.identities, self.inputs, drops, rand)

    # -- messages -----------------------------------------------------------------------------

    def message(self, number: int, *fields: bytes | int) -> bytes:
        """Any message of this round."""
        return wire.message(number, self.context_hash[:8], *fields)

    def advertisement(self, u: int, entry: bytes = b"") -> bytes:
        """Message 1: the keys of a client."""
        entry = entry or self.entries[u]
        return self.message(1, u, entry[:32], entry[32:64], entry[64:80], entry[80:])

    def roster(self, u: int, **changes: bytes) -> bytes:
        """Message 2: the roster as shown to a client."""
        fields = {
            "members": bitmap(self.members, self.n),
            "root": self.root,
            "proof": wire.tree_proof(list(self.entries.values()), self.members.index(u)),
            "entries": b"".join(self.entries[v] for v in self.neighbours[u]),
        }
        return self.message(2, *{**fields, **changes}.values())

    def sealed(self, owner: int, holder: int, plain: bytes = b"") -> bytes:
        """A holder's share of an owner's secrets, sealed."""
        shared = wire.agree(self.keys[owner][0], self.entries[holder][:32])
        return wire.seal(shared, self.hash, owner, holder, plain or self.share(owner, holder))

    def commitments(self, u: int) -> bytes:
        """To the self-mask seed and the removable seeds."""
        seeds = [self.secrets(u)[0], *self.secrets(u)[2:]]
        right = [wire.commitment(self.hash, u, i, seed) for i, seed in enumerate(seeds)]
        return self.promises.get(u) or b"".join(right)

    def bundle(
        self,
        u: int,
        commitments: bytes | None = None,
        sealed: bytes | None = None,
        signature: bytes = b"",
    ) -> bytes:
        """Message 3; signed after the changes."""
        commitments = self.commitments(u) if commitments is None else commitments
        if sealed is None:
            sealed = b"".join(self.sealed(u, v) for v in self.holders[u] if v != u)
        signed = (self.hash, index(u), commitments, sealed)
        signature = signature or sign(self.identities[u], "sign shares", *signed)
        return self.message(3, u, commitments, sealed, signature)

    def delivered(self, u: int, members: Sequence[int] = (), sealed: bytes = b"") -> bytes:
        """Message 4: the shares for a client."""
        owners = [v for v in self.held_by(u, self.participants) if v != u]
        sealed = sealed or b"".join(self.sealed(v, u) for v in owners)
        return self.message(4, bitmap(members or self.participants, self.n), sealed)

    def masked_input(self, u: int, vector: bytes | None = None, signature: bytes = b"") -> bytes:
        """Message 5; signed after the changes."""
        vector = wire.pack_vector(self.uploads[u], self.bits) if vector is None else vector
        signed = (self.hash, index(u), wire.digest("sign masked input", vector))
        signature = signature or sign(self.identities[u], "sign masked input", *signed)
        return self.message(5, u, vector, signature)

    def survivor_set(self, survivors: Sequence[int] | None = None) -> bytes:
        """Message 6: the set of survivors."""
        return self.message(6, bitmap(self.survivors if survivors is None else survivors, self.n))

    def confirms(self, u: int, survivors: Sequence[int] = ()) -> bytes:
        """A signature over a survivor set."""
        encoded = bitmap(survivors or self.survivors, self.n)
        return sign(self.identities[u], "sign survivors", self.hash, encoded)

    def confirmation(self, u: int, signature: bytes = b"") -> bytes:
        """Message 7: a signature on the survivors."""
        return self.message(7, u, signature or self.confirms(u))

    def confirmation_set(
        self, confirmers: Sequence[int], signatures: Sequence[bytes] | None = None
    ) -> bytes:
        """Message 8: the signatures on the survivors."""
        if signatures is None:
            signatures = [self.confirms(v) for v in confirmers]
        return self.message(8, bitmap(confirmers, self.n), b"".join(signatures))

    def unmask_parts(self, u: int) -> tuple[bytes, bytes]:
        """The shares and the seeds that a client gives up."""
        shares = b"".join(
            wire.share_of(self.share(v, u), wire.SEED if v in self.survivors else wire.KEY)
            for v in self.held_by(u, self.participants)
        )
        seeds = b"".join(self.secrets(u)[wire.FIRST_REMOVABLE + i] for i in self.removed)
        return shares, seeds

    def unmask_shares(
        self,
        u: int,
        shares: bytes | None = None,
        seeds: bytes | None = None,
        survivors: Sequence[int] = (),
    ) -> bytes:
        """Message 9; signed after the changes, over another survivor set if wanted."""
        right = self.unmask_parts(u)
        shares = right[0] if shares is None else shares
        seeds = right[1] if seeds is None else seeds
        encoded = bitmap(survivors or self.survivors, self.n)
        signed = (self.hash, index(u), encoded, shares, seeds)
        return self.message(
            9, u, shares, seeds, sign(self.identities[u], "sign unmask shares", *signed)
        )

    def seed_request(self, missing: Sequence[int] | None = None) -> bytes:
        """Message 10: the clients whose seeds are missing."""
        return self.message(10, bitmap(self.missing if missing is None else missing, self.n))

    def seed_shares(
        self, u: int, shares: bytes | None = None, missing: Sequence[int] | None = None
    ) -> bytes:
        """Message 11; signed after the changes, over another set if wanted."""
        missing = self.missing if missing is None else missing
        if shares is None:
            shares = b"".join(
                wire.share_of(self.share(v, u), wire.FIRST_REMOVABLE + i)
                for v in self.held_by(u, missing)
                for i in self.removed
            )
        signed = (self.hash, index(u), bitmap(missing, self.n), shares)
        return self.message(11, u, shares, sign(self.identities[u], "sign seed shares", *signed))

    def signed(self, number: int, *, context: bytes, sender: int, **fields: Any) -> bytes:
        """A client's message with any fields, and the signature that it makes itself."""
        del context, fields["signature"]
        if number == 1:
            keys = {"sealing": fields["sealing_key"], "masking": fields["masking_key"]}
            return self.advertisement(sender, self.entry(sender, **keys))
        make = {3: self.bundle, 5: self.masked_input, 9: self.unmask_shares, 11: self.seed_shares}
        made: bytes = make[number](sender, **fields)  # type: ignore[operator]
        return made

    def result(self, culprits: Sequence[int] = ()) -> Result:
        """What the server ends with, by the reference."""
        seeds = sorted(self.reference.seeds.items())
        return {
            "total": list(self.reference.total),
            "survivors": list(self.reference.survivors),
            "culprits": list(culprits),
            "seeds": {str(u): [seed.hex() for seed in given] for u, given in seeds},
        }

    def check_against_reference(self) -> None:
        """What is made here and by the reference is the same; the round is an honest one."""
        reference = self.reference
        if list(reference.survivors) != self.survivors:
            raise AssertionError("survivors differ from the reference")
        if reference.masked != {u: self.uploads[u] for u in self.survivors}:
            raise AssertionError("masked vectors depend on who uploads")
        by_hand = {u: self.unmask_parts(u) for u in self.answered}
        if reference.unmask_shares != {u: shares for u, (shares, _) in by_hand.items()}:
            raise AssertionError("unmask shares differ from the reference")
        given = {u: b"".join(reference.seeds.get(u, ())) for u in self.answered}
        if given != {u: seeds for u, (_, seeds) in by_hand.items()}:
            raise AssertionError("given-up seeds differ from the reference")

    # -- order --------------------------------------------------------------------------------

    def known(self) -> dict[str, Any]:
        """What a file says first: the context, and all that the parties start with."""
        return {
            "context": self.context,
            "identities": [key.hex() for key in self.identities],
            "rand_seeds": [seed.hex() for seed in self.rand_seeds],
            "inputs": self.inputs,
        }

    def named(self, name: str) -> bytes:
        """An honest message by its name: what it is, and the client from or to whom it goes."""
        kind, _, party = name.rpartition(" ")
        u = int(party) if party.isdigit() else -1
        made = {
            "advertisement": lambda: self.advertisement(u),
            "roster": lambda: self.roster(u),
            "bundle": lambda: self.bundle(u),
            "delivered": lambda: self.delivered(u),
            "input": lambda: self.masked_input(u),
            "survivor": lambda: self.survivor_set(),
            "confirmation": lambda: self.confirmation(u),
            "confirmations": lambda: self.confirmation_set(self.confirmers(u)),
            "unmask": lambda: self.unmask_shares(u),
            "seed": lambda: self.seed_request(),
            "seeds": lambda: self.seed_shares(u),
        }
        return made[kind]()

    def events(self) -> Iterator[Event]:
        """All steps of the round, stage by stage, clients ascending."""
        for u in self.members:
            yield Event("client_begin", u, expect=f"advertisement {u}")
        yield from self._collected("advertisement", self.members)
        yield Event("server_close", expect=[[u, f"roster {u}"] for u in self.members])
        for u in self.participants:
            yield Event("client_receive", u, f"roster {u}", f"bundle {u}")
        yield from self._collected("bundle", self.participants)
        yield Event("server_close", expect=[[u, f"delivered {u}"] for u in self.participants])
        for u in self.survivors:
            yield Event("client_receive", u, f"delivered {u}", None)
            yield Event("client_submit", u, expect=f"input {u}")
        yield from self._collected("input", self.survivors)
        yield Event("server_close", expect=[[u, "survivor set"] for u in self.survivors])
        if self.active:
            for u in self.confirmed:
                yield Event("client_receive", u, "survivor set", f"confirmation {u}")
            yield from self._collected("confirmation", self.confirmed)
            yield Event("server_close", expect=[[u, f"confirmations {u}"] for u in self.convinced])
        for u in self.answered:
            told = f"confirmations {u}" if self.active else "survivor set"
            yield Event("client_receive", u, told, f"unmask {u}")
        yield from self._collected("unmask", self.answered)
        if self.missing:
            yield Event("server_close", expect=[[u, "seed request"] for u in self.answered])
            helpers = self.left(self.answered, Stage.RECOVER)
            for u in helpers:
                yield Event("client_receive", u, "seed request", f"seeds {u}")
            yield from self._collected("seeds", helpers)
        yield Event("server_unmask")

    def _collected(self, kind: str, clients: Sequence[int]) -> Iterator[Event]:
        for u in clients:
            yield Event("server_receive", u, f"{kind} {u}")
