"""What tuning adds to a round of the real protocol: the controller, and its second sketch."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dp import Ledger
from protocol.exchange.aggregators import RealAggregator
from protocol.goal import PrivacyGoal
from protocol.planning.policies import client_policy
from protocol.planning.training_plan import TrainingPlan
from protocol.training.private import PrivateTraining, RoundResult, measure
from secagg import Identity
from simulations.bench.timing import Figures
from sketch.controllers import AdaptTail

CLIP = 1.0
T = TypeVar("T")


def bench_controller(clients: int, dim: int, rate: float, rounds: int) -> Figures:
    """Run rounds with two sketches and a controller, and time what these two add.

    The second sketch costs every client one pass over its update, and the server one over the
    decoded mean; the controller reads a few norms. All of it is done once more after each round,
    with the same values, and timed by itself. Nobody trains here, so the shares of a real round
    are smaller.

    Seconds of a round, medians. `controller_share` is that of measuring the release and deciding,
    without a second sketch; `second_sketch_share` that of the second sketch, at all clients and at
    the server.
    """
    identities = [Identity.generate() for _ in range(clients)]
    cohort = [identity.public for identity in identities]
    plan = TrainingPlan(
        goal=PrivacyGoal(8.0, 1e-6, rounds + 1),
        cohort=clients,
        tolerated_dropouts=0,
        tolerated_colluders=0,
        clip_l2=CLIP,
    )
    # Held at one rate, whatever it would rather do, so that all rounds are alike.
    controller = AdaptTail(first_rate=rate, step_factor=1.0 + 1e-9)
    update = np.random.default_rng(0).normal(size=dim)
    update *= CLIP / np.linalg.norm(update)
    taken: dict[str, list[float]] = {"round": [], "controller": [], "second": []}
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger") as ledger:
        aggregator = RealAggregator(identities, client_policy(plan, dim))
        training = PrivateTraining(plan, dim, controller, aggregator, ledger)
        for number in range(rounds + 1):
            before = training.state
            total, result = _timed(lambda: training.run_round(cohort, bytes(32), lambda _: update))
            if number == 0:
                continue
            second = _second_sketch(result, update, clients)
            stats, released = _timed(
                partial(measure, result.setup, result.release, result.number, before.previous)
            )
            deciding, _ = _timed(partial(controller.step, before.decision.state, released))
            # Measuring the release encodes the decoded mean with the second sketch, once.
            taken["controller"].append(max(stats - second / (clients + 1), 0.0) + deciding)
            taken["second"].append(second)
            taken["round"].append(total)
    median = {name: statistics.median(seconds) for name, seconds in taken.items()}
    spec = training.state.decision.spec
    return {
        "clients": clients,
        "dim": dim,
        "sketch_size": spec.main_size,
        "second_sketch_size": spec.size - spec.main_size,
        "round_seconds": median["round"],
        "controller_seconds": median["controller"],
        "second_sketch_seconds": median["second"],
        "controller_share": median["controller"] / median["round"],
        "second_sketch_share": median["second"] / median["round"],
    }


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def _second_sketch(result: RoundResult, update: NDArray[np.float64], clients: int) -> float:
    """Seconds that the second sketch takes all clients and the server."""
    parameters = result.setup.parameters
    if parameters.sketch.probe is None:
        raise RuntimeError("the round had no second sketch")
    probe = parameters.sketch.probe.build(update.size, parameters.public_seed)
    seconds, _ = _timed(lambda: [probe.encode(update) for _ in range(clients + 1)])
    return seconds
