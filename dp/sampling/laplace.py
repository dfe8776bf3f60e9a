"""The discrete Laplace law: P[z] proportional to exp(-|z| / scale) on the integers.

Source: Ghosh, Roughgarden, Sundararajan 2009, "Universally utility-maximizing privacy mechanisms"
(the geometric mechanism); Canonne, Kamath, Steinke 2020 (arXiv 2004.00010), Definition 30.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import repeat
from typing import Final

from dp.checks import require_float, require_in
from dp.sampling.certified import Interval
from dp.sampling.laws import SymmetricLaw, exponential_interval

MIN_SCALE: Final = 2.0**-4
MAX_SCALE: Final = 8192.0
"""Beyond it the table of the law would have more than 2^20 entries."""


@dataclass(frozen=True, slots=True)
class DiscreteLaplaceLaw(SymmetricLaw):
    """Two geometric tails around zero.

    Attributes:
        scale: integer units, ``MIN_SCALE..MAX_SCALE``; read as the exact rational that it is.
    """

    scale: float

    def __post_init__(self) -> None:
        require_float("scale", self.scale)
        require_in("scale", self.scale, MIN_SCALE, MAX_SCALE)

    @property
    def variance(self) -> float:
        """2 q / (1 - q)^2 with q = exp(-1 / scale)."""
        return 0.5 / math.sinh(0.5 / self.scale) ** 2

    def _ratios(self, precision: int, bits: int) -> Iterator[Interval]:
        """Yield w(k)/w(k - 1) = exp(-1 / scale), the same for every k."""
        return repeat(exponential_interval(-1 / Fraction(self.scale), precision))
