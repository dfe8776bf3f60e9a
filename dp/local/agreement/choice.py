"""A random vector that agrees with a given one in a given number of places, exactly uniform.

Which places agree is drawn by selection sampling, one pass over the vector: whole numbers and
32-bit words, drawn again where they would favour some place. The other places get one of the
K - 1 other levels, likewise. The number of words that are read depends on the secret words
themselves only through those that are drawn again, fewer than one in 2^32 / d.

Source: selection sampling, Knuth, The Art of Computer Programming, volume 2, Algorithm 3.4.2S;
unbiased integers, Lemire 2019 (arXiv 1805.10941).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dp.keystream import CHUNK_BYTES, Keystream, NoiseSeed, Usage
from dp.local.agreement._kernels import choose_places, replace_elsewhere

_WORD: Final = np.dtype("<u4")


def agree_in(
    levels: NDArray[Any], counts: NDArray[np.int64], level_count: int, seed: NoiseSeed
) -> None:
    """Replace each row by a uniform vector that agrees with it in ``counts[row]`` places.

    Args:
        levels: int8[n, d] or int16[n, d], C-contiguous, in ``0 .. level_count - 1``; changed in
            place.
        counts: int64[n] in 0..d.
        seed: used under ``Usage.AGREEMENT_PLACES`` and ``Usage.OTHER_LEVELS``; must not have
            served other vectors.
    """
    chosen = _places(levels.shape[1], counts, seed.derive(Usage.AGREEMENT_PLACES))
    flat, mask = levels.reshape(-1), chosen.reshape(-1)
    words = _endless(seed.derive(Usage.OTHER_LEVELS), levels.size)
    others, position = np.uint64(level_count - 1), np.int64(0)
    while position < flat.size:
        position = np.int64(replace_elsewhere(next(words), mask, others, position, flat))


def _places(length: int, counts: NDArray[np.int64], seed: NoiseSeed) -> NDArray[np.bool_]:
    """Choose ``counts[row]`` of ``length`` places for each row: bool[n, length]."""
    chosen = np.empty((counts.size, length), dtype=np.bool_)
    words = _endless(seed, chosen.size)
    position = wanted = np.int64(0)
    while position < chosen.size:
        found = choose_places(next(words), counts, position, wanted, chosen)
        position, wanted = np.int64(found[0]), np.int64(found[1])
    return chosen


def _endless(seed: NoiseSeed, expected: int) -> Iterator[NDArray[np.uint32]]:
    """Yield pieces of a stream of words, no larger than what is expected to be needed.

    The pieces are one reused buffer: each is valid until the next is asked for.
    """
    stream = Keystream(seed)
    buffer = np.empty(min(expected, CHUNK_BYTES // _WORD.itemsize), dtype=_WORD)
    while True:
        stream.fill(buffer)
        yield buffer
