"""Every random stream of a campaign, derived from its seed and the names of what it is for."""

from __future__ import annotations

import hashlib
import zlib
from typing import Final

import numpy as np

TUNING_OFFSET: Final = 1000  # from the first seed that is evaluated to the first one that is tried


def seed_of(seed: int, *labels: int | str) -> tuple[int, ...]:
    """Return the entropy of one stream: numbers as they are, words by their CRC-32."""
    return (seed, *(zlib.crc32(x.encode()) if isinstance(x, str) else x for x in labels))


def rng_of(seed: int, *labels: int | str) -> np.random.Generator:
    """Return the generator of one stream."""
    return np.random.default_rng(seed_of(seed, *labels))


def spawned(seed: int, number: int) -> np.random.Generator:
    """Return the generator of one of the streams that NumPy spawns from a seed."""
    return np.random.default_rng(seed).spawn(number + 1)[number]


def bytes_of(*labels: object) -> bytes:
    """Return 32 bytes for one stream whose randomness is bytes: SHA-256 of the words."""
    return hashlib.sha256(" ".join(map(str, labels)).encode()).digest()


def evaluated(first: int, count: int) -> tuple[int, ...]:
    """Return the seeds of the runs that count."""
    return tuple(range(first, first + count))


def tried(first: int, count: int) -> tuple[int, ...]:
    """Return the seeds of trials, with which nothing is evaluated."""
    return evaluated(first + TUNING_OFFSET, count)
