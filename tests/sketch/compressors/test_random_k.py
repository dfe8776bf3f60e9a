"""Random coordinates: uniform, public, unbiased."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.stats import chisquare
from sketch_kit import ALPHA, assert_mean

from sketch import PublicSeed
from sketch.compressors import RandomK
from sketch.compressors._kernels import draw_distinct
from sketch.compressors.random_k import MAX_ROUNDS, NextRound, random_indices
from sketch.hashing import Usage, derive_key

SEED = PublicSeed(hashlib.sha256(b"tests/sketch/compressors").digest())


def plain_indices(words: list[int], dimension: int, count: int) -> list[int]:
    """A Fisher-Yates shuffle with Lemire's integers, in plain Python."""
    order, stream = list(range(dimension)), iter(words)
    for i in range(count):
        left = dimension - i
        while (product := next(stream) * left) % 2**32 < 2**32 % left:
            pass
        other = i + (product >> 32)
        order[i], order[other] = order[other], order[i]
    return sorted(order[:count])


@pytest.mark.parametrize(("dimension", "count"), [(1, 1), (10, 3), (300, 300), (5000, 7)])
def test_the_portable_definition(dimension: int, count: int) -> None:
    key = derive_key(SEED, Usage.RANDOM_K, 9)
    stream = Cipher(algorithms.AES128(key), modes.CTR(bytes(16))).encryptor().update(bytes(8192))
    words = np.frombuffer(stream, "<u4").tolist()
    expected = plain_indices(words, dimension, count)
    assert random_indices(SEED, 9, dimension, count).tolist() == expected


def test_words_that_would_favour_some_places_are_passed_over() -> None:
    # 2^32 mod 3 = 1: the word 0 alone has a lower half below it.
    order = np.arange(3, dtype=np.uint32)
    words = np.array([0, 0, 2**32 - 1, 5], np.uint32)
    assert draw_distinct(words, order, 0, 3) == 2
    assert order[0] == 2
    assert plain_indices([0, 0, 2**32 - 1, 5, 7], 3, 3) == [0, 1, 2]


@pytest.mark.statistical
def test_every_set_is_as_likely() -> None:
    """Chi-square of the 20 sets of 3 out of 6; a draw with replacement must fail it."""
    sets = {pair: i for i, pair in enumerate(itertools.combinations(range(6), 3))}
    rounds = 20_000

    def p_value(draw: Callable[[int], tuple[int, ...]]) -> float:
        counts = np.zeros(len(sets))
        for number in range(rounds):
            counts[sets[draw(number)]] += 1
        return float(chisquare(counts).pvalue)

    assert p_value(lambda n: tuple(random_indices(SEED, n, 6, 3).tolist())) > ALPHA

    rng = np.random.default_rng(0)

    def neighbours(number: int) -> tuple[int, ...]:
        # A window, half of the time: sets of neighbours come too often.
        if number % 2:
            return tuple(random_indices(SEED, number, 6, 3).tolist())
        start = int(rng.integers(4))
        return (start, start + 1, start + 2)

    assert p_value(neighbours) < ALPHA


@pytest.mark.statistical
def test_unbiased() -> None:
    values = np.random.default_rng(0).normal(size=12)

    def received(unbiased: bool) -> np.ndarray:
        compressor = RandomK(12, 3.5, SEED, unbiased=unbiased, value_bits=64)
        state, out = compressor.initial(), []
        for _ in range(5000):
            message, state = compressor.compress(values, state)
            out.append(compressor.decompress(message))
        return np.array(out)

    # A coordinate is d / k times its value with chance k / d: k = 4.
    variance = values**2 * (12 / 4 - 1)
    assert_mean(received(True), values, variance)
    with pytest.raises(AssertionError, match="mean off by"):
        assert_mean(received(False), values, variance)


def test_what_is_sent() -> None:
    values = np.arange(1.0, 11.0)
    for unbiased, factor in ((True, 2.5), (False, 1.0)):
        compressor = RandomK(10, 2.5, SEED, unbiased=unbiased)
        message, state = compressor.compress(values, NextRound(5))
        assert (compressor.count, state) == (4, NextRound(6))
        received = compressor.decompress(message)
        chosen = random_indices(SEED, 5, 10, 4)
        np.testing.assert_allclose(received[chosen], factor * values[chosen], rtol=1e-7)
        assert np.count_nonzero(received) == 4
        # No index is sent: two bytes in front, four of the round, four for each value.
        assert message.size_bytes == 2 + 4 + 4 * 4


def test_rounds_choose_anew() -> None:
    sets = {tuple(random_indices(SEED, number, 1000, 10).tolist()) for number in range(20)}
    assert len(sets) == 20


def test_rounds_and_messages_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="number must be from 0 to 4294967296, not -1"):
        NextRound(-1)
    compressor = RandomK(10, 2, SEED)
    with pytest.raises(ValueError, match="number must be from 0 to 4294967295, not 4294967296"):
        compressor.compress(np.ones(10), NextRound(MAX_ROUNDS))
    message, _ = RandomK(10, 1, SEED).compress(np.ones(10), NextRound(0))
    with pytest.raises(ValueError, match="message must have 5 numbers, not 10"):
        compressor.decompress(message)
