"""Packed sharing: galois as oracle, secrecy by exhaustion, wrong answers, refusals."""

from __future__ import annotations

import os
from itertools import combinations

import galois
import numpy as np
import pairwise_rounds as kit
import pytest

from secagg import ParameterError, TooFewSurvivorsError, _shamir_kernels
from secagg.errors import WrongAnswersError
from secagg.oneshot import packed_sharing
from secagg.oneshot.packed_sharing import deal, polynomials_of
from secagg.shamir import PRIME, random_elements

SIZES = [(1, 1, 1, 2), (7, 3, 2, 5), (7, 3, 2, 9), (12, 4, 5, 12), (5, 8, 1, 9), (64, 16, 16, 40)]


@pytest.fixture(scope="module")
def gf() -> type[galois.FieldArray]:
    return galois.GF(PRIME, compile="python-calculate")


def secrets_of(count: int, label: int = 0) -> np.ndarray:
    secrets = np.random.default_rng([count, label]).integers(0, PRIME, count).astype(np.uint32)
    secrets[0] = PRIME - 1
    return secrets


@pytest.mark.parametrize(("count", "per", "randomness", "members"), SIZES)
def test_dealing_equals_galois(
    gf: type[galois.FieldArray],
    count: int,
    per: int,
    randomness: int,
    members: int,
) -> None:
    secrets = secrets_of(count)
    shares = deal(secrets, per, randomness, members, kit.rand(b"deal"))
    polynomials = polynomials_of(count, per)
    assert shares.shape == (members, polynomials) and shares.dtype == np.uint32
    drawn = random_elements(randomness * polynomials, kit.rand(b"deal"))
    drawn = drawn.reshape(randomness, polynomials)
    padded = np.zeros(polynomials * per, np.uint64)
    padded[:count] = secrets
    known = [PRIME - j for j in range(1, per + 1)] + list(range(1, randomness + 1))
    for p in range(polynomials):
        values = [*padded[p * per : (p + 1) * per].tolist(), *drawn[:, p].tolist()]
        polynomial = galois.lagrange_poly(gf(known), gf(values))
        assert polynomial.degree < randomness + per
        assert shares[:, p].tolist() == polynomial(gf(list(range(1, members + 1)))).tolist()


def test_narrow_and_wide_secrets_are_shared_alike() -> None:
    secrets = secrets_of(10)
    narrow = deal(secrets, 3, 2, 6, kit.rand(b"x"))
    wide = deal(secrets.astype(np.uint64), 3, 2, 6, kit.rand(b"x"))
    assert np.array_equal(narrow, wide)


def test_every_choice_of_enough_members_opens() -> None:
    secrets = secrets_of(7)
    shares = deal(secrets, 3, 2, 8, kit.rand(b"x"))
    for size in (5, 6):
        for chosen in combinations(range(8), size):
            opened, wrong = packed_sharing.open(shares[list(chosen)], chosen, 2, 3, 7, os.urandom)
            assert np.array_equal(opened, secrets) and wrong == ()
    backwards = packed_sharing.open(shares[::-1], range(7, -1, -1), 2, 3, 7, os.urandom)
    assert np.array_equal(backwards[0], secrets)


def test_sums_of_shares_open_sums() -> None:
    dealers = [secrets_of(50, label) for label in range(5)]
    shares = [deal(each, 8, 4, 20, kit.rand(bytes(each[:4]))) for each in dealers]
    added = (np.sum(shares, axis=0, dtype=np.uint64) % PRIME).astype(np.uint32)
    opened, _ = packed_sharing.open(added[3:], range(3, 20), 4, 8, 50, os.urandom)
    assert np.array_equal(opened, np.sum(dealers, axis=0, dtype=np.uint64) % PRIME)


@pytest.mark.parametrize(("per", "randomness", "members"), [(1, 1, 3), (2, 2, 6), (3, 2, 7)])
def test_shares_of_few_members_are_independent_of_the_secrets(
    gf: type[galois.FieldArray], per: int, randomness: int, members: int
) -> None:
    """For any T members the map from what is drawn to their shares is a bijection.

    It is affine: its linear part, read off dealings of zeros, is invertible. So whatever the
    secrets, the shares of T members are uniform. T + 1 members, in contrast, know something.
    """

    def shares_of(drawn: list[int], secrets: list[int]) -> np.ndarray:
        raw = np.array(drawn, "<u4").tobytes()
        return deal(np.array(secrets, np.uint32), per, randomness, members, lambda size: raw[:size])

    units = np.eye(randomness, dtype=int).tolist()
    drawn_part = np.array([shares_of(unit, [0] * per)[:, 0] for unit in units])
    secret_units = np.eye(per, dtype=int).tolist()
    secret_part = np.array([shares_of([0] * randomness, unit)[:, 0] for unit in secret_units])
    mixed = shares_of([7] * randomness, [5] * per)[:, 0]
    assert np.array_equal(mixed, (7 * drawn_part.sum(0) + 5 * secret_part.sum(0)) % PRIME)
    for chosen in combinations(range(members), randomness):
        assert np.linalg.matrix_rank(gf(drawn_part[:, chosen])) == randomness
    for chosen in combinations(range(members), randomness + 1):
        both = gf(np.concatenate([drawn_part, secret_part])[:, chosen])
        assert np.linalg.matrix_rank(gf(drawn_part[:, chosen])) == randomness
        assert np.linalg.matrix_rank(both) == randomness + 1


def lies(kind: str, shares: np.ndarray, liars: list[int]) -> None:
    """Change the liars' shares: everywhere, in one column each, or all by the same."""
    if kind == "random":
        rng = np.random.default_rng(0)
        shares[liars] = rng.integers(0, PRIME, (len(liars), shares.shape[1]))
    elif kind == "one column":
        for place, liar in enumerate(liars):
            column = place % shares.shape[1]
            shares[liar, column] = (int(shares[liar, column]) + 1) % PRIME
    else:
        shares[liars] = (shares[liars].astype(np.uint64) + 1) % PRIME


@pytest.mark.parametrize("kind", ["random", "one column", "the same"])
@pytest.mark.parametrize("count", [10, 3, 100])
@pytest.mark.parametrize("answered", [6, 7, 8, 12, 30])
def test_wrong_answers_up_to_the_radius(kind: str, count: int, answered: int) -> None:
    """Answers needed: 6. Few and many columns, and as many liars as can be told."""
    secrets = secrets_of(count)
    shares = deal(secrets, 2, 4, 30, kit.rand(b"lies"))
    members = list(range(29, 29 - answered, -1))
    most = (answered - 6) // 2
    for wrong in {0, 1, most} if most else {0}:
        liars = sorted(np.random.default_rng(answered).choice(answered, wrong, False).tolist())
        answers = shares[members].copy()
        lies(kind, answers, liars)
        opened, found = packed_sharing.open(answers, members, 4, 2, count, os.urandom)
        assert np.array_equal(opened, secrets)
        assert found == tuple(members[liar] for liar in liars)


@pytest.mark.parametrize("kind", ["random", "one column", "the same"])
def test_beyond_the_radius_nothing_comes_out(kind: str) -> None:
    """12 answers, 6 needed: three liars are found, four to six are too many."""
    secrets = secrets_of(100)
    shares = deal(secrets, 2, 4, 12, kit.rand(b"lies"))
    for wrong in (4, 5, 6):
        answers = shares.copy()
        lies(kind, answers, list(range(wrong)))
        with pytest.raises(WrongAnswersError) as raised:
            packed_sharing.open(answers, range(12), 4, 2, 100, os.urandom)
        assert (raised.value.answered, raised.value.needed) == (12, 6)


def test_liars_beyond_the_radius_can_win_together() -> None:
    """Nine of twelve that agree are the majority: the others are named. Hence c is bounded."""
    secrets = secrets_of(4)
    shares = deal(secrets, 2, 4, 12, kit.rand(b"a"))
    others = deal(secrets_of(4, 1), 2, 4, 12, kit.rand(b"b"))
    shares[:9] = others[:9]
    opened, wrong = packed_sharing.open(shares, range(12), 4, 2, 4, os.urandom)
    assert np.array_equal(opened, secrets_of(4, 1)) and wrong == (9, 10, 11)


def test_one_answer_more_shows_a_lie_but_not_whose() -> None:
    shares = deal(secrets_of(9), 2, 4, 7, kit.rand(b"x"))
    shares[3, 2] ^= 1
    with pytest.raises(WrongAnswersError, match="more than 0 are wrong"):
        packed_sharing.open(shares, range(7), 4, 2, 9, os.urandom)
    # With none to spare it stays unnoticed.
    opened, wrong = packed_sharing.open(shares[:6], range(6), 4, 2, 9, os.urandom)
    assert wrong == () and not np.array_equal(opened, secrets_of(9))


def test_matrix_products_equal_galois(gf: type[galois.FieldArray]) -> None:
    rng = np.random.default_rng(0)
    for rows, inner, columns in ((1, 1, 1), (3, 4, 5), (2, 7, 9), (5, 130, 3)):
        for left, right in (
            (np.full((rows, inner), PRIME - 1), np.full((inner, columns), PRIME - 1)),
            (rng.integers(0, PRIME, (rows, inner)), rng.integers(0, PRIME, (inner, columns))),
        ):
            product = np.empty((rows, columns), np.uint64)
            _shamir_kernels.matrix_product(left.astype(np.uint64), right.astype(np.uint64), product)
            assert np.array_equal(product, gf(left) @ gf(right))


def test_interpolation_weights_are_those_of_one_target_each() -> None:
    sources = np.array([PRIME - 3, 1, 2, 5, 77, PRIME - 1], np.uint64)
    targets = np.array([0, 3, PRIME - 2, 12345], np.uint64)
    weights = np.empty((4, 6), np.uint64)
    _shamir_kernels.interpolation_matrix(sources, targets, weights)
    for target, row in zip(targets, weights, strict=True):
        single = np.empty(6, np.uint64)
        _shamir_kernels.lagrange_weights(sources, target, single)
        assert np.array_equal(row, single)


def test_bad_arguments() -> None:
    rand = kit.rand(b"bad")
    secrets = secrets_of(6)
    for bad in (secrets.astype(np.int64), secrets[:0], secrets.reshape(2, 3)):
        with pytest.raises(ParameterError, match="secrets"):
            deal(bad, 2, 2, 5, rand)
    with pytest.raises(ParameterError, match="secrets"):
        deal(np.array([PRIME], np.uint32), 2, 2, 5, rand)
    for per, randomness, members, name in (
        (0, 2, 5, "per_polynomial"),
        (2, 0, 5, "randomness"),
        (2, 2, 3, "members"),
        (2, 2, PRIME - 3, "members"),
    ):
        with pytest.raises(ParameterError, match=name):
            deal(secrets, per, randomness, members, rand)
    shares = deal(secrets, 2, 2, 5, rand)
    for answers, members, count, name in (
        (shares, range(4), 6, "shares"),
        (shares, range(5), 7, "shares"),
        (shares.astype(np.uint64), range(5), 6, "shares"),
        (shares, range(5), 0, "shares"),
        (shares, [0, 1, 2, 3, 3], 6, "holders"),
        (shares, [0, 1, 2, 3, PRIME - 2], 6, "members"),
        (np.full_like(shares, PRIME), range(5), 6, "shares"),
    ):
        with pytest.raises(ParameterError, match=name):
            packed_sharing.open(answers, members, 2, 2, count, rand)
    with pytest.raises(ParameterError, match="per_polynomial"):
        packed_sharing.open(shares, range(5), 2, 0, 6, rand)
    with pytest.raises(TooFewSurvivorsError, match="3 clients answered, 4 are needed"):
        packed_sharing.open(shares[:3], range(3), 2, 2, 6, rand)
