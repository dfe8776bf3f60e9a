"""No privacy at all: floats, averaged."""

from __future__ import annotations

from protocol.exchange.ranks import ALONE, Ranks
from simulations.common.order_free import OrderFreeSum
from simulations.learning.configuration import Server
from simulations.learning.federated import Invitation
from simulations.learning.records import Facts
from simulations.learning.sources.base import (
    NOTHING,
    Arrays,
    Floats,
    lost_clients,
    own_uploaders,
    uploaders,
)


class PlainMean:
    """No clip, no sketch, no noise, no cryptography; the same clients get lost.

    Args:
        ranks: which share the cohorts.
    """

    state: None = None
    arrays: Arrays = NOTHING

    def __init__(self, ranks: Ranks = ALONE) -> None:
        self._ranks = ranks

    def mean(self, invitation: Invitation) -> Floats:
        """The mean over the clients that upload."""
        total = OrderFreeSum(invitation.model.size)
        for index in own_uploaders(invitation):
            total.add(invitation.updates(index))
        (total.pieces,) = self._ranks.add(total.pieces)
        return total.total / len(uploaders(invitation))

    def rate(self, server: Server, number: int, rounds: int) -> float:
        """Constant, where the baseline has a rate of its own."""
        if server.plain_learning_rate is not None:
            return server.plain_learning_rate
        return server.private_rate(number, rounds)

    def facts(self, invitation: Invitation) -> Facts:
        """Floats as they are."""
        dimension, kept = invitation.model.size, uploaders(invitation)
        lost, lost_later = lost_clients(invitation, kept)
        return {
            "survivors": len(kept),
            "sketch_size": dimension,
            "dimension": dimension,
            "compression": 1.0,
            "bits": 32,
            "bytes_per_client": 4.0 * dimension,
            "epsilons": {"server": "inf"},
            "lost": lost,
            "lost_later": lost_later,
        }
