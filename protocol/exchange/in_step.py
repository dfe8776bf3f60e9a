"""Ranks that end a round together, whichever of them cannot go on.

A rank that waits for one that has given up would wait for ever. So whenever ranks exchange anything
they first tell one another whether they are well, and a rank that fails in between says so in place
of its next exchange. All others raise `RankFailedError` there. Where all fail for the same reason,
as when too few clients are left, each raises the error itself. A process that ends, by an interrupt
or because it is killed, says nothing: the engine notices that its connections are closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, TypeVar

from numpy.typing import NDArray

from protocol.errors import RankFailedError
from protocol.exchange.ranks import Ranks

T = TypeVar("T")
M = TypeVar("M")
A = TypeVar("A")


class InStep:
    """The ranks of one round, a `Ranks`; use it in a `with` block around all that they do."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._parted = False

    @property
    def rank(self) -> int:
        """This process, from 0."""
        return self._ranks.rank

    @property
    def size(self) -> int:
        """How many there are."""
        return self._ranks.size

    def __enter__(self) -> InStep:
        """Begin to watch."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Tell the others how it ended here."""
        # An interrupt ends this process; and whoever parted already is not heard any more.
        if self._parted or (error is not None and not isinstance(error, Exception)):
            return
        if error is None:
            self.gather(None)
        else:
            self._ranks.gather((f"{type(error).__name__}: {error}", None))

    def take(self, indices: Iterable[int]) -> None:
        """Own these members of the cohort from now on."""
        self._ranks.take(indices)

    def owns(self, index: int) -> bool:
        """Whether this rank plays a member of the present cohort."""
        return self._ranks.owns(index)

    def gather(self, facts: T) -> list[T]:
        """What every rank has to tell, in the order of ranks."""
        # Unless all goes well from here on, there is nobody left to be told.
        self._parted = True
        gathered = self._ranks.gather((None, facts))
        for rank, (problem, _) in enumerate(gathered):
            if problem is not None:
                raise RankFailedError(rank, self.size, problem)
        self._parted = False
        return [each for _, each in gathered]

    def broadcast(self, value: T) -> T:
        """What rank 0 gives."""
        return self._all_well(lambda: self._ranks.broadcast(value))

    def swap(self, parts: Sequence[bytes]) -> list[bytes]:
        """What every rank has for this one."""
        return self._all_well(lambda: self._ranks.swap(parts))

    def add(self, *vectors: NDArray[Any]) -> list[NDArray[Any]]:
        """The sum over all ranks of each vector."""
        return self._all_well(lambda: self._ranks.add(*vectors))

    def _all_well(self, exchange: Callable[[], T]) -> T:
        self.gather(None)
        self._parted = True
        result = exchange()
        self._parted = False
        return result


def answers_of_all(
    ranks: Ranks, messages: Iterable[M], exchange: Callable[[Iterable[M]], Iterable[A]]
) -> Iterator[A]:
    """The answers to the messages of all ranks, for all ranks, some at a time.

    Every rank delivers one of its messages, and all hear what came back. So making a message may be
    an exchange between ranks itself, if each makes as many.
    """
    if ranks.size == 1:
        yield from exchange(messages)
        return
    waiting = iter(messages)
    while True:
        now = list(islice(waiting, 1))
        gathered = ranks.gather((bool(now), list(exchange(now))))
        for _, answers in gathered:
            yield from answers
        if not any(asked for asked, _ in gathered):
            return
