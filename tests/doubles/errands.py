"""Functions to send to other processes: they find this folder on their path too."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from rank_doubles import on_ranks

from protocol.errors import ConfigurationError
from protocol.exchange.ranks import Ranks
from simulations.common import executors


def square(number: int) -> int:
    return number * number


def process() -> tuple[int, str]:
    return os.getpid(), os.environ.get("LOCAL_WORLD_SIZE", "")


def fresh() -> str:
    return secrets.token_hex(16)


def fails(number: int) -> int:
    raise ConfigurationError("number", f"value {number}", "another")


class StubbornError(Exception):
    """Cannot be rebuilt from what it says."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")

    def __reduce__(self) -> tuple[type[StubbornError], tuple[str]]:
        # As exceptions are pickled anyway, but for a library that changes this for all of them.
        return type(self), (str(self),)


def fails_badly() -> None:
    raise StubbornError(1, 2)


def lambda_maker() -> object:
    return lambda: None


class ReadBy:
    """Can be pickled, and not be read again by what it does then."""

    def __init__(self, reader: Callable[[], object]) -> None:
        self.reader = reader

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        return self.reader, ()


def nobody() -> None:
    raise ValueError("read by nobody")


def only_where_it_was_made() -> None:
    if threading.current_thread().name == "results":
        raise ValueError("not read by rank 0")


def unreadable() -> object:
    return ReadBy(nobody)


def unreadable_elsewhere() -> object:
    return ReadBy(only_where_it_was_made)


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leaves() -> None:
    sys.exit("enough")


def interrupted() -> None:
    raise KeyboardInterrupt


def naps() -> str:
    time.sleep(0.5)
    return "awake"


def outcomes(tasks: Sequence[Callable[[], object]], patience: float | None = None) -> list[str]:
    """What becomes of tasks on two ranks, and of one that is given after them, in words.

    Whoever calls this has it done by a process that can be ended: it may wait for ever.

    Args:
        patience: seconds after which torch gives up a wait.
    """
    connected = executors._connected

    def impatient(place: tuple[str, int]) -> Any:
        store = connected(place)
        if patience is not None:
            store.set_timeout(timedelta(seconds=patience))
        return store

    def work(ranks: Ranks) -> list[str]:
        if ranks.rank:
            executors.serve(ranks)
            return []
        with executors.executor(1, None, ranks) as places:
            assert places is not None
            futures = []
            with suppress(BrokenExecutor):
                for task in tasks:
                    futures.append(places.submit(task))
            found = [repr(future.exception() or future.result()) for future in futures]
            try:
                found.append(repr(places.submit(square, 3).result()))
            except RuntimeError as error:
                found.append(repr(error))
            return found

    with (
        patch.dict(os.environ, MASTER_ADDR="127.0.0.1"),
        patch.object(executors, "_connected", impatient),
    ):
        return on_ranks(2, work)[0]
