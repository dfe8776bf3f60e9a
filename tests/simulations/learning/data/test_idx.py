"""IDX: every number type, and every way to be no IDX file."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulations.learning.data import DataError, DataProblem
from simulations.learning.data.idx import IDX_TYPES, decode_idx


def encode_idx(array: np.ndarray, code: int) -> bytes:
    """Write an array as IDX."""
    header = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    return header + array.astype(IDX_TYPES[code]).tobytes()


@pytest.mark.parametrize("code", IDX_TYPES)
@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 3, 4), (0, 7), (1, 1, 1, 1)])
def test_every_type_and_shape_is_read(code: int, shape: tuple[int, ...]) -> None:
    dtype = IDX_TYPES[code]
    array = (np.arange(np.prod(shape)) - (0 if dtype.kind == "u" else 3)).reshape(shape)
    read = decode_idx(encode_idx(array, code), "file")
    assert read.dtype == dtype.newbyteorder("=") and read.dtype.isnative
    assert np.array_equal(read, array)


def test_bytes_are_in_the_documented_order() -> None:
    blob = bytes.fromhex("0000 0c02 00000001 00000002 00000102 fffffffe")
    assert decode_idx(blob, "file").tolist() == [[258, -2]]


@pytest.mark.parametrize("length", range(0, 27))
def test_every_truncation_is_noticed(length: int) -> None:
    blob = encode_idx(np.zeros((3, 5), np.uint8), 0x08)
    assert len(blob) == 27
    with pytest.raises(DataError, match=r"file: \d+ bytes") as caught:
        decode_idx(blob[:length], "file")
    assert caught.value.reason is DataProblem.TRUNCATED


def test_nothing_may_follow() -> None:
    with pytest.raises(DataError, match="28 bytes, but 3 x 5 values need 27") as caught:
        decode_idx(encode_idx(np.zeros((3, 5), np.uint8), 0x08) + b"\0", "file")
    assert caught.value.reason is DataProblem.FORMAT


@pytest.mark.parametrize("magic", ["01000801", "00010801", "00000a01", "00000001", "00000800"])
def test_a_wrong_magic_number_is_named(magic: str) -> None:
    with pytest.raises(DataError, match=f"magic number {bytes.fromhex(magic).hex(' ')}") as caught:
        decode_idx(bytes.fromhex(magic) + bytes(100), "file")
    assert caught.value.reason is DataProblem.FORMAT


@given(st.binary(max_size=64) | st.binary(max_size=32).map(lambda tail: b"\0\0\x08\x02" + tail))
def test_any_bytes_are_read_or_refused(blob: bytes) -> None:
    try:
        decode_idx(blob, "file")
    except DataError:
        pass
