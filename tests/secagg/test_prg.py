"""Mask expansion: equal to its definition, seekable, and exactly uniform."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chi2

from secagg import ParameterError, PrimeField, _kernels
from secagg.prg import CHUNK_BYTES, accumulate_masks, expand_mask
from secagg.reference import expand, expand_element

KEY = bytes(range(16))
EXHAUSTIVE_BITS = [8, 9, 15, 16]

# Found by search and checked below: element i of the mask of key number k, with the number of
# streams whose word is refused there. (bits, k, i, refusals)
REJECTIONS = [
    (8, 0, 466870, 3),
    (15, 0, 338201, 2),
    (16, 0, 4083022, 2),
    (24, 0, 1776930, 1),
    (31, 0, 827221075, 1),
    (32, 0, 367145541, 1),
]


def key_of(number: int) -> bytes:
    return hashlib.sha256(b"mask key %d" % number).digest()[:16]


def run_kernel(
    field: PrimeField,
    accumulator: NDArray[np.unsignedinteger],
    words: NDArray[np.unsignedinteger],
    subtract: list[bool],
    skip: int = 0,
) -> list[int]:
    rejected = np.empty(len(subtract) * accumulator.size, np.int64)
    flags = np.array(subtract)
    found = _kernels.accumulate_words(
        accumulator, words, skip, flags, field.modulus, field.word_mask, rejected
    )
    return rejected[:found].tolist()


@pytest.mark.parametrize("bits", EXHAUSTIVE_BITS)
@pytest.mark.parametrize("subtract", [False, True])
def test_refused_words_leave_every_accumulator_as_it_was(bits: int, subtract: bool) -> None:
    field = PrimeField(bits)
    every = np.arange(field.modulus, dtype=field.dtype)
    for word in range(field.modulus, 1 << bits):
        accumulator = every.copy()
        words = np.full((1, every.size), word, field.dtype)
        assert run_kernel(field, accumulator, words, [subtract]) == list(range(every.size))
        assert np.array_equal(accumulator, every)


@pytest.mark.parametrize("bits", [8, 9])
@pytest.mark.parametrize("subtract", [False, True])
def test_all_sums_of_small_fields(bits: int, subtract: bool) -> None:
    field = PrimeField(bits)
    p = field.modulus
    every = np.arange(p, dtype=field.dtype)
    for word in range(p):
        # Bits above the field's must not count.
        words = np.full((1, p), word | (0xFFFF ^ field.word_mask), field.dtype)
        accumulator = every.copy()
        assert run_kernel(field, accumulator, words, [subtract]) == []
        sign = -1 if subtract else 1
        assert np.array_equal(accumulator, (every.astype(np.int64) + sign * word) % p)


@pytest.mark.parametrize("bits", [15, 16, 31, 32, 33, 61, 62])
@pytest.mark.parametrize("subtract", [False, True])
def test_sums_at_the_borders_of_larger_fields(bits: int, subtract: bool) -> None:
    field = PrimeField(bits)
    p = field.modulus
    border = [0, 1, 2, p // 2, p // 2 + 1, p - 2, p - 1]
    before = np.repeat(np.array(border, field.dtype), len(border))
    words = np.tile(np.array(border, field.dtype), len(border))
    accumulator = before.copy()
    assert run_kernel(field, accumulator, words[None, :], [subtract]) == []
    for old, word, new in zip(before.tolist(), words.tolist(), accumulator.tolist(), strict=True):
        assert new == (old - word if subtract else old + word) % p
    for word in {p, p + 1, (p + (1 << bits)) // 2, (1 << bits) - 1} - {1 << bits}:
        accumulator = before.copy()
        words[:] = word
        assert len(run_kernel(field, accumulator, words[None, :], [subtract])) == before.size
        assert np.array_equal(accumulator, before)


def test_rejections_are_reported_by_row_and_column_across_blocks() -> None:
    field = PrimeField(8)
    rng = np.random.default_rng(1)
    length, rows, skip = 5000, 3, 2
    words = rng.integers(0, 1 << 16, (rows, skip + length + 4)).astype(field.dtype)
    accumulator = rng.integers(0, field.modulus, length).astype(field.dtype)
    masked = words[:, skip : skip + length] & np.uint16(255)
    good = np.where(masked < field.modulus, masked, 0).astype(np.int64)
    expected = (accumulator + good[0] - good[1] + good[2]) % field.modulus
    found = run_kernel(field, accumulator, words, [False, True, False], skip)
    assert np.array_equal(accumulator, expected)
    assert sorted(found) == np.flatnonzero(masked.reshape(-1) >= field.modulus).tolist()


@pytest.mark.parametrize("bits", [8, 16, 31, 32, 62])
def test_add_at_with_repeated_positions(bits: int) -> None:
    field = PrimeField(bits)
    p = field.modulus
    values = [0, 1, p - 1, p - 1, p // 2, 0]
    subtract = [False, True, False, True, False, True]
    positions = np.array([0, 0, 1, 0, 1, 1], np.int64)
    accumulator = np.array([0, p - 1], field.dtype)
    expected = [0, p - 1]
    for at, value, minus in zip(positions, values, subtract, strict=True):
        expected[at] = (expected[at] + (-value if minus else value)) % p
    flags = np.array(subtract)
    _kernels.add_at(accumulator, positions, np.array(values, field.dtype), flags, p)
    assert accumulator.tolist() == expected


@pytest.mark.parametrize("bits", [8, 16, 31, 32, 33, 62])
def test_add_vectors(bits: int) -> None:
    field = PrimeField(bits)
    p = field.modulus
    border = np.array([0, 1, p // 2, p - 1], field.dtype)
    a, b = np.repeat(border, 4), np.tile(border, 4)
    expected = [(x + y) % p for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    _kernels.add_vectors(a, b, p)
    assert a.tolist() == expected


@pytest.mark.parametrize("bits", range(8, 63))
def test_expansion_equals_its_definition(bits: int) -> None:
    field = PrimeField(bits)
    assert expand_mask(field, KEY, 150, 3).tolist() == expand(field, KEY, 150, 3)


@settings(max_examples=40, deadline=None)
@given(
    bits=st.sampled_from([8, 9, 15, 16, 17, 24, 31, 32, 33, 62]),
    start=st.one_of(st.integers(0, 100), st.integers(0, 2**40)),
    length=st.integers(0, 40),
    number=st.integers(0, 1000),
)
def test_any_range_equals_the_definition(bits: int, start: int, length: int, number: int) -> None:
    field = PrimeField(bits)
    key = key_of(number)
    assert expand_mask(field, key, length, start).tolist() == expand(field, key, length, start)


@pytest.mark.parametrize("bits", [8, 16, 31, 32, 62])
def test_ranges_join_across_chunks(bits: int) -> None:
    field = PrimeField(bits)
    chunk = CHUNK_BYTES // field.dtype.itemsize
    length = 2 * chunk + 77
    whole = expand_mask(field, KEY, length)
    borders = [0, 1, 7, chunk - 1, chunk, chunk + 1, 2 * chunk + 3, length]
    for low, high in pairwise(borders):
        assert np.array_equal(expand_mask(field, KEY, high - low, low), whole[low:high])
    for i in (0, chunk - 1, chunk, 2 * chunk, length - 1):
        assert int(whole[i]) == expand_element(field, KEY, i)[0]


@pytest.mark.parametrize("bits", [8, 16, 24, 32, 40])
@pytest.mark.parametrize("masks", [0, 1, 3, 4, 5, 9])
def test_many_masks_add_and_subtract(bits: int, masks: int) -> None:
    field = PrimeField(bits)
    keys = [key_of(i) for i in range(masks)]
    subtract = [i % 3 == 1 for i in range(masks)]
    accumulator = np.arange(100, dtype=field.dtype)
    expected = np.arange(100).astype(object)
    for key, minus in zip(keys, subtract, strict=True):
        expected += (-1 if minus else 1) * np.array(expand(field, key, 100, 9), object)
    accumulate_masks(accumulator, field, keys, subtract, 9)
    assert accumulator.tolist() == (expected % field.modulus).tolist()


def test_a_strided_accumulator_is_filled_alike() -> None:
    field = PrimeField(32)
    wide = field.zeros(100)
    accumulate_masks(wide[::2], field, [KEY], [False])
    assert wide[::2].tolist() == expand(field, KEY, 50)
    assert not wide[1::2].any()


@pytest.mark.parametrize(("bits", "number", "i", "refusals"), REJECTIONS)
def test_rare_rejections_equal_the_definition(
    bits: int, number: int, i: int, refusals: int
) -> None:
    field = PrimeField(bits)
    element, streams = expand_element(field, key_of(number), i)
    assert streams == refusals
    assert expand_mask(field, key_of(number), 1, i).tolist() == [element]
    # The neighbours of a resampled element are untouched, whether added or subtracted.
    low = max(0, i - 3)
    accumulator = field.zeros(7)
    accumulate_masks(accumulator, field, [key_of(number)] * 2, [False, True], low)
    assert not accumulator.any()
    assert expand_mask(field, key_of(number), 7, low).tolist() == expand(
        field, key_of(number), 7, low
    )


@pytest.mark.parametrize("bits", [8, 16, 32, 62])
def test_masks_cancel(bits: int) -> None:
    field = PrimeField(bits)
    before = np.arange(3000, dtype=field.dtype) % np.array(field.modulus, field.dtype)
    accumulator = before.copy()
    keys = [key_of(i) for i in range(6)]
    accumulate_masks(accumulator, field, keys, [i % 2 == 0 for i in range(6)])
    assert not np.array_equal(accumulator, before)
    accumulate_masks(accumulator, field, keys, [i % 2 == 1 for i in range(6)])
    assert np.array_equal(accumulator, before)


def honest(field: PrimeField, length: int) -> NDArray[np.int64]:
    return expand_mask(field, KEY, length).astype(np.int64)


def reduced(field: PrimeField, length: int) -> NDArray[np.int64]:
    """A broken generator: words modulo p, so that small values come twice as often."""
    words = PrimeField(16).zeros(length)
    words[:] = expand_mask(PrimeField(16), KEY, length) & np.uint16(field.word_mask)
    return words.astype(np.int64) % field.modulus


@pytest.mark.statistical
@pytest.mark.parametrize(("generator", "uniform"), [(honest, True), (reduced, False)])
def test_elements_are_uniform(
    secagg_kit: SimpleNamespace,
    generator: Callable[[PrimeField, int], NDArray[np.int64]],
    uniform: bool,
) -> None:
    """Chi-square over all 251 values of the 8-bit field; the broken twin must be found out."""
    field = PrimeField(8)
    length = 500_000
    counts = np.bincount(generator(field, length), minlength=field.modulus)
    expected = length / field.modulus
    statistic = float(((counts - expected) ** 2 / expected).sum())
    # Right for a correct program except with probability ALPHA over the key.
    critical = chi2.isf(secagg_kit.ALPHA, field.modulus - 1)
    assert (statistic < critical) == uniform, f"chi-square {statistic}, critical {critical}"


@pytest.mark.statistical
@pytest.mark.parametrize("bits", [16, 31, 32, 62])
def test_high_and_low_parts_are_uniform(secagg_kit: SimpleNamespace, bits: int) -> None:
    field = PrimeField(bits)
    length, bins = 200_000, 256
    elements = expand_mask(field, KEY, length).astype(object)
    critical = chi2.isf(secagg_kit.ALPHA / 2, bins - 1)
    for part in (elements * bins // field.modulus, elements % bins):
        # Bins differ by one value at most: less than 1 in 2^8 of a bin, far below the resolution.
        counts = np.bincount(part.astype(np.int64), minlength=bins)
        statistic = float(((counts - length / bins) ** 2 / (length / bins)).sum())
        assert statistic < critical


@pytest.mark.parametrize(
    ("argument", "arguments"),
    [
        ("accumulator", (np.zeros(3, "<u4"), PrimeField(16), [KEY], [False], 0)),
        ("accumulator", (np.zeros((3, 1), "<u2"), PrimeField(16), [KEY], [False], 0)),
        ("keys", (np.zeros(3, "<u2"), PrimeField(16), [KEY[:15]], [False], 0)),
        ("keys", (np.zeros(3, "<u2"), PrimeField(16), [KEY * 2], [False], 0)),
        ("subtract", (np.zeros(3, "<u2"), PrimeField(16), [KEY], [], 0)),
        ("start", (np.zeros(3, "<u2"), PrimeField(16), [KEY], [False], -1)),
    ],
)
def test_wrong_arguments(argument: str, arguments: tuple[object, ...]) -> None:
    with pytest.raises(ParameterError, match=argument) as raised:
        accumulate_masks(*arguments)  # type: ignore[arg-type]
    assert repr(KEY) not in str(raised.value)
