"""sqSGD on the clients: a few coordinates at random, rotated, and reported as one vector of levels.

A client clips its update to norm U and adds it to what it has not sent yet. It takes k of the d
coordinates, which the round's public seed and its number determine, so that nobody has to send
them; sends their sum with the residual, and forgets what it took:

    x = residual[D] + beta update[D],    residual += alpha update,    residual[D] = 0.

x is rotated by an orthogonal map of k coordinates, without padding, and each coordinate cut off at
U: the update has norm U at most, but the residual has no bound, so that the paper's "l_inf norm
bounded by U as well" needs the cut. The server rotates back.

Two readings of the server. As printed it adds up what it gets, unscaled: with a residual every
coordinate arrives in the end, so that this is right in the long run (``scaled=False``). Without a
residual (alpha = 0) only k of d coordinates ever arrive, and the estimate is without bias if it is
multiplied by d/k (``scaled=True``).

The randomiser is PrivQuant in the paper. Another one of k coordinates in [-1, 1] may take its
place, which is how baselines get the same chances.

Source: sqSGD ("Practical Locally Private Federated Learning with Communication Efficiency"),
Algorithm 2, whose rotation is scaled by 1/d where orthogonality needs 1/sqrt(d).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dp.clipping import clip_l2
from dp.keystream import NoiseSeed
from dp.local import LocalRandomizer, Reports
from dp.local.calibration import printed_priv_quant
from simulations.learning.local_dp.base import require_fitting
from simulations.learning.local_dp.memory import ClientMemory
from sketch import PublicSeed, Rotation

RESIDUAL = "residual"
"""Name of what was not sent yet, in a client's memory."""

_LABEL: Final = b"veilsum/sqsgd/1/"
_EVERYBODY: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class SqSgd:
    """The client side of sqSGD; a ``LocalAlgorithm``."""

    dimension: int  # d, of an update
    randomizer: LocalRandomizer  # of k coordinates in [-1, 1], ``k <= dimension``
    # U, the norm to which updates are clipped, and the largest coordinate of what is randomised; in
    # units of an update
    bound: float
    alpha: float = 1.0  # weight of an update in the residual, in [0, 1]; 0 for no residual at all
    beta: float = 1.0  # weight of an update in what is sent, positive
    scaled: bool = False  # whether the server multiplies by d/k
    # whether all clients of a round take the same coordinates, so that their levels can be added up
    # by a secure sum; else each takes its own, as in the paper
    common: bool = False
    rotated: bool = True  # whether the coordinates are rotated

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.dimension < self.randomizer.dimension:
            raise ValueError(
                f"dimension must be at least the randomizer's {self.randomizer.dimension}, "
                f"got {self.dimension}"
            )
        if not 0.0 < self.bound < math.inf:
            raise ValueError(f"bound must be positive and finite, got {self.bound!r}")
        if not 0.0 <= self.alpha <= 1.0:
            raise ValueError(f"alpha must lie in [0, 1], got {self.alpha!r}")
        if not 0.0 < self.beta < math.inf:
            raise ValueError(f"beta must be positive and finite, got {self.beta!r}")

    @classmethod
    def as_printed(
        cls, dimension: int, ratio: float, levels: int, bound: float, epsilon: float
    ) -> SqSgd:
        """Return the algorithm with k = floor(r d), and kappa and p by the paper's rule."""
        return cls(
            dimension, printed_priv_quant(kept_count(dimension, ratio), levels, 1.0, epsilon), bound
        )

    @property
    def kept(self) -> int:
        """k, coordinates of one report."""
        return self.randomizer.dimension

    @property
    def epsilon(self) -> float:
        """Of one report, for any two updates and memories of the client."""
        return self.randomizer.epsilon

    @property
    def report_bytes(self) -> float:
        """One report in whole bytes; which coordinates it holds is known without it."""
        return float(-(-self.randomizer.report_bits // 8))

    @property
    def factor(self) -> float:
        """What the server multiplies a report by, beside U."""
        return self.dimension / self.kept if self.scaled else 1.0

    def reports(
        self,
        clients: Sequence[int],  # whose updates these are, without repetition, from 0
        updates: NDArray[np.float64],  # float64[n, d], finite
        memory: ClientMemory,  # of vectors of d coordinates; its vectors ``RESIDUAL`` are changed
        round_seed: PublicSeed,  # fixes coordinates and rotations
        noise: NoiseSeed,  # secret, new in every round
    ) -> SubsampledReports:
        """Make the reports of one round, and bring the residuals up to date."""
        require_fitting(clients, updates, memory, self.dimension)
        subsamples = [Subsample(self, round_seed, client) for client in clients]
        parts = np.empty((len(clients), self.kept))
        for row, (client, update) in enumerate(zip(clients, updates, strict=True)):
            clipped = clip_l2(update, self.bound).values
            parts[row] = subsamples[row].taken(self._send(client, clipped, memory, subsamples[row]))
        return SubsampledReports(self, subsamples, self.randomizer.randomize(parts, noise))

    def _send(
        self, client: int, update: NDArray[np.float64], memory: ClientMemory, subsample: Subsample
    ) -> NDArray[np.float64]:
        """Return what a client sends, float64[k], and keep the rest of it."""
        if self.alpha == 0.0:
            return self.beta * update[subsample.coordinates]
        residual = memory.vector(RESIDUAL, client)
        sent = residual[subsample.coordinates] + self.beta * update[subsample.coordinates]
        residual += (self.alpha * update).astype(np.float32)
        residual[subsample.coordinates] = 0.0
        return np.asarray(sent, dtype=np.float64)


def kept_count(dimension: int, ratio: float) -> int:
    """Return k = floor(r d).

    Algorithm 2 has 2^ceil(log2(r d)) instead, because its rotation needs a power of two.
    """
    if not 0.0 < ratio <= 1.0:
        raise ValueError(f"ratio must lie in (0, 1], got {ratio!r}")
    # 0.07 * 100 is 7.000000000000001, and 0.29 * 100 is 28.999999999999996.
    kept = math.floor(ratio * dimension * (1.0 + 1e-12))
    if kept < 1:
        raise ValueError(f"ratio {ratio!r} of {dimension} coordinates is less than one")
    return kept


class Subsample:
    """Which coordinates a client sends in a round, and how they are turned: public."""

    __slots__ = ("_bound", "_rotation", "coordinates")

    def __init__(self, algorithm: SqSgd, round_seed: PublicSeed, client: int) -> None:
        if client < 0:
            raise ValueError(f"client must not be negative, got {client}")
        number = _EVERYBODY if algorithm.common else client
        kept, dimension = algorithm.kept, algorithm.dimension
        rng = np.random.default_rng(list(_derive(round_seed, b"coordinates", number)))
        self.coordinates = np.sort(rng.choice(dimension, kept, replace=False, shuffle=False))
        seed = PublicSeed(_derive(round_seed, b"rotation", number))
        self._rotation = Rotation(kept, seed) if algorithm.rotated else None
        self._bound = algorithm.bound

    def taken(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn float64[k] and cut it off at the bound; in units of the bound."""
        turned = values if self._rotation is None else self._rotation.forward(values)
        return np.clip(turned / self._bound, -1.0, 1.0)

    def returned(self, parts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Undo `taken` but for the cut; it is linear, so sums may be given too."""
        back = parts if self._rotation is None else self._rotation.inverse(parts)
        return self._bound * back


def _derive(seed: PublicSeed, usage: bytes, number: int) -> bytes:
    """Return 32 public bytes for one use and client."""
    return hashlib.sha256(_LABEL + usage + number.to_bytes(8, "little") + seed.value).digest()


@dataclass(frozen=True, slots=True, eq=False)
class SubsampledReports:
    """Reports of a few coordinates each."""

    algorithm: SqSgd  # what made them
    subsamples: Sequence[Subsample]  # of each client, in the order of the reports
    inner: Reports  # the reports of k coordinates in [-1, 1]; what is sent

    def __len__(self) -> int:
        """Return the number n of reports."""
        return len(self.subsamples)

    def estimate(self, index: int) -> NDArray[np.float64]:
        """Return float64[d]: what one report says, zero where it says nothing."""
        out = np.zeros(self.algorithm.dimension)
        self._add(out, self.subsamples[index], self.inner.estimate(index))
        return out

    def total(self) -> NDArray[np.float64]:
        """Return float64[d]: the sum of all estimates."""
        if self.algorithm.common and self.subsamples:
            return self.decoded(self.inner.total())
        out = np.zeros(self.algorithm.dimension)
        for index, subsample in enumerate(self.subsamples):
            self._add(out, subsample, self.inner.estimate(index))
        return out

    def decoded(self, inner_total: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return float64[d] from the sum of the inner estimates, which a secure sum may have given.

        Args:
            inner_total: float64[k].
        """
        if not (self.algorithm.common and self.subsamples):
            raise ValueError("a sum can be decoded only if all clients took the same coordinates")
        out = np.zeros(self.algorithm.dimension)
        self._add(out, self.subsamples[0], inner_total)
        return out

    def _add(
        self, out: NDArray[np.float64], subsample: Subsample, parts: NDArray[np.float64]
    ) -> None:
        """Add what parts say to a dense vector."""
        out[subsample.coordinates] += self.algorithm.factor * subsample.returned(parts)
