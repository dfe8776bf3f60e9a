"""How large a field the sum of a round needs.

Exact: a field that holds the largest sum there can be, if there is one. Or likely: coins almost
never all fall on one side, and other noise almost never goes far, so a field that holds all sums
but for a stated probability is much smaller. A wrapped sum costs accuracy and never privacy
(in one-shot rounds all but never: docs/one-shot-security.md, "Packing"):
reduction modulo p is applied to what is already private.
"""

from __future__ import annotations

from typing import Protocol

from dp.mechanisms import DistributedMechanism
from dp.mechanisms.limits import sub_gaussian_limit
from protocol.round.returned_noise import ReturnedNoise
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
    def mechanism(self) -> DistributedMechanism:
        """Noise of one client."""

    @property
    def returned(self) -> ReturnedNoise | None:
        """Noise of each member that comes back, if any does."""

    @property
    def length(self) -> int:
        """Number of coordinates."""

    @property
    def wrap_probability(self) -> float:
        """Accepted probability that any coordinate of the sum wraps around; 0 for none."""


def bits_for(summand: Summand, cohort: int, seeds: int = 0, members: int = 0) -> int:
    """Smallest field for the sum over the whole cohort."""
    return required_bits(largest_sum(summand, cohort, seeds, members))


def largest_sum(summand: Summand, cohort: int, seeds: int = 0, members: int = 0) -> int:
    """Magnitude that no coordinate of the sum exceeds, but for the stated probability.

    The mechanism bounds the noise. The values before noise count in full, because clients may agree
    in a coordinate.
    """
    wrap = float(summand.wrap_probability)
    if summand.returned is None:
        noise = summand.mechanism.total_limit(cohort, summand.length, wrap, 1 + seeds)
    else:
        # All discrete Gaussians: of clients, of members, and what members take back.
        added = 2 * members * summand.returned.variance
        total = cohort * summand.mechanism.amount + added
        noise = sub_gaussian_limit(total, summand.length, wrap)
    return cohort * summand.linf_bound + noise
