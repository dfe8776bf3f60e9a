"""The whole protocol in one function: slow, plain, and the oracle of the tests.

Read `run_secagg` from top to bottom to learn the protocol. It plays all parties at once over galois
field arrays, one element and one secret at a time, and shares no code with the state machines, the
mask generator, the secret sharing or the compiled kernels: it only agrees with them on keys,
sealing and the encodings that are hashed or signed. With the same randomness it gives the same
masked vectors, the same unmask shares and the same sum, bit for bit.

Not for use: it checks nothing, keeps every party's secrets in one place and takes milliseconds for
each vector element. Galois comes with the extra `dev`: nothing but this needs it.

Source: Bonawitz et al. 2017 (ia.cr/2017/281), Fig. 4.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from secagg.errors import TooFewSurvivorsError
from secagg.field import PrimeField
from secagg.keys import AgreementKey, Identity
from secagg.pairwise.context import Mode, SessionContext
from secagg.sealing import seal, unseal
from secagg.tags import Usage, derive, digest, encode_index

SHAMIR_PRIME = 2**31 - 1
_LIMBS, _LIMB_BITS = 9, 30
_SEED, _KEY = 0, 1
"""Order of a client's two shared secrets: self-mask seed, masking private key."""


Rand = Callable[[int], bytes]
"""A source of random bytes: rand(count) -> bytes."""


class Stage(enum.IntEnum):
    """The rounds, named after what clients send in them; the last one only if it is needed."""

    ADVERTISE = 0
    SHARE = 1
    MASK = 2
    CONFIRM = 3
    UNMASK = 4
    RECOVER = 5


@dataclass(frozen=True, slots=True)
class ReferenceRound:
    """What a round showed to the server, and what came out of it.

    Args:
        unmask_shares: bytes of every client's unmask shares.
    """

    masked: dict[int, tuple[int, ...]]
    unmask_shares: dict[int, bytes]
    survivors: tuple[int, ...]
    total: tuple[int, ...]
    seeds: dict[int, tuple[bytes, ...]]


def run_secagg(
    context: SessionContext,
    identities: Sequence[bytes],
    inputs: Sequence[Sequence[int]],
    drops: Mapping[int, Stage],
    rand: Sequence[Rand],
) -> ReferenceRound:
    """Run one round of secure aggregation.

    Args:
        identities: 32 private bytes of each client's Ed25519 key.
    """
    import galois

    gf = galois.GF(context.field.modulus, compile="python-calculate")
    shamir = galois.GF(SHAMIR_PRIME, compile="python-calculate")
    t, everybody = context.threshold, range(context.size)
    signers = [Identity.from_private_bytes(raw) for raw in identities]

    def still_there(clients: Sequence[int], stage: Stage, name: str, needed: int) -> list[int]:
        left = [u for u in clients if u not in drops or drops[u] > stage]
        if len(left) < needed:
            raise TooFewSurvivorsError(name, len(left), needed)
        return left

    # Round 0. Every client draws two key pairs and a nonce, and signs the public halves.
    u0 = still_there(everybody, Stage.ADVERTISE, "advertise", context.minimum_survivors)
    sealing, masking, entries = {}, {}, {}
    for u in u0:
        sealing[u], masking[u] = AgreementKey(rand[u](32)), AgreementKey(rand[u](32))
        nonce = rand[u](16)
        parts = (context.hash, encode_index(u), sealing[u].public, masking[u].public, nonce)
        signature = signers[u].sign(Usage.ADVERTISE, *parts)
        entries[u] = sealing[u].public + masking[u].public + nonce + signature
    # The root of a hash tree over all entries goes into everything that follows.
    root = _tree_root([entries[u] for u in u0])
    round_hash = digest(Usage.ROSTER, context.hash, _bitmap(u0, context.size), root)
    peers, holders = _graph(context, u0, round_hash)

    # Round 1. Every client shares its self-mask seed, its masking key and its removable seeds,
    # limb by limb: the limb is a polynomial's value at 0, holder v gets the value at v + 1.
    u1 = still_there(u0, Stage.SHARE, "share", context.minimum_survivors)
    seeds: dict[int, bytes] = {}
    removable: dict[int, list[bytes]] = {}
    sealed: dict[tuple[int, int], bytes] = {}
    for u in u1:
        seeds[u] = rand[u](32)
        removable[u] = [rand[u](32) for _ in range(context.seeds)]
        secrets = [seeds[u], masking[u].expose(), *removable[u]]
        constants = [limb for secret in secrets for limb in _limbs(secret)]
        higher = _shamir_coefficients((t - 1) * len(constants), rand[u])
        plain: dict[int, list[int]] = {v: [] for v in holders[u]}
        for j, constant in enumerate(constants):
            ascending = [constant, *higher[j :: len(constants)]]
            polynomial = galois.Poly(shamir(ascending[::-1]))
            for v in holders[u]:
                plain[v].append(int(polynomial(v + 1)))
        for v in holders[u]:
            shared = sealing[u].agree(sealing[v].public) if v != u else b""
            sealed[u, v] = seal(shared, round_hash, u, v, _words(plain[v]))

    # Round 2. Every client that has the shares adds its self mask, and one mask for each other
    # client that shared: with a plus towards higher indices, with a minus towards lower ones.
    u2 = u1
    held: dict[tuple[int, int], bytes] = {}
    u3 = still_there(u2, Stage.MASK, "masked input", context.minimum_survivors)
    masked = {}
    for u in u3:
        for v in u2:
            if u not in holders[v]:
                continue
            shared = sealing[u].agree(sealing[v].public) if v != u else b""
            held[u, v] = unseal(shared, round_hash, v, u, sealed[v, u])
        y = gf([x % context.field.modulus for x in inputs[u]])
        y += gf(_self_mask(context, round_hash, u, seeds[u]))
        for v in u2:
            if v in peers[u]:
                mask = gf(_pair_mask(context, round_hash, u, v, masking[u], masking[v].public))
                y = y + mask if u < v else y - mask
        masked[u] = tuple(int(element) for element in y)

    # Round 3. With an active server: survivors sign that they were told the same U3, and go on if
    # enough of a random committee did.
    u4 = u3
    if context.mode is Mode.ACTIVE:
        committee = context.committee(len(u0))
        in_order = _random_order(u0, round_hash, Usage.COMMITTEE)
        members = in_order[: committee.size] if context.degree else u0
        u4 = still_there(u3, Stage.CONFIRM, "confirm", 0)
        signed = {
            u: signers[u].sign(Usage.CONFIRM, round_hash, _bitmap(u3, context.size)) for u in u4
        }
        count = sum(u in members for u in signed)
        if count < committee.quorum:
            raise TooFewSurvivorsError("confirm", count, committee.quorum)

    # Round 4. For every client that shared, exactly one of its two secrets is given up: the seed
    # if its input is in the sum, the masking key if it is not.
    u5 = still_there(u4, Stage.UNMASK, "unmask", t)
    released: dict[tuple[int, int], bytes] = {}
    for u in u5:
        for v in u2:
            if u in holders[v]:
                released[u, v] = _share(held[u, v], _SEED if v in u3 else _KEY)

    def rebuild(v: int, shares: Mapping[tuple[int, int], bytes]) -> bytes:
        chosen = [u for u in holders[v] if (u, v) in shares][:t]
        if len(chosen) < t:
            raise TooFewSurvivorsError("unmask", len(chosen), t)
        points = shamir([u + 1 for u in chosen])
        value = 0
        for j in range(_LIMBS):
            values = [int.from_bytes(shares[u, v][4 * j : 4 * j + 4], "little") for u in chosen]
            limb = int(galois.lagrange_poly(points, shamir(values))(0))
            value += limb << (_LIMB_BITS * j)
        return value.to_bytes(32, "little")

    # Round 5. How many clients were lost fixes which removable seeds survivors give up. Those of
    # survivors that went away are rebuilt from their holders' shares.
    surplus = context.removed_seeds(len(u3))
    given = {u: tuple(removable[u][i] for i in surplus) for u in u5 if surplus}
    missing = [v for v in u3 if v not in u5] if surplus else []
    if missing:
        u6 = [u for u in u5 if u not in drops or drops[u] > Stage.RECOVER]
        for v in missing:
            blocks = {
                i: {(u, v): _share(held[u, v], 2 + i) for u in u6 if u in holders[v]}
                for i in surplus
            }
            given[v] = tuple(rebuild(v, blocks[i]) for i in surplus)

    # The server rebuilds the secrets of the masks and takes the masks off.
    total = gf.Zeros(context.length)
    for u in u3:
        total += gf(masked[u])
    for v in u2:
        secret = rebuild(v, released)
        if v in u3:
            total -= gf(_self_mask(context, round_hash, v, secret))
            continue
        for u in u3:
            if u not in peers[v]:
                continue
            public = masking[u].public
            mask = gf(_pair_mask(context, round_hash, u, v, AgreementKey(secret), public))
            total = total - mask if u < v else total + mask

    return ReferenceRound(
        masked=masked,
        unmask_shares={u: b"".join(released[u, v] for v in u2 if (u, v) in released) for u in u5},
        survivors=tuple(u3),
        total=tuple(int(element) for element in total),
        seeds=given,
    )


def _tree_root(entries: Sequence[bytes]) -> bytes:
    """RFC 6962, section 2.1, word for word: split at the largest power of two below n."""
    if len(entries) == 1:
        return digest(Usage.TREE_LEAF, entries[0])
    half = 1 << (len(entries) - 1).bit_length() - 1
    return digest(Usage.TREE_NODE, _tree_root(entries[:half]), _tree_root(entries[half:]))


def _graph(
    context: SessionContext, members: Sequence[int], round_hash: bytes
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Neighbours and share holders of every member."""
    k = context.degree
    others = {u: [v for v in members if v != u] for u in members}
    if k == 0:
        return others, {u: list(members) for u in members}
    if len(members) <= k + 1:
        return others, others
    ring = _random_order(members, round_hash, Usage.GRAPH)
    neighbours = {}
    for place, u in enumerate(ring):
        near = [ring[(place + step) % len(ring)] for step in range(-k // 2, k // 2 + 1) if step]
        neighbours[u] = sorted(near)
    return neighbours, neighbours


def _share(block: bytes, which: int) -> bytes:
    """One secret's limbs out of a holder's share of all of them."""
    return block[4 * _LIMBS * which : 4 * _LIMBS * (which + 1)]


def expand(field: PrimeField, key: bytes, length: int, start: int = 0) -> list[int]:
    """Elements start .. start + length of a mask, one at a time; see `prg` for the definition."""
    return [expand_element(field, key, i)[0] for i in range(start, start + length)]


def expand_element(field: PrimeField, key: bytes, i: int) -> tuple[int, int]:
    """Element i of a mask, and the number of streams whose word was refused before."""
    word_bytes = 2 if field.bits <= 16 else 4 if field.bits <= 32 else 8
    block, offset = divmod(i * word_bytes, 16)
    for stream in count():
        counter = stream.to_bytes(4, "big") + block.to_bytes(12, "big")
        keystream = Cipher(AES(key), CTR(counter)).encryptor().update(bytes(16))
        word = int.from_bytes(keystream[offset : offset + word_bytes], "little")
        if (element := word % 2**field.bits) < field.modulus:
            return element, stream
    raise AssertionError("unreachable")


def _self_mask(context: SessionContext, round_hash: bytes, u: int, seed: bytes) -> list[int]:
    key = derive(seed, Usage.SELF_MASK, 16, round_hash, encode_index(u))
    return expand(context.field, key, context.length)


def _pair_mask(
    context: SessionContext, round_hash: bytes, u: int, v: int, own: AgreementKey, peer: bytes
) -> list[int]:
    low, high = encode_index(min(u, v)), encode_index(max(u, v))
    key = derive(own.agree(peer), Usage.PAIR_MASK, 16, round_hash, low, high)
    return expand(context.field, key, context.length)


def _limbs(secret: bytes) -> list[int]:
    value = int.from_bytes(secret, "little")
    return [value >> (_LIMB_BITS * j) & (2**_LIMB_BITS - 1) for j in range(_LIMBS)]


def _shamir_coefficients(wanted: int, rand: Rand) -> list[int]:
    """Uniform elements: 31 bits of each word; refused words are drawn again, all at a time."""
    elements: list[Any] = [None] * wanted
    while missing := [i for i, element in enumerate(elements) if element is None]:
        raw = rand(4 * len(missing))
        for k, i in enumerate(missing):
            word = int.from_bytes(raw[4 * k : 4 * k + 4], "little") % 2**31
            elements[i] = None if word == SHAMIR_PRIME else word
    return elements


def _words(values: Sequence[int]) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def _bitmap(members: Sequence[int], size: int) -> bytes:
    return sum(1 << u for u in members).to_bytes((size + 7) // 8, "little")


def _random_order(members: Sequence[int], round_hash: bytes, usage: Usage) -> list[int]:
    """By the first words of a keystream, ties by index."""
    key = derive(round_hash, usage, 32)

    def rank(u: int) -> tuple[int, int]:
        block = Cipher(AES(key), CTR(u.to_bytes(16, "big"))).encryptor().update(bytes(16))
        return int.from_bytes(block[:8], "little"), u

    return sorted(members, key=rank)
