"""Simulated training by several numbers of ranks, each on one core, beside bare loops of torch.

Every number of ranks is started by torchrun, also one. In each of these processes two things take
turns, with a meeting before and after each: the rank's part of a private round, up to the decoded
mean, and a plain loop over the same clients. So both have the same cores at the same time.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

import numpy as np
import torch

from dp import NoiseSeed
from protocol.exchange.aggregators import IdealAggregator
from protocol.exchange.ranks import Ranks
from protocol.round.pipeline import Pipeline
from simulations.bench.encode import round_setup
from simulations.bench.simulate.order import Order, SimulatedModel
from simulations.bench.simulate.peers import Progress, peer_figures
from simulations.bench.simulate.workload import SEED, Workload, sequential_sum, workload
from simulations.common.ranks import joined
from simulations.learning.federated import CohortUpdates
from simulations.learning.training import Strategy, chunks_of, local_updates
from simulations.learning.training.division import divide, training_cost


def bench_ranks(
    order: Order,  # the work, the same for everybody
    counts: Sequence[int],  # of ranks; each has one thread
    *,
    strategy: Strategy = "auto",  # of our local training
    repeats: int = 3,  # counted rounds
    peers: bool = True,  # measure other simulators if they are installed
    progress: Progress = lambda _: None,  # is told what is measured next
) -> dict[str, Any]:
    """Simulate one cohort's round with several numbers of ranks.

    `runs` has for each number of ranks `updates_per_second`, the same of as many bare loops side by
    side, the ratio of the two, and `digest`, SHA-256 of the released sum. The noise is that of
    fixed seeds, so that all digests must be equal; `correct` says whether they are.
    `bare_updates_per_second` is that of one loop on one core, of the run with fewest ranks if none
    has one. `speedup` is the run with most ranks over that with fewest. Peers as in
    `bench_simulate`.
    """
    torch.set_num_threads(1)
    runs = []
    for count in sorted(set(counts)):
        progress(f"{count} ranks and {count} bare loops, taking turns")
        runs.append(_run(order, count, strategy, repeats))
    fewest, most = runs[0], runs[-1]
    work = workload(order)
    return {
        **work.figures(strategy),
        "runs": runs,
        "bare_updates_per_second": fewest["bare_updates_per_second"] / fewest["ranks"],
        "speedup": most["updates_per_second"] / fewest["updates_per_second"],
        "correct": len({run["digest"] for run in runs}) == 1,
        **peer_figures(order, repeats, most["updates_per_second"], peers, progress),
    }


def _run(order: Order, count: int, strategy: Strategy, repeats: int) -> dict[str, Any]:
    """The figures of a number of ranks, as rank 0 prints them."""
    words = [*_torchrun(count), __name__, json.dumps([_plain(order), strategy, repeats])]
    done = subprocess.run(words, capture_output=True, text=True)  # noqa: S603 - our own program
    if done.returncode:
        raise RuntimeError(f"{count} ranks failed:\n{done.stderr}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _torchrun(count: int) -> list[str]:
    engine = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    return [sys.executable, "-m", *engine, "-m"]


def _plain(order: Order) -> dict[str, Any]:
    return {**asdict(order), "model": order.model.value}


def play(ranks: Ranks, order: Order, strategy: Strategy, repeats: int) -> dict[str, Any]:
    """This rank's part, `repeats` times after a first that warms up; the figures of all ranks."""
    torch.set_num_threads(1)
    work = workload(order)
    chunks = _own_chunks(ranks, work)
    clients = [client for chunk in chunks for client in chunk]
    digests: set[str] = set()

    def bare() -> None:
        sequential_sum(work, clients)

    def ours() -> None:
        digests.add(_round(ranks, work, chunks, strategy))

    taken: dict[str, list[float]] = {"bare": [], "ours": []}
    for _ in range(repeats + 1):
        taken["bare"].append(_together(ranks, bare))
        taken["ours"].append(_together(ranks, ours))
    rate = {name: order.clients / median(seconds[1:]) for name, seconds in taken.items()}
    (digest,) = digests
    return {
        "ranks": ranks.size,
        "updates_per_second": rate["ours"],
        "bare_updates_per_second": rate["bare"],
        "ratio_to_bare": rate["ours"] / rate["bare"],
        "digest": digest,
    }


def _own_chunks(ranks: Ranks, work: Workload) -> list[range]:
    chunks = chunks_of(work.order.clients, work.task.dimension)
    costs = [training_cost(work.members[c.start : c.stop], work.training) for c in chunks]
    own = [chunks[place] for place in divide(costs, ranks.size)[ranks.rank]]
    ranks.take(client for chunk in own for client in chunk)
    return own


def _together(ranks: Ranks, part: Callable[[], None]) -> float:
    """Seconds until the last rank has done its part, begun at the same time."""
    ranks.gather(None)
    start = time.perf_counter()
    part()
    ranks.gather(None)
    return time.perf_counter() - start


def _round(ranks: Ranks, work: Workload, chunks: Sequence[range], strategy: Strategy) -> str:
    """Train, encode, add and decode; the digest of the sum."""
    rows = local_updates(
        work.task,
        work.start,
        work.split,
        work.members,
        work.training,
        np.random.default_rng(SEED),
        strategy=strategy,
        only=chunks,
    )
    setup = round_setup(work.task.dimension, work.order.clients, lambda count: bytes(count))
    aggregator = IdealAggregator(noise=_noise, ranks=ranks)
    outcome = aggregator.run(setup, CohortUpdates(rows, chunks), {})
    Pipeline(setup).decode(outcome.total, outcome.surplus)
    return hashlib.sha256(outcome.total.vector.elements.tobytes()).hexdigest()


def _noise(client: int) -> NoiseSeed:
    """The same in every process: nobody's update is at stake here."""
    return NoiseSeed(hashlib.sha256(b"bench/%d" % client).digest())


def main(text: str) -> None:
    """What torchrun starts: an order, a strategy and a number of repetitions as JSON."""
    plain, strategy, repeats = json.loads(text)
    order = Order(**{**plain, "model": SimulatedModel(plain["model"])})
    with joined() as ranks:
        figures = play(ranks, order, strategy, repeats)
        if ranks.rank == 0:
            print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1])
