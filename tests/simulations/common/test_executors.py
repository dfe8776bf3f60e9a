"""Where tasks are sent: what comes back is what they come to here, and nobody waits for nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from multiprocessing import get_context
from pathlib import Path

import pytest
from errands import (
    dies,
    fails,
    fails_badly,
    fresh,
    interrupted,
    lambda_maker,
    leaves,
    naps,
    outcomes,
    process,
    square,
    unreadable,
    unreadable_elsewhere,
)
from rank_doubles import on_ranks
from waiting import until

from protocol.errors import ConfigurationError
from protocol.exchange.ranks import Ranks
from simulations.common import executors
from simulations.common.executors import RankExecutor, executor, serve
from simulations.common.failures import one_line
from simulations.common.provenance import source_hash
from veilsum.extras import install_command


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")


def test_without_a_way_there_is_no_executor() -> None:
    with executor() as places:
        assert places is None


def test_processes_share_the_cores() -> None:
    with executor(2) as places:
        assert places is not None
        assert list(places.map(square, range(5))) == [0, 1, 4, 9, 16]
        number, sharing = places.submit(process).result()
        assert number != os.getpid() and sharing == "2"
        # Ctrl-C, which all processes get, ends them without a traceback.
        assert places.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_DFL


def test_a_process_that_dies_is_told_in_one_line() -> None:
    with executor(2) as places:
        assert places is not None
        error = places.submit(dies).exception(60)
    assert isinstance(error, Exception)
    assert one_line(error) == (
        "BrokenProcessPool: a worker died, perhaps for lack of memory; what was finished is kept: "
        "give the same command again to continue"
    )


def test_two_ways_at_once() -> None:
    with (
        pytest.raises(ConfigurationError, match="given together with --scheduler"),
        executor(2, "tcp://127.0.0.1:1"),
    ):
        pass

    def work(ranks: Ranks) -> None:
        if ranks.rank == 0:
            with (
                pytest.raises(ConfigurationError, match="given together with torchrun"),
                executor(2, None, ranks),
            ):
                pass

    on_ranks(2, work)


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_do_all_tasks_and_end(size: int) -> None:
    def work(ranks: Ranks) -> list[int] | None:
        if ranks.rank:
            serve(ranks)
            return None
        with executor(1, None, ranks) as places:
            assert isinstance(places, RankExecutor)
            futures: list[Future[int]] = [places.submit(square, n) for n in range(20)]
            wrong = places.submit(fails, 7)
            worse = places.submit(fails_badly)
            worst = places.submit(lambda_maker)
            with pytest.raises(ConfigurationError, match="value 7"):
                wrong.result(60)
            with pytest.raises(RuntimeError, match="StubbornError: 1 and 2"):
                worse.result(60)
            with pytest.raises(Exception, match=r"(?i)pickle"):
                worst.result(60)
            found = [future.result(60) for future in futures]
        with pytest.raises(RuntimeError, match="shut down"):
            places.submit(square, 1)
        return found

    assert on_ranks(size, work)[0] == [n * n for n in range(20)]


@pytest.fixture(scope="module")
def in_time() -> Iterator[Callable[..., list[str]]]:
    """The `outcomes` of tasks, or an error in the end: the process that waits can be ended."""
    with get_context("spawn").Pool(1) as pool:
        yield lambda *given: pool.apply_async(outcomes, given).get(300)


def test_a_task_that_would_end_its_rank_has_failed(in_time: Callable[..., list[str]]) -> None:
    assert in_time([leaves, interrupted, unreadable, naps]) == [
        "RuntimeError('SystemExit: enough')",
        "RuntimeError('KeyboardInterrupt: ')",
        "ValueError('read by nobody')",
        "'awake'",
        "9",
    ]


def test_who_waits_for_a_result_is_told_that_none_will_come(
    in_time: Callable[..., list[str]],
) -> None:
    """And what has not begun by then is not begun: it would take a quarter of an hour."""
    told = in_time([unreadable_elsewhere] + [naps] * 4000)
    assert told[0] == told[-2] == "ValueError('not read by rank 0')"
    assert told[-1] == "BrokenExecutor('results cannot be collected any more')"


def test_ranks_wait_longer_than_torch_does(in_time: Callable[..., list[str]]) -> None:
    """One rank for its next task, and rank 0 for a result."""
    assert in_time([naps], 0.1) == ["'awake'", "9"]


GO_ON = threading.Event()


def waits() -> str:
    assert GO_ON.wait(60)
    return "done"


def test_what_has_not_begun_when_it_closes_is_not_begun() -> None:
    GO_ON.clear()
    done: list[int] = []

    def work(ranks: Ranks) -> None:
        if ranks.rank:
            serve(ranks)
            return
        with executor(1, None, ranks) as places:
            assert places is not None
            first, second = places.submit(waits), places.submit(waits)
            until(lambda: first.running() and second.running())
            later = [places.submit(done.append, n) for n in range(5)]
            assert later[3].cancel() and not first.cancel()
            # Cancelled after all others, when it closes.
            later[4].add_done_callback(lambda _: GO_ON.set())
        assert first.result(1) == second.result(1) == "done"
        for each in later:
            with pytest.raises(CancelledError):
                each.result(1)

    on_ranks(2, work)
    assert done == []


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_dask_cluster_does_the_same(cluster: str) -> None:
    with executor(1, cluster) as places:
        assert places is not None
        assert list(places.map(square, range(5))) == [0, 1, 4, 9, 16]
        with pytest.raises(ConfigurationError, match="value 3"):
            places.submit(fails, 3).result(60)
        assert places.submit(process).result(60)[0] != os.getpid()
        # As a run with fresh noise: two tasks that look alike are two.
        assert places.submit(fresh).result(60) != places.submit(fresh).result(60)


@pytest.mark.filterwarnings("default")
def test_workers_are_asked_for_their_sources(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[dict[str, object], str]] = []
    monkeypatch.setattr(executors, "_check_workers", lambda *found: asked.append(found))
    with executor(1, cluster):
        [(theirs, ours)] = asked
    assert ours == source_hash() and list(theirs.values()) == [ours, ours]


@pytest.mark.filterwarnings("default")
def test_a_worker_without_our_packages_says_so(cluster: str) -> None:
    def hide(hidden: bool) -> None:
        name = "simulations.common.provenance"
        sys.modules.pop(name, None)
        if hidden:
            sys.modules[name] = None  # type: ignore[assignment]

    with pytest.importorskip("distributed").Client(cluster, set_as_default=False) as client:
        client.run(hide, True)
        with pytest.raises(ConfigurationError, match="has no sources"), executor(1, cluster):
            pass
        client.run(hide, False)


@pytest.mark.parametrize(
    ("theirs", "has"),
    [("beef", "other sources (beef)"), (ModuleNotFoundError("simulations"), "no sources")],
)
def test_workers_that_would_not_understand_are_named(theirs: object, has: str) -> None:
    executors._check_workers({"tcp://a:1": "cafe"}, "cafe")
    with pytest.raises(ConfigurationError, match=f"tcp://b:2 has {re.escape(has)} .*cafe"):
        executors._check_workers({"tcp://a:1": "cafe", "tcp://b:2": theirs}, "cafe")


@pytest.mark.filterwarnings("default")
def test_a_cluster_without_workers_is_refused() -> None:
    """A task would wait until somebody starts one."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as empty:
        with (
            pytest.raises(ConfigurationError, match="a cluster without workers") as caught,
            executor(1, empty.scheduler_address),
        ):
            pass
    assert caught.value.key == "--scheduler"


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x", "nowhere.invalid:8786"])
def test_a_scheduler_that_does_not_answer_is_named(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(executors, "SCHEDULER_SECONDS", 0.5)
    start = time.monotonic()
    with pytest.raises(ConfigurationError, match="--scheduler") as caught, executor(1, address):
        pass
    assert repr(address) in str(caught.value) and "tcp://HOST:8786" in str(caught.value)
    assert time.monotonic() - start < 30.0


@pytest.mark.slow
def test_dask_is_told_when_it_is_missing(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['distributed'] = None\n"
        "from simulations.common.executors import executor\n"
        "from simulations.common.failures import one_line\n"
        "try:\n    executor(1, 'tcp://h:1').__enter__()\n"
        "except ImportError as error:\n    print(one_line(error))\n"
    )
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert install_command("dask") in done.stdout, done.stderr
