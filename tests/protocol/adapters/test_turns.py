"""Whose turn it is in a run whose noise comes back."""

from __future__ import annotations

import pytest
from returned_worlds import record

from protocol.adapters.turns import Turns

COHORTS = {0: [b"a", b"b"], 1: [b"c", b"d"], 2: [b"e", b"f"], 5: [b"a", b"c"]}


@pytest.mark.parametrize(
    ("apart", "most", "resting"),
    [
        (1, 3, b""),
        (1, 2, b"ac"),
        (2, 3, b"ac"),
        (3, 2, b"acef"),
        (4, 3, b"acdef"),
        (7, 9, b"abcdef"),
    ],
)
def test_who_would_refuse_the_next_round(apart: int, most: int, resting: bytes) -> None:
    """Of those who were invited to rounds that have a record; that of number 2 has none."""
    turns, seen = Turns(apart=apart, most=most), [0, 1, 3, 5]
    for number, cohort in {**COHORTS, 2: [b"x"], 3: COHORTS[2]}.items():
        turns.invite(number, cohort)
    taken, refusing = turns.taken([record(number) for number in seen])
    assert refusing == {bytes([each]) for each in resting}
    assert taken == {b"a": 2, b"b": 1, b"c": 2, b"d": 1, b"e": 1, b"f": 1}
    assert turns.taken([]) == ({}, set())
