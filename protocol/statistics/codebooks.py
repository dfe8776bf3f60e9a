"""Codewords: the finite sets of integer vectors that one token of a client may send.

A codebook says how long a codeword is and how far two of them, or one and zero, are apart: what one
token changes under both neighbouring relations, a client left out and a client that answers
otherwise. Its figures are of its very codewords, rounding included.

Source: docs/statistics.md, "Codewords".
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from protocol.statistics.tree import nodes, path

Word = Sequence[tuple[int, int]]
"""A codeword: places and what stands there; zero anywhere else."""
Uniform = Callable[[], float]
"""A secret uniform number in [0, 1)."""

FINEST_UNIT: Final = 1024
COARSEST_UNIT: Final = 64
MOST_TOKENS: Final = 1024

# Of a mean, in units: of the answered, of x, and of x^2 with its offset. The norm and all distances
# of (.8236, x / 2, .8325 x^2 - .5667) are at most 1.
_ANSWERED: Final = 0.8236
_SQUARE: Final = 0.8325
_OFFSET: Final = 0.5667


def unit_of(tokens: int) -> int:
    """Integers for a length of 1, fewer where many tokens add up."""
    return max(FINEST_UNIT // tokens, COARSEST_UNIT)


def rounded(value: float, uniform: Uniform) -> int:
    """One of the two integers next to a value, with this mean."""
    below = math.floor(value)
    return below + (uniform() < value - below)


class Codebook(ABC):
    """The codewords of one token."""

    length: int
    """Integers of a codeword."""
    square: int
    """Largest squared distance of two codewords, or of one from zero."""
    largest: int
    """Largest difference of two codewords in one place, or entry."""
    unit: int = 1
    """What stands for one answer, or for the range of x."""
    missing: Word
    """What stands for no answer."""

    @abstractmethod
    def words(self) -> Iterator[Word]:
        """All of them, for whoever counts distances; each may come more than once."""


class Cells(Codebook):
    """A one in one of so many cells, or in the last, for no answer."""

    def __init__(self, cells: int) -> None:
        self.length = cells + 1
        self.square, self.largest = 2, 1
        self.missing = ((cells, 1),)

    def word(self, cell: int) -> Word:
        """That of a cell."""
        return ((cell, 1),)

    def words(self) -> Iterator[Word]:
        """As `Codebook.words` says."""
        return (((cell, 1),) for cell in range(self.length))


class Paths(Codebook):
    """A number at each node on the way to a leaf of a tree, and as long a one for no answer.

    Args:
        entry: at each node; above 1 where the square root of the levels is no integer.
    """

    def __init__(self, levels: int, entry: int) -> None:
        inner = nodes(levels)
        self.levels, self.entry, self.length = levels, entry, inner + 1
        self.unit = entry
        self.square = 2 * levels * entry**2
        # No longer than the others, and nearly as long.
        self.absent = math.isqrt(levels * entry**2)
        self.largest = max(entry, self.absent)
        self.missing = ((inner, self.absent),)

    def word(self, leaf: int) -> Word:
        """That of a leaf."""
        return [(node, self.entry) for node in path(leaf, self.levels)]

    def words(self) -> Iterator[Word]:
        """As `Codebook.words` says."""
        yield self.missing
        yield from (self.word(leaf) for leaf in range(4**self.levels))


class Moments(Codebook):
    """One for an answer, x and x^2 of it, for x in [-1, 1]; zeros for no answer.

    Args:
        unit: integers for a length of 1.
    """

    length = 3
    missing = ()

    def __init__(self, unit: int) -> None:
        self.unit = unit
        self.answered = int(_ANSWERED * unit)
        self.linear = unit // 2
        self.quadratic, self.offset = int(_SQUARE * unit), round(_OFFSET * unit)
        self.square, self.largest = _extent(self)

    def word(self, x: float, uniform: Uniform) -> Word:
        """That of a number: random, and right on average."""
        square = self.quadratic * x**2 - self.offset
        return (
            (0, self.answered),
            (1, rounded(self.linear * x, uniform)),
            (2, rounded(square, uniform)),
        )

    def reachable(self, k: int) -> range:
        """What the last entry may be, where the second is k: of all x that round to it."""
        near = [min(max((k + side) / self.linear, -1.0), 1.0) for side in (-1, 1)]
        least = 0.0 if near[0] < 0.0 < near[1] else min(x**2 for x in near)
        most = max(x**2 for x in near)
        # A hair more than floats may be off by.
        low = math.floor(self.quadratic * least - self.offset - 1e-6)
        return range(low, math.ceil(self.quadratic * most - self.offset + 1e-6) + 1)

    def words(self) -> Iterator[Word]:
        """As `Codebook.words` says."""
        yield ()
        for k in range(-self.linear, self.linear + 1):
            yield from (((0, self.answered), (1, k), (2, q)) for q in self.reachable(k))


def _extent(book: Moments) -> tuple[int, int]:
    """The square and the largest difference over all codewords, counted pair by pair.

    For each k only the ends of its range matter, because distances are convex.
    """
    ks = range(-book.linear, book.linear + 1)
    found = [(k, book.reachable(k)) for k in ks]
    ends = [(k, end) for k, reach in found for end in (reach[0], reach[-1])]
    k, q = np.array(ends, np.int64).T
    longest = book.answered**2 + int((k**2 + q**2).max())
    apart = max(int(((k - i) ** 2 + (q - j) ** 2).max()) for i, j in ends)
    entries = (int(np.ptp(k)), int(np.ptp(q)), book.answered, int(abs(q).max()))
    return max(longest, apart), max(entries)


@lru_cache(maxsize=8)
def moments(unit: int) -> Moments:
    """The codebook of a unit, counted once."""
    return Moments(unit)


class Grouped(Codebook):
    """One for an answer and x in [-1, 1], at the place of a group; zeros for no answer.

    Args:
        unit: integers for a length of 1.
    """

    missing = ()

    def __init__(self, groups: int, unit: int) -> None:
        self.groups, self.length, self.unit = groups, 2 * groups, unit
        self.one = math.isqrt(unit**2 // 2)
        # x and -x of one group are as far apart as two groups.
        self.square, self.largest = 4 * self.one**2, 2 * self.one

    def word(self, group: int, x: float, uniform: Uniform) -> Word:
        """That of a number in a group."""
        return (2 * group, self.one), (2 * group + 1, rounded(self.one * x, uniform))

    def words(self) -> Iterator[Word]:
        """As `Codebook.words` says."""
        yield ()
        for group in range(self.groups):
            for k in range(-self.one, self.one + 1):
                yield (2 * group, self.one), (2 * group + 1, k)


@dataclass(frozen=True, slots=True)
class Tokens:
    """How a client's records share its vote.

    Args:
        count: T, of each client.
        by_record: whether records weigh alike, up to T of a client; else clients do.
    """

    count: int = 1
    by_record: bool = False

    def chosen(self, records: int, uniform: Uniform) -> list[int | None]:
        """The record of each token; None for no answer."""
        if records == 0:
            return [None] * self.count
        if self.by_record and records <= self.count:
            return [*range(records), *[None] * (self.count - records)]
        if records == self.count:
            return [*range(records)]
        start = uniform()
        found = ((j + start) * records / self.count for j in range(self.count))
        return [min(int(each), records - 1) for each in found]
