"""An epsilon for what was released so far that holds wherever a run stops, whatever made it stop.

The best order of a Renyi bound depends on how much was released, and a stop that looks at results
may be unlucky for the order that happens to be best there. With orders fixed beforehand it cannot:
for each of K orders a, after releases of mu^2 in all,

    renyi_to_epsilon(a, a mu^2 / 2, delta / K)

holds at every stop, and so does the smallest of the K at delta.

Source: docs/accounting.md, "An epsilon at any stop"; the kind of statement is that of Whitehouse,
Ramdas, Rogers and Wu 2023 (arXiv 2203.05481).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from dp.accounting.moments import renyi_to_epsilon
from dp.checks import require_between_0_and_1, require_not_negative, require_positive

_PARTS: Final = (1.0, 1 / 4, 1 / 16)
"""Shares of the largest mu^2 that an order is the best for."""


@dataclass(frozen=True, slots=True)
class Odometer:
    """What a client is told of a run so far; made before its first release.

    Attributes:
        largest_mu_squared: mu^2 of the whole run, as planned; more is counted as well.
        delta: in (0, 1), without what is set aside for failures.
    """

    largest_mu_squared: float
    delta: float

    def __post_init__(self) -> None:
        require_positive("largest_mu_squared", self.largest_mu_squared)
        require_between_0_and_1("delta", self.delta)

    @property
    def orders(self) -> tuple[float, ...]:
        """Return the orders, each nearly the best for one part of the whole run."""
        scale = -2.0 * math.log(self.delta / len(_PARTS)) / self.largest_mu_squared
        return tuple(1.0 + math.sqrt(scale / part) for part in _PARTS)

    def epsilon(self, mu_squared: float) -> float:
        """Return epsilon of all releases so far.

        Args:
            mu_squared: sum of (D2 / sigma_eff)^2 over them, >= 0.
        """
        require_not_negative("mu_squared", mu_squared)
        if mu_squared == 0.0:  # both runs are one so far
            return 0.0
        share = self.delta / len(_PARTS)
        return min(renyi_to_epsilon(a, a * mu_squared / 2.0, share) for a in self.orders)
