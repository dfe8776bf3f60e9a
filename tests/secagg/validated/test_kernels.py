"""The compiled parts of validated sums give what plain integers give, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
import validated_uploads as plain

from secagg import ParameterError
from secagg.oneshot.layout import reader_of
from secagg.tags import Usage, derive
from secagg.validated import reference
from secagg.validated.check import answer, decide
from secagg.validated.proof import Challenges, Functional, Rows, witness
from secagg.validated.reference import Context, Plain, Upload
from secagg.validated.ring import PrimeRing, Residues
from secagg.validated.sharing import at_member, deal, packed

# N, bits, B, s, c, a, T, l, rows
SHAPES = (
    (16, 46, 2, 15, 2, 2, 2, 3, 24),
    (32, 42, 3, 7, 1, 0, 1, 2, 128),
    (64, 50, 1, 20, 2, 2, 3, 4, 40),
    (16, 45, 2, 12, 0, 3, 4, 1, 9),
)


def made(shape: tuple[int, ...]) -> tuple[Plain, Context, Upload, np.ndarray]:
    """An honest upload, and its vector."""
    n, bits, blocks, *numbers, rows = shape
    names = ("members", "corrupt", "away", "randomness", "per_polynomial")
    given = dict(zip(names, numbers, strict=True))
    p = Plain(ring=PrimeRing(n, bits), blocks=blocks, bound=10**6, rows=rows, **given)
    context, random = Context.of(p, bytes(32)), Random(n)
    vector = plain.vector_of(random, 1000, n * blocks)
    key = [random.randint(-20, 20) for _ in range(n)]
    upload = reference.upload(context, 1, vector, key, reader_of(bytes(16)))
    assert upload is not None
    return p, context, upload, np.array(vector)


def numbers(values: object) -> Residues:
    """Nested lists as residues."""
    return np.array(values, np.uint64)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_step_is_that_of_the_reference(shape: tuple[int, ...]) -> None:
    p, context, upload, vector = made(shape)
    ring, random = p.ring, Random(1)
    key = derive(context.hash, Usage.PUBLIC_ELEMENT, 16)
    elements = ring.elements(key, 0, p.blocks)
    assert np.array_equal(elements, numbers(context.a))
    assert np.array_equal(ring.square(elements), numbers(context.g))
    # The ciphertext, and part 1.
    random = Random(shape[0])
    plain.vector_of(random, 1000, vector.size)
    secret = ring.reduce(np.array([[random.randint(-20, 20) for _ in range(p.degree)]]))
    values = ring.forward(secret)[0]
    masks = ring.multiply(elements, values)
    ciphertext = (masks + ring.reduce(vector.reshape(masks.shape))) % ring.q
    assert ciphertext.reshape(-1).tolist() == upload.ciphertext
    half = p.degree // 2
    sides = values[:half], ring.by(ring.square(elements)[:half], values[: half - 1 : -1])
    slots = np.concatenate([packed(each, p.per_polynomial) for each in sides])
    rand = reader_of(bytes(16))
    assert np.array_equal(deal(p, slots, p.share_degree, rand), numbers(upload.first))
    # Part 2.
    rows = Rows(p, upload.root1)
    products = rows.products(vector)
    assert products.tolist() == [int(np.dot(row, vector)) for row in upload.rows()]
    second = witness(p, p.bound - int(vector @ vector), products, rand)
    assert np.array_equal(second, numbers(upload.second))
    challenges = Challenges.of(p, upload.root2)
    squares = ring.square(elements)
    functional = Functional.of(p, elements, squares, ciphertext, rows, challenges, p.bound)
    assert functional.coefficients.tolist() == [[*h, *other] for h, other, _ in upload.functional]
    assert functional.constants.tolist() == [kappa for *_, kappa in upload.functional]
    # Every member's answer, and the decision.
    answers = plain.answers_of(upload, range(p.members))
    found = {}
    for member, given in answers.items():
        mine = at_member(p, functional.coefficients, member)
        shares = numbers(upload.first[member]), numbers(upload.second[member])
        found[member] = answer(p, member, *shares, mine, functional.constants, challenges)
        assert found[member].T.tolist() == [list(each) for each in given]
    assert decide(p, found) == frozenset(range(p.members))


@pytest.mark.parametrize("seed", range(40))
def test_the_decision_is_that_of_all_sets(seed: int) -> None:
    p, _, upload, _ = made(SHAPES[0])
    random = Random(seed)
    answers = dict(plain.answers_of(upload, range(p.members)))
    for member in random.sample(range(p.members), random.randint(0, 3)):
        del answers[member]
    mixed: dict[int, reference.Answer | None] = {**answers}
    for member in random.sample(sorted(answers), random.randint(0, 3)):
        lie = [list(each) for each in answers[member]]
        lie[random.randrange(p.repetitions)][random.randrange(3)] += 1
        mixed[member] = random.choice([None, [(a, b, c) for a, b, c in lie]])
    arrays = {
        member: None if given is None else numbers(given).T.copy() % p.ring.q
        for member, given in mixed.items()
    }
    assert decide(p, arrays) == reference.decide(p, mixed)


@pytest.mark.parametrize("cheat", [cheat for cheat, _ in plain.CHEATS])
def test_cheats_are_rejected(cheat: Any) -> None:
    given = plain.answers_of(cheat(Random(1)))
    assert decide(plain.USUAL, {j: numbers(each).T.copy() for j, each in given.items()}) is None


def test_an_upload_that_most_complain_about_is_rejected() -> None:
    given = plain.answers_of(plain.too_long(Random(1), 0.99))
    arrays = {j: None if j < 12 else numbers(each).T.copy() for j, each in given.items()}
    assert decide(plain.USUAL, arrays) is None


@pytest.mark.parametrize("away", [(), (3, 11)])
def test_liars_do_not_help(away: tuple[int, ...]) -> None:
    upload = plain.too_long(Random(1))
    for liars, accepted in (([5, 6], False), ([5, 6, 7], len(away) == 2)):
        lies = plain.helped(upload, liars, away)
        arrays = {member: numbers(given).T.copy() for member, given in lies.items()}
        assert (decide(plain.USUAL, arrays) is not None) is accepted


@pytest.mark.parametrize("bits", [42, 46, 50])
def test_products_and_transforms_are_exact(bits: int) -> None:
    ring = PrimeRing(64, bits)
    q, rng = ring.modulus, np.random.default_rng(bits)
    a, b = (rng.integers(0, q, 4000).astype(np.uint64) for _ in range(2))
    a[:4], b[:4] = [q - 1, q - 1, 0, 1], [q - 1, 1, q - 1, q - 1]
    exact = [int(x) * int(y) % q for x, y in zip(a, b, strict=True)]
    assert ring.by(a, b).tolist() == exact
    assert ring.dot(a, b) == sum(exact) % q
    blocks = a[: 3 * 64].reshape(3, 64)
    values = ring.forward(blocks)
    assert np.array_equal(ring.inverse(values), blocks)
    p = replace(plain.USUAL, ring=ring, blocks=3)
    assert values.tolist() == [p.transform(block) for block in blocks.tolist()]


@pytest.mark.parametrize(
    ("degree", "bits", "name"), [(24, 46, "degree"), (1, 46, "degree"), (16, 51, "bits")]
)
def test_rings_that_there_are_not(degree: int, bits: int, name: str) -> None:
    with pytest.raises(ParameterError) as caught:
        PrimeRing(degree, bits)
    assert caught.value.argument == name
