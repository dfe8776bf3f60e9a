"""Finding wrong shares: all of them up to half of the distance, and nothing that is not so."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import galois
import numpy as np
import pairwise_rounds as kit
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg import ParameterError, _decoding_kernels
from secagg.decoding import wrong_shares
from secagg.shamir import LIMBS, PRIME, split

Shares = np.ndarray

SIZES = [(1, 1), (5, 3), (6, 3), (7, 1), (9, 8), (60, 34), (200, 101)]


@pytest.fixture(scope="module")
def gf() -> type[galois.FieldArray]:
    return galois.GF(PRIME, compile="python-calculate")


def dealt(m: int, t: int, label: bytes = b"dealt") -> Shares:
    """Shares of one secret, held by 3, 5, 7, ...: uint32[m, LIMBS]."""
    holders = holders_of(m)
    return split([hashlib.sha256(label).digest()], holders, t, kit.rand(label))[:, 0]


def holders_of(m: int) -> list[int]:
    return list(range(3, 3 + 2 * m, 2))


def random_lies(rng: np.random.Generator, shares: Shares, liars: list[int]) -> None:
    shares[liars] = rng.integers(0, PRIME, (len(liars), LIMBS))


def one_limb(rng: np.random.Generator, shares: Shares, liars: list[int]) -> None:
    """Every liar changes a limb of its own, so that no limb shows all of them."""
    for place, liar in enumerate(liars):
        limb = place % LIMBS
        shares[liar, limb] = (int(shares[liar, limb]) + 1) % PRIME


def same_shift(rng: np.random.Generator, shares: Shares, liars: list[int]) -> None:
    """Shares of another secret, with which all liars agree."""
    shares[liars] = (shares[liars].astype(np.uint64) + 5) % PRIME


@pytest.mark.parametrize(("m", "t"), SIZES)
@pytest.mark.parametrize("lie", [random_lies, one_limb, same_shift])
def test_up_to_half_of_the_distance_exactly_the_wrong_shares_are_found(
    m: int, t: int, lie: Callable[..., Any]
) -> None:
    rng = np.random.default_rng([m, t])
    for count in sorted({0, 1, (m - t) // 4, (m - t) // 2}):
        if count > (m - t) // 2:
            continue
        shares = dealt(m, t)
        liars = sorted(rng.choice(m, count, replace=False).tolist())
        lie(rng, shares, liars)
        holders = holders_of(m)
        assert wrong_shares(shares, holders, t) == tuple(holders[liar] for liar in liars)


def test_with_lies_of_their_own_many_more_are_found() -> None:
    """22 of 60 with t = 34, where half of the distance is 13: nine limbs tell together."""
    rng = np.random.default_rng(1)
    shares = dealt(60, 34)
    liars = sorted(rng.choice(60, 22, replace=False).tolist())
    random_lies(rng, shares, liars)
    holders = holders_of(60)
    assert wrong_shares(shares, holders, 34) == tuple(holders[liar] for liar in liars)


@pytest.mark.parametrize("count", [14, 20, 26])
def test_too_many_liars_who_agree_are_not_found(count: int) -> None:
    """Their word is nearer to no polynomial, or to their own: never are others found in part."""
    shares = dealt(60, 34)
    same_shift(np.random.default_rng(2), shares, list(range(count)))
    found = wrong_shares(shares, holders_of(60), 34)
    assert found is None or set(found) in (
        set(holders_of(60)[:count]),
        set(holders_of(60)[count:]),
    )


@given(
    m=st.integers(1, 12),
    t=st.integers(1, 12),
    seed=st.integers(0, 2**32),
    changed=st.integers(0, 12),
)
def test_what_is_not_found_lies_on_polynomials(
    gf: type[galois.FieldArray],
    m: int,
    t: int,
    seed: int,
    changed: int,
) -> None:
    """Whatever the lies, and however many: the others' shares are values of one polynomial."""
    t = min(t, m)
    rng = np.random.default_rng(seed)
    shares = dealt(m, t)
    liars = rng.choice(m, min(changed, m), replace=False).tolist()
    [random_lies, one_limb, same_shift][seed % 3](rng, shares, liars)
    holders = holders_of(m)
    found = wrong_shares(shares, holders, t)
    if 2 * len(liars) <= m - t:
        assert found is not None and set(found) <= {holders[liar] for liar in liars}
    if found is None or m - len(found) <= t:
        return
    right = [place for place, holder in enumerate(holders) if holder not in found]
    points = gf([holders[place] + 1 for place in right])
    for limb in range(LIMBS):
        polynomial = galois.lagrange_poly(points[:t], gf(shares[right[:t], limb].astype(int)))
        assert np.array_equal(polynomial(points), shares[right, limb])


def test_syndromes_equal_galois(gf: type[galois.FieldArray]) -> None:
    points = [PRIME - 1, 1, PRIME - 2, 2, PRIME // 2, 12345]
    words = np.full((LIMBS, 6), PRIME - 1, np.uint64)
    words[0] = [0, 1, PRIME - 1, 2, 77, PRIME // 3]
    sums = np.empty((LIMBS, 4), np.uint64)
    _decoding_kernels.syndromes(np.array(points, np.uint64), words, np.uint64(PRIME), sums)
    for j in range(4):
        for limb in range(LIMBS):
            expected = gf(0)
            for i, x in enumerate(points):
                others = np.prod(gf([x]) - gf([y for k, y in enumerate(points) if k != i]))
                expected += gf(int(words[limb, i])) * gf(x) ** j / others
            assert int(sums[limb, j]) == int(expected)


def test_bad_arguments() -> None:
    shares = dealt(5, 3)
    with pytest.raises(ParameterError, match="shares"):
        wrong_shares(shares[:, :0], holders_of(5), 3)
    with pytest.raises(ParameterError, match="shares"):
        wrong_shares(shares[:4], holders_of(5), 3)
    for threshold in (0, 6):
        with pytest.raises(ParameterError, match=r"threshold = \d: must be an int in 1 .. 5"):
            wrong_shares(shares, holders_of(5), threshold)
    with pytest.raises(ParameterError, match="distinct"):
        wrong_shares(shares, [1, 2, 3, 4, 4], 3)
