"""What every source of means has in common: its record, its arrays, and who uploads at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from protocol.round.losses import Stage
from protocol.training.private import TrainingState
from simulations.learning.configuration import Server
from simulations.learning.federated import Invitation, MeanSource
from simulations.learning.records import Facts

Floats = NDArray[np.float64]
ByStage = dict[str, int]

Arrays = Mapping[str, NDArray[Any]]
"""What a source remembers from round to round beside its `TrainingState`, by name."""

NOTHING: Arrays = {}


class RecordedSource(MeanSource, Protocol):
    """A source whose rounds can be recorded, and which can go on from a checkpoint."""

    @property
    def state(self) -> TrainingState | None:
        """Where the protocol or the controller stands; None if there is neither."""

    @property
    def arrays(self) -> Arrays:
        """What else a checkpoint has to keep."""

    def facts(self, invitation: Invitation) -> Facts:
        """What is told of the round that was just run, as JSON values."""


class PrivateRate:
    """The server's learning rate for every mean but that of the plain baseline."""

    def rate(self, server: Server, number: int, rounds: int) -> float:
        """From the first rate down to the last, linearly."""
        return server.private_rate(number, rounds)


def squared(vector: Floats) -> float:
    """The squared Euclidean length of a vector, float64[d]."""
    return float(vector @ vector)


def uploaders(invitation: Invitation) -> list[int]:
    """Members of a cohort that send an update."""
    dropouts = invitation.dropouts
    everybody = range(len(invitation.clients))
    return [i for i in everybody if dropouts.get(i, Stage.UNMASK) > Stage.INPUT]


def own_uploaders(invitation: Invitation) -> list[int]:
    """Those of them that this process trains."""
    dropouts = invitation.dropouts
    return [i for i in invitation.own if dropouts.get(i, Stage.UNMASK) > Stage.INPUT]


def lost_clients(invitation: Invitation, survivors: Iterable[int]) -> tuple[ByStage, ByStage]:
    """Clients that went away, by stage: before their update was in the sum, and after that."""
    kept = set(survivors)
    gone = Counter((index in kept, stage) for index, stage in invitation.dropouts.items())

    def by_stage(later: bool) -> dict[str, int]:
        return {str(stage): count for (late, stage), count in sorted(gone.items()) if late is later}

    return by_stage(False), by_stage(True)
