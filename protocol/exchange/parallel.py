"""Work done ahead of time by an executor, handed over in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def in_order(
    tasks: Iterable[Callable[[], T]], executor: Executor | None, ahead: int
) -> Iterator[Callable[[], T]]:
    """Give back, for each task in turn, what returns its result or raises its error.

    Post: when the iterator is closed early, tasks that have not begun are cancelled.
    """
    if executor is None:
        yield from tasks
        return
    futures = (executor.submit(task) for task in tasks)
    waiting = deque(islice(futures, ahead))
    try:
        while waiting:
            yield waiting.popleft().result
            waiting.extend(islice(futures, 1))
    finally:
        for future in waiting:
            future.cancel()
