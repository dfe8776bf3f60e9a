"""How far a released mean is from the mean of what clients trained, and what took it there.

Only a simulation can say: it sees updates as they were before the clip. Nothing of it is sent,
released or charged, and no controller is told. Clip, rounding, sketch and noise follow one another;
the last three have no bias, so the expected squared errors of the parts add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp.rounding import ROUNDING_VARIANCE
from protocol.exchange.ranks import ALONE, Ranks
from protocol.round.parameters import RoundParameters
from protocol.round.pipeline import MeanRelease
from simulations.learning.records import ErrorParts
from simulations.learning.sources.base import Floats, squared
from sketch import SketchSpec
from sketch.error import compression_error, noise_error

UpdateOf = Callable[[int], NDArray[np.float32]]

"""The name of the parts in a record, each a squared Euclidean distance in units of the update."""


class ErrorMeter:
    """Hands updates on and remembers their sum, and the sum of what the clip takes off.

    Updates that are not finite are left out, as a round refuses them. Memory: two updates.

    Args:
        clip_l2: of an update; infinity for none.
    """

    def __init__(self, updates: UpdateOf, clip_l2: float = math.inf, ranks: Ranks = ALONE) -> None:
        self._ranks = ranks
        self._updates = updates
        self._clip = clip_l2
        self._total: Floats = np.zeros(0)
        self._cut: Floats = np.zeros(0)
        self._count = 0
        self._clipped = 0

    def __call__(self, index: int) -> NDArray[np.float32]:
        """The update of client `index`, as it is."""
        update = self._updates(index)
        self.add(update)
        return update

    def add(self, update: NDArray[Any]) -> None:
        """Count an update, float32|float64[d]."""
        norm = float(np.linalg.norm(update))
        if not math.isfinite(norm):
            return
        if not self._count:
            self._total, self._cut = np.zeros(update.size), np.zeros(update.size)
        self._count += 1
        self._total += update
        if norm > self._clip:
            self._clipped += 1
            self._cut += (1.0 - self._clip / norm) * update

    def measure(self, update: Floats, survivors: int) -> Measured:
        """Compare a released mean, float64[d], over so many clients.

        The round must have the clients that were counted; the distance is not known otherwise.
        Sums of floats depend on their order, so that with other ranks the last digits differ.
        """
        counts = self._ranks.gather((self._count, self._clipped))
        counted, clipped = (sum(each) for each in zip(*counts, strict=True))
        nothing = np.zeros(update.size)
        sums = (self._total, self._cut) if self._count else (nothing, nothing)
        total, cut = (each / max(counted, 1) for each in self._ranks.add(*sums))
        distance = squared(update - total) if counted == survivors else None
        return Measured(
            distance=distance,
            clipping=None if math.isinf(self._clip) else squared(cut),
            clipped=clipped,
            norm_squared=squared(total - cut),
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """What a simulation knows of one round.

    Attributes:
        distance: squared, of the released mean from the mean update before the clip; None if the
            released mean is over other clients.
        clipping: squared norm of what the clip took off the mean; None without a clip.
        clipped: updates that were longer than the clip.
        norm_squared: of the mean of the clipped updates, |mu|_2^2.
    """

    distance: float | None
    clipping: float | None
    clipped: int
    norm_squared: float

    def parts(self, **closed: float) -> ErrorParts:
        """The figures as JSON values, with the parts that have closed forms."""
        parts: ErrorParts = {"measured": self.distance, **closed}
        if self.clipping is not None:
            parts |= {"clipping": self.clipping, "clipped_clients": self.clipped}
        return parts


def sketched_parts(
    spec: SketchSpec, measured: Measured, dimension: int, noise: float, beside: float = 0.0
) -> dict[str, float]:
    """The parts that sketch and noise have in the expected error; none for a median of copies.

    Args:
        noise: variance per coordinate of the mean of what was sent.
        beside: squared length of the mean in coordinates that are not the update's.

    Source: arXiv 2307.10999, Lemma 6; with |mu|^2 - mu_q^2 over L for one coordinate q.
    """
    if spec.copies > 1:
        return {}
    size = spec.main_size
    sketch = 0.0
    if size < spec.dimension:
        sketch = compression_error(dimension, size, measured.norm_squared)
        sketch += dimension * beside / size
    return {"sketch": sketch, "noise": noise_error(dimension, noise / spec.main_weight**2)}


def private_parts(
    parameters: RoundParameters,
    release: MeanRelease,
    measured: Measured,
    dimension: int,
    beside: float = 0.0,
) -> dict[str, float]:
    """The same of a private sum, with rounding apart from coins.

    Rounding is counted as if its fractions were uniform, as `Pipeline.noise_variance` does.
    """
    rounding = rounding_variance(parameters.scale, release.survivors)
    noise = release.noise_variance - rounding
    parts = sketched_parts(parameters.sketch, measured, dimension, noise, beside)
    if parts:
        parts["rounding"] = parts["noise"] * rounding / noise if noise else 0.0
    return parts


def rounding_variance(scale: float, survivors: int) -> float:
    """Of one coordinate of the mean of what survivors sent."""
    return ROUNDING_VARIANCE / (scale**2 * survivors)
