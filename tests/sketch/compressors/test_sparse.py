"""Top-k of layers: what is kept, how it is written, which messages cannot exist."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketch import LayerShapes, top_k
from sketch.compressors import TopK
from sketch.compressors.precision import ReducedValues
from sketch.compressors.sparse import SparseFormat, SparseMessage

LAYERS = LayerShapes((("a", (5, 8)), ("b", (3,)), ("c", (1,)), ("d", (100,))))
D = LAYERS.dimension


@given(st.floats(1.0, 60.0), st.integers(0, 2**32 - 1))
def test_the_largest_of_each_layer(rate: float, seed: int) -> None:
    # Few values, so that ties at the border are common; 64 bits lose nothing.
    values = np.random.default_rng(seed).integers(-4, 5, size=D).astype(np.float64)
    compressor = TopK(LAYERS, rate, value_bits=64)
    received = compressor.decompress(compressor.compress(values, compressor.initial())[0])
    for (start, stop), count in zip(LAYERS.bounds, compressor.form.counts, strict=True):
        assert count == math.ceil((stop - start) / rate)
        np.testing.assert_array_equal(received[start:stop], top_k(values[start:stop], count))


def test_layers_and_no_layers_differ() -> None:
    values = np.zeros(D)
    values[43:] = 100.0
    values[:40] = 1.0
    by_layer, whole = TopK(LAYERS, 20), TopK(LayerShapes.flat(D), 20)
    assert by_layer.compress(values, by_layer.initial())[0].indices.tolist() == [
        *(0, 1, 40, 43, *range(44, 49)),
    ]
    assert whole.compress(values, whole.initial())[0].indices.tolist() == [*range(43, 51)]


def test_bytes_by_hand() -> None:
    form = TopK(LAYERS, 20).form
    assert form.counts == (2, 1, 1, 5)
    # 40 places take 6 bits, 3 take 2, 100 take 7; the only entry of a layer needs no place.
    assert form.widths == (6, 2, 0, 7)
    assert form.size_bytes == 2 + 2 + 1 + 0 + 5 + 9 * 2
    assert TopK(LAYERS, 1).form.size_bytes == 2 + 2 * D
    million = TopK(LayerShapes.flat(1_000_000), 16).form
    assert million.size_bytes == 2 + 62_500 * (20 + 16) // 8


def test_low_bits_are_dropped() -> None:
    compressor = TopK(LayerShapes.flat(2), 2)
    message, _ = compressor.compress(np.array([1.0 + 2.0**-7 + 2.0**-8, 0.5]), compressor.initial())
    assert compressor.decompress(message).tolist() == [1.0 + 2.0**-7, 0.0]


FORM = SparseFormat(LayerShapes((("a", (6,)), ("b", (4,)))), 2.0, 16)


def message(indices: list[int], count: int = 5, bits: int = 16) -> SparseMessage:
    values = ReducedValues.of(np.ones(count), bits)
    return SparseMessage(FORM, np.array(indices, np.int64), values)


def test_a_message_by_hand() -> None:
    sent = message([0, 3, 5, 7, 9])
    # 16-bit ones are 0x3f80; places 0, 3, 5 of 3 bits each and 1, 3 of 2 bits each.
    places = (0 | 3 << 3 | 5 << 6).to_bytes(2, "little") + bytes([1 | 3 << 2])
    assert sent.encode() == b"\x01\x02" + places + 5 * b"\x80\x3f"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (([0, 3, 5, 7],), r"must have shape \(5,\)"),
        (([0, 3, 5, 7, 9], 4), r"must have shape \(5,\)"),
        (([0, 3, 5, 7, 9], 5, 24), "values must have 16 bits"),
        (([0, 3, 3, 7, 9],), "strictly increasing"),
        (([3, 0, 5, 7, 9],), "strictly increasing"),
        (([0, 3, 6, 7, 9],), "lie in their layers"),
        (([0, 3, 5, 7, 10],), "lie in their layers"),
        (([-1, 3, 5, 7, 9],), "lie in their layers"),
        (([0, 3, 4, 5, 9],), "lie in their layers"),
    ],
)
def test_illegal_messages_cannot_exist(arguments: tuple[Any, ...], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        message(*arguments)


def test_illegal_bytes_are_refused() -> None:
    data = bytearray(message([0, 3, 5, 7, 9]).encode())
    for place, byte, error in (
        (2, 0b00_000_000, "strictly increasing"),
        (2, 0b01_111_000, "strictly increasing"),
        (3, 0b1000_0001, "zero bits"),
        (4, 0b0001_1101, "zero bits"),
        (6, 0x7F, "finite"),
    ):
        changed = bytearray(data)
        changed[place] = byte
        if error == "finite":
            changed[5] = 0x80
        with pytest.raises(ValueError, match=error):
            SparseMessage.decode(bytes(changed), FORM)
    # Place 6 of a layer of six.
    changed = bytearray(data)
    changed[2:4] = (0 | 3 << 3 | 6 << 6).to_bytes(2, "little")
    with pytest.raises(ValueError, match="lie in their layers"):
        SparseMessage.decode(bytes(changed), FORM)


def test_another_format_is_refused() -> None:
    compressor = TopK(LAYERS, 20)
    other = TopK(LAYERS, 10)
    with pytest.raises(ValueError, match="message must have the format of this compressor"):
        compressor.decompress(other.compress(np.ones(D), other.initial())[0])
