"""Codewords: every distance is counted, and what stands in the book is the largest."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from protocol.statistics.codebooks import (
    Cells,
    Codebook,
    Grouped,
    Moments,
    Paths,
    Tokens,
    moments,
    rounded,
)
from protocol.statistics.items import Votes

BOOKS: dict[str, Codebook] = {
    "cells": Cells(3),
    "paths of one level": Paths(1, 1),
    "paths of two levels": Paths(2, 16),
    "paths of three levels": Paths(3, 5),
    "moments, coarse": moments(64),
    "moments, fine": moments(256),
    "groups": Grouped(3, 64),
}


def vectors(book: Codebook) -> np.ndarray:
    """All codewords, and the vector of a client that is left out: int64[words + 1, length]."""
    found = {(0,) * book.length}
    for word in book.words():
        row = [0] * book.length
        for index, value in word:
            row[index] += value
        found.add(tuple(row))
    return np.array(sorted(found), np.int64)


def extent(rows: np.ndarray) -> tuple[int, int]:
    """The largest squared distance of two vectors, and the largest difference in one place."""
    norms = (rows**2).sum(axis=1)
    apart = max(int((norms + norm - 2 * rows @ row).max()) for row, norm in zip(rows, norms))  # noqa: B905
    return apart, int(np.ptp(rows, axis=0).max())


@pytest.mark.parametrize("name", BOOKS)
def test_no_two_codewords_are_further_apart_than_the_book_says(name: str) -> None:
    book = BOOKS[name]
    apart, widest = extent(vectors(book))
    assert apart == book.square
    assert widest <= book.largest


def test_a_codeword_for_no_answer_that_is_too_long_is_noticed() -> None:
    """The twin: a tree whose cell for no answer is one longer than its paths."""
    book = Paths(3, 5)
    book.missing = ((book.length - 1, book.absent + 1),)
    assert extent(vectors(book))[0] > book.square


@pytest.mark.parametrize(("candidates", "votes"), [(5, 2), (4, 3), (3, 3), (6, 1)])
def test_two_sets_of_votes_are_no_further_apart_than_the_book_says(
    candidates: int, votes: int
) -> None:
    sets = [c for size in range(votes + 1) for c in combinations(range(candidates), size)]
    rows = np.array([[int(each in chosen) for each in range(candidates)] for chosen in sets])
    assert extent(rows)[0] == Votes(candidates, votes).square


def test_every_number_gets_a_codeword_that_was_counted() -> None:
    book = moments(64)
    counted = {word for word in map(tuple, book.words())}
    rng = np.random.default_rng(1)
    for x in np.concatenate([[-1.0, 0.0, 1.0], rng.uniform(-1, 1, 3000)]):
        assert tuple(book.word(float(x), rng.random)) in counted


@pytest.mark.parametrize("x", [-1.0, -0.613, 0.0, 0.25, 0.999])
def test_rounding_is_right_on_average(x: float) -> None:
    """Over all values of the uniform number; rounding to the nearest is not."""
    book, grid = Moments(64), (np.arange(4000) + 0.5) / 4000
    words = np.array([[v for _, v in book.word(x, lambda u=u: u)] for u in grid])
    assert words[:, 1].mean() == pytest.approx(32 * x, abs=1e-3)
    square = book.quadratic * x**2 - book.offset
    assert words[:, 2].mean() == pytest.approx(square, abs=1e-3)
    assert abs(round(0.4) - 0.4) > 0.1  # the twin
    assert {rounded(0.4, lambda u=u: u) for u in (0.39, 0.41)} == {0, 1}


@pytest.mark.parametrize("by_record", [False, True])
@pytest.mark.parametrize("records", [0, 1, 3, 7, 8, 20])
def test_every_record_is_as_likely_as_the_others(records: int, by_record: bool) -> None:
    tokens, grid = Tokens(8, by_record), (np.arange(2000) + 0.5) / 2000
    chosen = [tokens.chosen(records, lambda u=u: u) for u in grid]
    assert {len(each) for each in chosen} == {8}
    counts = np.array([[each.count(at) for at in range(records)] for each in chosen])
    if not records:
        assert chosen[0] == [None] * 8
        return
    each = min(1.0, 8 / records) if by_record else 8 / records
    assert counts.mean(axis=0) == pytest.approx(np.full(records, each), abs=2e-3)
    assert counts.max() <= (1 if by_record else -(-8 // records))
    if records == 8:
        assert chosen[0] == list(range(8))
