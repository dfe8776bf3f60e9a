"""The arithmetic of validated sums in plain integers: slow, and the oracle of the tests.

Read `upload`, `answer` and `decide` to learn the check. Parties are functions, polynomials are
lists, a seal is a list of shares: sealing, signing and sending are left to the scheme that builds
on it.

Not for use: it keeps every party's secrets in one place.

Source: docs/validated.md, whose symbols it keeps in its comments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, count
from math import isqrt, prod
from typing import Self

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from secagg.errors import ParameterError
from secagg.keystream import KEY_BYTES, LONG_KEY_BYTES
from secagg.merkle import HashTree, proof_is_valid
from secagg.oneshot.layout import reader_of
from secagg.tags import Usage, derive, digest, encode_index
from secagg.validated.parameters import Parameters

Rand = Callable[[int], bytes]
"""A source of random bytes: rand(count) -> bytes."""
Slots = list[list[int]]
"""Values at the secret points: one list of l for each polynomial."""
Shares = list[list[int]]
"""For each member, its values of all polynomials."""

WORD_BYTES = 8
Answer = list[tuple[int, int, int]]
"""V1, V2 and L of each repetition."""


class Plain(Parameters):
    """Arithmetic of a round in Python's integers."""

    @property
    def degree(self) -> int:
        """The degree N."""
        return self.ring.degree

    @property
    def modulus(self) -> int:
        """The prime q."""
        return self.ring.modulus

    def point(self, slot: int) -> int:
        """Where a secret is: -1, -2, ..."""
        return self.modulus - 1 - slot

    def exponents(self) -> list[int]:
        """The odd exponents of psi at which elements are evaluated, in bit-reversed order."""
        bits = self.degree.bit_length() - 1
        return [2 * int(f"{j:0{bits}b}"[::-1], 2) + 1 for j in range(self.degree)]

    # The ring.

    def transform(self, element: Sequence[int]) -> list[int]:
        """The values of an element, in bit-reversed order."""
        q, n, psi = self.modulus, self.degree, self.ring.psi
        powers = [pow(psi, j, q) for j in range(2 * n)]
        return [
            sum(x * powers[e * t % (2 * n)] for t, x in enumerate(element)) % q
            for e in self.exponents()
        ]

    def inverse(self, values: Sequence[int]) -> list[int]:
        """The coefficients that have these values."""
        q, n, psi = self.modulus, self.degree, self.ring.psi
        powers, scale = [pow(psi, -j, q) for j in range(2 * n)], pow(n, -1, q)
        pairs = list(zip(self.exponents(), values, strict=True))
        return [sum(v * powers[e * t % (2 * n)] for e, v in pairs) * scale % q for t in range(n)]

    def centred(self, value: int) -> int:
        """The residue of least magnitude."""
        return (value + self.modulus // 2) % self.modulus - self.modulus // 2

    def split(self, vector: Sequence[int]) -> list[list[int]]:
        """A vector's blocks."""
        n = self.degree
        return [list(vector[b * n : (b + 1) * n]) for b in range(self.blocks)]

    # Polynomials.

    def packed(self, values: Sequence[int]) -> Slots:
        """Values, l to a polynomial; zeros are padding."""
        width = self.per_polynomial
        padded = [*values, *[0] * (-len(values) % width)]
        return [padded[i : i + width] for i in range(0, len(padded), width)]

    def weights(self, known: Sequence[int], x: int) -> list[int]:
        """Lagrange's: the value at x from those at known points."""
        q = self.modulus
        return [
            prod(x - other for other in known if other != each)
            * pow(prod(each - other for other in known if other != each), -1, q)
            % q
            for each in known
        ]

    def at_member(self, slots: Slots, member: int) -> list[int]:
        """The values at a member's point of the polynomials of degree below l."""
        known = [self.point(slot) for slot in range(self.per_polynomial)]
        weights = self.weights(known, member + 1)
        return [self.dot(weights, row) for row in slots]

    def dot(self, one: Sequence[int], other: Sequence[int]) -> int:
        """The inner product."""
        return sum(x * y for x, y in zip(one, other, strict=True)) % self.modulus

    def elements(self, count: int, rand: Rand) -> list[int]:
        """Uniform elements; refused words are drawn again, all at a time."""
        mask = (1 << self.modulus.bit_length()) - 1
        found = [self.modulus] * count
        while refused := [i for i, x in enumerate(found) if x >= self.modulus]:
            raw = rand(WORD_BYTES * len(refused))
            for k, i in enumerate(refused):
                word = raw[WORD_BYTES * k : WORD_BYTES * (k + 1)]
                found[i] = int.from_bytes(word, "little") & mask
        return found

    def deal(self, slots: Slots, degree: int, rand: Rand) -> Shares:
        """Shares of polynomials of at most this degree with these values at the slots."""
        count, drawn = len(slots), degree + 1 - self.per_polynomial
        known = [*map(self.point, range(self.per_polynomial)), *range(1, drawn + 1)]
        random = self.elements(drawn * count, rand)
        values = [[*row, *random[i::count]] for i, row in enumerate(slots)]
        return [
            [self.dot(weights, row) for row in values]
            for weights in (self.weights(known, j + 1) for j in range(self.members))
        ]

    def slots_of(self, values: Mapping[int, int], degree: int) -> list[int] | None:
        """The slots of the polynomial of at most this degree; None if the values are of none."""
        known = [member + 1 for member in values][: degree + 1]
        given = list(values.values())
        for member, value in list(values.items())[degree + 1 :]:
            if self.dot(self.weights(known, member + 1), given[: degree + 1]) != value:
                return None
        return [
            self.dot(self.weights(known, self.point(slot)), given[: degree + 1])
            for slot in range(self.per_polynomial)
        ]


@dataclass(frozen=True, slots=True)
class Context:
    """The public elements of a round, by a hash that stands for all that is agreed on."""

    parameters: Plain
    hash: bytes
    a: list[list[int]]  # values of each block's element
    g: list[int]  # values of the sum of a* a

    @classmethod
    def of(cls, p: Plain, context_hash: bytes) -> Self:
        """Draw them; `ParameterError` if some value of g is 0: another hash, then."""
        key = derive(context_hash, Usage.PUBLIC_ELEMENT, KEY_BYTES)
        a = [[_word(p, key, b * p.degree + i) for i in range(p.degree)] for b in range(p.blocks)]
        g = [sum(e[i] * e[p.degree - 1 - i] for e in a) % p.modulus for i in range(p.degree)]
        if 0 in g:
            raise ParameterError("context", "a value of g is 0", "another nonce")
        return cls(p, context_hash, a, g)

    def adjoint(self, vector: Sequence[int]) -> list[int]:
        """The values of sum_b a_b* v_b."""
        p = self.parameters
        blocks = [p.transform(block) for block in p.split(vector)]
        values = [0] * p.degree
        for element, block in zip(self.a, blocks, strict=True):
            for i in range(p.degree):
                values[i] += element[p.degree - 1 - i] * block[i]
        return [value % p.modulus for value in values]

    def masked(self, key: Sequence[int]) -> list[int]:
        """The coefficients of a_b k, block by block."""
        p, values = self.parameters, self.parameters.transform(key)
        products = [[x * k % p.modulus for x, k in zip(e, values, strict=True)] for e in self.a]
        return [x for block in products for x in p.inverse(block)]

    def secrets_of(self, key: Sequence[int]) -> tuple[Slots, Slots]:
        """The secrets f and f', packed."""
        p, values = self.parameters, self.parameters.transform(key)
        pairs = [(i, p.degree - 1 - i) for i in range(p.degree // 2)]
        first = [values[i] for i, _ in pairs]
        second = [self.g[i] * values[j] % p.modulus for i, j in pairs]
        return p.packed(first), p.packed(second)

    def key_of(self, f: Slots, second: Slots) -> list[int]:
        """The coefficients of the key that f and f' belong to."""
        p, half = self.parameters, self.parameters.degree // 2
        one, other = ([x for row in rows for x in row][:half] for rows in (f, second))
        back = [x * pow(self.g[i], -1, p.modulus) for i, x in enumerate(other)]
        return p.inverse([*one, *reversed(back)])


@dataclass(frozen=True, slots=True)
class Challenges:
    """Of one repetition."""

    eta: int  # for the norm
    gamma: list[int]  # for each row
    theta: list[int]  # for each padding slot of f, then of f'
    zeta: list[int]  # for each polynomial of bits
    lam: list[int]  # for each polynomial of f, f' and bits


@dataclass(slots=True)
class Upload:
    """All that a client makes, in the order in which it makes it.

    Attributes:
        first, second: for each member, the shares that parts 1 and 2 seal.
        functional: for each repetition, the coefficients of f and of f', and kappa.
        leaves, paths: what each member is given of it, and shows that it is that.
    """

    context: Context
    sender: int
    ciphertext: list[int]
    first: Shares = field(default_factory=list)
    second: Shares = field(default_factory=list)
    functional: list[tuple[Slots, Slots, int]] = field(default_factory=list)
    leaves: list[bytes] = field(default_factory=list)

    @property
    def root1(self) -> bytes:
        """What the rows follow from."""
        return _hash(
            b"root 1",
            self.context.hash,
            encode_index(self.sender),
            _encoded(self.ciphertext),
            _tree(self.first).root,
        )

    @property
    def root2(self) -> bytes:
        """What the challenges follow from."""
        return _hash(b"root 2", self.root1, _tree(self.second).root)

    def rows(self) -> list[list[int]]:
        """The rows: coordinate i has blocks 2 i and 2 i + 1 of a stream.

        Row r adds it if bit r of the first is set, and takes it away if that of the second is.
        """
        p = self.context.parameters
        stream = reader_of(derive(self.root1, Usage.CHALLENGE, LONG_KEY_BYTES, b"rows"))
        drawn = [
            (int.from_bytes(stream(16), "little"), int.from_bytes(stream(16), "little"))
            for _ in range(p.blocks * p.degree)
        ]
        return [[(x >> r & 1) - (y >> r & 1) for x, y in drawn] for r in range(p.rows)]

    def challenges(self) -> list[Challenges]:
        """Those of every repetition."""
        p = self.context.parameters
        bits = p.bit_polynomials
        sizes = (1, p.rows, 2 * p.padding, bits, 2 * p.key_polynomials + bits)
        found = []
        for repetition in range(p.repetitions):
            label = encode_index(repetition)
            rand = reader_of(derive(self.root2, Usage.CHALLENGE, KEY_BYTES, b"weights", label))
            (eta,), *rest = (p.elements(size, rand) for size in sizes)
            found.append(Challenges(eta, *rest))
        return found

    def combine(self) -> None:
        """Set the functional and its leaves from what is committed."""
        self.functional = functional_of(self)
        self.leaves = [leaf_of(self, member) for member in range(self.context.parameters.members)]

    def path(self, member: int) -> bytes:
        """What shows that a member's leaf is the one that was signed."""
        return HashTree(self.leaves).proof(member)


def upload(
    context: Context, sender: int, vector: Sequence[int], key: Sequence[int], rand: Rand
) -> Upload | None:
    """A client's upload of w = `vector` under a key; None if it is longer than the bound."""
    p = context.parameters
    norm = sum(x * x for x in vector)
    if norm > p.bound:
        return None
    made = begun(context, sender, vector, key, rand)
    products = [sum(x * y for x, y in zip(row, vector, strict=True)) for row in made.rows()]
    if not all(-p.tau <= u < p.tau for u in products):
        return None
    numbers = [p.bound - norm, *(u + p.tau for u in products)]
    bits = [n >> j & 1 for n, count in zip(numbers, p.bits, strict=True) for j in range(count)]
    made.second = witness(p, bits, rand)
    made.combine()
    return made


def begun(
    context: Context, sender: int, vector: Sequence[int], key: Sequence[int], rand: Rand
) -> Upload:
    """An upload with its ciphertext and part 1."""
    p = context.parameters
    mask = context.masked(key)
    ciphertext = [(x + m) % p.modulus for x, m in zip(vector, mask, strict=True)]
    f, other = context.secrets_of(key)
    first = p.deal([*f, *other], p.share_degree, rand)
    return Upload(context, sender, ciphertext, first)


def witness(p: Plain, bits: Sequence[int], rand: Rand) -> Shares:
    """Part 2: shares of bits; of the masks m1 of all repetitions, then m2, then m3."""
    shares = p.deal(p.packed(bits), p.share_degree, rand)
    width, count = p.per_polynomial, p.repetitions
    drawn = p.elements((width - 1) * count, rand)
    rows = [drawn[i * (width - 1) : (i + 1) * (width - 1)] for i in range(count)]
    slots = [[*row, -sum(row) % p.modulus] for row in rows] + [[0] * width] * count
    uniform = p.packed(p.elements(width * count, rand))
    for masks, degree in ((slots, p.product_degree), (uniform, p.share_degree)):
        for mine, more in zip(shares, p.deal(masks, degree, rand), strict=True):
            mine += more
    return shares


def functional_of(made: Upload) -> list[tuple[Slots, Slots, int]]:
    """For each repetition h, h' and kappa: computed by the client, and again by the server."""
    context, p = made.context, made.context.parameters
    q, n, rows = p.modulus, p.degree, made.rows()
    ciphertext = [p.centred(x) for x in made.ciphertext]
    norm = sum(x * x for x in ciphertext)
    found = []
    for challenge in made.challenges():
        combined = [p.dot(challenge.gamma, column) for column in zip(*rows, strict=True)]
        vector = [
            (x - 2 * challenge.eta * y) % q for x, y in zip(combined, ciphertext, strict=True)
        ]
        h, scale = context.adjoint(vector), pow(n, -1, q)
        ones = [h[n - 1 - i] * scale % q for i in range(n // 2)]
        others = [h[i] * pow(context.g[i], -1, q) * scale % q for i in range(n // 2)]
        cut = len(challenge.theta) // 2
        kappa = challenge.eta * (norm - p.bound) - p.tau * sum(challenge.gamma)
        kappa -= sum(x * y for x, y in zip(combined, ciphertext, strict=True))
        found.append(
            (
                p.packed([*ones, *challenge.theta[:cut]]),
                p.packed([*others, *challenge.theta[cut:]]),
                kappa % q,
            )
        )
    return found


def leaf_of(made: Upload, member: int) -> bytes:
    """What a member is given of the functional: its values at the member's point, and kappa."""
    p = made.context.parameters
    values = [
        x
        for h, other, kappa in made.functional
        for x in (*p.at_member([*h, *other], member), kappa)
    ]
    return _hash(b"leaf", made.context.hash, encode_index(member)) + _encoded(values)


def answer(made: Upload, member: int, leaf: bytes, path: bytes) -> Answer:
    """A member's answer; `ValueError` for another's leaf."""
    p = made.context.parameters
    root = HashTree(made.leaves).root
    prefix = _hash(b"leaf", made.context.hash, encode_index(member))
    mine = leaf.startswith(prefix) and proof_is_valid(root, leaf, member, p.members, path)
    if not mine:
        raise ValueError(f"the leaf that member {member} was given is not its own")
    values = _decoded(leaf[len(prefix) :])
    q, polynomials = p.modulus, p.key_polynomials
    first, second = made.first[member], made.second[member]
    f, other = first[:polynomials], first[polynomials:]
    cut = len(second) - 3 * p.repetitions
    bits, masks = second[:cut], second[cut:]
    found = []
    for repetition, challenge in enumerate(made.challenges()):
        given = values[repetition * (2 * polynomials + 1) :][: 2 * polynomials + 1]
        h, kappa = given[:-1], given[-1]
        factors = [challenge.eta, *challenge.gamma]
        weights = [x << j for x, count in zip(factors, p.bits, strict=True) for j in range(count)]
        m1, m2, m3 = masks[repetition :: p.repetitions]
        v1 = m1 + p.dot(h, first) + p.dot(p.at_member(p.packed(weights), member), bits)
        v1 += 2 * challenge.eta * pow(p.degree, -1, q) * p.dot(f, other)
        v1 += kappa * pow(p.per_polynomial, -1, q)
        v2 = m2 + sum(z * b * (b - 1) for z, b in zip(challenge.zeta, bits, strict=True))
        low = m3 + p.dot(challenge.lam, [*first, *bits])
        found.append((v1 % q, v2 % q, low % q))
    return found


def decide(p: Plain, answers: Mapping[int, Answer | None]) -> frozenset[int] | None:
    """The largest set J of members on which an upload passes; None if it is rejected.

    Members that complain have None for an answer; those that are away have no entry. By trying all
    sets that are large enough, largest first.
    """
    least = max(p.members - p.away, len(answers)) - p.corrupt
    answered = [member for member, given in answers.items() if given is not None]
    for size in range(len(answered), least - 1, -1):
        for chosen in combinations(answered, size):
            if passes(p, {member: answers[member] or [] for member in chosen}):
                return frozenset(chosen)
    return None


def passes(p: Plain, answers: Mapping[int, Answer]) -> bool:
    """Whether the answers of a set of members pass in every repetition."""
    zeros = [0] * p.per_polynomial
    for repetition in range(p.repetitions):
        v1, v2, last = (
            {member: given[repetition][which] for member, given in answers.items()}
            for which in range(3)
        )
        slots = p.slots_of(v1, p.product_degree)
        if slots is None or sum(slots) % p.modulus:
            return False
        if p.slots_of(v2, p.product_degree) != zeros or p.slots_of(last, p.share_degree) is None:
            return False
    return True


def opened(uploads: Iterable[Upload], members: Sequence[int]) -> list[int] | None:
    """The sum of the vectors from right sums of shares; None if it is longer than may be."""
    chosen = list(uploads)
    context, p = chosen[0].context, chosen[0].context.parameters
    sums = {
        j: [sum(col) for col in zip(*(u.first[j] for u in chosen), strict=True)] for j in members
    }
    rows = [
        p.slots_of({j: sums[j][row] % p.modulus for j in members}, p.share_degree)
        for row in range(2 * p.key_polynomials)
    ]
    slots = [row or [] for row in rows]
    key = context.key_of(slots[: p.key_polynomials], slots[p.key_polynomials :])
    mask, total = (
        context.masked(key),
        [sum(col) for col in zip(*(u.ciphertext for u in chosen), strict=True)],
    )
    vector = [p.centred(x - m) for x, m in zip(total, mask, strict=True)]
    longest = len(chosen) * (isqrt(p.bound) + 1)
    return vector if sum(x * x for x in vector) <= longest**2 else None


def _word(p: Plain, key: bytes, place: int) -> int:
    """The first word at a place of streams 0, 1, ... that is below q."""
    mask = (1 << p.modulus.bit_length()) - 1
    for stream in count():
        counter = stream.to_bytes(4, "big") + (place // 2).to_bytes(12, "big")
        block = Cipher(AES(key), CTR(counter)).encryptor().update(bytes(16))
        word = int.from_bytes(block[place % 2 * 8 :][:8], "little") & mask
        if word < p.modulus:
            return word
    raise AssertionError("unreachable")


def _hash(label: bytes, *parts: bytes) -> bytes:
    return digest(Usage.CHALLENGE, label, *parts)


def _tree(shares: Shares) -> HashTree:
    return HashTree([_encoded(row) for row in shares])


def _encoded(values: Sequence[int]) -> bytes:
    return b"".join(value.to_bytes(WORD_BYTES, "little") for value in values)


def _decoded(encoded: bytes) -> list[int]:
    starts = range(0, len(encoded), WORD_BYTES)
    return [int.from_bytes(encoded[i : i + WORD_BYTES], "little") for i in starts]
