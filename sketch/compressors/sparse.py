"""The largest coordinates of each layer, with their places: coordinate format."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketch import _checks
from sketch.compressors.base import (
    HEADER_BYTES,
    Message,
    MessageKind,
    Stateless,
    body,
    header,
)
from sketch.compressors.precision import (
    ReducedValues,
    check_value_bits,
    pack,
    packed_bytes,
    unpack,
)
from sketch.layers import LayerShapes
from sketch.topk import top_k_indices

HALF_BITS = 16
"""Sign, exponent and seven bits of the fraction: what is sent of a value unless told otherwise."""


@dataclass(frozen=True, slots=True)
class SparseFormat:
    """How many coordinates of each layer are sent, and with how many bits.

    A coordinate is written as its place within its layer, with the fewest bits that tell the
    layer's places apart. A layer of which all are sent needs no places.

    Args:
        value_bits: bits of a number: 64, or 10 to 32.
    """

    layers: LayerShapes
    rate: float
    value_bits: int

    def __post_init__(self) -> None:
        if not isinstance(self.layers, LayerShapes):
            raise TypeError(f"layers must be LayerShapes, not {type(self.layers).__name__}")
        _checks.real("rate", self.rate, 1.0)
        check_value_bits(self.value_bits)
        for size in self.layers.sizes:
            _checks.integer("size of a layer", size, 1, 2**32)

    @property
    def counts(self) -> tuple[int, ...]:
        """Coordinates of each layer that are sent."""
        return tuple(math.ceil(size / self.rate) for size in self.layers.sizes)

    @property
    def count(self) -> int:
        """Coordinates that are sent in all."""
        return sum(self.counts)

    @property
    def widths(self) -> tuple[int, ...]:
        """Bits of a place in each layer; 0 if all of it is sent."""
        sizes = zip(self.layers.sizes, self.counts, strict=True)
        return tuple(0 if size == count else (size - 1).bit_length() for size, count in sizes)

    @property
    def size_bytes(self) -> int:
        """Bytes of a message; the places of each layer begin a byte."""
        places = sum(map(packed_bytes, self.counts, self.widths))
        return HEADER_BYTES + places + packed_bytes(self.count, self.value_bits)

    def places(self) -> list[tuple[int, int, int, slice]]:
        """Of each layer: first coordinate, size, bits of a place, where it is in a message."""
        sent = itertools.pairwise(itertools.accumulate(self.counts, initial=0))
        return [
            (start, stop - start, width, slice(*part))
            for (start, stop), width, part in zip(
                self.layers.bounds, self.widths, sent, strict=True
            )
        ]


@dataclass(frozen=True, slots=True, eq=False)
class SparseMessage:
    """Some coordinates of each layer and their values.

    Args:
        indices: int64[k], coordinates of the flat vector, increasing.
    """

    form: SparseFormat
    indices: NDArray[np.int64]
    values: ReducedValues

    def __post_init__(self) -> None:
        count = self.form.count
        if self.indices.shape != (count,) or self.values.words.shape != (count,):
            raise ValueError(f"indices and values must have shape ({count},)")
        if self.values.value_bits != self.form.value_bits:
            raise ValueError(f"values must have {self.form.value_bits} bits")
        if (np.diff(self.indices) <= 0).any():
            raise ValueError("indices must be strictly increasing")
        for start, size, _, part in self.form.places():
            mine = self.indices[part]
            if mine[0] < start or mine[-1] >= start + size:
                raise ValueError("indices must lie in their layers")

    @property
    def size_bytes(self) -> int:
        """Bytes of `encode`."""
        return self.form.size_bytes

    def encode(self) -> bytes:
        """Header, the places of layer after layer, all values."""
        parts = [
            pack((self.indices[part] - start).astype(np.uint32), width)
            for start, _, width, part in self.form.places()
            if width
        ]
        return b"".join([header(MessageKind.SPARSE), *parts, self.values.encode()])

    @classmethod
    def decode(cls, data: bytes, form: SparseFormat) -> SparseMessage:
        """Read what `encode` wrote."""
        rest = body(data, MessageKind.SPARSE, form.size_bytes)
        indices = np.empty(form.count, np.int64)
        for start, size, width, part in form.places():
            if not width:
                indices[part] = np.arange(start, start + size)
                continue
            used = packed_bytes(part.stop - part.start, width)
            indices[part] = unpack(rest[:used], part.stop - part.start, width)
            indices[part] += start
            rest = rest[used:]
        return cls(form, indices, ReducedValues.decode(rest, form.count, form.value_bits))


class TopK:
    """Send the coordinates of largest magnitude of each layer.

    Of equal magnitudes at the border the first are sent. With `LayerShapes.flat` the whole model
    is one layer.

    Args:
        layers: the model's layers.
        rate: a layer's size over the number of its coordinates that are sent, at least 1.
        value_bits: bits of a number: 64, or 10 to 32; lower ones of a single are dropped.
    """

    __slots__ = ("_form",)
    keeps_residual = False

    def __init__(self, layers: LayerShapes, rate: float, *, value_bits: int = HALF_BITS) -> None:
        self._form = SparseFormat(layers, rate, value_bits)

    def __repr__(self) -> str:
        return f"TopK(dimension={self.dimension}, rate={self._form.rate})"

    @property
    def dimension(self) -> int:
        """The number d of coordinates of a vector."""
        return self._form.layers.dimension

    @property
    def form(self) -> SparseFormat:
        """The format of all messages."""
        return self._form

    def initial(self) -> Stateless:
        """Nothing to remember."""
        return Stateless()

    def compress(self, values: _checks.Floats, state: Stateless) -> tuple[SparseMessage, Stateless]:
        """Send the largest coordinates; see `Compressor`."""
        checked = _checks.update("values", values, self.dimension)
        indices = np.empty(self._form.count, np.int64)
        for start, size, _, part in self._form.places():
            indices[part] = top_k_indices(checked[start : start + size], part.stop - part.start)
            indices[part] += start
        reduced = ReducedValues.of(checked[indices], self._form.value_bits)
        return SparseMessage(self._form, indices, reduced), state

    def decompress(self, message: Message) -> NDArray[np.float64]:
        """The values at their coordinates, zeros elsewhere; see `Compressor`."""
        out = np.zeros(self.dimension)
        self.add(message, out, 1.0)
        return out

    def add(self, message: Message, vector: NDArray[np.float64], factor: float) -> None:
        """Add what a receiver reads, in place; see `Compressor`."""
        if not isinstance(message, SparseMessage):
            raise TypeError(f"message must be a SparseMessage, not {type(message).__name__}")
        if message.form != self._form:
            raise ValueError("message must have the format of this compressor")
        vector[message.indices] += factor * message.values.read()

    def decode(self, data: bytes) -> SparseMessage:
        """Read a message; see `Compressor`."""
        return SparseMessage.decode(data, self._form)
