"""Mask expansion: equal to its definition, seekable, and exactly uniform."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pairwise_rounds as kit
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import chisquare

from secagg import ParameterError, PrimeField, _kernels
from secagg.pairwise import prg
from secagg.pairwise.prg import CHUNK_BYTES, MAX_COORDINATES, accumulate_masks, expand_mask
from secagg.pairwise.reference import expand, expand_element

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
    subtract: bool,
    skip: int = 0,
) -> list[tuple[int, int]]:
    """Rows 7, 8, ... of words into the accumulator; the refused (row, position), in order."""
    rows = words.shape[0]
    refused = np.full(rows * accumulator.size + 1, -1, np.int64)
    found = _kernels.accumulate_words(
        accumulator,
        0,
        accumulator.size,
        words,
        rows,
        skip,
        subtract,
        field.modulus,
        field.word_mask,
        7,
        refused,
        1,
    )
    assert refused[0] == -1
    return sorted(
        (int(note) >> _kernels.POSITION_BITS, int(note) % (1 << _kernels.POSITION_BITS))
        for note in refused[1:found]
    )


@pytest.mark.parametrize("bits", EXHAUSTIVE_BITS)
@pytest.mark.parametrize("subtract", [False, True])
def test_refused_words_leave_every_accumulator_as_it_was(bits: int, subtract: bool) -> None:
    field = PrimeField(bits)
    every = np.arange(field.modulus, dtype=field.dtype)
    for word in range(field.modulus, 1 << bits):
        accumulator = every.copy()
        words = np.full((1, every.size), word, field.dtype)
        expected = [(7, i) for i in range(every.size)]
        assert run_kernel(field, accumulator, words, subtract) == expected
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
        assert run_kernel(field, accumulator, words, subtract) == []
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
    assert run_kernel(field, accumulator, words[None, :], subtract) == []
    for old, word, new in zip(before.tolist(), words.tolist(), accumulator.tolist(), strict=True):
        assert new == (old - word if subtract else old + word) % p
    for word in {p, p + 1, (p + (1 << bits)) // 2, (1 << bits) - 1} - {1 << bits}:
        accumulator = before.copy()
        words[:] = word
        assert len(run_kernel(field, accumulator, words[None, :], subtract)) == before.size
        assert np.array_equal(accumulator, before)


@pytest.mark.parametrize("bits", [8, 9, 15, 16, 31, 32, 33, 62])
@pytest.mark.parametrize("subtract", [False, True])
def test_any_order_of_words_and_refusals_in_a_group(bits: int, subtract: bool) -> None:
    """Five rows, four of them in one pass, that meet every border value, refused ones included."""
    field = PrimeField(bits)
    p, top = field.modulus, 1 << bits
    border = np.array([0, 1, p // 2, p - 1, p, top - 1], field.dtype)
    words = np.array(np.meshgrid(*[border] * 4)).reshape(4, -1)
    words = np.concatenate([words, words[2:3]])
    good = np.where(words < p, words, 0).astype(object).sum(axis=0)
    for value in (0, 1, p // 2, p - 1):
        accumulator = np.full(words.shape[1], value, field.dtype)
        refused = run_kernel(field, accumulator, words, subtract)
        assert accumulator.tolist() == ((value + (-good if subtract else good)) % p).tolist()
        assert refused == [(row + 7, i) for row, i in np.argwhere(words >= p).tolist()]


@pytest.mark.parametrize("subtract", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 4, 6, 9])
def test_rejections_are_reported_by_row_and_position_across_blocks(
    rows: int, subtract: bool
) -> None:
    field = PrimeField(8)
    rng = np.random.default_rng(1)
    length, skip = 5000, 2
    words = rng.integers(0, 1 << 16, (rows, skip + length + 4)).astype(field.dtype)
    accumulator = rng.integers(0, field.modulus, length).astype(field.dtype)
    masked = words[:, skip : skip + length] & np.uint16(255)
    good = np.where(masked < field.modulus, masked, 0).astype(np.int64).sum(axis=0)
    expected = (accumulator + (-good if subtract else good)) % field.modulus
    found = run_kernel(field, accumulator, words, subtract, skip)
    assert np.array_equal(accumulator, expected)
    assert found == [(row + 7, i) for row, i in np.argwhere(masked >= field.modulus).tolist()]


def test_a_part_of_the_accumulator_is_filled_alone() -> None:
    field = PrimeField(16)
    accumulator = np.arange(100, dtype=field.dtype)
    words = np.full((4, 50), field.modulus - 1, field.dtype)
    words[3, 25] = field.modulus
    refused = np.empty(1000, np.int64)
    found = _kernels.accumulate_words(
        accumulator, 20, 60, words, 4, 10, False, field.modulus, field.word_mask, 0, refused, 0
    )
    expected = np.arange(100)
    expected[20:60] -= 4
    expected[35] += 1
    assert accumulator.tolist() == expected.tolist()
    assert refused[:found].tolist() == [(3 << _kernels.POSITION_BITS) + 35]


@pytest.mark.parametrize("first", [0, 255, 2**32 - 2, 2**56 - 1])
def test_counter_blocks_are_big_endian(first: int) -> None:
    blocks = np.empty((5, 2), np.uint64)
    _kernels.counter_blocks(first, blocks)
    expected = [(first + i).to_bytes(16, "big") for i in range(5)]
    assert blocks.tobytes() == b"".join(expected)


@pytest.mark.parametrize("start", [0, 3, 2**40 + 1])
def test_scattered_counter_blocks_carry_the_stream(start: int) -> None:
    positions = np.array([0, 7, 8, 4, 100_000])
    blocks = np.empty((5, 2), np.uint64)
    _kernels.scattered_counter_blocks(3, start, positions, 4, blocks)
    expected = [b"\0\0\0\3" + ((start + i) // 4).to_bytes(12, "big") for i in positions.tolist()]
    assert blocks.tobytes() == b"".join(expected)


def test_notes_are_grouped_by_row() -> None:
    notes = [(2, 5), (0, 9), (2, 1), (0, 2**48 - 1), (4, 0), (2, 5)]
    refused = np.array([(row << _kernels.POSITION_BITS) | at for row, at in notes])
    positions, starts = np.empty(6, np.int64), np.empty(7, np.int64)
    _kernels.group_by_row(refused, positions, starts)
    assert starts.tolist() == [0, 2, 2, 5, 5, 6, 6]
    assert positions.tolist() == [9, 2**48 - 1, 5, 1, 5, 0]


@pytest.mark.parametrize("bits", [8, 16, 31, 32, 62])
@pytest.mark.parametrize("subtract", [False, True])
def test_words_of_later_streams_are_taken_or_refused_again(bits: int, subtract: bool) -> None:
    """Positions repeat across rows, words lie anywhere in their block, refused ones stay."""
    field = PrimeField(bits)
    p = field.modulus
    per_block = 16 // field.dtype.itemsize
    top = (1 << bits) - 1
    start = 5
    taken = [(0, 0, p - 1), (0, 1, top), (1, 0, p - 1), (1, 3, 1), (3, 3, top), (3, 1, p // 2)]
    taken = [(row, at, word) for row, at, word in taken if word != p - 1 or p - 1 != top]
    words = np.zeros((len(taken), per_block), field.dtype)
    starts = np.zeros(5, np.int64)
    accumulator = [0, p - 1, 1, p // 2]
    expected, again = list(accumulator), []
    for i, (row, at, word) in enumerate(taken):
        words[i, (start + at) % per_block] = word
        starts[row + 1 :] += 1
        if word >= p:
            again.append((row, at))
        else:
            expected[at] = (expected[at] + (-word if subtract else word)) % p
    positions = np.array([at for _, at, _ in taken])
    result = np.array(accumulator, field.dtype)
    _kernels.take_words(result, words, start, subtract, p, field.word_mask, positions, starts)
    assert result.tolist() == expected
    assert positions[: len(again)].tolist() == [at for _, at in again]
    assert starts.tolist() == [sum(row < r for row, _ in again) for r in range(5)]


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


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_more_masks_than_a_batch_and_more_refusals_than_room(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small buffers give the same sum: what is kept at once is no part of the result."""
    field = PrimeField(bits)
    keys = [key_of(i) for i in range(23)]
    subtract = [i % 3 == 1 for i in range(23)]
    whole = field.zeros(3001)
    accumulate_masks(whole, field, keys, subtract, 77)
    monkeypatch.setattr(prg, "CHUNK_BYTES", 64)
    monkeypatch.setattr(prg, "_BATCH", 5)
    small = field.zeros(3001)
    accumulate_masks(small, field, keys, subtract, 77)
    assert np.array_equal(small, whole)


def test_the_end_of_the_coordinates_is_reached() -> None:
    field = PrimeField(16)
    low = MAX_COORDINATES - 5
    assert expand_mask(field, KEY, 5, low).tolist() == expand(field, KEY, 5, low)


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
    generator: Callable[[PrimeField, int], NDArray[np.int64]],
    uniform: bool,
) -> None:
    """Chi-square over all 251 values of the 8-bit field; the broken twin must be found out."""
    field = PrimeField(8)
    counts = np.bincount(generator(field, 500_000), minlength=field.modulus)
    # Right for a correct program except with probability ALPHA over the key.
    p_value = chisquare(counts).pvalue
    assert (p_value > kit.ALPHA) == uniform, f"p-value {p_value}"


@pytest.mark.statistical
@pytest.mark.parametrize("bits", [16, 31, 32, 62])
def test_high_and_low_parts_are_uniform(bits: int) -> None:
    field = PrimeField(bits)
    length, bins = 200_000, 256
    elements = expand_mask(field, KEY, length).astype(object)
    for part in (elements * bins // field.modulus, elements % bins):
        # Bins differ by one value at most: less than 1 in 2^8 of a bin, far below the resolution.
        counts = np.bincount(part.astype(np.int64), minlength=bins)
        assert chisquare(counts).pvalue > kit.ALPHA / 2


@pytest.mark.parametrize(
    ("argument", "arguments"),
    [
        ("accumulator", (np.zeros(3, "<u4"), PrimeField(16), [KEY], [False], 0)),
        ("accumulator", (np.zeros((3, 1), "<u2"), PrimeField(16), [KEY], [False], 0)),
        ("keys", (np.zeros(3, "<u2"), PrimeField(16), [KEY[:15]], [False], 0)),
        ("keys", (np.zeros(3, "<u2"), PrimeField(16), [KEY * 2], [False], 0)),
        ("subtract", (np.zeros(3, "<u2"), PrimeField(16), [KEY], [], 0)),
        ("start", (np.zeros(3, "<u2"), PrimeField(16), [KEY], [False], -1)),
        ("start", (np.zeros(3, "<u2"), PrimeField(16), [KEY], [False], MAX_COORDINATES - 2)),
    ],
)
def test_wrong_arguments(argument: str, arguments: tuple[object, ...]) -> None:
    with pytest.raises(ParameterError, match=argument) as raised:
        accumulate_masks(*arguments)  # type: ignore[arg-type]
    assert repr(KEY) not in str(raised.value)
