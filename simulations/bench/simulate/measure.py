"""Client updates per second of simulated training, secure encoding included, beside other ways.

The others do less: a plain loop over clients, Flower's simulation and pfl's backend add up floats,
and ours clips, rotates, rounds, adds coins and adds in the field, as a private round does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from protocol.exchange.aggregators import IdealAggregator
from protocol.round.pipeline import Pipeline
from protocol.round.setup import RoundSetup
from simulations.bench.encode import round_setup
from simulations.bench.simulate.order import Order
from simulations.bench.simulate.peers import Progress, peer_figures
from simulations.bench.simulate.workload import SEED, Workload, sequential_sum, workload
from simulations.bench.timing import interleaved_seconds, peak_rss_bytes
from simulations.learning.training import Strategy, local_updates, training_pool


def bench_simulate(
    order: Order,  # the work, the same for everybody
    *,
    strategy: Strategy = "auto",  # of our local training
    workers: int = 1,  # threads that train and encode; 1 for none but this
    threads: int = 1,
    repeats: int = 3,  # counted rounds
    peers: bool = True,  # measure other simulators if they are installed
    progress: Progress = lambda _: None,  # is told what is measured next
) -> dict[str, int | float | bool | str | None]:
    """Simulate one cohort's round in several ways.

    `updates_per_second` is ours with `workers` threads; `..._one_thread` without others.
    `encode_share` is the time of encoding and aggregation over that of local training, in one
    thread. `sequential_...` is the plain loop. `largest_difference` is that of the mean update,
    ours before encoding against the loop's, over its largest coordinate. Peers that are not
    installed are None. `peak_rss_bytes` is that of this process before any peer ran.
    """
    work = workload(order)
    # Threads that share cores with anybody wait for one another, and the figures mean nothing.
    torch.set_num_threads(threads)
    progress("ours and the plain loop, taking turns")
    figures = _own_figures(work, strategy, workers, repeats)
    ours = float(figures["updates_per_second"] or 0)
    return {**figures, **peer_figures(order, repeats, ours, peers, progress)}


def _own_figures(
    work: Workload, strategy: Strategy, workers: int, repeats: int
) -> dict[str, int | float | bool | str | None]:
    """Measure our simulation and the plain loop."""
    order, shares = work.order, list[float]()
    setup = round_setup(work.task.dimension, order.clients)
    candidates: dict[str, Callable[[], object]] = {
        "one_thread": lambda: shares.append(_round(work, setup, strategy).encode_share),
        "sequential": lambda: sequential_sum(work),
    }
    if workers == 1:
        taken = interleaved_seconds(candidates, repeats)
        taken["ours"] = taken["one_thread"]
    else:
        with training_pool(workers) as pool:
            candidates["ours"] = lambda: _round(work, setup, strategy, pool, workers)
            taken = interleaved_seconds(candidates, repeats)
    rate = {name: order.clients / seconds for name, seconds in taken.items()}
    return {
        **work.figures(strategy),
        "workers": workers,
        "threads": torch.get_num_threads(),
        "updates_per_second": rate["ours"],
        "updates_per_second_one_thread": rate["one_thread"],
        "sequential_updates_per_second": rate["sequential"],
        "ratio_to_sequential": rate["ours"] / rate["sequential"],
        # The first round warmed up.
        "encode_share": float(np.median(shares[1:])),
        "largest_difference": _difference(work, strategy),
        "peak_rss_bytes": peak_rss_bytes(),
    }


@dataclass(frozen=True, slots=True)
class _Round:
    """What a simulated round took."""

    seconds: float  # in all
    training_seconds: float  # spent on updates, or waiting for them

    @property
    def encode_share(self) -> float:
        """Everything else over training."""
        return (self.seconds - self.training_seconds) / self.training_seconds


def _round(
    work: Workload,
    setup: RoundSetup,
    strategy: Strategy,
    executor: Executor | None = None,
    workers: int = 1,
) -> _Round:
    """Train, encode, add and decode: all but the cryptography."""
    start = time.perf_counter()
    source = _Source(_rows(work, strategy, executor, workers))
    outcome = IdealAggregator(executor=executor).run(setup, source, {})
    Pipeline(setup).decode(outcome.total, outcome.surplus)
    return _Round(time.perf_counter() - start, source.seconds)


class _Source:
    """Gives updates in the order of the cohort, and counts the time that they take."""

    def __init__(self, rows: Iterator[NDArray[np.float32]]) -> None:
        self._rows = rows
        self.seconds = 0.0

    def __call__(self, index: int) -> NDArray[np.float32]:
        """The update of the next client; the aggregator asks for them in order."""
        del index
        start = time.perf_counter()
        row = next(self._rows)
        self.seconds += time.perf_counter() - start
        return row


def _rows(
    work: Workload, strategy: Strategy, executor: Executor | None = None, workers: int = 1
) -> Iterator[NDArray[np.float32]]:
    """Updates one by one."""
    # Enough chunks for all workers, even of a small cohort.
    chunk = None if executor is None else max(1, work.order.clients // (4 * workers))
    chunks = local_updates(
        work.task,
        work.start,
        work.split,
        work.members,
        work.training,
        np.random.default_rng(SEED),
        chunk=chunk,
        strategy=strategy,
        executor=executor,
        ahead=2 * workers,
    )
    return (row for rows in chunks for row in rows)


def _difference(work: Workload, strategy: Strategy) -> float:
    """How far our sum of updates is from the plain loop's."""
    ours = np.zeros(work.task.dimension)
    for row in _rows(work, strategy):
        ours += row
    plain = sequential_sum(work)
    return float(np.abs(ours - plain).max() / np.abs(plain).max())
