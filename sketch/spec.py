"""The shape of a round's compression as a value that everyone signs, separate from its seed.

A spec is fixed and announced before the seed is drawn: who could choose the shape after seeing the
seed could choose collisions.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

from sketch import _checks
from sketch.countsketch import CountMeanSketch
from sketch.hashing import MAX_COLUMNS, MAX_ROWS, PublicSeed
from sketch.linear import Identity, LinearSketch

DEFAULT_ROWS = 15
"""Source: arXiv 2307.10999, section 5: more rows cost time and gain nothing in Lemma 6."""

SPEC_VERSION = 1
_LAYOUT = struct.Struct("<BBQQQ")
SPEC_BYTES = _LAYOUT.size
_MAX_DIMENSION = 2**63 - 1


class SketchKind(enum.Enum):
    """The families of maps that a spec can name; the values are part of the wire format."""

    IDENTITY = 0
    COUNT_MEAN = 1


@dataclass(frozen=True, slots=True)
class SketchSpec:
    """Kind and sizes of a round's compression.

    Args:
        kind: the family.
        dimension: number d of coordinates of an update, at least 1.
        rows: number R of rows; 1 for the identity.
        columns: number P of columns; d for the identity.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: a size out of range, or an identity that is not 1 x d.
    """

    kind: SketchKind
    dimension: int
    rows: int
    columns: int

    def __post_init__(self) -> None:
        if not isinstance(self.kind, SketchKind):
            raise TypeError(f"kind must be a SketchKind, not {type(self.kind).__name__}")
        _checks.integer("dimension", self.dimension, 1, _MAX_DIMENSION)
        if self.kind is SketchKind.IDENTITY:
            # One way only to write an identity, or equal maps could have unequal bytes.
            if (self.rows, self.columns) != (1, self.dimension):
                raise ValueError("rows and columns of an identity must be 1 and its dimension")
        else:
            _checks.integer("rows", self.rows, 1, MAX_ROWS)
            _checks.integer("columns", self.columns, 1, MAX_COLUMNS)

    @classmethod
    def identity(cls, dimension: int) -> SketchSpec:
        """The spec of a round without compression."""
        return cls(SketchKind.IDENTITY, dimension, 1, dimension)

    @property
    def size(self) -> int:
        """The number L of coordinates of a sketch."""
        return self.rows * self.columns

    @property
    def rate(self) -> float:
        """The compression rate d / L."""
        return self.dimension / self.size

    def build(self, seed: PublicSeed) -> LinearSketch:
        """The map that this spec and a public seed determine."""
        if self.kind is SketchKind.IDENTITY:
            return Identity(self.dimension)
        return CountMeanSketch(self.dimension, self.rows, self.columns, seed)

    def encode_bytes(self) -> bytes:
        """Canonical bytes, equal for equal specs only; for the hash of a round's context.

        Version and kind as one byte each; dimension, rows and columns as little-endian uint64.
        """
        return _LAYOUT.pack(SPEC_VERSION, self.kind.value, self.dimension, self.rows, self.columns)

    @classmethod
    def decode_bytes(cls, data: bytes) -> SketchSpec:
        """Read what `encode_bytes` wrote.

        Raises:
            ValueError: wrong length, unknown version or kind, or sizes that no spec can have.
        """
        if len(data) != SPEC_BYTES:
            raise ValueError(f"data must be {SPEC_BYTES} bytes, not {len(data)}")
        version, kind, dimension, rows, columns = _LAYOUT.unpack(data)
        if version != SPEC_VERSION:
            raise ValueError(f"version must be {SPEC_VERSION}, not {version}")
        return cls(SketchKind(kind), dimension, rows, columns)


def spec_for_size(dimension: int, size: int, rows: int = DEFAULT_ROWS) -> SketchSpec:
    """The largest count-mean sketch of at most the wanted size, or the identity.

    Args:
        dimension: number d of coordinates, at least 1.
        size: the wanted number of coordinates on the wire, at least 1.
        rows: number R of rows.

    Returns:
        P = max(1, floor(size / R)) columns. A size below R gives R, the smallest sketch there is.
        The identity if the wanted size, or the sketch that would come out, reaches d: then sending
        the vector itself is no dearer and has no compression error.

    Raises:
        TypeError: an argument of the wrong type.
        ValueError: an argument out of range.
    """
    dimension = _checks.integer("dimension", dimension, 1)
    size = _checks.integer("size", size, 1)
    rows = _checks.integer("rows", rows, 1, MAX_ROWS)
    columns = max(1, size // rows)
    if size >= dimension or rows * columns >= dimension:
        return SketchSpec.identity(dimension)
    return SketchSpec(SketchKind.COUNT_MEAN, dimension, rows, columns)
