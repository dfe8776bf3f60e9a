"""The keyed hashes: seeds, seeking, uniformity, and independence of buckets and signs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2_contingency, chisquare
from sketch_kit import ALPHA, SEED, critical_value, seed_of

from sketch import PublicSeed
from sketch.hashing import (
    CHUNK,
    LABEL,
    MAX_COLUMNS,
    Keystream,
    Scratch,
    Usage,
    apply_signs,
    buckets,
    chunks,
    chunks_of_rows,
    derive_key,
    signs,
)

BORDERS = [0, 1, 3, 4, 7, 8, 127, 128, 129, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK]


class TestPublicSeed:
    def test_shows_its_bytes(self) -> None:
        assert repr(SEED) == f"PublicSeed({bytes(range(32)).hex()})"

    def test_equal_bytes_are_equal_seeds(self) -> None:
        assert PublicSeed(bytes(range(32))) == SEED
        assert hash(PublicSeed(bytes(range(32)))) == hash(SEED)


class TestKeys:
    def test_every_usage_and_row_has_its_own(self) -> None:
        keys = {derive_key(SEED, usage, row) for usage in Usage for row in range(300)}
        assert len(keys) == len(Usage) * 300

    def test_label_carries_a_version(self) -> None:
        assert LABEL.endswith(b"/1")


class TestSeeking:
    """A range of coordinates has the same hashes however it is reached."""

    COUNT = 2 * CHUNK + 300
    ALL_BUCKETS = buckets(SEED, 2, 977, 0, COUNT)
    ALL_SIGNS = signs(SEED, 2, 0, COUNT)

    @pytest.mark.parametrize("start", BORDERS)
    @pytest.mark.parametrize("length", [0, 1, 5, 130, 300])
    def test_borders(self, start: int, length: int) -> None:
        stop = start + length
        np.testing.assert_array_equal(
            buckets(SEED, 2, 977, start, stop), self.ALL_BUCKETS[start:stop]
        )
        np.testing.assert_array_equal(signs(SEED, 2, start, stop), self.ALL_SIGNS[start:stop])

    @given(st.integers(0, COUNT), st.integers(0, COUNT))
    def test_any_range(self, a: int, b: int) -> None:
        start, stop = min(a, b), max(a, b)
        np.testing.assert_array_equal(
            buckets(SEED, 2, 977, start, stop), self.ALL_BUCKETS[start:stop]
        )
        np.testing.assert_array_equal(signs(SEED, 2, start, stop), self.ALL_SIGNS[start:stop])

    @pytest.mark.parametrize("dimension", [1, 7, CHUNK - 1, CHUNK, CHUNK + 1, COUNT])
    def test_chunks_tile_the_coordinates(self, dimension: int) -> None:
        reached = 0
        for chunk in chunks(SEED, 2, dimension):
            assert chunk.start == reached
            assert chunk.words.dtype == np.uint32
            reached = chunk.stop
            span = slice(chunk.start, chunk.stop)
            found = (chunk.words.astype(np.uint64) * np.uint64(977)) >> np.uint64(32)
            np.testing.assert_array_equal(found, self.ALL_BUCKETS[span])
            bits = np.unpackbits(chunk.sign_bytes, bitorder="little")[: found.size]
            np.testing.assert_array_equal(1 - 2 * bits.astype(np.int8), self.ALL_SIGNS[span])
        assert reached == dimension

    def test_rows_take_turns(self) -> None:
        dimension, rows = CHUNK + 300, range(1, 4)
        seen = []
        for row, chunk in chunks_of_rows(SEED, rows, dimension):
            seen.append((row, chunk.start, chunk.stop))
            found = (chunk.words.astype(np.uint64) * np.uint64(977)) >> np.uint64(32)
            np.testing.assert_array_equal(found, buckets(SEED, row, 977, chunk.start, chunk.stop))
            bits = np.unpackbits(chunk.sign_bytes, bitorder="little")[: found.size]
            expected = signs(SEED, row, chunk.start, chunk.stop)
            np.testing.assert_array_equal(1 - 2 * bits.astype(np.int8), expected)
        spans = [(0, CHUNK), (CHUNK, dimension)]
        assert seen == [(row, start, stop) for start, stop in spans for row in rows]

    def test_chunks_reuse_their_buffers(self) -> None:
        addresses = {chunk.words.ctypes.data for chunk in chunks(SEED, 0, 3 * CHUNK)}
        assert len(addresses) == 1

    def test_apply_signs_across_its_chunks(self) -> None:
        length = 32 * CHUNK + 77
        values = np.ones(length)
        apply_signs(values, SEED, Usage.ROTATION_LAST)
        np.testing.assert_array_equal(values, signs(SEED, 0, 0, length, Usage.ROTATION_LAST))


def same_key_signs(seed: PublicSeed, row: int, count: int) -> NDArray[np.int8]:
    """A broken twin: the signs are bits of the stream that the buckets come from."""
    key = derive_key(seed, Usage.BUCKET, row)
    bits = np.unpackbits(Keystream(key, Scratch(count // 8)).read(count // 8), bitorder="little")
    return np.where(bits, -1, 1).astype(np.int8)


def same_draw_signs(seed: PublicSeed, row: int, count: int) -> NDArray[np.int8]:
    """A broken twin: bucket and sign of a coordinate are made of one and the same random draw."""
    words = buckets(seed, row, MAX_COLUMNS, 0, count)
    return np.where(words >= 2**31, -1, 1).astype(np.int8)


def honest_signs(seed: PublicSeed, row: int, count: int) -> NDArray[np.int8]:
    """The signs as the library computes them."""
    return signs(seed, row, 0, count)


SignSource = Callable[[PublicSeed, int, int], NDArray[np.int8]]


def table_p_value(seed: PublicSeed, source: SignSource) -> float:
    """Chi-square test that bucket and sign of the same coordinate are independent."""
    count, columns = 2**17, 64
    table = np.zeros((columns, 2))
    sign = source(seed, 0, count)
    np.add.at(table, (buckets(seed, 0, columns, 0, count), (sign > 0).astype(int)), 1)
    return float(chi2_contingency(table).pvalue)


def stream_agreement(seed: PublicSeed, source: SignSource) -> float:
    """How far sign bits agree with the bits of the bucket words, in standard deviations."""
    count = 2**15
    words = buckets(seed, 0, MAX_COLUMNS, 0, count // 32).astype("<u4")
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    agreement = np.mean((source(seed, 0, count) < 0) == (bits == 1))
    return float(abs(agreement - 0.5) * 2 * np.sqrt(count))


@pytest.mark.statistical
class TestIndependence:
    def test_library(self) -> None:
        for number in range(5):
            assert table_p_value(seed_of(number), honest_signs) > ALPHA
            assert stream_agreement(seed_of(number), honest_signs) < critical_value()

    def test_one_draw_for_both_is_caught(self) -> None:
        assert table_p_value(seed_of(0), same_draw_signs) < ALPHA

    def test_one_key_for_both_is_caught(self) -> None:
        assert stream_agreement(seed_of(0), same_key_signs) > critical_value()

    @pytest.mark.parametrize("pair", [(0, 1), (0, 14), (3, 4)])
    def test_rows(self, pair: tuple[int, int]) -> None:
        table = np.zeros((16, 16))
        first, second = (buckets(seed_of(1), row, 16, 0, 2**16) for row in pair)
        np.add.at(table, (first, second), 1)
        assert chi2_contingency(table).pvalue > ALPHA

    def test_buckets_are_uniform(self) -> None:
        for columns in (2, 15, 700):
            counts = np.bincount(buckets(seed_of(2), 0, columns, 0, 2**17), minlength=columns)
            assert chisquare(counts).pvalue > ALPHA

    def test_signs_are_even(self) -> None:
        for usage in (Usage.SIGN, Usage.ROTATION_FIRST, Usage.ROTATION_LAST):
            total = int(signs(seed_of(3), 0, 0, 2**17, usage).sum())
            assert abs(total) < critical_value() * np.sqrt(2**17)
