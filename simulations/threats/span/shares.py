"""What can be solved for when the shares of unknown polynomials are seen, or sums of such shares.

A sharing polynomial of degree below T + l is known by its values at l secret points and at T
further ones: l unknown secrets and T unknown random coefficients, in the sense that matters here.
Everything that members of a committee give away is a linear equation between these unknowns.
Eliminating the random ones leaves the combinations of secrets that can be computed, and no others.

Source: docs/one-shot-security.md, "Small cases, computed".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from simulations.threats.span.algebra import PRIME, reduce_rows

Integers = NDArray[np.int64]
_SYSTEMS_AT_ONCE = 1 << 13


@dataclass(frozen=True, slots=True)
class Sharing:
    """How secrets lie on polynomials."""

    randomness: int  # T
    secrets: int  # l
    # Where the secrets lie; -1, ..., -l as in the protocol if there are none.
    secret_points: tuple[int, ...] = ()

    @property
    def places(self) -> list[int]:
        """Points whose values stand for the unknowns: T free ones, then the secret ones."""
        secret = self.secret_points or tuple(-1 - i for i in range(self.secrets))
        # Far away from the members and from the secrets.
        free = [PRIME // 2 + i for i in range(self.randomness)]
        return [point % PRIME for point in (*free, *secret)]

    def values(self, points: Sequence[int]) -> Integers:
        """Values at some points as combinations of the unknowns: int64[points, T + l]."""
        places = tuple(self.places)
        rows = [[_lagrange(places, k, x) for k in range(len(places))] for x in points]
        return np.array(rows, np.int64).reshape(len(points), len(places))


def learned(
    sharing: Sharing, points: Sequence[int], factors: Integers, hidden: int = 0
) -> tuple[Integers, Integers]:
    """The combinations of secrets that follow from combinations of shares.

    `factors`, int64[batch, equations, polynomials]: how often the share of each polynomial at that
    equation's point is in what is given away. The first `hidden` polynomials are only there to
    mask; their secrets are eliminated, too. Gives int64[batch, rows, (polynomials - hidden) * l], a
    reduced basis with zero rows after it, and int64[batch], how many combinations there are.
    """
    batch, _, polynomials = factors.shape
    values = sharing.values(points)
    t, width = sharing.randomness, sharing.secrets
    eliminated = polynomials * t + hidden * width
    bases, ranks = [], []
    for start in range(0, batch, _SYSTEMS_AT_ONCE):
        some = factors[start : start + _SYSTEMS_AT_ONCE, :, :, None] % PRIME
        shape = (*some.shape[:2], -1)
        random = (some * values[None, :, None, :t] % PRIME).reshape(shape)
        secret = (some * values[None, :, None, t:] % PRIME).reshape(shape)
        reduced, first = reduce_rows(np.concatenate([random, secret], axis=2), eliminated)
        basis = reduced[:, :, eliminated:]
        rows = np.arange(basis.shape[1])
        basis[rows < first[:, None]] = 0
        # The rows that count to the top: they come in order, and zero rows follow.
        order = np.argsort(rows < first[:, None], axis=1, kind="stable")
        bases.append(np.take_along_axis(basis, order[:, :, None], axis=1))
        ranks.append((basis != 0).any(axis=2).sum(axis=1))
    return np.concatenate(bases), np.concatenate(ranks)


def is_one_sum(basis: Integers, secrets: int) -> NDArray[np.bool_]:
    """Whether what is learned says nothing but sums over one set of polynomials: bool[batch].

    Every combination then has the same coefficients on each polynomial of the set. So there are at
    most l of them; with l = 1 it is the plain sum, or nothing.
    """
    blocks = basis.reshape(*basis.shape[:2], -1, secrets)
    summed = support(basis, secrets)
    first = summed.argmax(axis=1)
    pattern = np.take_along_axis(blocks, first[:, None, None, None], axis=2)
    alike = (blocks == pattern).all(axis=(1, 3))
    one: NDArray[np.bool_] = (alike | ~summed).all(axis=1)
    return one


def support(basis: Integers, secrets: int) -> NDArray[np.bool_]:
    """The polynomials that are in anything that is learned: bool[batch, polynomials]."""
    blocks = basis.reshape(*basis.shape[:2], -1, secrets)
    found: NDArray[np.bool_] = (blocks != 0).any(axis=(1, 3))
    return found


@cache
def _lagrange(places: tuple[int, ...], k: int, x: int) -> int:
    """The weight of the value at place k in the value at x."""
    over = under = 1
    for place in places[:k] + places[k + 1 :]:
        over = over * (x - place) % PRIME
        under = under * (places[k] - place) % PRIME
    return over * pow(under, -1, PRIME) % PRIME
