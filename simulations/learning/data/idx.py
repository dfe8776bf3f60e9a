"""IDX arrays, the format of MNIST and its relatives.

Two zero bytes, a code for the number type, the number of axes, one big-endian uint32 per axis,
then the values, big-endian and row by row. Nothing may follow.

May use numpy only; must not know file names or the data sets.

Source: LeCun, Cortes and Burges, "The MNIST database", section "File formats".
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulations.learning.data.errors import DataError, DataProblem

IDX_TYPES: dict[int, np.dtype[Any]] = {
    0x08: np.dtype("u1"),
    0x09: np.dtype("i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
"""Number type of each code; there is no 0x0A."""

_HEADER_BYTES = 4
_VALID = "an IDX array: 00 00, type, axes, sizes, values"


def decode_idx(blob: bytes, subject: str) -> NDArray[Any]:
    """Read the whole of an unpacked IDX file; values are in this machine's byte order."""
    dtype, axes = _read_magic(blob, subject)
    start = _HEADER_BYTES + 4 * axes
    if len(blob) < start:
        raise _wrong(subject, DataProblem.TRUNCATED, f"{len(blob)} bytes, header of {start}")
    shape = struct.unpack(f">{axes}I", blob[_HEADER_BYTES:start])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(blob) != expected:
        problem = DataProblem.TRUNCATED if len(blob) < expected else DataProblem.FORMAT
        sizes = " x ".join(str(size) for size in shape)
        raise _wrong(subject, problem, f"{len(blob)} bytes, but {sizes} values need {expected}")
    values = np.frombuffer(blob, dtype, offset=start).reshape(shape)
    return values.astype(dtype.newbyteorder("="), copy=False)


def _read_magic(blob: bytes, subject: str) -> tuple[np.dtype[Any], int]:
    """Return the number type and the number of axes."""
    if len(blob) < _HEADER_BYTES:
        raise _wrong(subject, DataProblem.TRUNCATED, f"{len(blob)} bytes, no magic number")
    zeros, code, axes = struct.unpack(">HBB", blob[:_HEADER_BYTES])
    if zeros != 0 or code not in IDX_TYPES or axes == 0:
        magic = blob[:_HEADER_BYTES].hex(" ")
        raise _wrong(subject, DataProblem.FORMAT, f"magic number {magic}")
    return IDX_TYPES[code], axes


def _wrong(subject: str, problem: DataProblem, detail: str) -> DataError:
    return DataError(subject, problem, detail, _VALID)
