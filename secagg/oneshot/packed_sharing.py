"""Packed secret sharing over GF(2^31 - 1): several secrets in one polynomial.

Polynomial p of degree below T + l takes secrets p l .. p l + l - 1 as values at the points -1, -2,
.., -l, and uniform values at those of the first T members; member h has the point h + 1. So any
T members' shares are independent of the secrets, and any T + l give them. Sums of shares are
shares of the sums.

*Wrong answers.* An answer is wrong at one place of many words, one for each polynomial. Decoding
all of them would be slow: instead a few random combinations of the columns are decoded, which the
answers cannot depend on. An answer wrong anywhere is wrong in some combination, except with a
probability of p^-4 < 2^-123. Up to (m - T - l) / 2 wrong answers are found and left out. If more
*seem* to be wrong nothing is given out, since then another polynomial may fit as well.

Source: Franklin and Yung 1992 (packed sharing).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from secagg import _shamir_kernels
from secagg.checks import require_int
from secagg.decoding import wrong_shares
from secagg.errors import ParameterError, TooFewSurvivorsError, WrongAnswersError
from secagg.shamir import PRIME, Rand, points_of, random_elements

COMBINATIONS = 4
"""Random combinations of all columns that wrong answers are looked for in."""


def polynomials_of(count: int, per_polynomial: int) -> int:
    """How many polynomials hold `count` secrets."""
    return -(-count // per_polynomial)


def deal(
    secrets: NDArray[np.unsignedinteger],
    per_polynomial: int,
    randomness: int,
    members: int,
    rand: Rand,
) -> NDArray[np.uint32]:
    """Share secrets so that any T + l members open them and any T learn nothing.

    Args:
        secrets: uint32 or uint64[count], below 2^31 - 1; missing ones of the last polynomial are 0.

    Returns:
        uint32[members, polynomials].
    """
    _check_numbers(per_polynomial, randomness, members)
    if secrets.ndim != 1 or not secrets.size or secrets.dtype not in (np.uint32, np.uint64):
        given = f"{secrets.dtype}{secrets.shape}"
        raise ParameterError("secrets", given, "uint32 or uint64[count], count from 1 on")
    if int(secrets.max()) >= PRIME:
        raise ParameterError("secrets", "out of range", "below 2^31 - 1")
    polynomials = polynomials_of(secrets.size, per_polynomial)
    known = np.zeros((per_polynomial + randomness, polynomials), np.uint64)
    padded = np.zeros(polynomials * per_polynomial, np.uint64)
    padded[: secrets.size] = secrets
    known[:per_polynomial] = padded.reshape(polynomials, per_polynomial).T
    drawn = random_elements(randomness * polynomials, rand).reshape(randomness, polynomials)
    known[per_polynomial:] = drawn
    shares = np.empty((members, polynomials), np.uint32)
    shares[:randomness] = drawn
    others = np.empty((members - randomness, polynomials), np.uint64)
    matrix = _dealing_matrix(per_polynomial, randomness, members)
    _shamir_kernels.matrix_product(matrix, known, others)
    shares[randomness:] = others
    return shares


def open(
    shares: NDArray[np.uint32],
    members: Sequence[int],
    randomness: int,
    per_polynomial: int,
    count: int,
    rand: Rand,
) -> tuple[NDArray[np.uint32], tuple[int, ...]]:
    """Secrets from the answers of T + l or more members, some of which may be wrong.

    With exactly T + l answers nothing can be checked.

    Args:
        shares: uint32[m, polynomials], below 2^31 - 1.

    Returns:
        The secrets, uint32[count], and the members with wrong answers, in the order given.
    """
    points = points_of(members)
    _check_numbers(per_polynomial, randomness, None)
    if int(points.max()) >= PRIME - per_polynomial:
        raise ParameterError("members", "out of range", f"below {PRIME - 1 - per_polynomial}")
    polynomials = polynomials_of(count, per_polynomial)
    if count < 1 or shares.dtype != np.uint32 or shares.shape != (len(members), polynomials):
        given = f"{shares.dtype}{shares.shape}"
        raise ParameterError("shares", given, f"uint32({len(members)}, {polynomials})")
    if int(shares.max()) >= PRIME:
        raise ParameterError("shares", "out of range", "below 2^31 - 1")
    needed = randomness + per_polynomial
    if len(members) < needed:
        raise TooFewSurvivorsError("open", len(members), needed)
    wide = shares.astype(np.uint64)
    wrong = _find_wrong(wide, members, needed, rand)
    right = [i for i, member in enumerate(members) if member not in set(wrong)][:needed]
    opened = interpolate(shares[right], [members[i] for i in right], per_polynomial)
    return opened.reshape(-1)[:count], wrong


def interpolate(
    shares: NDArray[np.uint32], members: Sequence[int], per_polynomial: int
) -> NDArray[np.uint32]:
    """Secrets from the right answers of exactly T + l members.

    Args:
        shares: uint32[T + l, polynomials], below 2^31 - 1.

    Returns:
        uint32[polynomials, l].
    """
    weights = np.empty((per_polynomial, len(members)), np.uint64)
    targets = _secret_points(per_polynomial)
    _shamir_kernels.interpolation_matrix(points_of(members), targets, weights)
    opened = np.empty((per_polynomial, shares.shape[1]), np.uint64)
    _shamir_kernels.matrix_product(weights, shares.astype(np.uint64), opened)
    return opened.T.astype(np.uint32)


def _find_wrong(
    shares: NDArray[np.uint64], members: Sequence[int], needed: int, rand: Rand
) -> tuple[int, ...]:
    """The members whose answers are off the polynomials of all others."""
    words = shares
    if shares.shape[1] > COMBINATIONS:
        factors = random_elements(shares.shape[1] * COMBINATIONS, rand)
        words = np.empty((len(members), COMBINATIONS), np.uint64)
        _shamir_kernels.matrix_product(shares, factors.reshape(-1, COMBINATIONS), words)
    found = wrong_shares(words.astype(np.uint32), members, needed)
    if found is None or 2 * len(found) > len(members) - needed:
        raise WrongAnswersError(len(members), needed)
    return found


def _secret_points(per_polynomial: int) -> NDArray[np.uint64]:
    """-1, -2, ..., -l."""
    return np.uint64(PRIME) - np.arange(1, per_polynomial + 1, dtype=np.uint64)


@lru_cache(maxsize=8)
def _dealing_matrix(per_polynomial: int, randomness: int, members: int) -> NDArray[np.uint64]:
    """Takes the secrets and the first T shares to all other shares."""
    known = np.concatenate([_secret_points(per_polynomial), points_of(range(randomness))])
    others = np.arange(randomness + 1, members + 1, dtype=np.uint64)
    matrix = np.empty((others.size, known.size), np.uint64)
    _shamir_kernels.interpolation_matrix(known, others, matrix)
    return matrix


def _check_numbers(per_polynomial: int, randomness: int, members: int | None) -> None:
    require_int("per_polynomial", per_polynomial, 1, PRIME // 2 - 1)
    require_int("randomness", randomness, 1, PRIME // 2 - 1)
    if members is not None:
        fewest, most = per_polynomial + randomness, PRIME - 2 - per_polynomial
        require_int("members", members, fewest, most)
