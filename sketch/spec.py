"""The shape of a round's compression as a value that everyone signs, separate from its seed.

A spec is fixed and announced before the seed is drawn: who could choose the shape after seeing the
seed could choose collisions.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketch import _checks
from sketch.countmedian import CountMedianSketch
from sketch.countsketch import CountMeanSketch
from sketch.hashing import MAX_COLUMNS, MAX_ROWS, PublicSeed
from sketch.linear import LinearSketch, NoSketch
from sketch.probed import Probe, ProbedSketch

DEFAULT_ROWS = 15
"""Source: arXiv 2307.10999, section 5: more rows cost time and gain nothing in Lemma 6."""

SPEC_VERSION = 2
_LAYOUT = struct.Struct("<BBQQQQQd")
SPEC_BYTES = _LAYOUT.size
_MAX_DIMENSION = 2**63 - 1


class SketchKind(enum.Enum):
    """The families of maps that a spec can name; the values are part of the wire format."""

    IDENTITY = 0
    COUNT_MEAN = 1
    COUNT_MEDIAN = 2


@dataclass(frozen=True, slots=True)
class SketchSpec:
    """Kind and sizes of a round's compression.

    Args:
        kind: the family.
        dimension: number d of coordinates of an update, at least 1.
        rows: number R of rows of a copy; 1 for the identity.
        columns: number P of columns; d for the identity.
        copies: number M of copies whose decodes the median is taken of: odd and at least 3 for a
            count-median sketch, 1 for all others.
        probe: a second, small sketch beside the first; None for none.

    Raises:
        ValueError: a size out of range, or not the one that the kind has.
    """

    kind: SketchKind
    dimension: int
    rows: int
    columns: int
    copies: int = 1
    probe: Probe | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kind, SketchKind):
            raise TypeError(f"kind must be a SketchKind, not {type(self.kind).__name__}")
        if self.probe is not None and not isinstance(self.probe, Probe):
            raise TypeError(f"probe must be a Probe, not {type(self.probe).__name__}")
        _checks.integer("dimension", self.dimension, 1, _MAX_DIMENSION)
        # One way only to write a map, or equal maps could have unequal bytes.
        if self.kind is SketchKind.IDENTITY:
            if (self.rows, self.columns) != (1, self.dimension):
                raise ValueError("rows and columns of an identity must be 1 and its dimension")
        else:
            # A median has three copies at least, and every row of all copies an index.
            fewest = 3 if self.kind is SketchKind.COUNT_MEDIAN else 1
            _checks.integer("rows", self.rows, 1, MAX_ROWS // fewest)
            _checks.integer("columns", self.columns, 1, MAX_COLUMNS)
        if self.kind is SketchKind.COUNT_MEDIAN:
            _checks.odd("copies", self.copies, 3, MAX_ROWS // self.rows)
        elif self.copies != 1:
            raise ValueError(f"copies must be 1 without a median, not {self.copies}")

    @classmethod
    def identity(cls, dimension: int, probe: Probe | None = None) -> SketchSpec:
        """The spec of a round without compression."""
        return cls(SketchKind.IDENTITY, dimension, 1, dimension, probe=probe)

    @property
    def main_size(self) -> int:
        """The number L of coordinates of the sketch that is decoded, without the probe."""
        return self.copies * self.rows * self.columns

    @property
    def total_rows(self) -> int:
        """Rows of all copies: encoding passes over an update once for each."""
        return self.copies * self.rows

    @property
    def size(self) -> int:
        """The number of coordinates that a client sends: both sketches."""
        return self.main_size + (self.probe.size if self.probe else 0)

    @property
    def rate(self) -> float:
        """The compression rate: d over the coordinates sent, both sketches counted."""
        return self.dimension / self.size

    @property
    def main_weight(self) -> float:
        """What the first sketch is multiplied with before it is sent: 1 without a probe."""
        return self.probe.main_weight if self.probe else 1.0

    def build(self, seed: PublicSeed) -> LinearSketch:
        """The map that this spec and a public seed determine."""
        main = self._build_main(seed)
        return main if self.probe is None else ProbedSketch(main, self.probe, seed)

    def _build_main(self, seed: PublicSeed) -> LinearSketch:
        if self.kind is SketchKind.IDENTITY:
            return NoSketch(self.dimension)
        if self.kind is SketchKind.COUNT_MEAN:
            return CountMeanSketch(self.dimension, self.rows, self.columns, seed)
        return CountMedianSketch(self.dimension, self.rows, self.columns, self.copies, seed)

    def split(
        self, sent: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Both sketches of a vector, each with the norm that the vector has in expectation.

        Args:
            sent: float64[size], what `build` encodes, or a noisy mean of such.

        Returns:
            float64[main_size], and float64[probe.size] or None.
        """
        checked = _checks.vector("sent", sent, self.size)
        if self.probe is None:
            return checked, None
        main, probe = checked[: self.main_size], checked[self.main_size :]
        return main / self.main_weight, probe / self.probe.weight

    def encode_bytes(self) -> bytes:
        """Canonical bytes, equal for equal specs only; for the hash of a round's context.

        Version and kind as one byte each; dimension, rows, columns, copies and the probe's size as
        little-endian uint64, the probe's share as a little-endian double; without a probe both
        are 0.
        """
        size, share = (self.probe.size, self.probe.share) if self.probe else (0, 0.0)
        sizes = (self.dimension, self.rows, self.columns, self.copies, size)
        return _LAYOUT.pack(SPEC_VERSION, self.kind.value, *sizes, share)

    @classmethod
    def decode_bytes(cls, data: bytes) -> SketchSpec:
        """Read what `encode_bytes` wrote.

        Raises:
            ValueError: wrong length, unknown version or kind, or sizes that no spec can have.
        """
        if len(data) != SPEC_BYTES:
            raise ValueError(f"data must be {SPEC_BYTES} bytes, not {len(data)}")
        version, kind, dimension, rows, columns, copies, size, share = _LAYOUT.unpack(data)
        if version != SPEC_VERSION:
            raise ValueError(f"version must be {SPEC_VERSION}, not {version}")
        # A negative zero would be a second way to write no probe.
        absent = size == 0 and data[-8:] == bytes(8)
        probe = None if absent else Probe(size, share)
        return cls(SketchKind(kind), dimension, rows, columns, copies, probe)


def spec_for_size(
    dimension: int, size: int, rows: int = DEFAULT_ROWS, probe: Probe | None = None
) -> SketchSpec:
    """The largest count-mean sketch of at most the wanted size, or the identity.

    Args:
        dimension: number d of coordinates, at least 1.
        size: the wanted number of coordinates of the sketch that is decoded, at least 1.
        rows: number R of rows.
        probe: a second sketch, sent beside it whatever its size.

    Returns:
        P = max(1, floor(size / R)) columns. A size below R gives R, the smallest sketch there is.
        The identity if the wanted size, or the sketch that would come out, reaches d: then sending
        the vector itself is no dearer and has no compression error.
    """
    dimension = _checks.integer("dimension", dimension, 1)
    size = _checks.integer("size", size, 1)
    rows = _checks.integer("rows", rows, 1, MAX_ROWS)
    columns = max(1, size // rows)
    if size >= dimension or rows * columns >= dimension:
        return SketchSpec.identity(dimension, probe)
    return SketchSpec(SketchKind.COUNT_MEAN, dimension, rows, columns, probe=probe)


def median_for_size(
    dimension: int,
    size: int,
    copies: int,
    rows: int = DEFAULT_ROWS,
    probe: Probe | None = None,
) -> SketchSpec:
    """The largest count-median sketch of at most the wanted size, or the identity.

    Args:
        dimension: number d of coordinates, at least 1.
        size: the wanted number of coordinates of all copies together, at least 1.
        copies: number M of copies, odd and at least 3.
        rows: number R of rows of each copy.
        probe: a second sketch, sent beside it whatever its size.

    Returns:
        P = max(1, floor(size / (M R))) columns; the identity as `spec_for_size` has it.
    """
    rows = _checks.integer("rows", rows, 1, MAX_ROWS // 3)
    copies = _checks.odd("copies", copies, 3, MAX_ROWS // rows)
    stack = spec_for_size(dimension, size, copies * rows, probe)
    if stack.kind is SketchKind.IDENTITY:
        return stack
    return SketchSpec(SketchKind.COUNT_MEDIAN, stack.dimension, rows, stack.columns, copies, probe)
