"""Numbers of fewer bits, against Python's own packing."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketch.compressors import NoCompression
from sketch.compressors._kernels import squared_norm
from sketch.compressors.precision import ReducedValues, pack, unpack

FLOATS = st.floats(-3e38, 3e38)
BITS = st.one_of(st.integers(10, 32), st.just(64))


def dropped(value: float, bits: int) -> float:
    """The nearest single without its lower bits, by the standard library."""
    if bits == 64:
        return value
    (word,) = struct.unpack("<I", struct.pack("<f", value))
    kept = word >> (32 - bits) << (32 - bits)
    (reduced,) = struct.unpack("<f", struct.pack("<I", kept))
    return float(reduced)


@given(st.lists(FLOATS, max_size=20), BITS)
def test_the_definition(values: list[float], bits: int) -> None:
    reduced = ReducedValues.of(np.array(values), bits)
    assert reduced.read().tolist() == [dropped(value, bits) for value in values]
    data = reduced.encode()
    assert len(data) == reduced.size_bytes == -(-len(values) * bits // 8)
    again = ReducedValues.decode(memoryview(data), len(values), bits)
    assert again.words.tolist() == reduced.words.tolist()


@given(st.lists(FLOATS, min_size=1, max_size=20), BITS)
def test_dropping_goes_towards_zero_and_leaves_an_exact_rest(
    values: list[float], bits: int
) -> None:
    single = np.array(values, np.float32)
    read = ReducedValues.of(single, bits).read()
    assert (np.abs(read) <= np.abs(single)).all()
    assert ((single - read) + read == single).all()


@given(st.integers(1, 32), st.data())
def test_packing(width: int, data: st.DataObject) -> None:
    words = data.draw(st.lists(st.integers(0, 2**width - 1), max_size=30))
    packed = pack(np.array(words, np.uint32), width)
    whole = sum(word << (i * width) for i, word in enumerate(words))
    assert packed == whole.to_bytes(-(-len(words) * width // 8), "little")
    assert unpack(memoryview(packed), len(words), width).tolist() == words


def test_padding_is_zero() -> None:
    packed = pack(np.array([5, 1, 2], np.uint32), 3)
    assert len(packed) == 2
    for bit in range(9, 16):
        changed = (int.from_bytes(packed, "little") | 1 << bit).to_bytes(2, "little")
        with pytest.raises(ValueError, match="data must end in zero bits"):
            unpack(memoryview(changed), 3, 3)


@pytest.mark.parametrize("bits", [10, 16, 31, 32, 64])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_cannot_be(bits: int, bad: float) -> None:
    with pytest.raises(ValueError, match="values must be finite"):
        ReducedValues.of(np.array([1.0, bad]), bits)
    double = bits == 64
    pattern = np.array(bad).view(np.uint64) if double else np.float32(bad).view(np.uint32)
    words = np.array([int(pattern) >> (0 if double else 32 - bits)])
    with pytest.raises(ValueError, match="values must be finite"):
        ReducedValues(words.astype(np.uint64 if double else np.uint32), bits)


def test_what_no_single_reaches_is_refused() -> None:
    largest = float(np.finfo(np.float32).max)
    with pytest.raises(ValueError, match=r"values must be at most 3\.40.* to be sent with 32 bits"):
        NoCompression(1).compress(np.array([2.0 * largest]), NoCompression(1).initial())
    message, _ = NoCompression(1, 64).compress(
        np.array([2.0 * largest]), NoCompression(1).initial()
    )
    assert NoCompression(1, 64).decompress(message).tolist() == [2.0 * largest]


def test_words_that_no_sender_writes() -> None:
    with pytest.raises(TypeError, match="words must be a vector of uint32"):
        ReducedValues(np.zeros(2, np.uint64), 16)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="words must be a vector of uint64"):
        ReducedValues(np.zeros((2, 1), np.uint64), 64)
    with pytest.raises(ValueError, match=r"words must be below 2\^16"):
        ReducedValues(np.array([1 << 16], np.uint32), 16)


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000])
def test_squared_norm(size: int) -> None:
    values = np.random.default_rng(size).normal(size=size)
    assert squared_norm(values) == pytest.approx(float(values @ values), rel=1e-13)
