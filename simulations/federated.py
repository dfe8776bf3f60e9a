"""A population that learns together: cohorts take turns, some clients get lost, a model moves.

The engine knows nothing of cryptography: it asks a `MeanSource` for the mean update of a cohort.
The private one runs the whole protocol; the plain one averages floats without clipping them and
has a learning rate of its own, as the baseline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from protocol.adapters.memory import Dropouts, Stage, stages_of
from protocol.training import PrivateTraining, RoundResult
from secagg import Identity, Mode
from simulations.config import RunConfig, Server
from simulations.data import Dataset
from simulations.partition import partition_dirichlet
from simulations.tasks import Evaluation, MlpTask, Vector
from simulations.training import LocalTraining, local_updates


@dataclass(frozen=True, slots=True, eq=False)
class Invitation:
    """One round's cohort and fate.

    Attributes:
        number: from 0.
        clients: members of the population, in the order of their indices in the cohort.
        dropouts: by index in the cohort.
        updates: float32[n, d], what every member would send.
        model: float32[d], what every member received.
    """

    number: int
    clients: tuple[int, ...]
    dropouts: Dropouts
    updates: NDArray[np.float32]
    model: Vector


class MeanSource(Protocol):
    """Turns a cohort's updates into their mean."""

    def mean(self, invitation: Invitation) -> NDArray[np.float64]:
        """float64[d]; raises what the protocol raises."""

    def rate(self, server: Server, number: int, rounds: int) -> float:
        """The server's learning rate for this kind of mean."""


class PrivateMean:
    """The whole protocol. `last` is the result of the last round.

    Args:
        training: drives the rounds.
        identities: of the whole population.
    """

    def __init__(self, training: PrivateTraining, identities: Sequence[Identity]) -> None:
        self._training = training
        self._identities = identities
        self.last: RoundResult | None = None

    def mean(self, invitation: Invitation) -> NDArray[np.float64]:
        """The released mean update."""
        self.last = self._training.run_round(
            [self._identities[client] for client in invitation.clients],
            lambda index: invitation.updates[index],
            model_digest(invitation.model),
            invitation.dropouts,
        )
        return self.last.release.update

    def rate(self, server: Server, number: int, rounds: int) -> float:
        """From the first rate down to the last, linearly."""
        return server.private_rate(number, rounds)


class PlainMean:
    """The baseline: no clip, no sketch, no noise, no cryptography; the same clients get lost."""

    def mean(self, invitation: Invitation) -> NDArray[np.float64]:
        """The mean over the clients that upload."""
        kept = [
            index
            for index in range(len(invitation.clients))
            if invitation.dropouts.get(index, Stage.UNMASK) > Stage.INPUT
        ]
        return np.asarray(invitation.updates[kept].mean(axis=0, dtype=np.float64))

    def rate(self, server: Server, number: int, rounds: int) -> float:
        """Constant."""
        return server.plain_learning_rate


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """The model after a round, and how good it is."""

    invitation: Invitation
    model: Vector
    evaluation: Evaluation


class Federation:
    """A task, a population with its data, and a schedule; the same for every `MeanSource`.

    Args:
        config: of the run.
        data: train and test splits.
    """

    def __init__(self, config: RunConfig, data: Dataset) -> None:
        config.check()
        self._config = config
        self._data = data
        self.task = MlpTask(features=data.features, hidden=config.task.hidden)
        split_rng, self._schedule_rng, self._training_rng = (
            np.random.default_rng(seed) for seed in np.random.SeedSequence(config.seed).spawn(3)
        )
        self._members = partition_dirichlet(
            data.train.labels,
            config.task.population,
            config.task.dirichlet_alpha,
            split_rng,
            minimum=config.task.minimum_examples,
        )
        self._order = self._schedule_rng.permutation(config.task.population)
        self._local = LocalTraining(
            learning_rate=config.local.learning_rate,
            steps=config.local.steps,
            batch_size=config.local.batch_size,
        )

    def run(self, source: MeanSource) -> Iterator[Trained]:
        """Yield the model after each round."""
        config = self._config
        model = self.task.initial(torch.Generator().manual_seed(config.seed))
        velocity = np.zeros(self.task.dimension)
        for number in range(config.rounds):
            invitation = self._invite(number, model)
            velocity = config.server.momentum * velocity + source.mean(invitation)
            rate = source.rate(config.server, number, config.rounds)
            model = (model + rate * velocity).astype(np.float32)
            yield Trained(invitation, model, self.task.evaluate(model, self._data.test))

    def _invite(self, number: int, model: Vector) -> Invitation:
        """Cohorts slide over a fixed random order, so nobody is invited more often than needed."""
        size = self._config.cohort.size
        positions = (np.arange(size) + number * size) % len(self._order)
        clients = tuple(int(client) for client in self._order[positions])
        updates = local_updates(
            self.task,
            model,
            self._data.train,
            [self._members[client] for client in clients],
            self._local,
            self._training_rng,
        )
        return Invitation(number, clients, self._lose(number), np.concatenate(list(updates)), model)

    def _lose(self, number: int) -> Dropouts:
        """A fixed number of clients; the stages take turns over the rounds, so all occur."""
        size, lost = self._config.cohort.size, self._config.lost_per_round
        # Nothing is asked for in the last stage, so nobody can fail to send it.
        stages = [s for s in stages_of(Mode(self._config.cohort.mode)) if s is not Stage.RECOVER]
        chosen = self._schedule_rng.choice(size, lost, replace=False)
        return {int(c): stages[(number * lost + i) % len(stages)] for i, c in enumerate(chosen)}


def model_digest(model: Vector) -> bytes:
    """SHA-256 of the little-endian float32 bytes of a model: what clients bind into the round."""
    return hashlib.sha256(np.ascontiguousarray(model, "<f4").tobytes()).digest()
