"""cpSGD's own accountant over several releases: Theorem 1 and textbook composition."""

from __future__ import annotations

import math
from typing import ClassVar

from dp.accounting.base import EventCounter, Release
from dp.accounting.theorem1 import Theorem1Parameters, theorem1
from dp.events import BinomialRelease, LevelRelease, NonPrivateRelease


class Theorem1Accountant(EventCounter):
    """cpSGD Theorem 1 per release, then the smaller of two composition theorems.

    * basic: epsilons add, each at delta / T;
    * advanced: each at delta / (2 T), with slack delta' = delta / 2 in

          sum eps_i (e^eps_i - 1) / (e^eps_i + 1) + sqrt(2 ln(1/delta') sum eps_i^2)

      Source: Kairouz, Oh, Viswanath 2015 (arXiv 1311.0776), Theorem 3.5.

    A ``BinomialRelease`` carries no l1 sensitivity; min(sqrt(d) D2, D2^2) is used, the second
    because a non-zero integer is at most its square. The sensitivities of a ``LevelRelease``
    hold with a probability only; its share of delta is split, see ``level_parameters``.

    Kept to reproduce the paper. It is **no bound**: the theorem is false as printed for large
    epsilon (docs/results/cpsgd.md), and the paper does not say up to where it holds.
    """

    name: ClassVar[str] = "cpSGD Theorem 1"
    is_bound: ClassVar[bool] = False

    def reason(self, delta: float) -> str:
        """Return which release fails the theorem's precondition at ``delta``, and how, if any."""
        for event in self._counts:
            reason = _single(event, delta / self.releases)[1]
            if reason:
                return reason
        return ""

    def _supports_leaf(self, leaf: object) -> bool:
        """Accept what the theorem is about."""
        return isinstance(leaf, BinomialRelease | LevelRelease | NonPrivateRelease)

    def _epsilon_of_releases(self, delta: float) -> float:
        """Return the smaller of basic and advanced composition."""
        basic = sum(count * eps for eps, count in self._singles(delta / self.releases))
        return min(basic, self._advanced(delta))

    def _advanced(self, delta: float) -> float:
        """Return advanced composition; ``inf`` if any single epsilon is."""
        singles = self._singles(delta / (2.0 * self.releases))
        if any(math.isinf(eps) for eps, _ in singles):
            return math.inf
        mean = sum(count * eps * math.tanh(eps / 2.0) for eps, count in singles)
        squares = sum(count * eps * eps for eps, count in singles)
        return mean + math.sqrt(2.0 * math.log(2.0 / delta) * squares)

    def _singles(self, delta: float) -> list[tuple[float, int]]:
        """Return (epsilon at delta, count) of every distinct release."""
        return [(_single(event, delta)[0], count) for event, count in self._counts.items()]


def _single(event: Release, delta: float) -> tuple[float, str]:
    """Return epsilon of one release at its share of delta, and why it is infinite if it is."""
    if isinstance(event, BinomialRelease):
        result = theorem1(_binomial_parameters(event), delta)
    elif isinstance(event, LevelRelease):
        part = delta / level_shares(event)
        result = theorem1(level_parameters(event, part), part)
    else:  # pragma: no cover - refused by compose
        return math.inf, f"no theorem for {event!r}"
    return result.epsilon, result.reason


def _binomial_parameters(event: BinomialRelease) -> Theorem1Parameters:
    """Translate an event into the theorem's own parameters (p = 1/2, s = 1)."""
    l2 = event.l2_sensitivity
    return Theorem1Parameters(
        coins=event.coins,
        l1=min(math.sqrt(event.dimension) * l2, l2 * l2),
        l2=l2,
        linf=float(event.linf_sensitivity),
        dimension=event.dimension,
    )


def level_shares(event: LevelRelease) -> int:
    """Return into how many equal parts a level release splits its delta.

    One pays for Theorem 1, one for rounding that moves further than Equation (10) says, and with
    rotation one for a coordinate beyond the clip. Source: cpSGD, Theorems 3 and 4.
    """
    return 3 if event.rotated else 2


def level_parameters(event: LevelRelease, delta: float) -> Theorem1Parameters:
    """Return Theorem 1's parameters with the sensitivities of the k-level quantiser.

    They hold with probability 1 - delta. With V = sqrt(d) (k-1) D/X:

        Dinf = k + 1
        D1   = V + sqrt(2 V ln(2/delta)) + (4/3) ln(2/delta)
        D2   = (k-1) D/X + sqrt(D1 + sqrt(2 V ln(2/delta)))

    Source: Agarwal et al. 2018 (arXiv 1805.10559), Equation (10).
    """
    steps = event.norm * (event.levels - 1)
    volume = math.sqrt(event.dimension) * steps
    log_two = math.log(2.0 / delta)
    spread = math.sqrt(2.0 * volume * log_two)
    l1 = volume + spread + 4.0 / 3.0 * log_two
    return Theorem1Parameters(
        coins=event.coins,
        l1=l1,
        l2=steps + math.sqrt(l1 + spread),
        linf=event.levels + 1.0,
        dimension=event.dimension,
        probability=event.probability,
    )
