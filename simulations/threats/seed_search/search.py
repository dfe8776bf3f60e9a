"""Trying candidates for a seed, block by block, and how long that takes.

The seeds of 32 bits are those of Mersenne Twisters, of which the first outputs are looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from secagg import ParameterError
from simulations.audits.base import Figures
from simulations.threats.seed_search._kernels import LANES, MOST_OUTPUTS, first_outputs

Numbers: TypeAlias = NDArray[np.uint64]
"""Candidates by number: uint64[N]."""
Expand: TypeAlias = Callable[[Numbers], NDArray[np.uint32]]
"""The first words that candidates give: uint32[count, N] from uint64[N]."""
Accept: TypeAlias = Callable[[NDArray[np.uint32]], NDArray[np.bool_]]
"""Which candidates may be right, by their first words: bool[N]."""

BLOCK = 1 << 15
"""Candidates at a time: their first words stay in the second cache level."""


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found."""

    found: tuple[int, ...]
    tried: int
    core_seconds: float  # what it took of one core; others may have used the machine meanwhile

    def cost(self, seeds: int) -> Figures:
        """What was measured, and what follows for all seeds."""
        rate = self.tried / self.core_seconds
        return {
            "timed_candidates": self.tried,
            "timed_core_seconds": self.core_seconds,
            "candidates_per_core_second": rate,
            "all_seeds": seeds,
            "core_seconds_for_all_seeds": seeds / rate,
        }


def search_seeds(candidates: range, expand: Expand, accept: Accept) -> SearchResult:
    """Try every candidate."""
    found: list[int] = []
    # One candidate that is not counted: compiling, and filling the caches, is no part of the rate.
    accept(expand(np.array([candidates.start], np.uint64)))
    start = time.process_time()
    for first in range(candidates.start, candidates.stop, BLOCK):
        numbers = np.arange(first, min(first + BLOCK, candidates.stop), dtype=np.uint64)
        found += numbers[accept(expand(numbers))].tolist()
    return SearchResult(tuple(found), len(candidates), time.process_time() - start)


def mersenne_outputs(seeds: NDArray[np.uint32], count: int) -> NDArray[np.uint32]:
    """The first outputs, uint32[count, N], as `numpy.random.RandomState(seed)` gives them."""
    if seeds.dtype != np.uint32 or seeds.ndim != 1:
        raise ParameterError("seeds", f"{seeds.dtype}{seeds.shape}", "uint32[N]")
    if not 1 <= count <= MOST_OUTPUTS:
        raise ParameterError("count", count, f"in 1 .. {MOST_OUTPUTS}")
    padded = np.zeros(-(-seeds.size // LANES) * LANES, np.uint32)
    padded[: seeds.size] = seeds
    outputs = np.empty((count, padded.size), np.uint32)
    first_outputs(padded, outputs)
    return outputs[:, : seeds.size]
