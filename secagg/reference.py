"""The whole protocol in one function: slow, plain, and the oracle of the tests.

Read `run_secagg` from top to bottom to learn the protocol. It plays all parties at once over galois
field arrays, one element and one secret at a time, and shares no code with the state machines, the
mask generator, the secret sharing or the compiled kernels: it only agrees with them on keys,
sealing and the encodings that are hashed or signed. With the same randomness it gives the same
masked vectors, the same unmask shares and the same sum, bit for bit.

Not for use: it checks nothing, keeps every party's secrets in one place and takes milliseconds for
each vector element.

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

from secagg.context import Mode, SessionContext
from secagg.errors import TooFewSurvivorsError
from secagg.field import PrimeField
from secagg.keys import AgreementKey, Identity
from secagg.sealing import seal, unseal
from secagg.tags import Usage, derive, digest, encode_index

SHAMIR_PRIME = 2**31 - 1
_LIMBS, _LIMB_BITS = 9, 30
_SEED, _KEY = 0, 1
"""Order of a client's two shared secrets: self-mask seed, masking private key."""


Rand = Callable[[int], bytes]
"""A source of random bytes: rand(count) -> bytes."""


class Stage(enum.IntEnum):
    """The five rounds, named after what clients send in them."""

    ADVERTISE = 0
    SHARE = 1
    MASK = 2
    CONFIRM = 3
    UNMASK = 4


@dataclass(frozen=True, slots=True)
class ReferenceRound:
    """What a round showed to the server, and what came out of it.

    Args:
        masked: masked vector of every client in U3, elements below p.
        unmask_shares: bytes of every client's unmask shares.
        survivors: U3, ascending.
        total: the sum over U3, elements below p.
    """

    masked: dict[int, tuple[int, ...]]
    unmask_shares: dict[int, bytes]
    survivors: tuple[int, ...]
    total: tuple[int, ...]


def run_secagg(
    context: SessionContext,
    identities: Sequence[bytes],
    inputs: Sequence[Sequence[int]],
    drops: Mapping[int, Stage],
    rand: Sequence[Rand],
) -> ReferenceRound:
    """Run one round of secure aggregation.

    Args:
        context: the public parameters.
        identities: 32 private bytes of each client's Ed25519 key.
        inputs: each client's vector, `context.length` integers; taken modulo p.
        drops: the first stage in which a client sends nothing any more; no entry: never.
        rand: each client's source of randomness.

    Raises:
        TooFewSurvivorsError: too few clients are left after some stage.
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
    # All clients see the same roster; its hash goes into everything that follows.
    roster = b"".join(entries[u] for u in u0)
    round_hash = digest(Usage.ROSTER, context.hash, _bitmap(u0, context.size), roster)

    # Round 1. Every client shares its self-mask seed and its masking key among all of the roster,
    # limb by limb: the limb is a polynomial's value at 0, holder v gets the value at v + 1.
    u1 = still_there(u0, Stage.SHARE, "share", context.minimum_survivors)
    seeds: dict[int, bytes] = {}
    sealed: dict[tuple[int, int], bytes] = {}
    for u in u1:
        seeds[u] = rand[u](32)
        constants = _limbs(seeds[u]) + _limbs(masking[u].expose())
        higher = _shamir_coefficients((t - 1) * len(constants), rand[u])
        plain: dict[int, list[int]] = {v: [] for v in u0}
        for j, constant in enumerate(constants):
            ascending = [constant, *higher[j :: len(constants)]]
            polynomial = galois.Poly(shamir(ascending[::-1]))
            for v in u0:
                plain[v].append(int(polynomial(v + 1)))
        for v in u0:
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
            shared = sealing[u].agree(sealing[v].public) if v != u else b""
            held[u, v] = unseal(shared, round_hash, v, u, sealed[v, u])
        y = gf([x % context.field.modulus for x in inputs[u]])
        y += gf(_self_mask(context, round_hash, u, seeds[u]))
        for v in u2:
            if v != u:
                mask = gf(_pair_mask(context, round_hash, u, v, masking[u], masking[v].public))
                y = y + mask if u < v else y - mask
        masked[u] = tuple(int(element) for element in y)

    # Round 3. With an active server: t survivors sign that they were all told the same U3.
    u4 = u3
    if context.mode is Mode.ACTIVE:
        u4 = still_there(u3, Stage.CONFIRM, "confirm", t)
        for u in u4:
            signers[u].sign(Usage.CONFIRM, round_hash, _bitmap(u3, context.size))

    # Round 4. For every client that shared, exactly one of its two secrets is given up: the seed
    # if its input is in the sum, the masking key if it is not.
    u5 = still_there(u4, Stage.UNMASK, "unmask", t)
    released: dict[tuple[int, int], bytes] = {}
    for u in u5:
        for v in u2:
            which = _SEED if v in u3 else _KEY
            released[u, v] = held[u, v][4 * _LIMBS * which : 4 * _LIMBS * (which + 1)]

    # The server rebuilds each of those secrets from t shares and takes the masks off.
    holders = u5[:t]
    points = shamir([v + 1 for v in holders])
    total = gf.Zeros(context.length)
    for u in u3:
        total += gf(masked[u])
    for v in u2:
        value = 0
        for j in range(_LIMBS):
            values = [int.from_bytes(released[u, v][4 * j : 4 * j + 4], "little") for u in holders]
            limb = int(galois.lagrange_poly(points, shamir(values))(0))
            value += limb << (_LIMB_BITS * j)
        secret = value.to_bytes(32, "little")
        if v in u3:
            total -= gf(_self_mask(context, round_hash, v, secret))
            continue
        for u in u3:
            public = masking[u].public
            mask = gf(_pair_mask(context, round_hash, u, v, AgreementKey(secret), public))
            total = total - mask if u < v else total + mask

    return ReferenceRound(
        masked=masked,
        unmask_shares={u: b"".join(released[u, v] for v in u2) for u in u5},
        survivors=tuple(u3),
        total=tuple(int(element) for element in total),
    )


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
