"""A client of the one-shot protocol, made from docs/wire.md and the pages of the protocol alone.

Like the pairwise client it is given integers modulo p. It uploads in rounds whose members add no
noise.
"""

from __future__ import annotations

import secrets
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache
from itertools import accumulate
from math import isqrt, prod

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from tests.independent.blocks import (
    M31,
    agree,
    derive,
    digest,
    draw,
    field_prime,
    limbs,
    pack,
    pack_bits,
    require,
    root_above,
    tagged,
    u32,
    uniform,
)
from tests.independent.context import OneShotContext

SLACK = 64  # a shorter vector is padded to so many coefficients


def ceil_root(numerator: int, denominator: int) -> int:
    """The square root of a positive fraction, rounded up."""
    return isqrt(-(-numerator // denominator) - 1) + 1


@cache
def ring_primes(degree: int, count: int) -> list[int]:
    """The largest primes below 2^27 that are 1 modulo 2N."""
    numbers = range((2**27 - 1) // (2 * degree) * 2 * degree + 1, 1, -2 * degree)
    primes = (p for p in numbers if p < 2**27 and all(p % d for d in range(3, isqrt(p) + 1, 2)))
    return [next(primes) for _ in range(count)]


@cache
def roots(degree: int, prime: int) -> list[int]:
    """Powers of the 2N-th root of unity in bit-reversed order."""
    factors = [f for f in range(2, isqrt(prime) + 1) if (prime - 1) % f == 0]
    orders = {(prime - 1) // f for f in factors} | set(factors)
    root = next(g for g in range(2, prime) if all(pow(g, o, prime) != 1 for o in orders))
    psi, bits = pow(root, (prime - 1) // (2 * degree), prime), degree.bit_length() - 1
    return [pow(psi, int(format(j, f"0{bits}b")[::-1], 2), prime) for j in range(degree)]


def transform(values: Sequence[int], prime: int) -> list[int]:
    """Values of a polynomial modulo x^N + 1 at the odd powers, in bit-reversed order."""
    out, half, powers = list(values), len(values) // 2, roots(len(values), prime)
    while half:
        for block in range(len(out) // (2 * half)):
            root = powers[len(out) // (2 * half) + block]
            for at in range(2 * half * block, 2 * half * block + half):
                low, high = out[at], out[at + half] * root
                out[at], out[at + half] = (low + high) % prime, (low - high) % prime
        half //= 2
    return out


def inverse(values: Sequence[int], prime: int) -> list[int]:
    """The polynomial with these values."""
    out, half, powers = list(values), 1, roots(len(values), prime)
    while half < len(out):
        for block in range(len(out) // (2 * half)):
            root = pow(powers[len(out) // (2 * half) + block], -1, prime)
            for at in range(2 * half * block, 2 * half * block + half):
                low, high = out[at], out[at + half]
                out[at], out[at + half] = (low + high) % prime, (low - high) * root % prime
        half *= 2
    scale = pow(len(out), -1, prime)
    return [value * scale % prime for value in out]


@cache
def gaussian_table() -> list[int]:
    """Cumulative weights e^(-k^2 / 2 sigma^2) of -84 ... 84, sigma = 6.4, out of 2^192."""
    with localcontext(prec=80):
        weights = [(Decimal(-k * k) / Decimal("81.92")).exp() for k in range(-84, 85)]
        total = sum(weights)
        return [int(weight * 2**192 / total) for weight in accumulate(weights)]


def gaussian(count: int) -> list[int]:
    """Samples of the discrete Gaussian."""
    table = gaussian_table()
    return [min(bisect(table, secrets.randbits(192)), 168) - 84 for _ in range(count)]


def deal_packed(groups: list[list[int]], packed: int, threshold: int, members: int) -> list[bytes]:
    """A share for each member: polynomials with secrets at -1, -2, ..., and random at 1, 2, ..."""
    points = [*range(-1, -packed - 1, -1), *range(1, threshold + 1)]
    rows = [group[at : at + packed] for group in groups for at in range(0, len(group), packed)]
    drawn = draw(len(rows) * threshold, secrets.token_bytes)
    for number, row in enumerate(rows):
        row += [0] * (packed - len(row)) + drawn[number :: len(rows)]
    shares = []
    for x in range(1, members + 1):
        weights = []
        for point in points:
            others = [other for other in points if other != point]
            above, below = 1, 1
            for other in others:
                above, below = above * (x - other) % M31, below * (point - other) % M31
            weights.append(above * pow(below, -1, M31) % M31)
        dots = (sum(w * v for w, v in zip(weights, row, strict=True)) % M31 for row in rows)
        shares.append(u32(*dots))
    return shares


@dataclass(frozen=True)
class Ring:
    """The ring of a round, and how vectors are packed into it."""

    degree: int
    primes: list[int]
    delta: int  # by what a message is multiplied, to stand above all errors
    base: int  # p, the field's prime
    per: int  # elements in one coefficient

    @classmethod
    def of(cls, degree: int, count: int, cut_bits: int, uploads: int, base: int) -> Ring:
        """The ring for the sum of so many uploads."""
        primes = ring_primes(degree, count)
        rounding = 25 * 4**cut_bits if cut_bits else 0  # 4^r / 12, as 6.4^2 times 300 in all
        delta = 2 * ceil_root(81 * uploads * (12288 + rounding), 300) + 1
        room = prod(primes) // delta
        per = next(per for per in range(room.bit_length(), 0, -1) if base**per <= room)
        return cls(degree, primes, delta, base, per)

    def pack(self, vector: list[int]) -> list[int]:
        """Coefficients with elements as digits, the first the lowest, between -p/2 and p/2."""
        centred = [x - self.base if 2 * x > self.base else x for x in vector]
        packed = [
            sum(digit * self.base**place for place, digit in enumerate(centred[at : at + self.per]))
            for at in range(0, len(centred), self.per)
        ]
        return packed + [0] * (SLACK - len(packed))

    def mask(self, packed: list[int], key: list[int], public: bytes) -> list[list[int]]:
        """For each coefficient of a k + e + Delta m its residues."""
        key_values = [transform([k % p for k in key], p) for p in self.primes]
        count, degree = len(self.primes), self.degree
        masked: list[list[int]] = []
        for block, at in enumerate(range(0, len(packed), degree)):
            part, errors, residues = packed[at : at + degree], gaussian(degree), []
            for i, p in enumerate(self.primes):
                first = (block * count + i) * degree
                element = uniform(public, 27, p, range(first, first + degree))
                product = [a * k % p for a, k in zip(element, key_values[i], strict=True)]
                summands = zip(inverse(product, p), errors, part, strict=False)
                residues.append([(x + e + self.delta * m) % p for x, e, m in summands])
            masked.extend(map(list, zip(*residues, strict=True)))
        return masked

    def encode(self, residues: list[list[int]], cut_bits: int) -> bytes:
        """A ciphertext: the residues, or integers without their low bits."""
        if not cut_bits:
            return pack_bits([r for each in residues for r in each], 27)
        q = prod(self.primes)
        units = [q // p * pow(q // p, -1, p) for p in self.primes]
        wholes = (sum(r * u for r, u in zip(each, units, strict=True)) % q for each in residues)
        return pack_bits([x >> cut_bits for x in wholes], ((q - 1) >> cut_bits).bit_length())


class OneShotClient:
    """One client in one round. It uploads once."""

    def __init__(
        self,
        context: OneShotContext,
        index: int,
        path: bytes,
        identity: Ed25519PrivateKey,
        clock: Callable[[], float] | None = None,
    ) -> None:
        context.check(clock and clock())
        key = identity.public_key().public_bytes_raw()
        root = root_above(key, index, context.size, path)
        require(root == context.cohort_root, "we are not invited")
        self.context, self.index, self.identity, self.done = context, index, identity, False
        seeds = max(context.removal, default=0).bit_length()
        self.seeds = [secrets.token_bytes(32) for _ in range(seeds)]

    def upload(self, vector: list[int]) -> bytes:
        """The one message: integers below p, to which noise from `seeds` was added."""
        context, done, self.done = self.context, self.done, True
        require(len(vector) == context.length and not done, "a second vector, or a wrong one")
        terms = (context.degree, context.limbs, context.rounding_bits, context.size)
        ring = Ring.of(*terms, field_prime(context.bits))
        key, me = gaussian(context.degree), u32(self.index)
        public = derive(context.hash, 16, "public ring element")
        residues = ring.mask(ring.pack(vector), key, public)
        ciphertext = ring.encode(residues, context.rounding_bits)
        ephemeral = X25519PrivateKey.generate()
        sealed = self.seal(self.deal(key), ephemeral)
        numbered = enumerate(self.seeds)
        commitments = b"".join(
            digest("commit seed", self.context.hash, me, u32(i), s) for i, s in numbered
        )
        hashes = digest("hash ciphertext", ciphertext), digest("hash seals", commitments, sealed)
        opened = ephemeral.public_key().public_bytes_raw()
        header = (self.context.hash, me, opened, *hashes, b"\0")
        self.name = digest("sign upload", *header)  # for a member, who looks for its own upload
        signature = self.identity.sign(tagged("sign upload", *header))
        body = [opened, ciphertext, commitments, sealed, False, signature]
        return b"\x02" + pack([32, self.context.hash[:8], self.index, *body])

    def deal(self, key: list[int]) -> list[bytes]:
        """Each member's shares of the key, of the seeds, and of randomness alone."""
        context, packed = self.context, self.context.per_polynomial
        stride = -(-context.degree // context.entries)
        base = 2 * ceil_root(331776 * context.size, 100) + 1
        secret = [
            sum(k * base**place for place, k in enumerate(key[j::stride])) % M31
            for j in range(stride)
        ]
        random = [draw(packed, secrets.token_bytes) for _ in range(4)]
        groups = [secret, *map(limbs, self.seeds), *random]
        return deal_packed(groups, packed, context.randomness, len(context.members))

    def seal(self, shares: list[bytes], ephemeral: X25519PrivateKey) -> bytes:
        """The shares, each for its member alone."""
        sealed = b""
        for member, share in enumerate(shares):
            parts = (self.context.hash, u32(self.index), u32(member))
            secret = agree(ephemeral, self.context.members[member][32:64])
            cipher = AESSIV(derive(secret, 64, "seal shares", *parts))
            sealed += cipher.encrypt(share, [tagged("seal shares", *parts)])
        return sealed
