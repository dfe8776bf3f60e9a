"""The whole one-shot protocol in one function: slow, plain, and the oracle of the tests.

Read `run_one_shot` from top to bottom to learn the protocol. It plays all parties at once with
Python's integers, multiplies polynomials as one does on paper, and shares no code with the state
machines and compiled kernels: it only agrees with them on keys, sealing and the encodings that are
hashed or signed. With the same randomness it gives the same ciphertexts, shares, answers and sum,
bit for bit.

Not for use: it checks nothing, and keeps every party's secrets in one place.

Source: docs/one-shot.md and docs/one-shot-security.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from itertools import accumulate, count, islice
from math import isqrt, prod

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from secagg.errors import TooFewSurvivorsError
from secagg.keys import AgreementKey
from secagg.oneshot.context import OneShotContext
from secagg.sealing import seal
from secagg.tags import Usage, derive, digest, encode_index

P = 2**31 - 1
"""The field of the shares."""
SIGMA, CUT = Decimal("6.4"), 84
LIMBS, LIMB_BITS, CHALLENGES = 9, 30, 4
FEWEST_COEFFICIENTS = 64

Rand = Callable[[int], bytes]
"""A source of random bytes: rand(count) -> bytes."""


@dataclass(frozen=True, slots=True)
class ReferenceRound:
    """What a round showed to the server, and what came out of it."""

    ciphertexts: dict[int, list[int]]
    seals: dict[int, bytes]
    answers: dict[int, tuple[list[int], list[int], list[int]]]
    survivors: tuple[int, ...]
    total: tuple[int, ...]
    seeds: dict[int, tuple[bytes, ...]]


def run_one_shot(
    context: OneShotContext,
    rounded: Sequence[bytes],
    inputs: Sequence[Sequence[int]],
    lost: Collection[int],
    away: Collection[int],
    rand: Sequence[Rand],
    returning: Collection[int] = (),
) -> ReferenceRound:
    """Run one round of one-shot secure aggregation."""
    committee, n_ring = context.committee, context.degree
    primes = _primes(n_ring, context.limbs)
    q, t, width = prod(primes), committee.randomness, committee.per_polynomial
    # Digits in base B, errors below Delta / 2: as many digits as fit below q.
    base, delta = context.field.modulus, _delta(context.size, context.rounding_bits)
    per = max(e for e in range(1, 200) if delta * base**e < q)
    # Zeros follow a short vector: their errors show a wrong key.
    coefficients = max(-(-context.length // per), FEWEST_COEFFICIENTS)
    a = [_public_element(context, primes, b) for b in range(-(-coefficients // n_ring))]
    entry_base = 2 * _ceil_sqrt(82944 * context.size, 25) + 1
    secrets_of_key = -(-n_ring // context.entries)
    key_rows, seed_rows = -(-secrets_of_key // width), -(-LIMBS // width)

    # Upload. Every client draws 32 bytes; all else follows from them and from what is uploaded.
    survivors = tuple(i for i in range(context.size) if i not in lost)
    ciphertexts: dict[int, list[int]] = {}
    seals: dict[int, bytes] = {}
    held: dict[int, list[list[int]]] = {}
    removable: dict[int, list[bytes]] = {}
    names = []
    for i in survivors:
        root = rand[i](32)
        secrets = _derived(context, i, root, rounded[i], inputs[i])
        removable[i] = secrets.seeds
        key = _gaussian(secrets.key, n_ring)
        errors = _gaussian(secrets.errors, len(a) * n_ring)
        products = [value for element in a for value in _negacyclic(element, key, q)]
        messages = [
            sum(x * base**j for j, x in enumerate(inputs[i][at * per : (at + 1) * per]))
            for at in range(coefficients)
        ]
        # c = a k + e + Delta m
        ciphertexts[i] = [
            (products[at] + errors[at] + delta * messages[at]) % q >> context.rounding_bits
            for at in range(coefficients)
        ]

        # Shares of the key, of every seed, and of four polynomials of randomness alone.
        padded = [*key, *[0] * (secrets_of_key * context.entries - n_ring)]
        packed = [
            sum(padded[e * secrets_of_key + j] * entry_base**e for e in range(context.entries))
            for j in range(secrets_of_key)
        ]
        rows = _cut(packed, width, key_rows)
        for seed in removable[i]:
            rows += _cut(_limbs(seed), width, seed_rows)
        reader = _Reader(secrets.polynomials)
        rows += _cut(reader.elements(CHALLENGES * width), width, CHALLENGES)
        drawn = reader.elements(t * len(rows))
        held[i] = [[] for _ in committee.members]
        for number, row in enumerate(rows):
            # The polynomial through the secrets at -1, -2, ... and random values at 1 .. T.
            known = {P - 1 - place: value % P for place, value in enumerate(row)}
            known |= {h + 1: drawn[h * len(rows) + number] for h in range(t)}
            for h in range(committee.size):
                held[i][h].append(_value_at(known, h + 1))
        ephemeral = AgreementKey(secrets.ephemeral)
        sealed = [
            seal(
                ephemeral.agree(member.sealing_key),
                context.hash,
                i,
                h,
                b"".join(value.to_bytes(4, "little") for value in held[i][h]),
            )
            for h, member in enumerate(committee.members)
        ]
        seals[i] = b"".join(sealed)
        commitments = [
            digest(Usage.COMMIT, context.hash, encode_index(i), encode_index(which), seed)
            for which, seed in enumerate(removable[i])
        ]
        names.append(
            encode_index(i)
            + digest(
                Usage.UPLOAD,
                context.hash,
                encode_index(i),
                ephemeral.public,
                digest(Usage.CIPHERTEXT, _packed(ciphertexts[i], primes, context.rounding_bits)),
                digest(Usage.SEALS, b"".join(commitments), seals[i]),
                bytes([i in returning]),
            )
        )

    # Confirm. Members sign the uploads that are opened, and how many are there and are lost.
    counts = [len(survivors), context.size - len(survivors)]
    signed = digest(
        Usage.SURVIVORS,
        context.hash,
        *(number.to_bytes(4, "little") for number in counts),
        b"".join(names),
    )

    # Open. Each member gives the sum of its shares of keys, its shares of surplus seeds, and four
    # combinations of its shares of each upload, challenged by what was signed.
    surplus = context.removed_seeds(len(survivors))
    coins = _Reader(derive(signed, Usage.CHALLENGE, 16)).elements(CHALLENGES * key_rows)
    answers = {}
    for h in range(committee.size):
        if h in away:
            continue
        sums = [sum(held[i][h][row] for i in survivors) % P for row in range(key_rows)]
        seeds = [
            held[i][h][key_rows + which * seed_rows + row]
            for i in survivors
            for which in surplus
            for row in range(seed_rows)
        ]
        checks = [
            (sum(coins[r * key_rows + p] * held[i][h][p] for p in range(key_rows)) + mask) % P
            for i in survivors
            for r, mask in enumerate(held[i][h][-CHALLENGES:])
        ]
        answers[h] = (sums, seeds, checks)
    if len(answers) < t + width:
        raise TooFewSurvivorsError("open", len(answers), t + width)

    # The server interpolates the sum of the keys at -1, -2, ..., and takes its mask off the sum.
    chosen = sorted(answers)[: t + width]

    def opened(values: Sequence[int]) -> list[int]:
        known = {h + 1: value for h, value in zip(chosen, values, strict=True)}
        return [_value_at(known, P - 1 - place) for place in range(width)]

    flat = [x for row in range(key_rows) for x in opened([answers[h][0][row] for h in chosen])]
    key_sum = [0] * (secrets_of_key * context.entries)
    for j, value in enumerate(flat[:secrets_of_key]):
        left = _centred(value, P)
        for e in range(context.entries):
            last = e == context.entries - 1
            digit = left if last else _centred(left, entry_base)
            key_sum[e * secrets_of_key + j], left = digit, (left - digit) // entry_base
    masks = [value for element in a for value in _negacyclic(element, key_sum[:n_ring], q)]
    # What rounding cut off has a mean of (2^r - 1) / 2 for each upload.
    missing = len(survivors) * (2**context.rounding_bits - 1) // 2
    total: list[int] = []
    for at in range(coefficients):
        summed = sum(ciphertexts[i][at] for i in survivors) << context.rounding_bits
        noisy = _centred(summed + missing - masks[at], q)
        digits = (noisy - _centred(noisy, delta)) // delta
        for _ in range(per):
            total.append(_centred(digits, base))
            digits = (digits - total[-1]) // base
    given = {i: tuple(removable[i][which] for which in surplus) for i in survivors if surplus}
    return ReferenceRound(
        ciphertexts, seals, answers, survivors, tuple(total[: context.length]), given
    )


@dataclass(frozen=True, slots=True)
class _Derived:
    """Everything secret about one upload."""

    seeds: list[bytes]
    key: bytes
    errors: bytes
    polynomials: bytes
    ephemeral: bytes


def _derived(
    context: OneShotContext, i: int, root: bytes, rounded: bytes, vector: Sequence[int]
) -> _Derived:
    bound = (context.hash, encode_index(i))
    before = digest(Usage.NOISE_SEEDS, rounded)
    seeds = [
        derive(root, Usage.NOISE_SEEDS, 32, *bound, encode_index(which), before)
        for which in range(context.seeds)
    ]
    size = context.field.dtype.itemsize
    elements = b"".join((x % context.field.modulus).to_bytes(size, "little") for x in vector)
    after = digest(Usage.UPLOAD_SECRETS, elements, b"".join(seeds))
    lengths = {b"key": 16, b"errors": 16, b"polynomials": 16, b"ephemeral key": 32}
    rest = [
        derive(root, Usage.UPLOAD_SECRETS, length, label, *bound, after)
        for label, length in lengths.items()
    ]
    return _Derived(seeds, *rest)


class _Reader:
    """Reads a keystream from its beginning, every call from a new block on."""

    def __init__(self, key: bytes) -> None:
        self._key, self._block = key, 0

    def read(self, size: int) -> bytes:
        """The next bytes."""
        blocks = -(-size // 16)
        raw = _keystream(self._key, self._block.to_bytes(16, "big"), 16 * blocks)
        self._block += blocks
        return raw[:size]

    def elements(self, wanted: int) -> list[int]:
        """Uniform elements: 31 bits of each word; refused words are drawn again, all at a time."""
        found = [P] * wanted
        while missing := [i for i, element in enumerate(found) if element == P]:
            raw = self.read(4 * len(missing))
            for k, i in enumerate(missing):
                found[i] = int.from_bytes(raw[4 * k : 4 * k + 4], "little") % 2**31
        return found


def _keystream(key: bytes, counter: bytes, size: int) -> bytes:
    return Cipher(AES(key), CTR(counter)).encryptor().update(bytes(size))


def _primes(n: int, limbs: int) -> list[int]:
    """The largest primes below 2^27 that are 1 modulo 2 n."""
    candidates = range((2**27 - 1) // (2 * n) * 2 * n + 1, 1, -2 * n)
    below = (p for p in candidates if p < 2**27)
    return list(islice((p for p in below if all(p % f for f in range(2, isqrt(p) + 1))), limbs))


def _public_element(context: OneShotContext, primes: Sequence[int], block: int) -> list[int]:
    """Coefficients modulo q of a ring element that is drawn by its values at the roots."""
    n, q = context.degree, prod(primes)
    key = derive(context.hash, Usage.PUBLIC_ELEMENT, 16)
    bits = n.bit_length() - 1
    coefficients = [0] * n
    for i, p in enumerate(primes):
        first = (block * len(primes) + i) * n
        psi = _root(p, n)
        powers = [1]
        while len(powers) < 2 * n:
            powers.append(powers[-1] * psi % p)
        values = [0] * n
        for j, value in enumerate(_words(key, first, n, p)):
            # Value j belongs to the root psi^(2 rev(j) + 1).
            values[int(f"{j:0{bits}b}"[::-1], 2)] = value
        # a_t = 1/n sum_j values[j] psi^(-(2 j + 1) t), and n of these sums take n^2 steps.
        lift = q // p * pow(q // p, -1, p)
        inverse = pow(n, -1, p)
        for t in range(n):
            total = sum(v * powers[-(2 * j + 1) * t % (2 * n)] for j, v in enumerate(values))
            coefficients[t] = (coefficients[t] + total * inverse % p * lift) % q
    return coefficients


def _words(key: bytes, first: int, wanted: int, p: int) -> list[int]:
    """Words first, first + 1, ... of 27 bits below p; a refused one is the next stream's."""
    found = [p] * wanted
    for stream in count():
        missing = [i for i, value in enumerate(found) if value >= p]
        if not missing:
            return found
        for i in missing:
            block, offset = divmod(4 * (first + i), 16)
            counter = stream.to_bytes(4, "big") + block.to_bytes(12, "big")
            raw = _keystream(key, counter, 16)[offset : offset + 4]
            found[i] = int.from_bytes(raw, "little") % 2**27
    raise AssertionError("unreachable")


def _root(p: int, n: int) -> int:
    """The smallest primitive root of p, to the power (p - 1) / 2 n."""
    factors = [f for f in range(2, isqrt(p) + 1) if (p - 1) % f == 0]
    factors += [(p - 1) // f for f in factors]
    g = next(g for g in range(2, p) if all(pow(g, (p - 1) // f, p) != 1 for f in factors))
    return pow(g, (p - 1) // (2 * n), p)


def _gaussian(key: bytes, wanted: int) -> list[int]:
    """Samples by inversion: 128 bits each, against the distribution function's first 128 bits."""
    with localcontext() as exact:
        exact.prec = 80
        weights = [(-(Decimal(k) ** 2) / (2 * SIGMA**2)).exp() for k in range(-CUT, CUT + 1)]
        below = [int(part / sum(weights) * 2**128) for part in accumulate(weights)][:-1]
    raw = _keystream(key, bytes(16), 16 * wanted)
    drawn = [int.from_bytes(raw[i : i + 16], "little") for i in range(0, len(raw), 16)]
    return [bisect_right(below, u) - CUT for u in drawn]


def _negacyclic(a: Sequence[int], b: Sequence[int], q: int) -> list[int]:
    """The product modulo x^n + 1 and q, term by term."""
    n = len(a)
    result = [0] * n
    for i, x in enumerate(b):
        if x:
            for j in range(n - i):
                result[i + j] += x * a[j]
            for j in range(n - i, n):
                result[i + j - n] -= x * a[j]
    return [value % q for value in result]


def _packed(values: Sequence[int], primes: Sequence[int], rounding: int) -> bytes:
    """A ciphertext as it is sent: residues of 27 bits, or one integer if low bits are cut off."""
    if rounding:
        bits = ((prod(primes) - 1) >> rounding).bit_length()
        fields = list(values)
    else:
        bits, fields = 27, [value % p for value in values for p in primes]
    whole = sum(value << bits * i for i, value in enumerate(fields))
    return whole.to_bytes(-(-bits * len(fields) // 8), "little")


def _value_at(known: Mapping[int, int], x: int) -> int:
    """The value at x of the polynomial with these values, by Lagrange's formula."""
    total = 0
    for i, value in known.items():
        above, below = 1, 1
        for j in known:
            if j != i:
                above, below = above * (x - j) % P, below * (i - j) % P
        total += value * above * pow(below, -1, P)
    return total % P


def _cut(values: Sequence[int], width: int, rows: int) -> list[list[int]]:
    padded = [*values, *[0] * (rows * width - len(values))]
    return [padded[row * width : (row + 1) * width] for row in range(rows)]


def _limbs(seed: bytes) -> list[int]:
    value = int.from_bytes(seed, "little")
    return [value >> (LIMB_BITS * i) & (2**LIMB_BITS - 1) for i in range(LIMBS)]


def _centred(value: int, modulus: int) -> int:
    """The residue of least magnitude, for odd moduli."""
    return (value + modulus // 2) % modulus - modulus // 2


def _delta(n: int, rounding: int) -> int:
    """2 ceil(9 sqrt(n (6.4^2 + 4^r / 12))) + 1, the second term if anything is rounded."""
    spread = 12288 + (25 << 2 * rounding if rounding else 0)
    return 2 * _ceil_sqrt(81 * n * spread, 300) + 1


def _ceil_sqrt(numerator: int, denominator: int) -> int:
    return next(
        x for x in count(isqrt(numerator // denominator)) if x * x * denominator >= numerator
    )
