"""What clients and members agree on about noise of which a part comes back in the next round.

Source: docs/correlated-noise.md for what it is worth and what it costs, docs/correlated-rounds.md
for how rounds keep to it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from dp import DiscreteGaussianMechanism
from secagg import ParameterError
from secagg.checks import require_int
from secagg.oneshot.records import MAX_RECORDS
from secagg.terms import MAX_COHORT

_ENCODED = struct.Struct("<dQQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedNoise:
    """The part of a run's noise that members add, and take back in the next round.

    Args:
        variance: parameter of the discrete Gaussian of each member, integer units squared.
        divisor: what every round's sum is divided by. It must not depend on who survives, or noise
            would come back at another scale than it went in.
    """

    variance: float
    rounds: int
    divisor: int

    def __post_init__(self) -> None:
        try:
            _ = self.mechanism
        except (TypeError, ValueError) as error:
            raise ParameterError("variance", self.variance, str(error)) from None
        require_int("rounds", self.rounds, 1, MAX_RECORDS)
        require_int("divisor", self.divisor, 1, MAX_COHORT)

    @property
    def mechanism(self) -> DiscreteGaussianMechanism:
        """What one member draws in one round."""
        return DiscreteGaussianMechanism(self.variance)

    def encode(self) -> bytes:
        """Canonical encoding, always of the same length."""
        return _ENCODED.pack(self.variance, self.rounds, self.divisor)


def likely_returning(members: int, fewest: int) -> int:
    """How many members take something back, if in every round all may be away but the fewest.

    Those who are away may be others in every round.
    """
    return max(0, 2 * fewest - members)
