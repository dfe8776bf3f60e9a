"""No privacy at all: floats, averaged."""

from __future__ import annotations

import numpy as np

from simulations.learning.configuration import Server
from simulations.learning.federated import Invitation
from simulations.learning.records import Facts
from simulations.learning.sources.base import (
    NOTHING,
    Arrays,
    Floats,
    lost_clients,
    uploaders,
)


class PlainMean:
    """No clip, no sketch, no noise, no cryptography; the same clients get lost."""

    state: None = None
    arrays: Arrays = NOTHING

    def mean(self, invitation: Invitation) -> Floats:
        """The mean over the clients that upload."""
        kept = uploaders(invitation)
        total = np.zeros(invitation.model.size)
        for index in kept:
            total += invitation.updates(index)
        return total / len(kept)

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
