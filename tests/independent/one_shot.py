"""A client of the one-shot protocol, made from docs/wire.md and the pages of the protocol alone.

Like the pairwise client it is given integers modulo p. It uploads in rounds with everybody on the
committee, whose members add no noise.
"""

from __future__ import annotations

import secrets
import time
from bisect import bisect
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache
from hashlib import sha256
from itertools import accumulate, islice
from math import isqrt, prod

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.independent import wire
from tests.independent.context import OneShotContext
from tests.independent.wire import require

FEWEST = 64  # coefficients; a shorter vector is padded


def ceil_root(numerator: int, denominator: int) -> int:
    """The square root of a positive fraction, rounded up."""
    return isqrt(-(-numerator // denominator) - 1) + 1


def number_of(digits: list[int], base: int) -> int:
    """The number with these digits, of which the first is the lowest."""
    return sum(digit * base**place for place, digit in enumerate(digits))


@cache
def ring_primes(degree: int, count: int) -> list[int]:
    """The largest primes below 2^27 that are 1 modulo 2N."""
    numbers = range(2**27 - 2 * degree + 1, 1, -2 * degree)
    return list(islice(filter(wire.is_prime, numbers), count))


@cache
def root_powers(degree: int, prime: int) -> list[int]:
    """Powers 0, 1, ... of the 2N-th root of unity that the smallest primitive root gives."""
    factors = [f for f in range(2, isqrt(prime) + 1) if (prime - 1) % f == 0]
    orders = {(prime - 1) // f for f in factors} | set(factors)
    root = next(g for g in range(2, prime) if all(pow(g, o, prime) != 1 for o in orders))
    psi = pow(root, (prime - 1) // (2 * degree), prime)
    return [pow(psi, exponent, prime) for exponent in range(2 * degree)]


def transform(values: list[int], powers: list[int], prime: int) -> list[int]:
    """A polynomial's values at the powers of a root of unity, in their order."""
    if len(values) == 1:
        return values
    even, odd = (transform(values[side::2], powers[::2], prime) for side in (0, 1))
    turned = [value * power % prime for value, power in zip(odd, powers, strict=False)]
    pairs = list(zip(even, turned, strict=True))
    return [(a + b) % prime for a, b in pairs] + [(a - b) % prime for a, b in pairs]


@cache
def gaussian_table() -> list[int]:
    """Cumulative weights e^(-k^2 / 2 sigma^2) of -84 ... 84, sigma = 6.4, times 2^192."""
    with localcontext(prec=80):
        weights = [(Decimal(-k * k) / Decimal("81.92")).exp() for k in range(-84, 85)]
        return list(accumulate(int(weight * 2**192) for weight in weights))


def gaussian(count: int) -> list[int]:
    """Samples of the discrete Gaussian."""
    table = gaussian_table()
    return [bisect(table, secrets.randbelow(table[-1])) - 84 for _ in range(count)]


def lagrange(x: int, points: list[int]) -> list[int]:
    """By what values at the points are multiplied in the value at x."""
    weights = []
    for point in points:
        others = [other for other in points if other != point]
        below = prod(point - other for other in others)
        weights.append(prod(x - other for other in others) * pow(below, -1, wire.M31) % wire.M31)
    return weights


@dataclass
class OneShotClient:
    """One client in one round. It uploads once."""

    context: OneShotContext
    identity: Ed25519PrivateKey
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        context, key = self.context, self.identity.public_key().public_bytes_raw()
        context.check(self.clock())
        root = wire.root_above(key, context.index, context.size, context.path)
        require(root == context.cohort_root, "we are not invited")
        seeds = max(context.removal, default=0).bit_length()
        self.seeds, self.done = [secrets.token_bytes(32) for _ in range(seeds)], False

    def upload(self, vector: list[int]) -> bytes:
        """The one message: integers below p, to which noise from `seeds` was added."""
        context, done, self.done = self.context, self.done, True
        require(len(vector) == context.length and not done, "a second vector, or a wrong one")
        key, parts = gaussian(context.degree), (context.hash, context.index)
        ciphertext = self.encrypt(vector, key)
        ephemeral, sealed = X25519PrivateKey.generate(), b""
        for place, shares in enumerate(self.deal(key)):
            secret = wire.agree(ephemeral, context.members[place][32:64])
            sealed += wire.seal(secret, shares, *parts, place)
        commitments = wire.commit(self.seeds, *parts)
        hashed = wire.digest("hash ciphertext", ciphertext)
        rest_hashed = wire.digest("hash seals", commitments, sealed)
        opened = ephemeral.public_key().public_bytes_raw()
        signed = wire.tagged("sign upload", *parts, opened, hashed, rest_hashed, b"\0")
        self.name = sha256(signed).digest()  # for a member, who looks for its own upload
        fields = [opened, ciphertext, commitments, sealed, False, self.identity.sign(signed)]
        return b"\x02" + wire.pack([32, context.hash[:8], context.index, *fields])

    def encrypt(self, vector: list[int], key: list[int]) -> bytes:
        """The vector, packed and masked with the key: a k + e + Delta m without its low bits."""
        context, base = self.context, wire.field_prime(self.context.bits)
        primes, shift = ring_primes(context.degree, context.limbs), context.rounding_bits
        q = prod(primes)
        # 6.4^2 + 4^r / 12 and 9^2, as a fraction of 300
        delta = 2 * ceil_root(81 * context.size * (12288 + 25 * 4**shift), 300) + 1
        digits = max(k for k in range(1, q.bit_length()) if base**k * delta <= q)
        centred = [x - base if 2 * x > base else x for x in vector]
        starts = range(0, len(centred), digits)
        packed = [number_of(centred[at : at + digits], base) for at in starts]
        packed += [0] * (FEWEST - len(packed))
        errors = gaussian(len(packed))
        masked = [delta * m + e for m, e in zip(packed, errors, strict=True)]
        for number, prime in enumerate(primes):
            unit = q // prime * pow(q // prime, -1, prime)
            for place, value in enumerate(self.products(key, number, prime, len(masked))):
                masked[place] += unit * value
        return wire.pack_bits([(x % q) >> shift for x in masked], ((q - 1) >> shift).bit_length())

    def products(self, key: list[int], number: int, prime: int, count: int) -> list[int]:
        """So many coefficients of the key times the public elements, modulo one of the primes."""
        degree, primes = self.context.degree, self.context.limbs
        public = wire.derive(self.context.hash, 16, "public ring element")
        powers, bits = root_powers(degree, prime), degree.bit_length() - 1
        backwards, scale = [powers[0], *powers[:0:-1]], pow(degree, -1, prime)
        reversed_bits = [int(format(j, f"0{bits}b")[::-1], 2) for j in range(degree)]
        turned = [k * power for k, power in zip(key, powers, strict=False)]
        values, products = transform(turned, powers[::2], prime), []
        for block in range(-(-count // degree)):
            first = (block * primes + number) * degree
            element = wire.uniform(public, 27, prime, range(first, first + degree))
            both = [element[reversed_bits[j]] * value % prime for j, value in enumerate(values)]
            found = transform(both, backwards[::2], prime)
            products += [x * y * scale % prime for x, y in zip(found, backwards, strict=False)]
        return products[:count]

    def deal(self, key: list[int]) -> list[bytes]:
        """Each member's shares of the key, of the seeds, and of randomness alone."""
        context, packed = self.context, self.context.per_polynomial
        stride = -(-context.degree // context.entries)
        base = 2 * ceil_root(331776 * context.size, 100) + 1
        secret = [number_of(key[j::stride], base) % wire.M31 for j in range(stride)]
        random = [wire.draw(packed, secrets.token_bytes) for _ in range(4)]
        polynomials = []  # as values at -1, -2, ..., and random ones at 1, 2, ...
        for group in (secret, *map(wire.limbs, self.seeds), *random):
            for at in range(0, len(group), packed):
                values = group[at : at + packed]
                values += [0] * (packed - len(values))
                polynomials.append(values + wire.draw(context.randomness, secrets.token_bytes))
        points = [*range(-1, -packed - 1, -1), *range(1, context.randomness + 1)]
        members = range(1, len(context.members) + 1)
        return wire.combine(polynomials, [lagrange(x, points) for x in members])
