"""Flower's named arrays as one vector, and back.

The vector takes names in sorted order, whatever order an app returns its arrays in; the order in
which training gets them is a matter of the digest. Floating arrays are trained. Integers and
booleans, such as the counters of a normalisation layer, have no mean; they stay what they are on
the server.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.common.constant import SType
from numpy.lib.format import magic, read_array_header_1_0, read_magic
from numpy.typing import NDArray

from protocol.adapters import named_arrays
from secagg import ParameterError

_Shape = tuple[int, ...]
_Entry = tuple[str, _Shape, np.dtype[Any]]
_NPY = magic(1, 0)
"""How the bytes of nearly all arrays begin."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Names, shapes and types of a model's arrays.

    Attributes:
        trained: name, shape and type of each floating array, sorted by name.
        kept: the same of arrays that are not trained.
    """

    trained: tuple[_Entry, ...]
    kept: tuple[_Entry, ...]

    @classmethod
    def of(cls, record: ArrayRecord) -> Layout:
        """The layout of a model."""
        trained: list[_Entry] = []
        kept: list[_Entry] = []
        for name, array in opened(record, sorted(record)):
            entries = trained if named_arrays.is_averaged(name, array) else kept
            entries.append((name, array.shape, array.dtype))
        named_arrays.dimension_of(_size(shape) for _, shape, _ in trained)
        return cls(tuple(trained), tuple(kept))

    @property
    def dimension(self) -> int:
        """d, length of an update."""
        return sum(_size(shape) for _, shape, _ in self.trained)

    def difference(self, new: ArrayRecord, old: ArrayRecord) -> NDArray[np.float64]:
        """float64[d]: new minus old, in sorted order of names; finite wherever both are."""
        self._check(new)
        self._check(old)

        def pairs() -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
            for name, shape, _ in self.trained:
                yield _numpy(new, name, shape), _numpy(old, name, shape)

        return named_arrays.difference(pairs, self.dimension)

    def moved(self, record: ArrayRecord, update: NDArray[Any]) -> ArrayRecord:
        """A model moved by an update: float[d]. Names keep the order, arrays their types."""
        self._check(record)
        moved = dict(record)
        for (name, shape, dtype), part in self._parts(update):
            moved[name] = _pack(_numpy(record, name, shape) + part.reshape(shape), dtype)
        return ArrayRecord(moved)

    def restored(self, record: ArrayRecord) -> ArrayRecord:
        """The same values in this layout's types: strategies return counters as floats."""
        self._check(record)
        same = dict(record)
        for name, shape, dtype in self.trained + self.kept:
            values = _numpy(record, name, shape)
            if values.dtype != dtype:
                same[name] = _pack(values, dtype)
        return ArrayRecord(same)

    def _parts(self, vector: NDArray[Any]) -> Iterable[tuple[_Entry, NDArray[Any]]]:
        ends = np.cumsum([_size(shape) for _, shape, _ in self.trained])
        return zip(self.trained, np.split(vector, ends[:-1]), strict=True)

    def _check(self, record: ArrayRecord) -> None:
        wanted = {name for name, _, _ in self.trained + self.kept}
        if set(record) != wanted:
            odd = sorted(set(record) ^ wanted)[0]
            raise ParameterError(
                "arrays", f"{len(record)} that differ in {odd!r}", "the same names"
            )


def _size(shape: _Shape) -> int:
    return math.prod(shape)


def _pack(values: NDArray[Any], dtype: np.dtype[Any]) -> Array:
    return Array(np.asarray(values, dtype))


def _numpy(record: ArrayRecord, name: str, shape: _Shape) -> NDArray[Any]:
    ((_, array),) = opened(record, [name])
    named_arrays.require_numbers(name, array)
    if array.shape != shape:
        found = f"{name!r}: {array.dtype} of shape {array.shape}"
        raise ParameterError("arrays", found, f"shape {shape}")
    return array


def opened(record: ArrayRecord, names: Iterable[str]) -> list[tuple[str, NDArray[Any]]]:
    """Arrays by name; bytes that are no array are a caller's or a peer's mistake, not ours."""
    return [(name, loaded(name, record[name])) for name in names]


def loaded(name: str, array: Array) -> NDArray[Any]:
    """An array of a stranger; `ParameterError` for bytes that are none."""
    said = f"{name!r}, which says that it is {array.dtype}"
    try:
        values = _in_place(array)
    except Exception as error:
        found = f"{said}: {type(error).__name__}"
        raise ParameterError("arrays", found, "arrays of numbers") from None
    if type(values) is not np.ndarray:
        raise ParameterError("arrays", f"{said}: {type(values).__name__}", "arrays of numbers")
    return values


def _in_place(array: Array) -> NDArray[Any]:
    """What `Array.numpy` gives, read-only where it lies: a copy costs as much as hashing does."""
    stream = BytesIO(array.data)
    if array.stype == SType.NUMPY and array.data.startswith(_NPY):
        read_magic(stream)
        shape, by_columns, dtype = read_array_header_1_0(stream)
        size = math.prod(shape)
        if size and not dtype.hasobject:
            values = np.frombuffer(array.data, dtype, size, stream.tell())
            return values.reshape(shape, order="F" if by_columns else "C")
    return array.numpy()
