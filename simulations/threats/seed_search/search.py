"""Trying candidates for a seed, block by block; and for the mask that is left on a peeled upload.

The seeds of 32 bits are those of Mersenne Twisters, of which the first outputs are looked at.

After an honest round a curious server has every survivor's self-mask seed and every lost client's
masking key. It can take all masks off one survivor's upload but those that this client shares with
other survivors. The masks shared with colluders go too. If one honest neighbour is left, one mask
is.

The server need not know anything about the victim to tell a right guess from a wrong one. Updates
are quantised to far fewer values than the group has elements, or their sum would wrap around. Below
a wrong mask each coordinate looks uniform and lies in the range of the quantiser with probability
values / modulus. Flower's defaults are 2^22 of 2^32: ten bits for each coordinate. Four coordinates
leave 2^-12 wrong seeds of 2^28, and the rest of the vector none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from secagg import ParameterError
from simulations.audits.base import Figures, Integers
from simulations.threats.game.rates import rate
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


LOOKED_AT = 4
"""Coordinates that the search looks at."""


@dataclass(frozen=True, slots=True, eq=False)
class Peeled:
    """What a server is left with."""

    words: Integers  # int64[length], in 0 .. modulus - 1: the vector, plus or minus the last mask
    subtracted: bool
    modulus: int  # of the group, at most 2^32
    largest: int  # plain values lie in 0 .. largest

    def without(self, mask: Integers) -> Integers:
        """The vector if this was the mask: int64[length] in 0 .. modulus - 1."""
        return (self.words + mask if self.subtracted else self.words - mask) % self.modulus

    def is_plausible(self, plain: Integers) -> bool:
        """Whether every value is one that a client may have sent."""
        return bool(np.all(plain <= self.largest))

    def accept(self, outputs: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which masks leave what may have been sent, by first elements, uint32[`LOOKED_AT`, N]."""
        accepted = self._fits(0, outputs[0])
        left = np.flatnonzero(accepted)
        for at in range(1, outputs.shape[0]):
            left = left[self._fits(at, outputs[at, left])]
        accepted[:] = False
        accepted[left] = True
        return accepted

    def _fits(self, at: int, masks: NDArray[np.uint32]) -> NDArray[np.bool_]:
        wide = masks.astype(np.int64)
        plain = self.words[at] + wide if self.subtracted else self.words[at] - wide
        return np.asarray(plain % self.modulus <= self.largest)


@dataclass(frozen=True, slots=True, eq=False)
class PeeledUpload:
    """A peeled upload, its answer, and the numbered candidates for the seed of its last mask."""

    peeled: Peeled
    plain: Integers  # int64[length], the victim's vector; only to see whether the server is right
    candidates: range  # numbers that agree with what the server is told of the seed
    first_elements: Expand  # of the candidates' masks, uint32[`LOOKED_AT`, N]
    mask: Callable[[int], Integers]  # the whole mask of a candidate, int64[length]


def recovers(upload: PeeledUpload) -> tuple[bool, SearchResult]:
    """Play the game Exact: whether the server outputs the victim's vector, and its search.

    It has an answer if exactly one candidate leaves a vector that a client may have sent.
    """
    peeled = upload.peeled
    search = search_seeds(upload.candidates, upload.first_elements, peeled.accept)
    vectors = [peeled.without(upload.mask(number)) for number in search.found]
    claims = [plain for plain in vectors if peeled.is_plausible(plain)]
    return len(claims) == 1 and bool(np.array_equal(claims[0], upload.plain)), search


def unmask(uploads: Sequence[PeeledUpload]) -> Figures:
    """Play the game Exact on some uploads, each with equally many candidates."""
    played = [recovers(upload) for upload in uploads]
    exact = rate(sum(success for success, _ in played), len(played))
    return {**exact, "candidates_each": played[0][1].tried}
