"""The small cases that docs/one-shot-security.md cites: who learns what from which shares.

Members of a committee of s are the points 1 .. s, the first c of them corrupt: they hold a share of
every honest dealer. The others give away sums.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final

import numpy as np

from simulations.threats.span.algebra import PRIME
from simulations.threats.span.shares import Integers, Sharing, is_one_sum, learned

CHALLENGES: Final = 4
"""Masked combinations of its shares that a member gives for each upload."""


@dataclass(frozen=True, slots=True)
class Committee:
    """s, c, T and l."""

    size: int
    corrupt: int
    randomness: int
    secrets: int = 1

    @property
    def sharing(self) -> Sharing:
        """The polynomials, with the secrets where the protocol has them."""
        return Sharing(self.randomness, self.secrets)


# -- one signed set -------------------------------------------------------------------------------


def signed_set(committee: Committee, dealers: int = 3) -> list[tuple[int, bool]]:
    """All honest members answer on the set of all dealers: what the server learns.

    For every set of c corrupt members: how many combinations of secrets, and whether they say
    nothing but the l sums.
    """
    everybody = range(1, committee.size + 1)
    found = []
    for corrupt in combinations(everybody, committee.corrupt):
        honest = [point for point in everybody if point not in corrupt]
        points, factors = own_shares(corrupt, dealers)
        points += honest
        sums = np.ones((len(honest), dealers), np.int64)
        basis, ranks = learned(
            committee.sharing, points, np.concatenate([factors, sums])[np.newaxis]
        )
        found.append((int(ranks[0]), bool(is_one_sum(basis, committee.secrets)[0])))
    return found


def signed_set_committees(largest: int) -> Iterator[Committee]:
    """Every s up to `largest`, every c < s, and all T and l = 1, 2 that the committee can open."""
    for size in range(2, largest + 1):
        for corrupt, randomness, secrets in product(range(size), range(size), (1, 2)):
            if randomness + secrets <= size:
                yield Committee(size, corrupt, randomness, secrets)


def own_shares(corrupt: Sequence[int], dealers: int) -> tuple[list[int], Integers]:
    """The equations of corrupt members, who hold a share of each dealer."""
    points = [point for point in corrupt for _ in range(dealers)]
    return points, np.tile(np.eye(dealers, dtype=np.int64), (len(corrupt), 1))


# -- the rules of the protocol, and what happens without them ------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, and the computation without it."""

    instead: str  # what is done in its place
    learned: int  # combinations of secrets that the server can compute then
    promised: int  # those that it was meant to have
    with_rule: int  # those that it can compute with the rule


def rules() -> tuple[Rule, ...]:
    """The table of the page, in its order."""
    small, large = Committee(10, 2, 2, 2), Committee(16, 2, 2, 4)
    halves = [[j % 2] for j in range(64)]
    same = [[0]] * 64
    return (
        Rule(
            "two groups answer under two challenges",
            challenged(small, 3, halves),
            6,
            challenged(small, 3, same),
        ),
        Rule(
            "the same, in a larger committee",
            challenged(large, 8, halves),
            32,
            challenged(large, 8, same),
        ),
        Rule(
            "one member, set back, answers under another challenge",
            challenged(small, 3, [[0]] * 9 + [[0, 1]]),
            6,
            challenged(small, 3, [[0]] * 9 + [[0, 0]]),
        ),
        Rule(
            "secret points are members' points, before any opening",
            held_before_opening((1, 2)),
            0,
            held_before_opening((-1, -2)),
        ),
        Rule(
            "limbs of two seeds share a polynomial, one seed is given up",
            given_up(Sharing(2, 4), members=12),
            2,
            given_up(Sharing(2, 2), members=12),
        ),
        Rule(
            "seeds' polynomials have c random coefficients where T members are compromised",
            given_up(Sharing(2, 9), members=6),
            0,
            given_up(Sharing(6, 9), members=6),
        ),
    )


def challenged(
    committee: Committee, polynomials: int, answers: Sequence[Sequence[int]], seed: int = 1
) -> int:
    """How many combinations of the keys' secrets follow from a sum and masked combinations.

    Members give the sum over two dealers, and masked combinations of each dealer's shares.
    """
    dealers, rng = 2, np.random.default_rng(seed)
    challenges = rng.integers(0, PRIME, (2, CHALLENGES, polynomials))
    masks, keys = dealers * CHALLENGES, dealers * polynomials
    points: list[int] = []
    rows: list[Integers] = []

    def give(point: int, row: Integers) -> None:
        points.append(point)
        rows.append(row)

    for member in range(1, committee.size + 1):
        if member <= committee.corrupt:
            for each in np.eye(masks + keys, dtype=np.int64):
                give(member, each)
            continue
        for p in range(polynomials):
            row = np.zeros(masks + keys, np.int64)
            row[masks + p :: polynomials] = 1
            give(member, row)
        for which, dealer, r in product(answers[member - 1], range(dealers), range(CHALLENGES)):
            row = np.zeros(masks + keys, np.int64)
            row[dealer * CHALLENGES + r] = 1
            start = masks + dealer * polynomials
            row[start : start + polynomials] = challenges[which, r]
            give(member, row)
    _, ranks = learned(committee.sharing, points, np.stack(rows)[np.newaxis], hidden=masks)
    return int(ranks[0])


def held_before_opening(secret_points: tuple[int, ...]) -> int:
    """Two corrupt members of T = 2 hold their shares of three dealers; nothing is opened."""
    points, factors = own_shares((1, 2), 3)
    _, ranks = learned(Sharing(2, 2, secret_points), points, factors[np.newaxis])
    return int(ranks[0])


def given_up(sharing: Sharing, members: int) -> int:
    """Limbs that follow if so many members show their shares of one polynomial."""
    factors = np.ones((1, members, 1), np.int64)
    _, ranks = learned(sharing, range(1, members + 1), factors)
    return int(ranks[0])
