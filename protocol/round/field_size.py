"""How large a field the sum of a round needs.

Exact: a field that holds the largest sum there can be. Or likely: coins almost never all fall on
one side, so a field that holds all sums but for a stated probability is much smaller. A wrapped sum
costs accuracy and never privacy: reduction modulo p is applied to what is already private.
"""

from __future__ import annotations

import math
from typing import Protocol

from secagg.field import required_bits

MAX_WRAP_PROBABILITY = 1e-6
"""A round that wraps around is lost for training: nobody wants this to be likely."""

MIN_WRAP_PROBABILITY = 1e-30
"""Nothing that happens less often is worth telling from never."""

WRAP_PROBABILITY = 1e-9
"""What plans accept if nothing else is said: one round in a thousand million."""


class Summand(Protocol):
    """What is known of the vector that every client adds; see `RoundParameters`."""

    @property
    def linf_bound(self) -> int:
        """Largest magnitude of a coordinate before noise."""

    @property
    def coins(self) -> int:
        """Fair coins of one client in each coordinate."""

    @property
    def length(self) -> int:
        """Number of coordinates."""

    @property
    def largest_coordinate(self) -> int:
        """Largest magnitude of a coordinate, noise included."""

    @property
    def wrap_probability(self) -> float:
        """Accepted probability that any coordinate of the sum wraps around; 0 for none."""


def bits_for(summand: Summand, cohort: int, seeds: int = 0) -> int:
    """Smallest field for the sum over the whole cohort.

    Args:
        seeds: removable batches of each client; every two odd batches reach one unit further.

    Raises:
        ParameterError: no field is large enough.
    """
    return required_bits(largest_sum(summand, cohort, seeds))


def largest_sum(summand: Summand, cohort: int, seeds: int = 0) -> int:
    """Magnitude that no coordinate of the sum exceeds, but for the stated probability.

    The n m coins of a coordinate are off their mean by more than t with probability at most
    2 exp(-2 t^2 / (n m)), and there are L coordinates. The values before noise count in full,
    because clients may agree in a coordinate.

    Source: Hoeffding 1963, Theorem 1.
    """
    odd_batches = cohort * ((1 + seeds) // 2)
    certain = cohort * summand.largest_coordinate + odd_batches
    if not summand.wrap_probability:
        return certain
    coins = cohort * summand.coins
    noise = math.sqrt(coins / 2.0 * math.log(2.0 * summand.length / summand.wrap_probability))
    # Each batch of an odd number of coins has a mean of one half.
    offset = cohort * (1 + seeds) / 2.0
    likely = cohort * summand.linf_bound + math.ceil(noise + offset)
    return min(certain, likely)
