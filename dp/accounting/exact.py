"""Exact accounting by enumeration, for small sensitivities: the referee of the bounds.

With D2^2 <= 30 there are few integer vectors to consider: signs and order do not matter, and of
two vectors the one with larger coordinates is easier to tell from zero (docs/accounting.md). For
each of those that remain the privacy loss distribution is computed by convolution. One release is
exact up to a grid whose error is of second order and on the safe side. Over several releases the
worst vector may change from one to the next, so the *largest* of the curves is composed: a bound
that holds for adaptive inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np

from dp.accounting.base import EventCounter, Release, is_tabulated, law_of
from dp.accounting.laws import NoiseLaw
from dp.accounting.losses import LossDistribution, dominating, shift_losses
from dp.errors import UnsupportedEventError
from dp.event_kinds import IntegerRelease
from dp.events import NonPrivateRelease

MAX_SQUARE: Final = 30
"""Largest squared l2 sensitivity (D2^2) whose vectors are enumerated."""

MAX_VARIANCE_ENUMERATED: Final = 4096.0
MAX_WORK: Final = 1e8
"""Most multiplications of one convolution."""

_POINTS_PER_LOSS: Final = (64.0, 8.0)
"""Grid points per standard deviation of the privacy loss of a shift by one, 1/sigma: the grid
then adds less than 1e-4 of itself to epsilon. Runs too long for that have the second grid, which
adds less than 2e-3."""

_CUT_SHARE: Final = 2.0**-30
"""Share of delta that truncation may cost for one coordinate and release."""


def maximal_vectors(square: int, largest: int, dimension: int) -> Iterator[tuple[int, ...]]:
    """Yield the vectors that no admissible vector exceeds, up to order and sign.

    Args:
        square: largest squared norm.
    """
    for vector in _vectors(square, largest, dimension):
        rest = square - sum(x * x for x in vector)
        full = rest < 1 or len(vector) == dimension
        if full and not any(2 * x + 1 <= rest and x < largest for x in vector):
            yield vector


def _vectors(square: int, largest: int, dimension: int) -> Iterator[tuple[int, ...]]:
    """Yield all falling vectors of positive integers within the bounds."""
    if dimension == 0:
        return
    for first in range(min(largest, math.isqrt(square)), 0, -1):
        yield (first,)
        for rest in _vectors(square - first * first, first, dimension - 1):
            yield (first, *rest)


def vector_losses(
    law: NoiseLaw, vector: tuple[int, ...], step: float, cut: float
) -> LossDistribution:
    """Return the loss distribution of (Z + v, Z) for independent coordinates.

    Args:
        step: of the grid, nats.
    """
    last = _shift_losses(law, vector[-1], step, cut)
    if len(vector) == 1:
        return last
    return _vector_losses(law, vector[:-1], step, cut).and_then(last, cut)


_shift_losses = lru_cache(maxsize=256)(shift_losses)
_vector_losses = lru_cache(maxsize=512)(vector_losses)


@lru_cache(maxsize=64)
def worst_losses(
    law: NoiseLaw, square: int, largest: int, dimension: int, step: float, cut: float
) -> LossDistribution:
    """Return a distribution that dominates those of all admissible vectors, and is their sup."""
    vectors = maximal_vectors(square, largest, dimension)
    return dominating([vector_losses(law, v, step, cut) for v in vectors]).trimmed(cut)


class ExactAccountant(EventCounter):
    """Exact for one release; the tight bound by enumeration for several."""

    name: ClassVar[str] = "exact enumeration"

    def infeasible(self, event: object) -> str:
        """Return why a simple event is not enumerated; an empty string if it is."""
        if not isinstance(event, IntegerRelease) or not is_tabulated(event):
            return f"enumeration has no method for {event!r}"
        if event.l2_sensitivity >= math.sqrt(MAX_SQUARE + 1):
            return f"D2 = {event.l2_sensitivity:g}: D2^2 is enumerated up to {MAX_SQUARE}"
        law = law_of(event)
        if law is not None and law.variance > MAX_VARIANCE_ENUMERATED:
            return f"variance {law.variance:.6g} is above {MAX_VARIANCE_ENUMERATED:g}"
        return ""

    def _supports_leaf(self, leaf: object) -> bool:
        """Accept what is small enough."""
        return isinstance(leaf, NonPrivateRelease) or not self.infeasible(leaf)

    def _epsilon_of_releases(self, delta: float) -> float:
        """Convolve the distributions of all releases, on the finest grid that there is room for."""
        fine, coarse = _POINTS_PER_LOSS
        try:
            return self._convolved(delta, self._step(fine))
        except UnsupportedEventError:
            return self._convolved(delta, self._step(coarse))

    def _convolved(self, delta: float, step: float) -> float:
        """Return epsilon on this grid."""
        cut = delta * _CUT_SHARE / self.releases
        total = None
        for event, count in self._counts.items():
            single = _event_losses(event, step, cut)
            if single is None:
                continue
            if single.infinite >= delta:
                return math.inf
            power = _power(single, count, cut)
            total = power if total is None else _joined(total, power, cut)
        return 0.0 if total is None else total.epsilon(delta)

    def _step(self, points: float) -> float:
        """Return one grid step for all releases: a power of two, for the weakest of them."""
        events = (event for event in self._counts if isinstance(event, IntegerRelease))
        variance = max(1.0, *(event.noise_variance for event in events), 0.0)
        return float(2.0 ** -math.ceil(math.log2(points * math.sqrt(variance))))


def _event_losses(event: Release, step: float, cut: float) -> LossDistribution | None:
    """Return the worst distribution of one release; None if no vector fits but zero."""
    if not isinstance(event, IntegerRelease):  # pragma: no cover - refused by compose
        return LossDistribution(step, 0, np.zeros(1), 1.0)
    square = math.floor(event.l2_sensitivity**2 * (1.0 + 1e-12))  # a root may be rounded down
    largest = min(event.linf_sensitivity, math.isqrt(square))
    if largest == 0:
        return None
    law = law_of(event)
    if law is None:
        return LossDistribution(step, 0, np.zeros(1), 1.0)
    return worst_losses(law, square, largest, min(event.dimension, square), step, cut)


def _joined(first: LossDistribution, second: LossDistribution, cut: float) -> LossDistribution:
    """Return both side by side."""
    if float(first.masses.size) * float(second.masses.size) > MAX_WORK:
        raise UnsupportedEventError(
            f"enumeration cannot hold the composition of {first.masses.size} and "
            f"{second.masses.size} grid points of privacy loss"
        )
    return first.and_then(second, cut)


def _power(single: LossDistribution, count: int, cut: float) -> LossDistribution:
    """Return ``count`` independent copies side by side, by repeated squaring."""
    result: LossDistribution | None = None
    while True:
        if count & 1:
            result = single if result is None else _joined(result, single, cut)
        count >>= 1
        if count == 0 and result is not None:
            return result
        single = _joined(single, single, cut)
