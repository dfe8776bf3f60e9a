"""Enclosures enclose, floors are refused where they are not certain, windows keep what matters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import repeat

import pytest

from dp.sampling.certified import (
    SPARE_BITS,
    Cumulative,
    Interval,
    Ratios,
    floor_of,
    floor_of_rest,
    floors,
    sums_beyond,
    window,
)

THIRD = Fraction(1, 3)


def _geometric(precision: int, bits: int) -> Iterator[Interval]:
    """Ratios that are all 1/3: S(k) = 3^-k / 2."""
    low = (1 << precision) // 3
    return repeat((low, low + 1))


def _enclose(ratio: Fraction, precision: int) -> Interval:
    scaled = ratio * (1 << precision)
    return math.floor(scaled), math.ceil(scaled)


def _finite(ratios: list[Fraction]) -> Ratios:
    return lambda precision, bits: [_enclose(ratio, precision) for ratio in ratios]


@pytest.mark.parametrize(("precision", "bits"), [(60, 8), (200, 64)])
def test_sums_enclose_the_truth_and_end_when_negligible(precision: int, bits: int) -> None:
    sums = sums_beyond(_geometric(precision, bits), precision, bits)
    for k, (low, high) in enumerate(sums):
        assert low <= Fraction(1 << precision) * THIRD**k / 2 <= high
    assert sums[-1][1] <= 1 << (precision - bits - SPARE_BITS) < sums[-3][1]


def test_sums_of_a_finite_support_end_with_zero() -> None:
    half = 1 << 39
    sums = sums_beyond([(half, half)] * 2, 40, 1)
    assert sums == [(half + half // 2,) * 2, (half // 2,) * 2, (0, 0)]


def test_a_ratio_of_one_is_no_end() -> None:
    """The geometric series has no bound there; the sum must go on."""
    one = 1 << 40
    sums = sums_beyond([(one, one)] * 3, 40, 4)
    assert [high >> 40 for _, high in sums] == [3, 2, 1, 0]


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [((3, 3), (8, 8), 6), ((3, 4), (8, 8), None), ((31, 31), (80, 80), 6), ((0, 0), (8, 8), 0)],
)
def test_floor_of_a_quotient(
    part: tuple[int, int], whole: tuple[int, int], expected: int | None
) -> None:
    assert floor_of(part, whole, 4) == expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ((0, 0), 16),  # F = 1
        ((0, 1), 15),  # F < 1, though by less than can be seen
        ((3, 3), None),  # 16 - 6 exactly: might as well be a little below
        ((5, 5), None),
        ((100, 120), 15),
    ],
)
def test_floor_of_the_rest(part: tuple[int, int], expected: int | None) -> None:
    whole = (8000, 8000) if part in [(0, 1), (100, 120)] else (8, 8)
    assert floor_of_rest(part, whole, 4) == expected


def test_floors_of_a_two_sided_geometric_law() -> None:
    """Weights w(k) = 3^-|k| but for w(0) = 3/2: F(-k) = 3^(1-k) / 5 and F(k) = 1 - 3^-k / 5."""

    def half_then_thirds(precision: int, bits: int) -> Iterator[Interval]:
        yield _enclose(Fraction(2, 9), precision)
        yield from _geometric(precision, bits)

    cumulative = floors(5, half_then_thirds, half_then_thirds, 20)
    assert len(cumulative.words) > 20
    for i, word in enumerate(cumulative.words):
        k = cumulative.first + i - 5
        exact = THIRD ** (-k - 1) / 5 if k < 0 else 1 - THIRD**k / 5
        assert word == int(exact * 2**20)


@pytest.mark.parametrize("bits", [1, 8, 33])
def test_floors_of_a_lopsided_finite_law(bits: int) -> None:
    """The law has the weights 1/7, 1, 5/7 and 3/35 on 10, 11, 12 and 13."""
    left, right = [Fraction(1, 7)], [Fraction(5, 7), Fraction(3, 25)]
    cumulative = floors(11, _finite(left), _finite(right), bits)
    weights = [Fraction(1, 7), Fraction(1), Fraction(5, 7), Fraction(3, 35)]
    exact = [sum(weights[: i + 1]) / sum(weights) for i in range(3)]
    words = [int(value * 2**bits) for value in exact]
    expected = window(10, [*words, 1 << bits], bits)
    assert cumulative == expected


def test_an_exact_integer_is_refused_unless_it_is_announced() -> None:
    """Two equal modes: F below the second is 1/2, which no enclosure settles."""
    sides = _finite([Fraction(1), Fraction(1, 5)]), _finite([Fraction(1, 5)])
    with pytest.raises(ArithmeticError, match="integer"):
        floors(3, *sides, 16)
    assert (1 << 15) in floors(3, *sides, 16, halved=True).words


@pytest.mark.parametrize(
    ("words", "first", "kept"),
    [
        ([0, 0, 0, 3, 14, 15, 15, 16], 12, (0, 3, 14, 15)),
        ([1, 3, 16, 16], 10, (1, 3)),
        ([16], 10, ()),
        ([0, 0, 15, 15], 11, (0, 15)),
        ([15, 15], 10, (15,)),
    ],
)
def test_windows(words: list[int], first: int, kept: tuple[int, ...]) -> None:
    assert window(10, words, 4) == Cumulative(first, kept)


def test_deciding_one_word() -> None:
    cumulative = Cumulative(-1, (0, 3, 3, 9, 15))
    answers = {0: None, 1: 0, 2: 0, 3: None, 4: 2, 8: 2, 9: None, 10: 3, 14: 3, 15: None}
    assert {word: cumulative.decide(word) for word in answers} == answers
