"""From a charge to epsilon: two bounds of a whole run, and what its integers cost.

The largest charge of a run is fixed beforehand, and either bound is a function of it: the smaller
is a bound as well.

Source: docs/correlated-noise.md, "Theorem" and "The Gaussian form".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dp.accounting.gaussian import gaussian_epsilon
from dp.accounting.moments import renyi_to_epsilon
from dp.checks import require_between_0_and_1, require_integer, require_positive
from dp.search import bracketed

ORDERS: Final = tuple(1.0 + 2.0 ** (i / 16) for i in range(-106, 193))
"""Orders tried, from 1.01 to 4097; fixed in advance. The gap has no bound near order 1."""

_LOST: Final = 0.1
"""c_0: variance that the Gaussian form takes off F."""
_LEAST_FRESH: Final = 4.0
"""The Gaussian form is proved from here on."""
_NEAREST: Final = 1.2e-33
"""e_0: most by which the logarithm of one of its masses is off."""
_MOST_PARTS: Final = 1 << 16
_NEGLIGIBLE: Final = 745.0
"""Beyond this exponent e^-x is no double."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """What is fixed about the noise before the first round; honest parties alone are counted.

    Args:
        rounds: T, the horizon.
        dimension: d, coordinates of a sum.
        smallest_part: v, least parameter of a single part.
        most_parts: m, most parts that enter in one round.
        kept: w, least sum of the parameters of those parts of a round that do not come back.
        fresh: F, least sum of the parameters of the parts that enter in one round.
    """

    rounds: int
    dimension: int
    smallest_part: float
    most_parts: int
    kept: float
    fresh: float

    def __post_init__(self) -> None:
        require_integer("rounds", self.rounds, 1)
        require_integer("dimension", self.dimension, 1)
        require_integer("most_parts", self.most_parts, 1, _MOST_PARTS)
        for name, lowest in (("smallest_part", 0.0), ("kept", self.smallest_part)):
            value = getattr(self, name)
            if not lowest <= value < math.inf or not value > 0.0:
                raise ValueError(f"{name} must be finite and at least {lowest!r}, got {value!r}")
        if not self.kept <= self.fresh < math.inf:
            raise ValueError(f"fresh must be finite and at least kept, got {self.fresh!r}")

    @property
    def ratio_gap(self) -> float:
        """Gamma: largest logarithm of the ratio of two relative errors of the law of a run."""
        return _ratio_gap(self)

    def renyi(self, mu_squared: float, order: float) -> float:
        """Bound of the divergence of a run in which no charge passes ``mu_squared``, in nats.

        Args:
            mu_squared: mu_max^2, fixed before the first round.
            order: a > 1.
        """
        gap = order * self.ratio_gap + self.rounds * math.log1p(theta_rest(_rate(self.fresh)))
        total = 0.5 * order * mu_squared + self.dimension * gap / (order - 1.0)
        return total * (1.0 + 1e-12)

    def gaussian_form(self, mu_squared: float, delta: float) -> float:
        """Epsilon at ``delta`` by the Gaussian form; ``inf`` where it is not proved.

        Args:
            mu_squared: mu_max^2, fixed before the first round.
        """
        gap = self.dimension * (self.ratio_gap + self.rounds * _NEAREST) * (1.0 + 1e-12)
        if self.fresh < _LEAST_FRESH or not gap < math.inf:
            return math.inf
        mu = math.sqrt(mu_squared / (1.0 - _LOST / self.fresh)) * (1.0 + 1e-12)
        return (gap + gaussian_epsilon(mu, delta * math.exp(-gap))) * (1.0 + 1e-12)


def correlated_epsilon(mu_squared: float, promises: Promises, delta: float) -> float:
    """Epsilon at ``delta`` of a run in which no charge passes ``mu_squared``; ``inf`` if none.

    The smaller of the two bounds.

    Args:
        mu_squared: mu_max^2, >= 0.
        delta: in (0, 1).
    """
    require_between_0_and_1("delta", delta)
    if not mu_squared >= 0.0:
        raise ValueError(f"mu_squared must not be negative, got {mu_squared!r}")
    moments = min(renyi_to_epsilon(a, promises.renyi(mu_squared, a), delta) for a in ORDERS)
    return min(moments, promises.gaussian_form(mu_squared, delta))


def largest_mu(epsilon: float, delta: float, promises: Promises) -> float:
    """The largest mu_max whose run is (epsilon, delta)-private; 0 if the gap alone is too much."""
    require_positive("epsilon", epsilon)
    if correlated_epsilon(0.0, promises, delta) > epsilon:
        return 0.0
    high = math.sqrt(2.0 * epsilon) + 1.0
    while correlated_epsilon(high * high, promises, delta) <= epsilon:
        high *= 2.0
    return bracketed(
        lambda mu: correlated_epsilon(mu * mu, promises, delta) > epsilon, 0.0, high, 1e-12
    )[0]


def group_error(smallest_part: float, most_parts: int) -> float:
    """e_1: relative error of the density of a sum of up to so many parts.

    Of the sum over M its first term is taken as it is: as a function of s it is convex, so largest
    at one end of 2 .. m. The rest is at most what e^(s x) has beyond its first two terms, where x
    is the sum for half the rate.
    """
    if most_parts == 1:
        return 0.0
    rate = _rate(smallest_part)
    first = max(s * theta_rest(rate * (1.0 - 1.0 / s)) for s in (2, most_parts))
    others = most_parts * theta_rest(rate / 2.0)
    rest = math.expm1(others) - others if others < 1.0 else math.inf
    return (first + max(rest, 0.0)) * (1.0 + 1e-9)


def run_error(smallest_part: float, kept: float, rounds: int) -> float:
    """e_2: relative error of the density of a run, if its sums were single parts."""
    rate = _rate(1.0 / (1.0 / smallest_part + 4.0 / kept))
    return math.expm1((rounds - 1) * math.log1p(theta_rest(rate)))


@lru_cache(maxsize=256)
def _ratio_gap(promises: Promises) -> float:
    """Gamma; remembered, because every order asks for it."""
    groups = group_error(promises.smallest_part, promises.most_parts)
    between = run_error(promises.smallest_part, promises.kept, promises.rounds)
    if not max(groups, between) < 1.0:
        return math.inf
    return 2.0 * promises.rounds * _log_ratio(groups) + _log_ratio(between)


def theta_rest(rate: float) -> float:
    """The sum of e^(-rate k^2) over all integers k but 0, rounded up."""
    if rate <= 0.0:
        return math.inf
    total, k = 0.0, 1
    while rate * k * k < _NEGLIGIBLE:
        term = math.exp(-rate * k * k)
        total += term
        if term < 1e-18 * total:
            break
        k += 1
    # The floor stands for sums that are no double, which is not the same as none.
    return max(2.0 * total * (1.0 + 1e-12), 1e-300)


def _rate(variance: float) -> float:
    return 2.0 * math.pi**2 * variance


def _log_ratio(error: float) -> float:
    return math.log1p(error) - math.log1p(-error)
