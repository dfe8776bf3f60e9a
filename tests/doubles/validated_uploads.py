"""Validated uploads, honest and not, and what members answer on them.

Every cheat ends in an upload that passes all checks but one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import mul
from random import Random

from secagg.validated.reference import Answer, Context, Plain, Upload, answer, begun, witness
from secagg.validated.ring import PrimeRing

N, BLOCKS, LENGTH = 16, 2, 2000
RING = PrimeRing(N, 46)
USUAL = Plain(
    ring=RING,
    blocks=BLOCKS,
    members=15,
    corrupt=2,
    away=2,
    randomness=2,
    per_polynomial=3,
    bound=LENGTH**2,
    rows=24,
)
PRIME, LOW = RING.modulus, USUAL.share_degree
CONTEXT = Context.of(USUAL, bytes(32))
ALL = range(USUAL.members)
Answers = dict[int, Answer]


def vector_of(random: Random, length: float, size: int = N * BLOCKS) -> list[int]:
    """A vector in a random direction that is at most this long, and nearly so."""
    drawn = [random.gauss(0.0, 1.0) for _ in range(size)]
    norm = sum(x * x for x in drawn) ** 0.5
    return [int(length * x / norm) for x in drawn]


def key_of(random: Random) -> list[int]:
    """A short key."""
    return [random.randint(-20, 20) for _ in range(N)]


def answers_of(made: Upload, members: Iterable[int] = ALL) -> Answers:
    """The right answers of members."""
    return {j: answer(made, j, made.leaves[j], made.path(j)) for j in members}


def finished(made: Upload, vector: Sequence[int], norm: int, random: Random) -> Upload:
    """Go on from part 1 as if the squared norm were this, with the lowest bits of every number."""
    p = made.context.parameters
    numbers = [p.bound - norm]
    for row in made.rows():
        numbers.append(p.centred(sum(map(mul, row, vector))) + p.tau)
    bits = [n >> j & 1 for n, count in zip(numbers, p.bits, strict=True) for j in range(count)]
    made.second = witness(p, bits, random.randbytes)
    made.combine()
    return made


def started(vector: Sequence[int], random: Random) -> Upload:
    """An upload of any vector, with part 1."""
    return begun(CONTEXT, 1, vector, key_of(random), random.randbytes)


def too_long(random: Random, factor: float = 1.01) -> Upload:
    """One per cent too long, nothing else: the bits are those of a vector at the bound."""
    vector = vector_of(random, factor * LENGTH)
    norm = min(USUAL.bound, sum(map(mul, vector, vector)))
    return finished(started(vector, random), vector, norm, random)


def padded(random: Random) -> Upload:
    """Seven times too long; a product in the padding of f and f' takes the excess off the form."""
    p, vector, key = USUAL, vector_of(random, 7 * LENGTH), key_of(random)
    excess = sum(map(mul, vector, vector)) - p.bound
    made = begun(CONTEXT, 1, vector, key, random.randbytes)
    f, other = CONTEXT.secrets_of(key)
    f[-1][-1], other[-1][-1] = 1, -excess * N * pow(2, -1, PRIME) % PRIME
    made.first = p.deal([*f, *other], LOW, random.randbytes)
    return finished(made, vector, p.bound, random)


def wrapped(random: Random) -> Upload:
    """Four entries (q - 1) / 2, whose squares are 1 modulo q together."""
    vector = [(PRIME - 1) // 2] * 4 + [0] * (N * BLOCKS - 4)
    assert sum(map(mul, vector, vector)) % PRIME == 1
    return finished(started(vector, random), vector, 1, random)


def turned(random: Random) -> Upload:
    """A short vector times an element t with t t* = 1: as long modulo q, and huge."""
    p, short = USUAL, vector_of(random, LENGTH)
    values = [random.randrange(1, PRIME) for _ in range(N // 2)]
    values += [pow(value, -1, PRIME) for value in reversed(values)]
    vector = [
        p.centred(x)
        for block in p.split(short)
        for x in p.inverse(list(map(mul, values, p.transform(block))))
    ]
    norm = sum(map(mul, short, short))
    assert sum(map(mul, vector, vector)) % PRIME == norm != sum(map(mul, vector, vector))
    return finished(started(vector, random), vector, norm, random)


def no_bits(random: Random) -> Upload:
    """Thrice too long, and the lowest "bit" of what is left to the bound is below zero."""
    p, vector = USUAL, vector_of(random, 3 * LENGTH)
    made = started(vector, random)
    bits = [p.bound - sum(map(mul, vector, vector)), *[0] * (p.bits[0] - 1)]
    for row in made.rows():
        bits += [sum(map(mul, row, vector)) + p.tau >> j & 1 for j in range(p.bits[1])]
    made.second = witness(p, [bit % PRIME for bit in bits], random.randbytes)
    made.combine()
    return made


def high_degree(random: Random) -> Upload:
    """Polynomials of f whose degree is too high: members would open several keys."""
    p, vector, key = USUAL, vector_of(random, LENGTH), key_of(random)
    made = begun(CONTEXT, 1, vector, key, random.randbytes)
    f, other = CONTEXT.secrets_of(key)
    # Together of the degree that V1 may have.
    parts = (p.deal(f, LOW + 1, random.randbytes), p.deal(other, LOW - 1, random.randbytes))
    made.first = [one + two for one, two in zip(*parts, strict=True)]
    return finished(made, vector, sum(map(mul, vector, vector)), random)


Cheat = Callable[[Random], Upload]
CHEATS: tuple[tuple[Cheat, str], ...] = (
    (padded, "theta"),
    (wrapped, "gamma"),
    (turned, "gamma"),
    (no_bits, "zeta"),
    (high_degree, "lam"),
)
"""What a client tries, and the challenges without which it would get through."""


def forged(known: list[int], given: list[int], points: Sequence[int]) -> list[int]:
    """The values at some points of a polynomial of degree e: its slots sum to zero.

    It goes through e given values, and what it is at the first of the points makes the sum.
    """
    p, through = USUAL, [*known, points[0]]

    def total(value: int) -> int:
        slots = (p.weights(through, p.point(slot)) for slot in range(p.per_polynomial))
        return sum(p.dot(weights, [*given, value]) for weights in slots)

    value = -total(0) * pow(total(1) - total(0), -1, p.modulus) % p.modulus
    return [p.dot(p.weights(through, x), [*given, value]) for x in points]


def helped(made: Upload, liars: Sequence[int], away: Sequence[int]) -> Answers:
    """The answers of all but those away; liars do what they can for a norm that is false."""
    answers = answers_of(made, set(ALL) - set(away))
    honest = [j for j in answers if j not in liars][: USUAL.product_degree]
    for repetition in range(USUAL.repetitions):
        given = [answers[j][repetition][0] for j in honest]
        lies = forged([j + 1 for j in honest], given, [j + 1 for j in liars])
        for j, lie in zip(liars, lies, strict=True):
            answers[j][repetition] = (lie, *answers[j][repetition][1:])
    return answers
