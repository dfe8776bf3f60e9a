"""Which of many shares of a secret are wrong: Shamir shares are a Reed-Solomon code.

The m shares of one limb are the values of a polynomial of degree t - 1 at m points, a word of a
code in which two words differ in at least m - t + 1 places. A secret has several limbs (9 for one
of 32 bytes), and whoever gives a wrong share is wrong at one place of all their words. With
N = m - t syndromes for each limb, an error e_h at point X adds e_h v X^j to syndrome j of limb h:
the sequences obey one recurrence, whose roots are the inverses of the points of all wrong shares.
The shortest joint recurrence gives them.

*What is found is true.* If the shortest recurrence of length d has d roots among the points, each
sequence is a sum of the d powers, hence the syndromes of errors at these points alone: all other
shares lie on polynomials of degree t - 1, for every limb.

*Up to N / 2 wrong shares are found.* Let L <= N / 2 be wrong, and let another recurrence of length
<= L hold. Applied to sequence h it is V diag(e_h) (its values at the L points) = 0, with V a
Vandermonde matrix of N - L >= L rows: every wrong share has some e_h != 0, so all L points are its
roots.

With more wrong shares that are random in every one of h limbs the joint recurrence is found up to
h N / (h + 1), except with a probability of about 1/p; a set of liars that wants to prevent this
can. Whatever is found, the caller holds the secret against its commitment.

Source: Feng and Tzeng 1991 (multisequence synthesis); Schmidt, Sidorenko and Bossert 2009
(interleaved Reed-Solomon codes beyond half of the distance); the words above are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from secagg import _decoding_kernels
from secagg.checks import require_int
from secagg.errors import ParameterError
from secagg.shamir import PRIME, points_of


def wrong_shares(
    shares: NDArray[np.unsignedinteger], holders: Sequence[int], threshold: int, prime: int = PRIME
) -> tuple[int, ...] | None:
    """Find the shares of one secret that are off the polynomials of all others.

    Post: the shares of the others are values of polynomials of degree `threshold` - 1.

    Args:
        shares: uint32 or uint64[holders, limbs], below the prime, any number of limbs from 1 on.
        prime: of the field, below 2^50.

    Returns:
        Those holders, in the order given; None if there are no such polynomials within reach.
    """
    if shares.ndim != 2 or shares.shape[0] != len(holders) or not shares.shape[1]:
        raise ParameterError("shares", shares.shape, f"({len(holders)}, limbs)")
    require_int("threshold", threshold, 1, len(holders), ", the holders")
    points = points_of(holders)
    words = np.ascontiguousarray(shares.T).astype(np.uint64)
    sums = np.empty((words.shape[0], len(holders) - threshold), np.uint64)
    p = np.uint64(prime)
    _decoding_kernels.syndromes(points, words, p, sums)
    locator = np.empty(sums.shape[1] + 1, np.uint64)
    length = _decoding_kernels.joint_recurrence(sums, p, locator)
    marked = np.empty(len(holders), np.bool_)
    _decoding_kernels.mark_roots(locator[: length + 1], points, p, marked)
    if np.count_nonzero(marked) != length:
        return None
    return tuple(holder for holder, wrong in zip(holders, marked.tolist(), strict=True) if wrong)
