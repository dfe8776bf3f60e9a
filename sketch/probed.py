"""A sketch with a second, small one beside it, which tells how long the vector is.

    S' x = [sqrt(1 - w) S x ; sqrt(w) S2 x]

S2 is a count sketch of one row with hashes of its own, w the probe's share. |S' x|^2 has the mean
|x|^2, so the pair needs the clip and the noise of one sketch, and both travel in one secure sum.
In units of x the noise of the first has variance sigma^2 / (1 - w), that of the second
sigma^2 / w: w is the share of the zero-concentrated budget that the second sketch takes.

Source: the second sketch of arXiv 2307.10999, Algorithms 1 to 3; one sum for both, with the noise
inside, is this project's (docs/sketching.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sketch import _checks
from sketch.countsketch import CountMeanSketch
from sketch.hashing import MAX_COLUMNS, PublicSeed
from sketch.linear import LinearSketch

PROBE_SHARE = 0.1
"""Share of the budget for the second sketch, as the paper's tables imply."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The shape of the second sketch.

    Args:
        size: number of its buckets, at least 1.
        share: w, its share of the budget, strictly between 0 and 1.
    """

    size: int
    share: float = PROBE_SHARE

    def __post_init__(self) -> None:
        _checks.integer("size", self.size, 1, MAX_COLUMNS)
        if _checks.real("share", self.share, 0.0, 1.0, open_low=True) == 1.0:
            raise ValueError(
                "share must be below 1: otherwise nothing is left for the first sketch"
            )

    @property
    def weight(self) -> float:
        """sqrt(w): what the second sketch is multiplied with before it is sent."""
        return math.sqrt(self.share)

    @property
    def main_weight(self) -> float:
        """sqrt(1 - w): the same for the first sketch."""
        return math.sqrt(1.0 - self.share)

    def build(self, dimension: int, seed: PublicSeed) -> CountMeanSketch:
        """S2, from the round's seed."""
        return CountMeanSketch(dimension, 1, self.size, seed.probe())


class ProbedSketch:
    """Both sketches as one linear map; only the first is decoded.

    Args:
        probe: the shape of S2.
    """

    __slots__ = ("_main", "_probe", "_second")

    def __init__(self, main: LinearSketch, probe: Probe, seed: PublicSeed) -> None:
        self._main = main
        self._probe = probe
        self._second = probe.build(main.dimension, seed)

    def __repr__(self) -> str:
        return f"ProbedSketch({self._main!r}, {self._probe!r})"

    @property
    def dimension(self) -> int:
        """The number d of coordinates of an update."""
        return self._main.dimension

    @property
    def size(self) -> int:
        """The number of coordinates of both sketches."""
        return self._main.size + self._second.size

    def encode(self, values: _checks.Floats) -> NDArray[np.float64]:
        """Both sketches, weighted: float32[d] or float64[d] to float64[size]."""
        return self._weighted(self._main.encode(values), self._second.encode(values))

    def encode_many(self, vectors: Iterable[_checks.Floats]) -> NDArray[np.float64]:
        """Both sketches of c vectors: float64[c, size]; see `LinearSketch`."""
        kept = list(vectors)
        return self._weighted(self._main.encode_many(kept), self._second.encode_many(kept))

    def _weighted(
        self, main: NDArray[np.float64], second: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        main *= self._probe.main_weight
        second *= self._probe.weight
        return np.concatenate((main, second), axis=-1)

    def decode(self, sketch: NDArray[np.float64]) -> NDArray[np.float64]:
        """Estimate the vector from the first sketch alone: float64[size] to float64[d]."""
        checked = _checks.finite("sketch", _checks.vector("sketch", sketch, self.size))
        return self._main.decode(checked[: self._main.size] / self._probe.main_weight)
