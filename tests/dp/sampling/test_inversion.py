"""Inversion: short words enumerated, refinement forced, layout pinned, wrong twins rejected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pytest
from dp_laws import Oracle, law_p_value, leading_bits
from dp_statistics import ALPHA

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
from dp.sampling.inversion import _decide, _later_words, _refine, _sample, inversion_table

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


def _first_words(law: Oracle) -> np.ndarray:
    """What each of the 256 words of eight bits decides."""
    out = np.empty(256, dtype=np.int64)
    _decide(inversion_table(law, 8), np.arange(256, dtype=np.uint8), out)
    return out


@pytest.mark.parametrize("law", LAWS, **ids)
def test_all_words_of_sixteen_bits_in_two_steps(law: Oracle) -> None:
    """Of the 2^16 beginnings of U, exactly those strictly between two F's decide, and rightly."""
    found: Counter[int] = Counter()
    undecided = 0
    for word, value in enumerate(_first_words(law)):
        if value != _kernels.UNDECIDED:
            found[int(value)] += 256
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
    """64 bits: later bits of all zeros stay below the edge, of all ones pass it."""
    table = inversion_table(law)
    inner = [i for i, word in enumerate(table.words.tolist()) if 0 < word < 2**64 - 1]
    for i in inner[:: max(len(inner) // 6, 1)]:
        x, word = int(table.first) + i, int(table.words[i])
        out = np.empty(1, dtype=np.int64)
        assert _decide(table, table.words[i : i + 1], out) == 1
        assert out[0] == _kernels.UNDECIDED
        exact = leading_bits(law, x, 128) == word << 64
        assert _refine(law, word, 64, repeat(2**64 - 1)) == x + 1
        if not exact:
            assert _refine(law, word, 64, repeat(0)) == x


@pytest.mark.parametrize("law", [DiscreteGaussianLaw(20.0), SkellamLaw(2.5)], **ids)
def test_the_extreme_words_reach_beyond_the_table(law: Oracle) -> None:
    table = inversion_table(law)
    last = int(table.first) + table.words.size - 1
    lower = _refine(law, 0, 64, iter([0, 12345]))
    upper = _refine(law, 2**64 - 1, 64, iter([2**64 - 1, 2**64 - 12345]))
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
@pytest.mark.parametrize("word_bits", [8, 16, 64])
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
    samples = np.searchsorted(table.words, words.astype(np.uint64), side=side) + table.first
    assert law_p_value(samples.astype(np.int64), law) < ALPHA


@pytest.mark.statistical
def test_a_refinement_that_is_not_random_is_rejected(
    seed: NoiseSeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken twin: later bits are always the same."""
    monkeypatch.setattr(inversion, "_later_words", lambda *_: repeat(128))
    law = DiscreteGaussianLaw(20.0)
    assert law_p_value(_sample(law, seed, SAMPLES, 8), law) < ALPHA


@pytest.mark.parametrize("word_bits", [8, 16, 64])
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
    words = np.empty(500, dtype="<u8")
    Keystream(seed.derive(Usage.INVERSION)).fill(words)
    expected = [inversion._cumulative(law, 64).decide(int(word)) for word in words]
    assert sample_law(law, seed, 500).tolist() == expected


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
    first = [next(_later_words(seed, index, 64)) for index in range(50)]
    assert len(set(first)) == 50


def test_no_usage_can_pass_for_a_numbered_one() -> None:
    assert not any(b"/" in usage.value for usage in Usage)


@pytest.mark.parametrize("word_bits", [8, 16, 64])
@pytest.mark.parametrize("kernel", [_kernels.look_up, _kernels.look_up.py_func])
def test_look_up_counts_entries(
    kernel: Callable[..., Any], word_bits: int, generator: np.random.Generator
) -> None:
    """Against `Cumulative.decide`, for tables with many equal and neighbouring entries."""
    top = 1 << word_bits
    drawn = [int(v) % top for v in generator.integers(0, 2**63, 40)]
    entries = sorted([*drawn, *drawn[:9], *(min(e + 1, top - 1) for e in drawn[20:]), top - 1])
    cumulative = window(-7, entries, word_bits)

    @dataclass(frozen=True)
    class Fixed:
        def cumulative(self, bits: int) -> Cumulative:
            return cumulative

    table = inversion_table(Fixed(), word_bits)
    near = [entry + step for entry in entries for step in (-1, 0, 1) if 0 <= entry + step < top]
    words = np.array(near, dtype=f"<u{word_bits // 8}")
    out = np.empty(words.size, dtype=np.int64)
    count = kernel(words, table.words, table.guide, table.shift, table.first, out)
    expected = [cumulative.decide(int(word)) for word in words]
    assert count == expected.count(None) > 0
    assert [None if v == _kernels.UNDECIDED else v for v in out.tolist()] == expected


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


EXPECTED_GAUSSIAN = [-13, 12, 7, -3, 66, -28, 12, -46]
EXPECTED_SKELLAM = [-13, 12, 7, -3, 66, -28, 12, -46]
EXPECTED_BINOMIAL = [4979, 5019, 5012, 4995, 5109, 4953, 5021, 4923]
EXPECTED_REFINED = [
    *(-14, 13, -29, 1, 10, 4, 19, -13, -1, 31, 37, 34),
    *(2, 17, 2, 12, -25, 23, -11, 18, 17, 21, 0, 7),
]
