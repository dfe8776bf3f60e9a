"""Inversion: short words enumerated, refinement forced, layout pinned, wrong twins rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any

import numpy as np
import pytest
from dp_laws import Oracle, law_p_value, leading_bits
from dp_statistics import ALPHA
from numpy.typing import NDArray

from dp import keystream
from dp.keystream import Keystream, NoiseSeed, Usage
from dp.sampling import (
    BinomialLaw,
    DiscreteGaussianLaw,
    SkellamLaw,
    _kernels,
    inversion,
    sample_law,
)
from dp.sampling.certified import Cumulative, window
from dp.sampling.inversion import _later_words, _refine, accumulate_law, inversion_table

LAWS: list[Oracle] = [
    DiscreteGaussianLaw(0.3),
    DiscreteGaussianLaw(20.0),
    SkellamLaw(2.5),
    BinomialLaw(9, 0.5),
    BinomialLaw(40, 0.3125),
]
SAMPLES = 60_000
ids = {"ids": repr}


class OutOfWordsError(Exception):
    """More bits were asked for than the test enumerates."""


def _just(*words: int) -> Iterator[int]:
    yield from words
    raise OutOfWordsError


def _decided(
    table: Any, words: NDArray[Any], kernel: Callable[..., int] = _kernels.add_decided
) -> list[int | None]:
    """What each word decides, on its own."""
    out = np.zeros(words.size, dtype=np.int64)
    look_up = (table.words, table.guide, table.shift, table.first)
    pieces = zip(np.split(words, words.size), np.split(out, words.size), strict=True)
    return [int(one[0]) if kernel(word, *look_up, one) else None for word, one in pieces]


def _sample(law: Oracle, seed: NoiseSeed, length: int, word_bits: int) -> NDArray[np.int64]:
    out = np.zeros(length, dtype=np.int64)
    accumulate_law(law, seed, out, word_bits)
    return out


@pytest.mark.parametrize("law", LAWS, **ids)
def test_all_words_of_sixteen_bits_in_two_steps(law: Oracle) -> None:
    """Of the 2^16 beginnings of U, exactly those strictly between two F's decide, and rightly."""
    found: Counter[int] = Counter()
    undecided = 0
    first = _decided(inversion_table(law, 8), np.arange(256, dtype=np.uint8))
    for word, value in enumerate(first):
        if value is not None:
            found[value] += 256
            continue
        for later in range(256):
            try:
                found[_refine(law, word, 8, _just(later))] += 1
            except OutOfWordsError:
                undecided += 1
    edges = {leading_bits(law, x, 16) for x in range(min(found) - 3, max(found) + 4)}
    assert undecided == len({edge for edge in edges if edge < 1 << 16}) - (
        # F = 0 below a bounded support is no candidate, unless F(0) looks like it.
        isinstance(law, BinomialLaw) and leading_bits(law, 0, 16) > 0
    )
    for x, count in found.items():
        low, high = leading_bits(law, x - 1, 16), leading_bits(law, x, 16)
        starts_here = isinstance(law, BinomialLaw) and x == 0
        assert count == high - low - (not starts_here)
    assert sum(found.values()) + undecided == 1 << 16


@pytest.mark.parametrize("law", LAWS, **ids)
def test_a_word_on_an_edge_goes_to_either_side(law: Oracle) -> None:
    """32 bits: later bits of all zeros stay below the edge, of all ones pass it."""
    table = inversion_table(law)
    inner = [i for i, word in enumerate(table.words.tolist()) if 0 < word < 2**32 - 1]
    for i in inner[:: max(len(inner) // 6, 1)]:
        x, word = int(table.first) + i, int(table.words[i])
        assert _decided(table, table.words[i : i + 1]) == [None]
        exact = leading_bits(law, x, 128) == word << 96
        assert _refine(law, word, 32, repeat(2**32 - 1)) == x + 1
        if not exact:
            assert _refine(law, word, 32, repeat(0)) == x


@pytest.mark.parametrize("law", [DiscreteGaussianLaw(20.0), SkellamLaw(2.5)], **ids)
def test_the_extreme_words_reach_beyond_the_table(law: Oracle) -> None:
    table = inversion_table(law)
    last = int(table.first) + table.words.size - 2
    ones = 2**32 - 1
    lower = _refine(law, 0, 32, iter([0, 0, 0, 0, 12345]))
    upper = _refine(law, ones, 32, iter([ones, ones, ones, ones, 2**32 - 12345]))
    assert lower < int(table.first)
    assert upper > last
    assert lower == -upper
    position = leading_bits(law, lower - 1, 192), leading_bits(law, lower, 192)
    assert position[0] < 12345 < position[1]


def test_refinement_goes_as_deep_as_it_must() -> None:
    """The later bits of F(0) itself, wrong only in the sixth word."""
    law = DiscreteGaussianLaw(3.0)
    bits = leading_bits(law, 0, 48)
    words = list(bits.to_bytes(6, "big"))
    assert _refine(law, words[0], 8, iter([*words[1:5], words[5] - 1])) == 0
    assert _refine(law, words[0], 8, iter([*words[1:5], words[5] + 1])) == 1
    with pytest.raises(OutOfWordsError):
        _refine(law, words[0], 8, _just(*words[1:]))


@pytest.mark.statistical
@pytest.mark.parametrize("word_bits", [8, 16, 32])
@pytest.mark.parametrize("law", LAWS, **ids)
def test_distribution(law: Oracle, word_bits: int, seed: NoiseSeed) -> None:
    p_value = law_p_value(_sample(law, seed, SAMPLES, word_bits), law)
    assert p_value > ALPHA, f"p = {p_value:.3g}; a correct sampler fails with probability {ALPHA}"


@pytest.mark.statistical
@pytest.mark.parametrize("law", [SkellamLaw(64.0), BinomialLaw(4500, 0.5)], **ids)
def test_wide_laws(law: Oracle, seed: NoiseSeed) -> None:
    assert law_p_value(sample_law(law, seed, SAMPLES), law) > ALPHA


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("drawn", "claimed"),
    [
        (DiscreteGaussianLaw(10.0), DiscreteGaussianLaw(20.0)),  # half the variance
        (SkellamLaw(2.5), DiscreteGaussianLaw(2.5)),  # the wrong tail
        (BinomialLaw(39, 0.3125), BinomialLaw(40, 0.3125)),
    ],
    ids=["half", "tail", "missing"],
)
def test_another_law_is_rejected(drawn: Oracle, claimed: Oracle, seed: NoiseSeed) -> None:
    assert law_p_value(_sample(drawn, seed, SAMPLES, 8), claimed) < ALPHA


@pytest.mark.statistical
@pytest.mark.parametrize("bias", [0, 1], ids=["floored", "raised"])
def test_a_table_without_refinement_is_rejected(bias: int, seed: NoiseSeed) -> None:
    """The usual table sampler: F rounded to the word, ties decided at once. Eight bits show it."""
    law = DiscreteGaussianLaw(20.0)
    words = np.empty(SAMPLES, dtype=np.uint8)
    Keystream(seed.derive(Usage.INVERSION)).fill(words)
    table = inversion_table(law, 8)
    side = "right" if bias == 0 else "left"
    samples = np.searchsorted(table.words[:-1], words, side=side) + table.first
    assert law_p_value(samples.astype(np.int64), law) < ALPHA


@pytest.mark.statistical
def test_a_refinement_that_is_not_random_is_rejected(
    seed: NoiseSeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken twin: later bits are always the same."""
    monkeypatch.setattr(inversion, "_later_words", lambda *_: repeat(128))
    law = DiscreteGaussianLaw(20.0)
    assert law_p_value(_sample(law, seed, SAMPLES, 8), law) < ALPHA


@pytest.mark.parametrize("word_bits", [8, 16, 32])
@pytest.mark.parametrize("chunk", [8, 64, 4096])
def test_chunks_do_not_matter(
    word_bits: int, chunk: int, seed: NoiseSeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    law = SkellamLaw(30.0)
    whole = _sample(law, seed, 3001, word_bits)
    monkeypatch.setattr(keystream, "CHUNK_BYTES", chunk)
    np.testing.assert_array_equal(_sample(law, seed, 3001, word_bits), whole)
    np.testing.assert_array_equal(_sample(law, seed, 777, word_bits), whole[:777])


@pytest.mark.parametrize("law", LAWS, **ids)
def test_layout_in_plain_python(law: Oracle, seed: NoiseSeed) -> None:
    words = np.empty(500, dtype="<u4")
    Keystream(seed.derive(Usage.INVERSION)).fill(words)
    expected = [inversion._cumulative(law, 32).decide(int(word)) for word in words]
    assert sample_law(law, seed, 500).tolist() == expected


def test_further_words_of_a_few_in_a_million(seed: NoiseSeed) -> None:
    """Against 128 bits of each coordinate's number, taken at once; what was there stays."""
    law, length = SkellamLaw(1e6), 10**6
    words = np.empty(length, dtype="<u4")
    Keystream(seed.derive(Usage.INVERSION)).fill(words)
    ties = np.flatnonzero(np.isin(words, inversion_table(law).words)).tolist()
    assert 0 < len(ties) < 20
    out = np.full(length, 1000)
    accumulate_law(law, seed, out)
    for i in [0, *ties, length - 1]:
        number = int(words[i])
        for later in islice(_later_words(seed, i, 32), 3):
            number = number << 32 | later
        assert out[i] - 1000 == inversion._cumulative(law, 128).decide(number)


def test_vectors_for_a_fixed_seed(seed: NoiseSeed) -> None:
    """Pinned: a change here breaks every client that must rebuild its noise."""
    assert sample_law(DiscreteGaussianLaw(900.0), seed, 8).tolist() == EXPECTED_GAUSSIAN
    assert sample_law(SkellamLaw(900.0), seed, 8).tolist() == EXPECTED_SKELLAM
    assert sample_law(BinomialLaw(10_000, 0.5), seed, 8).tolist() == EXPECTED_BINOMIAL
    assert _sample(DiscreteGaussianLaw(900.0), seed, 24, 8).tolist() == EXPECTED_REFINED


def test_streams_are_separate(seed: NoiseSeed) -> None:
    subs = [
        seed.derive(usage, index)
        for usage in (Usage.INVERSION, Usage.REFINEMENT, Usage.COINS, Usage.SERVER_NOISE)
        for index in (None, 0, 1, 2**64 - 1)
    ]
    assert len({sub.material for sub in subs}) == len(subs)
    first = [next(_later_words(seed, index, 32)) for index in range(50)]
    assert len(set(first)) == 50


def test_no_usage_can_pass_for_a_numbered_one() -> None:
    assert not any(b"/" in usage.value for usage in Usage)


@pytest.mark.parametrize("word_bits", [8, 16, 32])
@pytest.mark.parametrize("kernel", [_kernels.add_decided, _kernels.add_decided.py_func])
def test_words_are_looked_up_until_one_is_an_entry(
    kernel: Callable[..., Any], word_bits: int, generator: np.random.Generator
) -> None:
    """Against `Cumulative.decide`, for tables with many equal and neighbouring entries."""
    top = 1 << word_bits
    drawn = [int(v) % (top - 2) for v in generator.integers(0, 2**63, 40)]
    entries = sorted([*drawn, *drawn[:9], *(e + 1 for e in drawn[20:]), *range(50, 70)])
    cumulative = window(-7, entries, word_bits)

    @dataclass(frozen=True)
    class Fixed:
        def cumulative(self, bits: int) -> Cumulative:
            return cumulative

    table = inversion_table(Fixed(), word_bits)
    near = [entry + step for entry in entries for step in (-1, 0, 1) if 0 <= entry + step < top]
    words = np.array(near, dtype=f"<u{word_bits // 8}")
    expected = [cumulative.decide(int(word)) for word in words]
    assert expected.count(None) > 0
    assert _decided(table, words, kernel) == expected
    assert _decided(table, np.array([top - 1], words.dtype), kernel) == [None]
    free = ~np.isin(words, entries)
    row = np.concatenate([words[free], words[~free][:1], words[free]])
    out = np.full(row.size, 1000)
    stop = kernel(row, table.words, table.guide, table.shift, table.first, out)
    assert stop == np.count_nonzero(free)
    assert (out[:stop] - 1000).tolist() == [value for value in expected if value is not None]
    assert set(out[stop:]) == {1000}


def test_tables_are_kept_and_cannot_be_written_to() -> None:
    table = inversion_table(SkellamLaw(5.0))
    assert inversion_table(SkellamLaw(5.0)) is table
    with pytest.raises(ValueError, match="read-only"):
        table.words[0] = 1


def test_a_table_that_is_too_large_is_refused(
    seed: NoiseSeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inversion, "MAX_ENTRIES", 20)
    with pytest.raises(ValueError, match="at most 20"):
        sample_law(SkellamLaw(77.0), seed, 1)


def test_no_coordinates(seed: NoiseSeed) -> None:
    assert sample_law(SkellamLaw(5.0), seed, 0).shape == (0,)


EXPECTED_GAUSSIAN = [1, -26, 20, -44, 0, 36, -10, -2]
EXPECTED_SKELLAM = [1, -26, 19, -44, 0, 36, -10, -2]
EXPECTED_BINOMIAL = [5002, 4956, 5033, 4927, 5001, 5060, 4983, 4996]
EXPECTED_REFINED = [
    34,
    -10,
    49,
    1,
    21,
    4,
    23,
    -26,
    -30,
    7,
    77,
    19,
    -22,
    1,
    10,
    -44,
    -13,
    28,
    -43,
    1,
    15,
    -6,
    27,
    36,
]
