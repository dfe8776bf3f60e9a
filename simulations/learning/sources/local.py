"""Local privacy: every client makes its report private by itself, and the server just adds up.

The server, the clients and all who listen see the same reports, so there is one epsilon, against
everybody. It counts all reports of the client that sent most, by composition: nothing is taken off
for sampling or shuffling, as the server knows whose report it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp.errors import PrivacyError
from dp.keystream import NoiseSeed
from dp.local import Reports
from protocol.exchange.ranks import ALONE, Ranks
from simulations.common.order_free import OrderFreeSum
from simulations.learning.configuration import RunConfig
from simulations.learning.federated import Invitation
from simulations.learning.local_dp.base import LocalAlgorithm
from simulations.learning.local_dp.journal import MemoryJournal
from simulations.learning.local_dp.memory import ClientMemory
from simulations.learning.local_dp.registry import composed_epsilon
from simulations.learning.records import ErrorParts, Facts
from simulations.learning.sources.base import (
    NOTHING,
    Arrays,
    Floats,
    PrivateRate,
    lost_clients,
    own_uploaders,
    uploaders,
)
from simulations.learning.sources.error_budget import ErrorMeter
from simulations.learning.training import chunks_of, default_chunk
from sketch import PublicSeed
from sketch.hashing import SEED_BYTES

PLACE = "memory"
"""The array that names the file of what clients remember, and its bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Summed:
    """What a server has of a round's reports.

    Attributes:
        total: float64[d], the sum of the estimates.
        count: reports in it.
        bytes_per_client: of all messages, where they are more than a report; else None.
    """

    total: Floats
    count: int
    bytes_per_client: float | None = None


Channel = Callable[[Invitation, PublicSeed, Iterable[tuple[Sequence[int], Reports]]], Summed]
"""The way of reports to their sum: a round, its public seed, and reports by index in the cohort."""


def add_up(
    invitation: Invitation,
    seed: PublicSeed,
    parts: Iterable[tuple[Sequence[int], Reports]],
    ranks: Ranks = ALONE,
) -> Summed:
    """The server receives every report and adds them up, over all ranks."""
    del seed
    total, count = OrderFreeSum(invitation.model.size), 0
    for _, reports in parts:
        total.add(reports.total())
        count += len(reports)
    (total.pieces,) = ranks.add(total.pieces)
    return Summed(total.total, sum(ranks.gather(count)))


class LocalMean(PrivateRate):
    """The mean of what private reports say.

    Clients that are trained together report together: who they are, and the seed of their noise, do
    not depend on how many ranks there are. Cohorts are divided anew in every round, so every rank
    has the memory of the whole population, 4 d bytes for each client that was ever asked and each
    of its vectors, and a round sends the memory of its cohort from each rank to all others.

    Args:
        noise: gives the secret seed of a group of clients, by the index of its first member.
        channel: how reports become a sum; None adds them up in the clear.
        journal: where what they remember is kept for a checkpoint; None to keep nothing.
        before: told the number of each round before it, which fixes a run's secrets.
    """

    state: None = None

    def __init__(
        self,
        config: RunConfig,
        algorithm: LocalAlgorithm,
        memory: ClientMemory,
        noise: Callable[[int], NoiseSeed],
        public: Callable[[int], bytes],
        channel: Channel | None = None,
        journal: MemoryJournal | None = None,
        before: Callable[[int], None] = lambda _: None,
        ranks: Ranks = ALONE,
    ) -> None:
        self._config = config
        self._algorithm = algorithm
        self._noise = noise
        self._public = public
        self._before = before
        self._channel = channel or partial(add_up, ranks=ranks)
        self._ranks = ranks
        self._memory = memory
        self._journal = journal
        self._last = Summed(np.zeros(0), 0)
        self._refused = 0
        self._reported: list[int] = []
        self._meter = ErrorMeter(lambda _: np.zeros(0, np.float32))
        self._error: ErrorParts = {}

    @property
    def arrays(self) -> Arrays:
        """Where what clients remember is, and how many reports each has sent."""
        return NOTHING if self._journal is None else {PLACE: self._journal.place}

    def mean(self, invitation: Invitation) -> Floats:
        """The mean of the estimates."""
        self._before(invitation.number)
        seed = PublicSeed(self._public(SEED_BYTES))
        self._refused, self._reported = 0, []
        self._last = self._channel(invitation, seed, self._reports(invitation, seed))
        reported = self._shared()
        if not self._last.count:
            raise PrivacyError("no client sent an update of finite numbers")
        if self._journal is not None:
            self._journal.keep(reported)
        mean = self._last.total / self._last.count
        self._error = self._meter.measure(mean, self._last.count).parts()
        return mean

    def _reports(
        self, invitation: Invitation, seed: PublicSeed
    ) -> Iterator[tuple[Sequence[int], Reports]]:
        """Reports of groups of clients, with their indices in the cohort."""
        for first, indices, updates in self._groups(invitation):
            clients = [invitation.clients[index] for index in indices]
            self._memory.sent.update(clients)
            self._reported += clients
            noise = self._noise(first)
            yield indices, self._algorithm.reports(clients, updates, self._memory, seed, noise)

    def facts(self, invitation: Invitation) -> Facts:
        """Bytes and epsilon of the last round."""
        dimension = invitation.model.size
        sent = self._last.bytes_per_client or self._algorithm.report_bytes
        most, delta = self._memory.most_sent, self._config.privacy.delta
        epsilon = composed_epsilon(self._algorithm.epsilon, most, delta)
        lost, lost_later = lost_clients(invitation, uploaders(invitation))
        return {
            "survivors": self._last.count,
            "sketch_size": max(1, round(sent / 4.0)),
            "dimension": dimension,
            "compression": 4.0 * dimension / sent,
            "bits": None,
            "bytes_per_client": sent,
            "epsilons": {
                "server": epsilon,
                "outsider": epsilon,
                "one_report": self._algorithm.epsilon,
                "delta": delta,
                # All reports that a client may send were fitted into it beforehand.
                "guaranteed": self._config.privacy.epsilon,
            },
            "lost": lost,
            "lost_later": lost_later,
            "refused": self._refused,
            "error": self._error,
        }

    def _groups(self, invitation: Invitation) -> Iterator[tuple[int, Sequence[int], NDArray[Any]]]:
        """Of each chunk of clients: where it begins, whose updates are finite, and float64[c, d].

        One that is not finite is counted, and its client is left out.
        """
        chunks, dimension = invitation.chunks, invitation.model.size
        if chunks is None:
            chunks = tuple(chunks_of(len(invitation.clients), dimension, default_chunk(dimension)))
        table = np.empty((max(map(len, chunks), default=0), dimension))
        self._meter = ErrorMeter(invitation.updates, ranks=self._ranks)
        uploading = frozenset(own_uploaders(invitation))
        for chunk in chunks:
            indices: list[int] = []
            for index in filter(uploading.__contains__, chunk):
                row = table[len(indices)]
                row[:] = self._meter(index)
                if np.isfinite(row).all():
                    indices.append(index)
                else:
                    self._refused += 1
            if indices:
                yield chunk.start, indices, table[: len(indices)]

    def _shared(self) -> list[int]:
        """Tell all ranks whose reports are ours, and what these clients remember now."""
        ranks, memory = self._ranks, self._memory
        gathered = ranks.gather((self._reported, self._refused))
        self._refused = sum(refused for _, refused in gathered)
        blocks = memory.blocks(self._reported) if ranks.size > 1 else iter(())
        # A few megabytes of each rank at a time.
        while any(given := ranks.gather(next(blocks, b""))):
            for rank, block in enumerate(given):
                if block and rank != ranks.rank:
                    memory.learn(block)
        return sorted(client for reported, _ in gathered for client in reported)
