"""The ends of a search are on the sides that they are said to be on."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dp.search import bracketed, smallest


@given(st.integers(1, 5000), st.integers(-10, 6000), st.integers(1, 5000))
def test_the_smallest_number_is_found_from_any_guess(least: int, guess: int, limit: int) -> None:
    asked: list[int] = []

    def enough(number: int) -> bool:
        asked.append(number)
        return number >= least

    assert smallest(enough, guess, limit) == (least if least <= limit else None)
    assert len(set(asked)) == len(asked) <= 30
    assert all(1 <= number <= limit for number in asked)


@given(st.floats(1e-3, 1e3), st.booleans())
def test_a_bracket_ends_at_neighbouring_floats(point: float, geometric: bool) -> None:
    low, high = bracketed(lambda x: x >= point, 1e-4, 1e4, geometric=geometric)
    assert low < point <= high
    # Half the sum of logarithms may round to an end a little earlier.
    assert high <= (point * (1.0 + 1e-15) if geometric else math.nextafter(low, math.inf))


@pytest.mark.parametrize("geometric", [False, True])
def test_a_bracket_ends_at_its_tolerance(geometric: bool) -> None:
    low, high = bracketed(lambda x: x >= 7.0, 1e-4, 1e4, 1e-3, geometric=geometric)
    assert low < 7.0 <= high
    assert high - low <= 1e-3 * high
    assert high - low > 1e-4 * high
