"""The small cases that docs/one-shot-security.md cites, computed again."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from simulations.threats.span.algebra import PRIME
from simulations.threats.span.shares import Sharing, is_one_sum, learned, support
from simulations.threats.span.small_cases import (
    Committee,
    own_shares,
    rules,
    signed_set,
    signed_set_committees,
)

Assignments = np.ndarray
"""Ways to give each honest member one of the sets {1}, {2}, {1, 2}: int64[ways, honest], 1 .. 3."""

PAGE = (Path(__file__).parents[3] / "docs" / "one-shot-security.md").read_text()


@pytest.mark.parametrize("size", range(2, 7))
@pytest.mark.slow
def test_one_signed_set_gives_the_sums_exactly_if_t_is_at_least_c(size: int) -> None:
    for committee in signed_set_committees(size):
        if committee.size < size:
            continue
        for rank, plain in signed_set(committee):
            if committee.randomness >= committee.corrupt:
                assert (rank, plain) == (committee.secrets, True)
            else:
                assert rank > committee.secrets
                assert not plain


# -- each member answers on a set of its own ------------------------------------------------------


def two_groups_bound(committee: Committee) -> bool:
    """2T >= s + c, the bound that one would guess without an agreement on one set."""
    return 2 * committee.randomness >= committee.size + committee.corrupt


def three_groups_bound(committee: Committee) -> bool:
    """3T >= 2s + c - 2 and T >= c, the bound that holds in all cases that were computed."""
    enough = 3 * committee.randomness >= 2 * committee.size + committee.corrupt - 2
    return enough and committee.randomness >= committee.corrupt


def assignments(committee: Committee) -> Assignments:
    honest = committee.size - committee.corrupt
    return np.array(list(product((1, 2, 3), repeat=honest)), np.int64)


def without_agreement(committee: Committee, chosen: Assignments) -> np.ndarray:
    """Whether each assignment gives away more than one sum: bool[ways]."""
    corrupt = range(1, committee.corrupt + 1)
    points, own = own_shares(corrupt, 2)
    points += range(committee.corrupt + 1, committee.size + 1)
    sums = np.stack([chosen & 1, chosen >> 1 & 1], axis=2)
    shown = np.broadcast_to(own, (len(chosen), *own.shape))
    basis, _ = learned(committee.sharing, points, np.concatenate([shown, sums], axis=1))
    return ~is_one_sum(basis, committee.secrets)


@pytest.mark.parametrize("size", range(2, 8))
def test_without_agreement_only_the_bound_for_three_groups_holds(size: int) -> None:
    for corrupt in range(size):
        for randomness in range(corrupt, size):
            committee = Committee(size, corrupt, randomness)
            leaks = without_agreement(committee, assignments(committee))
            # On all of these committees the bound is sharp.
            assert leaks.any() != three_groups_bound(committee), committee


def test_two_groups_are_excluded_and_three_are_not() -> None:
    committee = Committee(6, 0, 3)
    assert two_groups_bound(committee)
    assert not three_groups_bound(committee)
    chosen = assignments(committee)
    pairs = [sorted(Counter(row).values()) == [2, 2, 2] for row in chosen.tolist()]
    assert sum(pairs) == 90
    leaks = without_agreement(committee, chosen)
    assert not leaks[~np.array(pairs)].any()
    found = chosen[leaks].tolist()
    assert len(found) == 6
    # The pairs of points (1, 6), (2, 5), (3, 4), in any order.
    assert all(row == row[::-1] and len(set(row)) == 3 for row in found)
    assert [1, 2, 3, 3, 2, 1] in found
    assert "of 90 such assignments 6 leak" in PAGE


def test_the_two_committees_of_up_to_seven_where_the_guess_is_wrong() -> None:
    wrong = [
        (committee.size, committee.corrupt, committee.randomness)
        for committee in (
            Committee(s, c, t) for s in range(2, 8) for c in range(s) for t in range(c, s)
        )
        if two_groups_bound(committee) and not three_groups_bound(committee)
    ]
    assert wrong == [(6, 0, 3), (7, 1, 4)]


def test_the_table_of_rules_is_that_of_the_page() -> None:
    found = [(rule.learned, rule.promised) for rule in rules()]
    assert found == [(12, 6), (48, 32), (9, 6), (6, 0), (4, 2), (4, 0)]
    assert all(rule.with_rule == rule.promised for rule in rules())
    table = PAGE[PAGE.index("| if instead |") : PAGE.index("### Why sets are signed")]
    stated = re.findall(r"\| (\d+)(?: of \d+)? / (\d+) \|", table)
    assert [tuple(map(int, each)) for each in stated] == found


def test_values_are_those_of_the_interpolating_polynomial() -> None:
    sharing = Sharing(2, 2)
    rows = sharing.values([5])
    polynomial = lambda x: (3 + 7 * x + 11 * x * x + 13 * x**3) % PRIME  # noqa: E731
    known = np.array([polynomial(place) for place in sharing.places], object)
    assert int(rows[0].astype(object) @ known) % PRIME == polynomial(5)
    assert sharing.places[2:] == [PRIME - 1, PRIME - 2]


def test_a_sum_is_told_from_what_is_none() -> None:
    def one(*rows: list[int]) -> bool:
        return bool(is_one_sum(np.array([rows], np.int64), 2)[0])

    assert one([0, 0, 0, 0, 0, 0])
    assert one([1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 1])
    assert one([1, 5, 0, 0, 1, 5])
    assert not one([1, 5, 0, 0, 1, 4])
    assert not one([1, 0, 0, 0, 2, 0])
    assert not one([1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 0])
    assert support(np.array([[[1, 0, 0, 0, 1, 0]]]), 2).tolist() == [[True, False, True]]


def test_masks_hide_what_they_are_added_to() -> None:
    factors = np.array([[[1, 1]] * 3])
    sharing = Sharing(1, 1)
    assert learned(sharing, [1, 2, 3], factors, hidden=1)[1].tolist() == [0]
    assert learned(sharing, [1, 2, 3], factors)[1].tolist() == [1]
