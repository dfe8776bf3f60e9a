"""What a server can make of a draw, by enumeration and by trying: the bound of the argument.

This is independent of the product's code, but for its figures in the end: tickets are drawn by
counting, or by plain SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations, product
from math import comb

import pytest

from secagg.grinding import MOST_TRIES
from secagg.oneshot.draw_bound import (
    BITS_WITH_BEACON,
    BITS_WITHOUT_BEACON,
    MOST_BEACONS,
    draw_failure,
)

CORRUPT, QUARTER = 12, 1 << 62
"""Corrupt identities of the registries that are tried, and a ticket's bound, of 2^64."""


def tail(trials: int, odds: Fraction, most: int) -> Fraction:
    """P[Bin(trials, odds) > most]."""
    return sum(
        (
            comb(trials, k) * odds**k * (1 - odds) ** (trials - k)
            for k in range(most + 1, trials + 1)
        ),
        Fraction(0),
    )


def draws(registry: int, odds: Fraction) -> Iterator[tuple[Fraction, frozenset[int]]]:
    """Every set of candidates, with its probability."""
    for outcome in product((False, True), repeat=registry):
        chosen = frozenset(i for i, drawn in enumerate(outcome) if drawn)
        yield odds ** len(chosen) * (1 - odds) ** (registry - len(chosen)), chosen


def most_seated(candidates: frozenset[int], corrupt: int, size: int) -> int:
    """Corrupt members of the worst committee of a size; -1 if there is none."""
    seated = (sum(i < corrupt for i in some) for some in combinations(sorted(candidates), size))
    return max(seated, default=-1)


@pytest.mark.parametrize("odds", [Fraction(1, 2), Fraction(1, 4)])
@pytest.mark.parametrize("registry", range(1, 8))
def test_the_server_seats_more_than_c_exactly_as_often_as_the_tail(
    registry: int, odds: Fraction
) -> None:
    for corrupt in range(registry + 1):
        exceeded = [Fraction(0)] * (registry + 1)
        for weight, candidates in draws(registry, odds):
            # The server is free in the size as well.
            sizes = range(1, len(candidates) + 1)
            worst = max((most_seated(candidates, corrupt, s) for s in sizes), default=0)
            for c in range(worst):
                exceeded[c] += weight
        assert exceeded == [tail(corrupt, odds, c) for c in range(registry + 1)]


def test_a_blind_pick_is_not_what_the_server_makes() -> None:
    """Two of six are seated; three are corrupt: both, in half of the draws instead of a fifth."""
    both = sum(
        weight
        for weight, candidates in draws(6, Fraction(1, 2))
        if most_seated(candidates, 3, 2) == 2
    )
    assert both == tail(3, Fraction(1, 2), 1) == Fraction(1, 2)
    assert Fraction(comb(3, 2), comb(6, 2)) == Fraction(1, 5)


# -- trying -----------------------------------------------------------------------------------


def ticket(*parts: bytes) -> int:
    return int.from_bytes(hashlib.sha256(b"|".join(parts)).digest()[:8], "little")


def worst_of(tries: int, seed_of: Callable[[int], bytes]) -> int:
    """Most corrupt candidates under any of so many seeds."""
    names = [b"%d" % i for i in range(CORRUPT)]
    return max(
        sum(ticket(seed, name) < QUARTER for name in names) for seed in map(seed_of, range(tries))
    )


def allowed(tries: int) -> tuple[int, int]:
    """Most corrupt candidates that so many tries find, but for 1e-6, and fewest."""
    odds, alpha = Fraction(1, 4), Fraction(1, 10**6)
    most = next(c for c in range(CORRUPT + 1) if tries * tail(CORRUPT, odds, c) <= alpha)
    # (1 - p)^tries is how often none is above c.
    fewest = max(
        c + 1 for c in range(CORRUPT) if (1 - float(tail(CORRUPT, odds, c))) ** tries <= 1e-6
    )
    return fewest, most


@pytest.mark.parametrize("what", ["session", "registry"])
def test_tries_find_what_the_union_bound_allows(what: str) -> None:
    """Another session, or another registry: either is one more try, and no better."""
    tries = 1 << 14
    found = worst_of(
        tries, lambda number: hashlib.sha256(b"%s %d" % (what.encode(), number)).digest()
    )
    fewest, most = allowed(tries)
    assert fewest <= found <= most
    assert found < CORRUPT


def test_without_the_root_every_identity_is_ground_alone() -> None:
    """The tickets of a known session are hashes of names that a server makes up one by one."""
    tries, candidates = 0, 0
    while candidates < CORRUPT:
        candidates += ticket(b"session", b"%d" % tries) < QUARTER
        tries += 1
    # 12 successes of chance 1/4: more than 200 tries have chance P[Bin(200, 1/4) < 12] < 1e-6.
    assert 1 - tail(200, Fraction(1, 4), CORRUPT - 1) < Fraction(1, 10**6)
    assert tries <= 200


def test_what_is_left_after_all_tries() -> None:
    assert MOST_TRIES * 2.0**-128 == 2.0**-68
    beacons = 365.25 * 86400 / 3
    assert 2**23 < beacons < 2**24
    assert beacons < MOST_BEACONS
    assert draw_failure(BITS_WITH_BEACON, beacon=True) == 2.0**-40
    assert draw_failure(BITS_WITHOUT_BEACON, beacon=False) == 2.0**-68
    assert draw_failure(8, beacon=False) == 1.0
