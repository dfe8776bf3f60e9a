"""Exact draws from any law on the integers by inversion of an infinite uniform number.

U is an infinite string of uniform bits, and X = min{x : U < F(x)}. The first 32 bits of U are a
word of the keystream; they decide X unless they equal the first 32 bits of some F(x). Then, with
probability about table size / 2^32, further bits of U are drawn and compared with further bits of
F, until they differ. No rounding, no truncation, no failure probability: docs/sampling.md has the
argument step by step.

What is left visible: which table entries are read depends on the secret draw. The popcount of
``dp.coins`` has no such trace.

Source: inversion with lazily drawn bits, Knuth and Yao 1976 and Devroye 1986, section II.2;
guide tables, Chen and Asau 1974.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dp.checks import require_integer
from dp.keystream import Keystream, NoiseSeed, Usage
from dp.sampling._kernels import add_decided
from dp.sampling.certified import Cumulative
from dp.sampling.laws import Law

MAX_ENTRIES: Final = 1 << 20
"""Entries of a table: four megabytes, and seconds to compute."""

WORD_BITS: Final = 32
_GUIDE_BITS: Final = 16
"""256 KiB of guide: it stays in the second cache level. With fewer bits wide laws have several
entries in most buckets, and every scan is a mispredicted branch: 12 bits took three times as long
at a standard deviation of 400."""


@dataclass(frozen=True, slots=True, eq=False)
class InversionTable:
    """The leading bits of a distribution function, laid out for looking up words.

    Attributes:
        first: integer that a word below all entries decides for.
        words: as wide as a word, not falling: ``floor(2^word_bits F(first + i))``, and at the end
            the largest word there is. It decides nothing; if it is drawn, more bits are.
        guide: int32[2^g + 1], entries below each value of the top g bits of a word.
        shift: bits of a word below those g.
    """

    first: np.int64
    words: NDArray[np.unsignedinteger]
    guide: NDArray[np.int32]
    shift: np.uint64


@lru_cache(maxsize=32)
def _cumulative(law: Law, bits: int) -> Cumulative:
    """Return the law's distribution function to so many bits; kept, as it costs milliseconds."""
    return law.cumulative(bits)


@lru_cache(maxsize=64)
def inversion_table(law: Law, word_bits: int = WORD_BITS) -> InversionTable:
    """Return the table of a law; computed once, then kept.

    Args:
        word_bits: bits that are compared at once, 8, 16 or 32; fewer than 32 only in tests.
    """
    cumulative = law.cumulative(word_bits)
    size = len(cumulative.words)
    if size > MAX_ENTRIES:
        raise ValueError(
            f"law {law} needs a table of {size} entries, at most {MAX_ENTRIES} are possible: "
            "choose a smaller variance"
        )
    words = np.array([*cumulative.words, (1 << word_bits) - 1], dtype=f"<u{word_bits // 8}")
    shift = max(word_bits - _GUIDE_BITS, 0)
    edges = np.arange(1 << (word_bits - shift), dtype=words.dtype) << shift
    guide = np.append(np.searchsorted(words, edges), size).astype(np.int32)
    for array in (words, guide):
        array.flags.writeable = False
    return InversionTable(np.int64(cumulative.first), words, guide, np.uint64(shift))


def sample_law(law: Law, seed: NoiseSeed, length: int) -> NDArray[np.int64]:
    """Draw ``length`` independent values of exactly the given law.

    Args and layout: as for ``accumulate_law``.

    Returns:
        int64[length].
    """
    require_integer("length", length, 0)
    out = np.zeros(length, dtype=np.int64)
    accumulate_law(law, seed, out)
    return out


def accumulate_law(
    law: Law, seed: NoiseSeed, out: NDArray[np.int64], word_bits: int = WORD_BITS
) -> None:
    """Add to ``out`` what ``sample_law`` draws.

    Layout, fixed so that a rebuilt seed rebuilds the noise: coordinate i takes word i, 32 bits,
    little-endian, of the stream under ``Usage.INVERSION``. If that is not enough it goes on with
    the words of a stream of its own, that of ``Usage.REFINEMENT`` and index i.

    Args:
        seed: secret; must not have drawn another vector.
        out: int64[length], contiguous; left with room for the draws.
        word_bits: as for ``inversion_table``.
    """
    if not isinstance(seed, NoiseSeed):
        raise TypeError(f"seed must be a NoiseSeed, got {type(seed).__name__}")
    table = inversion_table(law, word_bits)
    look_up = (table.words, table.guide, table.shift, table.first)
    start = 0
    for words in Keystream(seed.derive(Usage.INVERSION)).chunks(table.words.dtype, out.size):
        piece = out[start : start + words.size]
        i = add_decided(words, *look_up, piece)
        while i < words.size:
            later = _later_words(seed, start + i, word_bits)
            piece[i] += _refine(law, int(words[i]), word_bits, later)
            i += 1 + add_decided(words[i + 1 :], *look_up, piece[i + 1 :])
        start += words.size


def _later_words(seed: NoiseSeed, index: int, word_bits: int) -> Iterator[int]:
    """Yield the second, third, ... word of one coordinate's uniform number, without end."""
    stream = Keystream(seed.derive(Usage.REFINEMENT, index))
    word = np.empty(1, dtype=f"<u{word_bits // 8}")
    while True:
        stream.fill(word)
        yield int(word[0])


def _refine(law: Law, word: int, word_bits: int, later: Iterator[int]) -> int:
    """Return X, given the first word of U and, lazily, all later ones."""
    bits = word_bits
    decided = None
    while decided is None:
        bits += word_bits
        word = word << word_bits | next(later)
        decided = _cumulative(law, bits).decide(word)
    return decided
