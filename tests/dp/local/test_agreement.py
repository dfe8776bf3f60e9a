"""Counts of agreeing vectors against whole numbers; the drawn vectors against their law."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from dp_statistics import ALPHA, chi_square_p_value
from scipy import special

from dp.keystream import NoiseSeed
from dp.local.agreement import AgreementLaw, AgreementSums, agree_in
from dp.local.agreement._kernels import choose_places, replace_elsewhere
from dp.sampling import sample_law
from dp.sampling.certified import floors

CASES = [(1, 2, 1), (5, 2, 3), (7, 3, 1), (7, 3, 7), (40, 16, 9), (599, 16, 269), (600, 2, 301)]
LAWS = [
    AgreementLaw(300, 16, 60, 300),
    AgreementLaw(300, 16, 0, 59),
    AgreementLaw(301, 2, 140, 200),
]


def weights(dimension: int, levels: int) -> list[int]:
    """Vectors that agree in 0, 1, ..., d places."""
    return [
        math.comb(dimension, agreements) * (levels - 1) ** (dimension - agreements)
        for agreements in range(dimension + 1)
    ]


@pytest.mark.parametrize(("dimension", "levels", "threshold"), CASES)
def test_sums_are_those_of_whole_numbers(dimension: int, levels: int, threshold: int) -> None:
    every = weights(dimension, levels)
    low, high = sum(every[:threshold]), sum(every[threshold:])
    step = math.comb(dimension - 1, threshold - 1) * (levels - 1) ** (dimension - threshold)
    sums = AgreementSums(dimension, levels, threshold)
    assert low + high == levels**dimension
    assert sums.log_ratio == pytest.approx(math.log(low) - math.log(high), abs=1e-11)
    assert sums.log_sizes == pytest.approx((math.log(low), math.log(high)), rel=1e-14)
    exact = float(Fraction(step, low)), float(Fraction(step, high))
    assert sums.steps == pytest.approx(exact, rel=1e-14)


@pytest.mark.parametrize(
    ("levels", "threshold"),
    [(2, 513_337), (2, 499_000), (16, 69_060), (16, 62_500), (128, 15_536), (2, 1), (2, 10**6)],
)
def test_sums_of_a_million_coordinates(levels: int, threshold: int) -> None:
    # Logarithms of factorials in doubles have an error of 1e-9 each at this size.
    dimension = 10**6
    counts = np.arange(dimension + 1.0)
    logs = special.gammaln(dimension + 1.0) - special.gammaln(counts + 1.0)
    logs += (dimension - counts) * math.log(levels - 1) - special.gammaln(dimension - counts + 1.0)
    low, high = special.logsumexp(logs[:threshold]), special.logsumexp(logs[threshold:])
    sums = AgreementSums(dimension, levels, threshold)
    assert sums.log_sizes == pytest.approx((low, high), abs=1e-7)
    step = logs[threshold] + math.log(threshold / dimension)
    assert sums.steps == pytest.approx((math.exp(step - low), math.exp(step - high)), rel=1e-7)
    if 1 < threshold < dimension:
        assert sums.log_ratio == pytest.approx(low - high, abs=1e-7)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_enclosures_and_whole_numbers_give_the_same_table(law: AgreementLaw) -> None:
    for bits in (8, 64, 128):
        assert floors(law.mode, law._down, law._up, bits) == law._exact(bits)


def test_a_law_of_many_coordinates_uses_enclosures() -> None:
    law = AgreementLaw(5000, 2, 2600, 5000)
    assert law.cumulative(64) == law._exact(64)


def test_drawn_counts_have_the_law(seed: NoiseSeed) -> None:
    law = AgreementLaw(20, 3, 8, 20)
    chances = np.array(weights(20, 3)[8:], dtype=np.float64)
    drawn = np.bincount(sample_law(law, seed, 100_000) - 8, minlength=13)
    assert chi_square_p_value(drawn, chances / chances.sum()) > ALPHA
    wrong = chances * 1.1 ** np.arange(13)
    assert chi_square_p_value(drawn, wrong / wrong.sum()) < ALPHA


@pytest.mark.parametrize("levels", [2, 3])
def test_drawn_vectors_are_uniform_among_those_that_agree(levels: int, seed: NoiseSeed) -> None:
    rows, length, agreeing = 60_000, 4, 2
    own = np.array([0, 1, levels - 1, 0], dtype=np.int8)
    drawn = np.tile(own, (rows, 1))
    agree_in(drawn, np.full(rows, agreeing), levels, seed)
    assert ((drawn == own).sum(axis=1) == agreeing).all()
    numbers = drawn.astype(np.int64) @ levels ** np.arange(length)
    found = np.bincount(numbers, minlength=levels**length)
    possible = np.array(
        [
            sum(a == b for a, b in zip(vector[::-1], own, strict=True)) == agreeing
            for vector in product(range(levels), repeat=length)
        ]
    )
    assert chi_square_p_value(found[possible], np.full(possible.sum(), 1 / possible.sum())) > ALPHA
    # The twin has one vector in fifty where it should not be.
    biased = found[possible] + (np.arange(possible.sum()) == 0) * (rows // 50)
    assert chi_square_p_value(biased, np.full(possible.sum(), 1 / possible.sum())) < ALPHA


def test_counts_are_kept_in_every_row_whatever_the_pieces(seed: NoiseSeed) -> None:
    # 50,000 coordinates are several pieces of the keystream, and rows begin within pieces.
    counts = np.array([0, 1, 12_345, 49_999, 50_000], dtype=np.int64)
    own = np.arange(5 * 50_000).reshape(5, -1) % 200
    drawn = own.astype(np.int16)
    agree_in(drawn, counts, 200, seed)
    assert ((drawn == own).sum(axis=1) == counts).all()
    assert drawn.min() == 0 and drawn.max() == 199


def test_words_that_would_favour_a_number_are_skipped() -> None:
    # 2^32 mod 3 = 1: of three equally likely numbers the word 0 is one too many.
    words = np.array([0, 2**32 - 1, 0, 1, 2**31], dtype=np.uint32)
    chosen = np.zeros((1, 3), dtype=np.bool_)
    found = choose_places(words, np.array([1]), np.int64(0), np.int64(0), chosen)
    # The last of three: 2 is not below 1. Then of two: 0 is refused by none, as 2^32 mod 2 = 0.
    assert (int(found[0]), int(found[1])) == (3, 0)
    assert chosen.tolist() == [[False, True, False]]
    levels = np.array([2, 0, 1], dtype=np.int8)
    position = replace_elsewhere(
        words, np.array([False, False, True]), np.uint64(3), np.int64(0), levels
    )
    assert int(position) == 3
    # Of the words 2^32 - 1, 1 and 2^31 come the numbers 2, 0 and 1 among the other levels.
    assert levels.tolist() == [3, 1, 1]
