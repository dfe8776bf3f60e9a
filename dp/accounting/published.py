"""The bounds that the other mechanisms were published with, for comparison.

They are Renyi divergences of order a, composed by addition and turned into epsilon once:

* distributed discrete Gaussian, with n contributors of local variance s, Delta2 = D2/sqrt(n s),
  Delta1 = D1/sqrt(n s) and tau = 10 sum_{k<n} exp(-2 pi^2 s k/(k+1)):

      min( a Delta2^2/2 + tau d,  a/2 (Delta2^2 + 2 Delta1 tau + tau^2 d),
           a/2 (Delta2 + sqrt(d) tau)^2 )

  Source: Kairouz, Liu and Steinke 2021 (arXiv 2102.06387), Theorem 1;
* Skellam of variance V:

      a D2^2/(2 V) + min( ((2a - 1) D2^2 + 6 D1)/(4 V^2),  3 D1/(2 V) )

  Source: Agarwal, Kairouz and Liu 2021 (arXiv 2110.04995), Corollary 3.2;
* Gaussian: a mu^2/2.

D1 is min(sqrt(d) D2, D2^2): a non-zero integer is at most its square.
"""

from __future__ import annotations

import math
from typing import ClassVar, Final

from dp.accounting.base import EventCounter, Release
from dp.accounting.discrete_gaussian import convolution_gap
from dp.accounting.moments import renyi_to_epsilon
from dp.events import (
    DiscreteGaussianRelease,
    GaussianRelease,
    NonPrivateRelease,
    SkellamRelease,
)

ORDERS: Final = tuple(1.0 + 2.0 ** (i / 16) for i in range(-128, 193))
"""Orders tried, from 1.004 to 4097; fixed in advance."""

_SMALLEST_LOCAL_VARIANCE: Final = 0.25
"""The theorem on sums of discrete Gaussians needs a parameter sigma of at least 1/2."""


def discrete_gaussian_renyi(event: DiscreteGaussianRelease, order: float) -> float:
    """Return the published Renyi divergence of the distributed discrete Gaussian, nats."""
    if event.l2_sensitivity == 0.0:
        return 0.0
    n, local = event.contributors, event.local_variance
    if n == 0 or local < _SMALLEST_LOCAL_VARIANCE:
        return math.inf
    tau = 2.0 * convolution_gap(local, n)
    sigma = math.sqrt(n * local)
    l2, l1 = event.l2_sensitivity / sigma, _l1(event.l2_sensitivity, event.dimension) / sigma
    d = event.dimension
    return min(
        order / 2.0 * l2**2 + tau * d,
        order / 2.0 * (l2**2 + 2.0 * l1 * tau + tau**2 * d),
        order / 2.0 * (l2 + math.sqrt(d) * tau) ** 2,
    )


def skellam_renyi(event: SkellamRelease, order: float) -> float:
    """Return the published Renyi divergence of the Skellam mechanism, nats."""
    if event.l2_sensitivity == 0.0:
        return 0.0
    if event.variance == 0.0:
        return math.inf
    l2, variance = event.l2_sensitivity, event.variance
    l1 = _l1(l2, event.dimension)
    extra = min(
        ((2.0 * order - 1.0) * l2**2 + 6.0 * l1) / (4.0 * variance**2),
        3.0 * l1 / (2.0 * variance),
    )
    return order * l2**2 / (2.0 * variance) + extra


def _l1(l2_sensitivity: float, dimension: int) -> float:
    """Return a bound of the l1 norm of an integer vector."""
    return min(math.sqrt(dimension) * l2_sensitivity, l2_sensitivity**2)


class PublishedAccountant(EventCounter):
    """Renyi divergences as published with the mechanisms, composed and converted once."""

    name: ClassVar[str] = "published Renyi bound"

    def _supports_leaf(self, leaf: object) -> bool:
        """Accept the mechanisms that were published with such a bound."""
        kinds = DiscreteGaussianRelease | SkellamRelease | GaussianRelease | NonPrivateRelease
        return isinstance(leaf, kinds)

    def _epsilon_of_releases(self, delta: float) -> float:
        """Return the smallest epsilon over the fixed orders."""
        return min(renyi_to_epsilon(order, self._renyi(order), delta) for order in ORDERS)

    def _renyi(self, order: float) -> float:
        """Return the divergence of all releases together, rounded up."""
        total = sum(n * _renyi_of(event, order) for event, n in self._counts.items())
        return total * (1.0 + 1e-12)


def _renyi_of(event: Release, order: float) -> float:
    """Return the divergence of one release; ``inf`` for a mechanism without such a bound."""
    match event:
        case DiscreteGaussianRelease():
            return discrete_gaussian_renyi(event, order)
        case SkellamRelease():
            return skellam_renyi(event, order)
        case GaussianRelease() if event.l2_sensitivity == 0.0:
            return 0.0
        case GaussianRelease() if event.sigma > 0.0:
            return order * (event.l2_sensitivity / event.sigma) ** 2 / 2.0
        case _:
            return math.inf
