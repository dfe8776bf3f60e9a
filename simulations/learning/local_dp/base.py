"""What an algorithm of local privacy is to a simulation: updates in, private reports out.

Everything that happens on the clients in one round, for many clients at once: what they remember,
what of it they send, and how they make it private. The server adds up what it receives, and needs
to know neither memory nor mechanism.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dp.keystream import NoiseSeed
from dp.local import Reports
from dp.local.base import require_vectors
from simulations.learning.local_dp.memory import ClientMemory
from sketch import PublicSeed


class LocalAlgorithm(Protocol):
    """The client side of one round."""

    @property
    def epsilon(self) -> float:
        """Return epsilon of one report, pure, for any two updates and memories of the client."""
        ...

    @property
    def report_bytes(self) -> float:
        """Return the bytes that one report takes on the wire."""
        ...

    def reports(
        self,
        clients: Sequence[int],  # whose updates these are, without repetition; keys of the memory
        updates: NDArray[np.float64],  # float64[n, d], finite, one row per client
        memory: ClientMemory,  # of vectors of d coordinates; changed in place
        round_seed: PublicSeed,  # public, the same for all clients of a round, new in every round
        noise: NoiseSeed,  # secret, new in every round
    ) -> Reports:
        """Make the reports of one round, and bring the clients' memories up to date."""
        ...


def require_fitting(
    clients: Sequence[int], updates: NDArray[np.float64], memory: ClientMemory, dimension: int
) -> None:
    """Refuse what `LocalAlgorithm.reports` says it refuses, before anything is changed."""
    require_vectors(updates, dimension)
    if len(clients) != len(updates) or len(set(clients)) != len(clients):
        raise ValueError(f"clients must be {len(updates)} different numbers, got {clients!r}")
    if memory.dimension != dimension:
        raise ValueError(f"memory must be of dimension {dimension}, got {memory.dimension}")
