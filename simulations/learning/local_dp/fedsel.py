"""FedSel on the clients: gradients that were not sent are kept, and added to later ones.

A client adds its update to what it has kept, r <- r + g, chooses a coordinate by |r|, sends
r_j + eta r'_j, where r' is what it had kept before, and forgets coordinate j. The learning rate is
the server's: with r + alpha g in place of r + g, values would be small against the bound that the
noise is made for.

The paper's pseudo-code is not in the text at hand. "The value of the selected dimension plus its
momentum", with one vector of memory, is taken to mean the steps of the first paragraph. At a
client's second report this is the momentum correction of Lin et al. 2018, which needs two vectors,
to the letter but for coordinates that were sent before.

Source: Liu et al. 2020 (arXiv 2003.10637), Algorithm 1, Sections 3.1 and 3.3; Lin et al. 2018
(arXiv 1712.01887), Section 3.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dp.keystream import NoiseSeed
from dp.local.selection import NOTHING
from dp.local.two_stage import TwoStage, TwoStageReports
from simulations.learning.local_dp.base import require_fitting
from simulations.learning.local_dp.memory import ClientMemory
from sketch import PublicSeed

DELAYED = "delayed"
"""Name of the gradients not yet sent, in a client's memory."""

_LARGEST: Final = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class FedSel:
    """The client side of FedSel; a ``LocalAlgorithm``."""

    randomizer: TwoStage  # both stages
    momentum: float = 0.0  # eta in [0, 1), the weight of what was kept before; 0 for none

    def __post_init__(self) -> None:
        """Check the momentum."""
        if not 0.0 <= self.momentum < 1.0:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum!r}")

    @property
    def epsilon(self) -> float:
        """Of one report, for any two updates and memories of the client."""
        return self.randomizer.epsilon

    @property
    def report_bytes(self) -> float:
        """An index and a message, in whole bytes."""
        return float(-(-self.randomizer.report_bits // 8))

    def reports(
        self,
        clients: Sequence[int],  # whose updates these are, without repetition
        updates: NDArray[np.float64],  # float64[n, d], finite
        memory: ClientMemory,  # of vectors of d coordinates; its vectors ``DELAYED`` are changed
        round_seed: PublicSeed,  # not used: nothing here is drawn in public
        noise: NoiseSeed,  # secret, new in every round
    ) -> TwoStageReports:
        """Make the reports of one round, and bring the memories up to date."""
        require_fitting(clients, updates, memory, self.randomizer.dimension)
        kept = [memory.vector(DELAYED, client) for client in clients]
        before = np.array(kept, dtype=np.float64)
        now = before + updates
        reports = self.randomizer.report(now, now + self.momentum * before, noise)
        for vector, row, index in zip(kept, now, reports.indices.tolist(), strict=True):
            # A sum of finite updates may be beyond a float32; infinity would never leave again.
            vector[:] = np.clip(row, -_LARGEST, _LARGEST)
            if index != NOTHING:
                vector[index] = 0.0
        return reports
