"""Where whole runs are sent: to processes here, to a Dask cluster, or to the ranks of torchrun.

All of them are a `concurrent.futures.Executor`, which is all that a sweep or a campaign knows.
"""

from __future__ import annotations

import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from multiprocessing import get_context
from typing import Any, Final, ParamSpec, TypeVar

from protocol.errors import ConfigurationError
from protocol.exchange.ranks import ALONE, Ranks
from simulations.common.ranks import PATIENCE, own_address, share_cores

P = ParamSpec("P")
T = TypeVar("T")

SCHEDULER_SECONDS: Final = 10.0
"""How long a Dask scheduler may take to answer."""

_NOTHING: Final = b""
"""In place of a task that was cancelled."""

_BEGUN: Final = b"begun"
"""In place of a result: it will come."""

_END: Final = b"."
"""In place of a task: there are no more."""


@contextmanager
def executor(
    workers: int = 1, scheduler: str | None = None, ranks: Ranks = ALONE
) -> Iterator[Executor | None]:
    """Open what runs tasks; at the end, what has not begun is not begun any more.

    Yields:
        an executor, or None where tasks run in this process, one after another.
    """
    ways = {"--workers": workers > 1, "--scheduler": scheduler is not None}
    ways["torchrun"] = ranks.size > 1
    chosen = [name for name, given in ways.items() if given]
    if len(chosen) > 1:
        raise ConfigurationError(chosen[0], f"given together with {chosen[1]}", "one of the two")
    if scheduler is not None:
        with _dask(scheduler) as found:
            yield found
        return
    pool: Executor | None = None
    if ranks.size > 1:
        pool = RankExecutor(ranks)
    elif workers > 1:
        # Torch's threads do not survive a fork.
        pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (workers,))
    try:
        yield pool
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)


def _begin(workers: int) -> None:
    """Begin one of several processes; Ctrl-C, which all get, ends it without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    share_cores(workers)


@contextmanager
def _dask(address: str) -> Iterator[Executor]:
    """The executor of a cluster."""
    client: Any = import_module("distributed").Client

    def sources() -> str:
        """Sent by value, as a local function: a worker without our packages can still say so."""
        from simulations.common.provenance import source_hash

        return source_hash()

    try:
        opened = client(address, timeout=SCHEDULER_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        said = str(error).partition("\n")[0] or type(error).__name__
        valid = "the address of a Dask scheduler that runs, such as tcp://HOST:8786"
        raise ConfigurationError("--scheduler", f"value {address!r} ({said})", valid) from None
    with opened:
        _check_workers(opened.run(sources, on_error="return"), sources())
        # Two tasks that look alike are two: a run may have fresh noise.
        yield opened.get_executor(pure=False)


def _check_workers(sources: dict[str, object], ours: str) -> None:
    """Refuse workers that would misread a task, or let it wait for ever on a broken connection."""
    valid = f"workers, started first, with the sources that are here ({ours})"
    if not sources:
        raise ConfigurationError("--scheduler", "a cluster without workers", valid)
    for address, theirs in sources.items():
        if theirs != ours:
            has = f"other sources ({theirs})" if isinstance(theirs, str) else "no sources"
            value = f"a cluster whose worker {address} has {has} of veilsum"
            raise ConfigurationError("--scheduler", value, valid)


class RankExecutor(Executor):
    """The ranks of torchrun as workers; each takes the next task when it has done its last.

    Tasks and results go through a store of torch.distributed on rank 0, which works too, in a
    thread of its own. When a rank dies, torchrun ends all of them.
    """

    def __init__(self, ranks: Ranks) -> None:
        host = own_address()
        self._store = _store(host, 0, is_master=True)
        place = (host, int(self._store.port))
        ranks.broadcast(place)
        self._size = ranks.size
        self._futures: dict[int, Future[Any]] = {}
        self._count = 0
        self._closed = False
        self._failed: BaseException | None = None
        self._own = threading.Thread(target=_work, args=(_connected(place),), name="rank 0's tasks")
        results = _connected(place)
        self._collector = threading.Thread(target=self._collect, args=(results,), name="results")
        self._own.start()
        self._collector.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a rank call a function of a module; arguments and result are pickled."""
        if self._closed:
            raise RuntimeError("the executor was shut down: it takes no more tasks")
        number, future = self._count, Future[T]()
        self._futures[number] = future
        # Asked after it is among the futures: one that fails now finds it there.
        if self._failed is not None:
            raise BrokenExecutor("results cannot be collected any more") from self._failed
        self._store.set(_task(number), pickle.dumps((fn, args, kwargs)))
        future.add_done_callback(partial(self._forget, number))
        self._count += 1
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the ranks go when all tasks are done, or when those that have begun are."""
        if self._closed:
            return
        self._closed = True
        if cancel_futures:
            for future in list(self._futures.values()):
                future.cancel()
        for number in range(self._count, self._count + self._size):
            self._store.set(_task(number), _END)
        if wait:
            self._own.join()
            self._collector.join()

    def _forget(self, number: int, future: Future[Any]) -> None:
        """Let whoever takes a task that nobody waits for find nothing; who has begun it ends it."""
        if future.cancelled() or self._failed is not None:
            self._store.set(_task(number), _NOTHING)

    def _collect(self, store: Any) -> None:
        """Hand out results; whatever ends that is told to all who wait for one."""
        try:
            self._hand_out(store)
        except BaseException as error:
            self._failed = error
            for future in list(self._futures.values()):
                if not future.done():
                    future.set_exception(error)

    def _hand_out(self, store: Any) -> None:
        """Hand out results as they come, until every rank has ended."""
        ended, place = 0, 0
        while ended < self._size:
            number, result = pickle.loads(_awaited(store, _word(place)))  # noqa: S301 - our own
            store.delete_key(_word(place))
            place += 1
            if number is None:
                ended += 1
            elif result == _BEGUN:
                if not self._futures[number].set_running_or_notify_cancel():
                    del self._futures[number]
            elif number in self._futures:
                value, error = pickle.loads(result)  # noqa: S301 - our own ranks
                future = self._futures.pop(number)
                if error is None:
                    future.set_result(value)
                else:
                    future.set_exception(error)


def serve(ranks: Ranks) -> None:
    """Do the tasks of rank 0's executor until there are no more: what every other rank does."""
    place: tuple[str, int] = ranks.broadcast(("", 0))
    _work(_connected(place))


def _connected(place: tuple[str, int]) -> Any:
    """A connection of one's own: a wait on it makes nobody else wait."""
    return _store(*place, is_master=False)


def _store(host: str, port: int, *, is_master: bool) -> Any:
    """A store, or a connection to one; torch's own annotations lack half of what it has."""
    import torch.distributed as dist

    make: Any = dist
    return make.TCPStore(host, port, None, is_master, PATIENCE, wait_for_workers=False)


def _work(store: Any) -> None:
    while True:
        number = store.add("taken", 1) - 1
        task = _awaited(store, _task(number))
        if task == _END:
            _tell(store, None, None)
            return
        store.delete_key(_task(number))
        _tell(store, number, _BEGUN)
        if task != _NOTHING:
            _tell(store, number, _done(task))


def _awaited(store: Any, name: str) -> bytes:
    """What somebody puts under a name, however long it takes; a lost connection is an error."""
    from torch.distributed import DistStoreError

    while True:
        try:
            found: bytes = store.get(name)
        except DistStoreError:  # torch's patience is over, not ours
            continue
        return found


def _done(task: bytes) -> bytes:
    """What came of a task, pickled: a value or an error.

    A task that would end this process has failed, no more: rank 0 would wait for it for ever.
    """
    try:
        work, args, kwargs = pickle.loads(task)  # noqa: S301 - our own rank 0
        return _pickled(work(*args, **kwargs), None)
    except BaseException as error:
        sent = error if isinstance(error, Exception) else _in_words(error)
        try:
            return _pickled(None, sent)
        except Exception:
            return _pickled(None, _in_words(error))


def _pickled(value: object, error: Exception | None) -> bytes:
    """What rank 0 is told; read here first, as who cannot be read there is waited for."""
    sent = pickle.dumps((value, error))
    pickle.loads(sent)  # noqa: S301 - just made
    return sent


def _in_words(error: BaseException) -> RuntimeError:
    return RuntimeError(f"{type(error).__name__}: {error}")


def _tell(store: Any, number: int | None, result: bytes | None) -> None:
    """Tell rank 0 that a task has begun, or what came of it; without a number, that we end."""
    place = store.add("told", 1) - 1
    store.set(_word(place), pickle.dumps((number, result)))


def _task(number: int) -> str:
    return f"task {number}"


def _word(place: int) -> str:
    return f"told {place}"
