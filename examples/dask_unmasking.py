"""Unmasking on a Dask cluster: the server's last step, here and on one and two workers.

One sum of vectors for each of the three, with clients that leave after sharing their secrets, so
that the server has to compute every mask between them and the others. The tasks that it hands out
hold rebuilt masking keys and the keys of masks: with them and the uploads, whoever runs a worker
can open the sum just as the server can, and a worker that lies makes it wrong. Use your own
workers.

Needs: veilsum[dask]
Run with: python examples/dask_unmasking.py
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

import numpy as np
from dask.distributed import Client, LocalCluster

from protocol import MemoryRound, Stage
from protocol.exchange.stages import SERVER_PARTY
from secagg import (
    ClientSession,
    FieldVector,
    Identity,
    Mode,
    PrimeField,
    ServerSession,
    SessionContext,
    lowest_threshold,
)

T = TypeVar("T")
CLIENTS, LOST, DIMENSION, BITS, REPEATS = 40, 8, 1_000_000, 24, 3


class Member:
    """A client with its vector, as the wire sees it."""

    def __init__(self, session: ClientSession, dimension: int, value: int) -> None:
        self._session = session
        field = PrimeField(BITS)
        self._vector = FieldVector(field, np.full(dimension, value, field.dtype))

    def open(self) -> bytes:
        """The first message."""
        return self._session.begin_bytes()

    def receive(self, data: bytes) -> bytes | None:
        """An answer; None when it is the vector's turn."""
        return self._session.receive_bytes(data)

    def submit(self) -> bytes:
        """The masked vector: the same value everywhere."""
        return self._session.submit_bytes(self._vector)


class Stopwatch:
    """Seconds of the server's last piece of work: the unmasking."""

    seconds = 0.0

    def charge(self, party: int, work: Callable[[], T]) -> T:
        """Do the work."""
        start = time.perf_counter()
        result = work()
        if party == SERVER_PARTY:
            self.seconds = time.perf_counter() - start
        return result


def unmask_seconds(
    clients: int, lost: int, dimension: int, executor: Executor | None
) -> tuple[float, bool]:
    """Seconds of unmasking one round, and whether the sum is right."""
    identities = [Identity.generate() for _ in range(clients)]
    threshold = lowest_threshold(clients, 0, Mode.ACTIVE)
    context = SessionContext(
        session_id=secrets.token_bytes(16),
        round_number=0,
        cohort=tuple(identity.public for identity in identities),
        threshold=threshold,
        minimum_survivors=threshold,
        mode=Mode.ACTIVE,
        tolerated_colluders=0,
        bits=BITS,
        length=dimension,
        application_digest=bytes(32),
    )
    members = {
        index: Member(ClientSession(context, index, identity), dimension, index + 1)
        for index, identity in enumerate(identities)
    }
    watch = Stopwatch()
    dropouts = dict.fromkeys(range(clients - lost, clients), Stage.INPUT)
    server = ServerSession(context)
    total = MemoryRound(server, context.mode, members, dropouts, watch).run(executor).total
    survivors = clients - lost
    return watch.seconds, bool(np.all(total.vector.elements == survivors * (survivors + 1) // 2))


def median_seconds(name: str, executor: Executor | None) -> float:
    """Of a few rounds, after one that warms up."""
    unmask_seconds(3, 1, 1 << 18, executor)
    taken = []
    for _ in range(REPEATS):
        seconds, right = unmask_seconds(CLIENTS, LOST, DIMENSION, executor)
        if not right:
            raise RuntimeError(f"wrong sum: {name}")
        taken.append(seconds)
    print(f"{name:>14}: {sorted(taken)[REPEATS // 2]:.3f} s   (all: {np.round(taken, 3).tolist()})")
    return sorted(taken)[REPEATS // 2]


def main() -> None:
    """Without Dask, on one worker, on two."""
    survivors = CLIENTS - LOST
    masks = survivors + LOST * survivors
    print(f"{masks} masks of {DIMENSION} elements to take off a sum of {survivors} vectors")
    median_seconds("in the server", None)
    taken = {}
    for workers in (1, 2):
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
            client.get_executor() as executor,
        ):
            taken[workers] = median_seconds(f"{workers} Dask worker{'s'[: workers - 1]}", executor)
    print(f"two workers are {taken[1] / taken[2]:.2f} times as fast as one")


if __name__ == "__main__":
    main()
