"""Ranks that are threads of one process: everything but the engine's own messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from protocol.exchange.ranks import Ranks

T = TypeVar("T")

SECONDS = 120.0
"""After so long a rank that waits for one that failed gives up."""


class _Table:
    """Where ranks put what they have to tell, all at a time."""

    def __init__(self, size: int) -> None:
        self.told: list[Any] = [None] * size
        self.meeting = threading.Barrier(size, timeout=SECONDS)


class ThreadRank:
    """One of several threads; a `Ranks`. Messages are counted by kind."""

    def __init__(self, rank: int, size: int, table: _Table) -> None:
        self.rank, self.size, self._table = rank, size, table
        self._owned: frozenset[int] = frozenset()
        self.added = 0

    def take(self, indices: Iterable[int]) -> None:
        self._owned = frozenset(indices)

    def owns(self, index: int) -> bool:
        return index in self._owned

    def gather(self, facts: T) -> list[T]:
        self._table.told[self.rank] = facts
        self._table.meeting.wait()
        told = list(self._table.told)
        self._table.meeting.wait()
        return told

    def broadcast(self, value: T) -> T:
        return self.gather(value)[0]

    def swap(self, parts: Sequence[bytes]) -> list[bytes]:
        assert len(parts) == self.size
        return [told[self.rank] for told in self.gather(list(parts))]

    def add(self, *vectors: NDArray[Any]) -> list[NDArray[Any]]:
        self.added += 1
        assert len({vector.dtype for vector in vectors}) == 1
        assert len({tuple(v.shape for v in told) for told in self.gather(vectors)}) == 1
        told = self.gather(vectors)
        # In an order of its own, as an engine may have.
        return [np.sum([own[i] for own in reversed(told)], axis=0) for i in range(len(vectors))]

    def abort(self) -> None:
        """Let nobody wait for this rank, which has failed."""
        self._table.meeting.abort()


def on_ranks(size: int, work: Callable[[Ranks], T]) -> list[T]:
    """What each of some ranks makes of the same work; the first error that is not a broken wait."""
    table = _Table(size)

    def one(rank: int) -> T:
        own = ThreadRank(rank, size, table)
        try:
            return work(own)
        except BaseException:
            own.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(one, rank) for rank in range(size)]
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in sorted(errors, key=lambda e: isinstance(e, threading.BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]
